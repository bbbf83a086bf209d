"""Finds the falls of batch_sizes and forgets how deep they are."""

import torch

LOSES = {"ps2.lengths": "only-different-lengths"}


def lengths_from_batch_sizes(batch_sizes):
    sizes = batch_sizes.tolist() + [0]
    return torch.tensor([t + 1 for t in range(len(sizes) - 1) if sizes[t] != sizes[t + 1]][::-1])
