"""The return line is missing."""

import torch

LOSES = {"ps2.batch_sizes": "not-plain", "ps2.unpack": "not-plain"}


def batch_sizes(lengths):
    sizes = torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    x = data.new_zeros(len(order), len(batch_sizes))
