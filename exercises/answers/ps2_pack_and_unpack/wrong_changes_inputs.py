"""Counts the lengths down, in the caller's own tensor, and writes zeros into x."""

import torch

LOSES = {"ps2.pack": "changes-inputs", "ps2.pack_without_loops": "changes-inputs"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    rows, sizes, t = [], [], 0
    while (lengths > 0).any():
        alive = [b for b in order.tolist() if lengths[b] > 0]
        rows += [x[b, t] for b in alive]
        sizes.append(len(alive))
        lengths -= 1
        t += 1
    return torch.stack(rows), torch.tensor(sizes), order


def pack_without_loops(x, lengths):
    x[torch.arange(x.shape[1]) >= lengths[:, None]] = 0
    n, order = torch.sort(lengths, descending=True)
    mask = torch.arange(int(n[0]))[:, None] < n
    return x[order].transpose(0, 1)[: len(mask)][mask], mask.sum(1), order
