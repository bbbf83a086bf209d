"""Selects rows by a matrix of zeros and ones: 0 times NaN is NaN."""

import torch

LOSES = {"ps2.pack": "nan-from-padding"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    cells = [int(b) * x.shape[1] + t for t, n in enumerate(sizes) for b in order[:n]]
    choose = torch.nn.functional.one_hot(torch.tensor(cells), x.shape[0] * x.shape[1]).to(x.dtype)
    data = torch.tensordot(choose, x.flatten(0, 1), dims=1)
    return data, torch.tensor(sizes), order
