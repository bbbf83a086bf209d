"""Python's own sort, with the later of equal lengths first; every row is looked up."""

import torch


def batch_sizes(lengths):
    return torch.tensor([sum(n > t for n in lengths.tolist()) for t in range(max(lengths.tolist()))])


def pack(x, lengths):
    n = lengths.tolist()
    order = sorted(range(len(n)), key=lambda b: (n[b], b), reverse=True)
    cells = sorted((t, place) for place, b in enumerate(order) for t in range(n[b]))
    data = torch.stack([x[order[place]][t] for t, place in cells])
    sizes = torch.bincount(torch.tensor([t for t, _ in cells]))
    return data, sizes, torch.tensor(order)


def lengths_from_batch_sizes(batch_sizes):
    sizes = batch_sizes.tolist()
    return torch.tensor([max(t for t, s in enumerate(sizes) if s > b) + 1 for b in range(sizes[0])])


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    sequences = {b: [] for b in order.tolist()}
    rows = iter(data)
    for size in batch_sizes.tolist():
        for b in order.tolist()[:size]:
            sequences[b].append(next(rows))
    lengths = [len(sequences[b]) for b in range(len(order))]
    T = total_length or max(lengths)
    pad = torch.full_like(data[0], padding_value)
    x = [torch.stack(sequences[b] + [pad] * (T - lengths[b])) for b in range(len(order))]
    return torch.stack(x), torch.tensor(lengths)


def pack_without_loops(x, lengths):
    n, order = lengths.flip(0).sort(descending=True)
    order = len(lengths) - 1 - order
    steps = torch.arange(int(n[0])).unsqueeze(1)
    return x[order].transpose(0, 1)[: len(steps)][steps < n], (steps < n).sum(1), order
