"""Part 1 is wrong and part 2 uses it: the mistake costs its points once."""

import torch

LOSES = {"ps2.batch_sizes": "one-step-too-many"}


def batch_sizes(lengths):
    return torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()) + 1)])


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = batch_sizes(lengths)
    return torch.cat([x[order][:n, t] for t, n in enumerate(sizes.tolist())]), sizes, order
