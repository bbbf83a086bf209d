"""Sorts x with the inverse of the order."""

import torch

LOSES = {"ps2.pack": "rows-by-inverse"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    rows = x[torch.argsort(order)]
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([rows[:n, t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order
