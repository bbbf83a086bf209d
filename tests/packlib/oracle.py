"""The answers in plain Python: loops over lists, slow and easy to read; and strict comparisons."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = ("view", "slice", "narrow", "detach", "alias", "expand", "select.int", "t.default",
         "transpose", "split", "unsafe_split", "unsqueeze", "squeeze", "permute", "unbind",
         "as_strided", "lift_fresh")


def batch_sizes(lengths):
    return [sum(n > t for n in lengths) for t in range(max(lengths))]


def packed_rows(sequences, order):
    """The packed rows: step by step, and in each step the sequences that last, in ``order``."""
    longest = max(len(s) for s in sequences)
    return torch.stack([sequences[i][t] for t in range(longest) for i in order
                        if t < len(sequences[i])])


def padded(sequences, total, batch_first, value, side="right"):
    like = sequences[0]
    rows = []
    for s in sequences:
        pads = torch.full((total - len(s), *like.shape[1:]), value, dtype=like.dtype)
        rows.append(torch.cat([pads, s] if side == "left" else [s, pads]))
    return torch.stack(rows, dim=0 if batch_first else 1)


def same(found, expected):
    """Bit for bit: value, dtype, device and shape; NaN equals NaN."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def same_fields(found, expected):
    """All four fields of a packed batch, None included."""
    for name in ("data", "batch_sizes", "sorted_indices", "unsorted_indices"):
        one, other = getattr(found, name), getattr(expected, name)
        if other is None:
            assert one is None, name
        else:
            same(one, other)


class Work(TorchDispatchMode):
    """Counts the calls to torch's kernels that move data; views are free."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).removeprefix("aten.")
        if not name.startswith(VIEWS):
            self.names.append(name)
        return func(*args, **(kwargs or {}))
