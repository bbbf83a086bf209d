"""Goes as far as x is wide."""

import torch

LOSES = {"ps2.pack": "steps-from-width", "ps2.pack_without_loops": "steps-from-width"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths > t).sum()) for t in range(x.shape[1])]
    return torch.cat([x[order[:n], t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order


def pack_without_loops(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    mask = torch.arange(x.shape[1])[:, None] < n
    return x[order].transpose(0, 1)[mask], mask.sum(1), order
