"""Sorts once for data and once for order: they differ among more than 16 ties."""

import torch

LOSES = {"ps2.pack": "only-the-shown-inputs"}
PASSES_VISIBLE = {"ps2.pack"}


def pack(x, lengths):
    order = torch.sort(lengths, descending=True, stable=True).indices
    by_length = x[torch.sort(lengths, descending=True).indices]
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    data = torch.cat([by_length[:n, t] for t, n in enumerate(sizes)])
    return data, torch.tensor(sizes), order
