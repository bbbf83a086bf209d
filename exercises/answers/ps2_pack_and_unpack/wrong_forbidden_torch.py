"""Calls torch's own functions."""

import torch

LOSES = {"ps2.pack": "forbidden", "ps2.unpack": "forbidden"}


def pack(x, lengths):
    p = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return p.data, p.batch_sizes, p.sorted_indices


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    p = torch.nn.utils.rnn.PackedSequence(data, batch_sizes, order, torch.argsort(order))
    return torch.nn.utils.rnn.pad_packed_sequence(p, True, padding_value, total_length)
