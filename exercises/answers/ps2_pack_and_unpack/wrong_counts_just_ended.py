""">= in the place of >."""

import torch

LOSES = {"ps2.batch_sizes": "counts-just-ended"}


def batch_sizes(lengths):
    return torch.tensor([sum(n >= t for n in lengths.tolist()) for t in range(int(lengths.max()))])
