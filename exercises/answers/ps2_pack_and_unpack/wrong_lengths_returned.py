"""Takes batch_sizes for the lengths."""

import torch

LOSES = {"ps2.batch_sizes": "lengths-returned"}


def batch_sizes(lengths):
    return lengths
