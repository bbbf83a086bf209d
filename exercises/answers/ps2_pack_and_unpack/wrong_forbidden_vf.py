"""Calls the operator through torch._VF."""

import torch

LOSES = {"ps2.pack": "forbidden", "ps2.pack_without_loops": "forbidden"}


def pack(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    data, sizes = torch._VF._pack_padded_sequence(x[order], n, True)
    return data, sizes, order


def pack_without_loops(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    with torch.inference_mode():
        data, sizes = torch._C._VariableFunctions._pack_padded_sequence(x[order], n, True)
    return data, sizes, order
