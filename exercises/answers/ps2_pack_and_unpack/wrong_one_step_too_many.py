"""Goes on until nobody runs, and counts that too."""

import torch

LOSES = {"ps2.batch_sizes": "one-step-too-many"}


def batch_sizes(lengths):
    sizes, t = [], 0
    while not sizes or sizes[-1] > 0:
        sizes.append(int((lengths > t).sum()))
        t += 1
    return torch.tensor(sizes)
