"""Right numbers in a list."""

import torch

LOSES = {"ps2.batch_sizes": "list-for-tensor", "ps2.pack": "list-for-tensor"}


def batch_sizes(lengths):
    return [int((lengths > t).sum()) for t in range(int(lengths.max()))]


def pack(x, lengths):
    order = sorted(range(len(lengths)), key=lambda b: -int(lengths[b]))
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([x[order][:n, t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order
