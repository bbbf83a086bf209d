"""Calls packlib's own functions, and its arithmetic."""

import torch

import packlib.layout

LOSES = {"ps2.batch_sizes": "forbidden", "ps2.pack": "forbidden", "ps2.lengths": "forbidden"}


def batch_sizes(lengths):
    return torch.from_numpy(packlib.layout.conjugate(lengths.numpy()))


def pack(x, lengths):
    p = packlib.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return p.data, p.batch_sizes, p.sorted_indices


def lengths_from_batch_sizes(batch_sizes):
    return torch.from_numpy(packlib.layout.conjugate(batch_sizes.numpy()))
