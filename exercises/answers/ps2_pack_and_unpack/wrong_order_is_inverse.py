"""Returns unsorted_indices in the place of sorted_indices."""

import torch

LOSES = {"ps2.pack": "order-is-inverse"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    data = torch.cat([x[order[:n], t] for t, n in enumerate(sizes)])
    return data, torch.tensor(sizes), torch.argsort(order)
