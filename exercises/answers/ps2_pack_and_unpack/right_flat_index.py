"""One flat gather and one flat scatter."""

import torch


def batch_sizes(lengths):
    return torch.ones(len(lengths), int(lengths.max())).cumsum(1).le(lengths[:, None]).sum(0)


def pack(x, lengths):
    order = lengths.argsort(descending=True, stable=True)
    T = x.shape[1]
    keys = torch.arange(T)[None, :] * len(x) + torch.argsort(order)[:, None]
    flat = torch.where(torch.arange(T) < lengths[:, None], keys, len(x) * T).flatten()
    chosen = flat.argsort()[: int(lengths.sum())]
    return x.flatten(0, 1).index_select(0, chosen), batch_sizes(lengths), order


def lengths_from_batch_sizes(batch_sizes):
    place = torch.cat([torch.arange(int(size)) for size in batch_sizes])
    return torch.zeros(int(batch_sizes[0]), dtype=torch.int64).index_add(
        0, place, torch.ones_like(place)
    )


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    T = total_length or len(batch_sizes)
    t = torch.arange(len(batch_sizes)).repeat_interleave(batch_sizes)
    place = torch.cat([torch.arange(int(size)) for size in batch_sizes])
    x = torch.full((len(order) * T, *data.shape[1:]), padding_value, dtype=data.dtype)
    x.index_copy_(0, order[place] * T + t, data)
    return x.unflatten(0, (len(order), T)), torch.bincount(order[place])


def pack_without_loops(x, lengths):
    return pack(x, lengths)
