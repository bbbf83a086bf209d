"""Returns (T, B, F)."""

import torch

LOSES = {"ps2.unpack": "time-first"}


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    lengths = lengths_from_batch_sizes(batch_sizes)
    x = data.new_full((total_length or len(batch_sizes), len(order), *data.shape[1:]), padding_value)
    row = 0
    for t, n in enumerate(batch_sizes.tolist()):
        x[t, order[:n]] = data[row : row + n]
        row += n
    return x, lengths[torch.argsort(order)]
