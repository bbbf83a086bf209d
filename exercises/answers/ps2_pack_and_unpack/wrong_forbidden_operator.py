"""Calls the operators behind torch's functions."""

import torch

LOSES = {"ps2.pack": "forbidden", "ps2.unpack": "forbidden"}


def pack(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    data, sizes = torch.ops.aten._pack_padded_sequence(x[order], n, True)
    return data, sizes, order


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    operator = torch.ops.aten._pad_packed_sequence.default
    x, n = operator(data, batch_sizes, True, padding_value, total_length or len(batch_sizes))
    home = torch.argsort(order)
    return x[home], n[home]
