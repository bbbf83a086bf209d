"""Computes the order and forgets to use it."""

import torch

LOSES = {"ps2.pack": "order-without-rows"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([x[:n, t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order
