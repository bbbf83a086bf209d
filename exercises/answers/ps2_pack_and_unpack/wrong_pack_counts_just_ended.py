"""One padding of each ended sequence gets in."""

import torch

LOSES = {"ps2.pack": "counts-just-ended"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths >= t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([x[order[:n], t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order
