"""len(lengths) in the place of the longest."""

import torch

LOSES = {"ps2.batch_sizes": "steps-from-number-of-sequences"}


def batch_sizes(lengths):
    return torch.stack([(lengths > t).sum() for t in range(len(lengths))])
