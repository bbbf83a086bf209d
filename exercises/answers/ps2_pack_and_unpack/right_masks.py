"""Masks and broadcasting, nothing in Python."""

import torch


def batch_sizes(lengths):
    return (torch.arange(int(lengths.max()))[:, None] < lengths).sum(1)


def pack(x, lengths):
    order = lengths.sort(descending=True, stable=True).indices
    t, place = torch.nonzero(
        torch.arange(int(lengths.max()))[:, None] < lengths[order], as_tuple=True
    )
    return x[order[place], t], torch.bincount(t), order


def lengths_from_batch_sizes(batch_sizes):
    return (batch_sizes[:, None] > torch.arange(int(batch_sizes[0]))).sum(0)


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    mask = batch_sizes[:, None] > torch.arange(len(order))
    x = data.new_full((len(batch_sizes), len(order), *data.shape[1:]), padding_value)
    x[mask] = data
    more = (total_length or len(batch_sizes)) - len(batch_sizes)
    x = torch.cat([x, data.new_full((more, *x.shape[1:]), padding_value)])
    home = order.argsort()
    return x.transpose(0, 1)[home], mask.sum(0)[home]


def pack_without_loops(x, lengths):
    return pack(x, lengths)
