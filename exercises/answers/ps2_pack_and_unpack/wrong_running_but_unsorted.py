"""Takes the running sequences in the user's order."""

import torch

LOSES = {"ps2.pack": "running-but-unsorted"}


def pack(x, lengths):
    rows, sizes = [], []
    for t in range(int(lengths.max())):
        alive = [b for b in range(len(x)) if lengths[b] > t]
        rows += [x[b, t] for b in alive]
        sizes.append(len(alive))
    return torch.stack(rows), torch.tensor(sizes), torch.arange(len(x))
