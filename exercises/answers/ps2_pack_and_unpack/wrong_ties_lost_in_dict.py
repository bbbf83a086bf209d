"""Keeps the sequences in a dict by length: of two that share one, the last stays."""

import torch

LOSES = {"ps2.pack": "ties-lost"}


def pack(x, lengths):
    by_length = {n: b for b, n in enumerate(lengths.tolist())}
    order = [by_length[n] for n in sorted(by_length, reverse=True)]
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    data = torch.cat([x[order][:n, t] for t, n in enumerate(sizes)])
    return data, torch.tensor(sizes), torch.tensor(order)
