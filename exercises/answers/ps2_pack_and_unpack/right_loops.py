"""Plain loops, one element after another."""

import torch


def batch_sizes(lengths):
    lengths = lengths.tolist()
    result = []
    for t in range(max(lengths)):
        count = 0
        for n in lengths:
            if n > t:
                count += 1
        result.append(count)
    return torch.tensor(result)


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    rows, sizes = [], []
    for t in range(int(lengths.max())):
        size = 0
        for b in order:
            if lengths[b] > t:
                rows.append(x[b, t])
                size += 1
        sizes.append(size)
    return torch.stack(rows), torch.tensor(sizes), order


def lengths_from_batch_sizes(batch_sizes):
    lengths = [0] * int(batch_sizes[0])
    for size in batch_sizes.tolist():
        for b in range(size):
            lengths[b] += 1
    return torch.tensor(lengths)


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    B, T = len(order), len(batch_sizes)
    if total_length is not None:
        T = total_length
    x = torch.full((B, T) + tuple(data.shape[1:]), padding_value, dtype=data.dtype)
    lengths = torch.zeros(B, dtype=torch.long)
    row = 0
    for t in range(len(batch_sizes)):
        for place in range(int(batch_sizes[t])):
            b = order[place]
            x[b, t] = data[row]
            lengths[b] += 1
            row += 1
    return x, lengths


def pack_without_loops(x, lengths):
    order = lengths.argsort(descending=True)
    mask = torch.arange(x.shape[1]) < lengths[order][:, None]
    sizes = mask.sum(0)
    return x[order].transpose(0, 1)[mask.T], sizes[sizes > 0], order
