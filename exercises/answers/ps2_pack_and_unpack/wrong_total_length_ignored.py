"""As wide as the longest sequence, always."""

import torch

LOSES = {"ps2.unpack": "total-length-ignored"}


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    lengths = lengths_from_batch_sizes(batch_sizes)
    x = data.new_full((len(order), len(batch_sizes), *data.shape[1:]), padding_value)
    row = 0
    for t, n in enumerate(batch_sizes.tolist()):
        x[order[:n], t] = data[row : row + n]
        row += n
    return x, lengths[torch.argsort(order)]
