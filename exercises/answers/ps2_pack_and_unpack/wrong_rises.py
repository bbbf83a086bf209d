"""Builds the list from its end."""

import torch

LOSES = {"ps2.batch_sizes": "rises"}


def batch_sizes(lengths):
    return torch.tensor([int((lengths > t).sum()) for t in reversed(range(int(lengths.max())))])
