"""Does not sort at all."""

import torch

LOSES = {"ps2.pack": "no-sort"}


def pack(x, lengths):
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    data = torch.cat([x[:n, t] for t, n in enumerate(sizes)])
    return data, torch.tensor(sizes), torch.arange(len(x))
