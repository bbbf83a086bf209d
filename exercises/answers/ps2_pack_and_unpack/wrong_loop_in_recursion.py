"""The bonus with recursion."""

import torch

LOSES = {"ps2.pack_without_loops": "loops"}


def steps_from(t, x, alive, lengths):
    alive = alive[lengths[alive] > t]
    return [x[alive, t]] + steps_from(t + 1, x, alive, lengths) if len(alive) else []


def pack_without_loops(x, lengths):
    order = torch.argsort(lengths, descending=True)
    steps = steps_from(0, x, order, lengths)
    sizes = (torch.arange(int(lengths.max()))[:, None] < lengths).sum(1)
    return torch.cat(steps), sizes, order
