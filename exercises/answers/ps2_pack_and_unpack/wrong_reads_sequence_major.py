"""Cuts data by the lengths."""

import torch

LOSES = {"ps2.unpack": "reads-sequence-major"}


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    lengths = lengths_from_batch_sizes(batch_sizes)
    x = data.new_full((len(order), total_length or len(batch_sizes), *data.shape[1:]), padding_value)
    for b, piece in zip(order, data.split(lengths.tolist())):
        x[b, : len(piece)] = piece
    return x, lengths[torch.argsort(order)]
