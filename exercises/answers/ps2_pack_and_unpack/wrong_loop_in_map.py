"""The bonus with map and functions written in C."""

import torch

LOSES = {"ps2.pack_without_loops": "loops"}


def pack_without_loops(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    sizes = (torch.arange(int(n[0]))[:, None] < n).sum(1)
    steps = x[order].transpose(0, 1)
    return torch.cat(list(map(torch.Tensor.__getitem__, steps, map(slice, sizes.tolist())))), sizes, order
