"""Knows x with exactly one F: tokens have none."""

import torch

LOSES = {"ps2.pack": "raises"}


def pack(x, lengths):
    B, T, F = x.shape
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([x[order[:n], t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order
