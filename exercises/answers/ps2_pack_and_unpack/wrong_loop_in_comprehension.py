"""The bonus with a comprehension."""

import torch

LOSES = {"ps2.pack_without_loops": "loops"}


def pack_without_loops(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    sizes = (torch.arange(int(n[0]))[:, None] < n).sum(1)
    return torch.cat([x[order[:size], t] for t, size in enumerate(sizes)]), sizes, order
