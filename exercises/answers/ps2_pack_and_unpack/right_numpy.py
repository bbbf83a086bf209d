"""numpy inside, tensors outside."""

import numpy as np
import torch


def batch_sizes(lengths):
    n = lengths.numpy()
    return torch.from_numpy(np.array([np.count_nonzero(n > t) for t in range(n.max())]))


def pack(x, lengths):
    n, cells = lengths.numpy(), x.numpy()
    order = np.argsort(-n, kind="stable")
    rows = [cells[b, t] for t in range(n.max()) for b in order if n[b] > t]
    sizes = np.add.reduce(np.arange(n.max())[:, None] < n, axis=1)
    return torch.from_numpy(np.stack(rows)), torch.from_numpy(sizes), torch.from_numpy(order)


def lengths_from_batch_sizes(batch_sizes):
    falls = -np.diff(batch_sizes.numpy(), append=0)
    return torch.from_numpy(np.repeat(np.arange(1, len(falls) + 1), falls)[::-1].copy())


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    rows, sizes, ranks = data.numpy(), batch_sizes.numpy(), order.numpy()
    width = len(sizes) if total_length is None else total_length
    x = np.full((len(ranks), width) + rows.shape[1:], padding_value).astype(rows.dtype)
    ends = np.cumsum(sizes)
    for t, (start, stop) in enumerate(zip(ends - sizes, ends)):
        x[ranks[: stop - start], t] = rows[start:stop]
    lengths = np.zeros(len(ranks), dtype=np.int64)
    lengths[ranks] = lengths_from_batch_sizes(batch_sizes).numpy()
    return torch.from_numpy(x), torch.from_numpy(lengths)


def pack_without_loops(x, lengths):
    n = lengths.numpy()
    order = np.argsort(-n)
    t, place = np.nonzero(np.arange(n.max())[:, None] < n[order])
    sizes = np.bincount(t)
    data = x.numpy()[order[place], t]
    return torch.from_numpy(data), torch.from_numpy(sizes), torch.from_numpy(order)
