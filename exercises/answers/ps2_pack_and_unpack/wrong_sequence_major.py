"""Concatenates the sequences."""

import torch

LOSES = {"ps2.pack": "sequence-major"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    data = torch.cat([x[b][: lengths[b]] for b in order])
    sizes = torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])
    return data, sizes, order
