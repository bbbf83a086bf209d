"""Finds each sequence by its length: of two that share one, the first is found twice."""

import torch

LOSES = {"ps2.pack": "ties-lost"}


def pack(x, lengths):
    known = lengths.tolist()
    order = [known.index(n) for n in sorted(known, reverse=True)]
    sizes = [sum(n > t for n in known) for t in range(max(known))]
    data = torch.cat([x[order][:n, t] for t, n in enumerate(sizes)])
    return data, torch.tensor(sizes), torch.tensor(order)
