"""A boolean mask on x: the right cells in the wrong order."""

import torch

LOSES = {"ps2.pack": "sequence-major-unsorted", "ps2.pack_without_loops": "sequence-major-unsorted"}


def pack(x, lengths):
    mask = torch.arange(x.shape[1]) < lengths[:, None]
    return x[mask], mask.sum(0)[: int(lengths.max())], torch.argsort(lengths, descending=True)


def pack_without_loops(x, lengths):
    return pack(x, lengths)
