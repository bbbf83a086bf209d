"""Are two batches packed alike, row for row? And if not, where do they differ?"""

from __future__ import annotations

import numpy as np
from torch.nn.utils import rnn as torch_rnn

from packlib.layout import Layout
from packlib.sequence import layout_of


def same_layout(a: torch_rnn.PackedSequence, b: torch_rnn.PackedSequence) -> bool:
    """True if row ``i`` of both is the same step of the same sequence, for every ``i``.

    Then they may be joined row by row, as outputs and targets are in a loss. Trailing dimensions,
    dtypes and devices may differ.

    >>> import torch
    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.zeros(2), torch.zeros(3)], enforce_sorted=False)
    >>> q = pack_sequence([torch.zeros(3), torch.zeros(2)], enforce_sorted=False)
    >>> same_layout(p, p.map(torch.exp)), same_layout(p, q)
    (True, False)
    """
    return _difference(layout_of(a), layout_of(b)) is None


def check_same_layout(a: torch_rnn.PackedSequence, b: torch_rnn.PackedSequence,
                      names: tuple[str, str] = ("a", "b")) -> None:
    """Raise a ValueError that says where two layouts differ, if they do."""
    difference = _difference(layout_of(a), layout_of(b))
    if difference is not None:
        raise ValueError(f"{names[0]} and {names[1]} are packed differently: {difference}")


def _difference(one: Layout, other: Layout) -> str | None:
    if one is other:
        return None
    if one.num_sequences != other.num_sequences:
        return f"{one.num_sequences} sequences and {other.num_sequences}"
    if not np.array_equal(one.lengths, other.lengths):
        i = int((one.lengths != other.lengths).argmax())
        hint = (". The lengths are the same in another order: give both lists in one order"
                if np.array_equal(one.batch_sizes, other.batch_sizes) else "")
        return f"sequence {i} has {one.lengths[i]} steps and {other.lengths[i]}{hint}"
    ranks = np.arange(one.batch_sizes[0])
    order, other_order = (ranks if x.started is None else x.started for x in (one, other))
    if not np.array_equal(order, other_order):
        return ("lengths agree, but sequences of one length stand in another order "
                "(sorted_indices): pack both in the same way")
    return None
