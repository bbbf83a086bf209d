"""Undoes the sort with the order itself: right whenever it is its own inverse."""

import torch

LOSES = {"ps2.unpack": "sorts-again"}


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    lengths = torch.tensor([int((batch_sizes > b).sum()) for b in range(int(batch_sizes[0]))])
    x = data.new_full((len(lengths), total_length or len(batch_sizes), *data.shape[1:]), padding_value)
    row = 0
    for t, n in enumerate(batch_sizes.tolist()):
        x[:n, t] = data[row : row + n]
        row += n
    return x[order], lengths[order]
