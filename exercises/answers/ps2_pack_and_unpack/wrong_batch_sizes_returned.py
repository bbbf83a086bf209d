"""Takes the lengths for batch_sizes."""

import torch

LOSES = {"ps2.lengths": "batch-sizes-returned"}


def lengths_from_batch_sizes(batch_sizes):
    return batch_sizes.clone()
