"""squeeze() eats the dimension of a batch with one sequence."""

import torch

LOSES = {"ps2.batch_sizes": "raises"}


def batch_sizes(lengths):
    lengths = lengths.squeeze()
    return torch.tensor([sum(int(n) > t for n in lengths) for t in range(int(lengths.max()))])
