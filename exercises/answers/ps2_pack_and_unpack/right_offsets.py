"""Index arithmetic: where each row of data begins, with int32 on the way."""

import torch


def batch_sizes(lengths):
    ended = torch.bincount(lengths.int()).int().cumsum(0)
    return (len(lengths) - ended[:-1]).long()


def pack(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    sizes = batch_sizes(lengths)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)[:-1]])
    data = torch.empty((int(n.sum()), *x.shape[2:]), dtype=x.dtype)
    for place, b in enumerate(order):
        data[starts[: n[place]] + place] = x[b, : n[place]]
    return data, sizes, order


def lengths_from_batch_sizes(batch_sizes):
    return batch_sizes_again(batch_sizes)


def batch_sizes_again(counts):
    return (len(counts) - torch.bincount(counts).cumsum(0))[:-1]


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    n = batch_sizes_again(batch_sizes)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), batch_sizes.cumsum(0)[:-1]])
    T = max(len(starts), total_length or 0)
    x = data.new_full((len(n), T) + data.shape[1:], padding_value)
    lengths = torch.zeros_like(n)
    for place, b in enumerate(order.tolist()):
        x[b, : n[place]] = data[starts[: n[place]] + place]
        lengths[b] = n[place]
    return x, lengths


def pack_without_loops(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    sizes = batch_sizes(lengths)
    t = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    starts = sizes.cumsum(0) - sizes
    place = torch.arange(len(t)) - starts[t]
    return x[order[place], t], sizes, order
