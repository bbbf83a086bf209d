"""Reads beyond the end of x."""

import torch

LOSES = {"ps2.pack": "raises"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    rows = [x[b, t + 1] for t in range(x.shape[1]) for b in order if lengths[b] > t]
    return torch.stack(rows), batch_sizes(lengths), order
