"""The counter never moves."""

import torch

LOSES = {"ps2.batch_sizes": "endless"}


def batch_sizes(lengths):
    sizes, t = [], 0
    while t < lengths.max():
        sizes = [int((lengths > t).sum())]
    return torch.tensor(sizes)
