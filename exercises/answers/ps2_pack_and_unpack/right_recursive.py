"""Recursion in the place of loops."""

import torch


def batch_sizes(lengths):
    def from_step(t):
        size = int((lengths > t).sum())
        return [size] + from_step(t + 1) if size else []

    return torch.tensor(from_step(0))


def pack(x, lengths):
    order = lengths.argsort(descending=True)

    def steps(alive, t):
        alive = alive[lengths[alive] > t]
        return [x[alive, t], *steps(alive, t + 1)] if len(alive) else []

    parts = steps(order, 0)
    return torch.cat(parts), torch.tensor([len(part) for part in parts]), order


def lengths_from_batch_sizes(batch_sizes):
    if len(batch_sizes) == 0:
        return torch.zeros(0, dtype=torch.int64)
    size, rest = int(batch_sizes[0]), lengths_from_batch_sizes(batch_sizes[1:])
    return 1 + torch.cat([rest, rest.new_zeros(size - len(rest))])


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    width = total_length if total_length else len(batch_sizes)
    lengths = lengths_from_batch_sizes(batch_sizes)
    x = data.new_full((len(order), width, *data.shape[1:]), padding_value)

    def fill(t, start):
        if t < len(batch_sizes):
            stop = start + int(batch_sizes[t])
            x[order[: stop - start], t] = data[start:stop]
            fill(t + 1, stop)

    fill(0, 0)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return x, lengths[back]


def pack_without_loops(x, lengths):
    order = torch.argsort(-lengths)
    step = torch.arange(x.shape[1]).expand(len(x), -1)
    running = (step < lengths[:, None])[order]
    return x[order].swapaxes(0, 1)[running.T], running.sum(0)[: int(lengths.max())], order
