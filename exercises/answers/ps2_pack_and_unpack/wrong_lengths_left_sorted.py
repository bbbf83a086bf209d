"""Puts the rows back and forgets the lengths."""

import torch

LOSES = {"ps2.unpack": "lengths-left-sorted"}


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    lengths = lengths_from_batch_sizes(batch_sizes)
    x = data.new_full((len(order), total_length or len(batch_sizes), *data.shape[1:]), padding_value)
    row = 0
    for t, n in enumerate(batch_sizes.tolist()):
        x[order[:n], t] = data[row : row + n]
        row += n
    return x, lengths
