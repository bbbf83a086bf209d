"""Takes zeros for padding."""

import torch

LOSES = {"ps2.pack": "drops-zero-vectors"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])
    rows = torch.cat([x[order[:n], t] for t, n in enumerate(sizes.tolist())])
    return rows[(rows != 0).flatten(1).any(1) if rows.dim() > 1 else rows != 0], sizes, order
