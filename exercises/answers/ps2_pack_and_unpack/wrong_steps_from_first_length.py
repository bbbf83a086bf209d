"""Believes that the first sequence is the longest."""

import torch

LOSES = {"ps2.batch_sizes": "steps-from-first-length", "ps2.pack": "steps-from-first-length"}


def batch_sizes(lengths):
    return torch.tensor([int((lengths > t).sum()) for t in range(lengths[0])])


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths > t).sum()) for t in range(lengths[0])]
    return torch.cat([x[order[:n], t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order
