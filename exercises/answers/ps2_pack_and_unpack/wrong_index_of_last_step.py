"""The last step at which each sequence runs, not how many steps."""

import torch

LOSES = {"ps2.lengths": "index-of-last-step"}


def lengths_from_batch_sizes(batch_sizes):
    sizes = batch_sizes.tolist()
    return torch.tensor([max(t for t, s in enumerate(sizes) if s > b) for b in range(sizes[0])])
