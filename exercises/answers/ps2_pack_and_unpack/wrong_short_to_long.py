"""argsort without descending."""

import torch

LOSES = {"ps2.pack": "short-to-long", "ps2.lengths": "short-to-long"}


def pack(x, lengths):
    order = torch.argsort(lengths)
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([x[order[:n], t] for t, n in enumerate(sizes)]), torch.tensor(sizes), order


def lengths_from_batch_sizes(batch_sizes):
    lengths = [int((batch_sizes > b).sum()) for b in range(int(batch_sizes[0]))]
    return torch.tensor(sorted(lengths))
