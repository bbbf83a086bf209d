"""Collects into a float32 tensor, whatever x is."""

import torch

LOSES = {"ps2.pack": "other-dtype", "ps2.unpack": "other-dtype"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    data = torch.zeros(int(lengths.sum()), *x.shape[2:])
    row = 0
    for t, n in enumerate(sizes):
        data[row : row + n] = x[order[:n], t]
        row += n
    return data, torch.tensor(sizes), order


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    lengths = lengths_from_batch_sizes(batch_sizes)
    x = torch.full((len(order), total_length or len(batch_sizes), *data.shape[1:]), padding_value)
    row = 0
    for t, n in enumerate(batch_sizes.tolist()):
        x[order[:n], t] = data[row : row + n].float()
        row += n
    return x, lengths[torch.argsort(order)]
