"""Are two batches packed alike, row for row? And if not, where do they differ?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.host import host
from packlib.layout import Layout, eager_only
from packlib.sequence import layout_of, whole_order


def same_layout(a: torch_rnn.PackedSequence, b: torch_rnn.PackedSequence) -> bool:
    """True if row ``i`` of both is the same step of the same sequence, for every ``i``.

    Then they may be joined row by row, as outputs and targets are in a loss. Trailing dimensions,
    dtypes and devices may differ.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.zeros(2), torch.zeros(3)], enforce_sorted=False)
    >>> q = pack_sequence([torch.zeros(3), torch.zeros(2)], enforce_sorted=False)
    >>> same_layout(p, p.map(torch.exp)), same_layout(p, q)
    (True, False)
    """
    eager_only("same_layout", "a loss or packed_attention checks it by itself")
    return _difference(layout_of(a), layout_of(b)) is None


def check_same_layout(a: torch_rnn.PackedSequence, b: torch_rnn.PackedSequence,
                      names: tuple[str, str] = ("a", "b")) -> None:
    """Raise a ValueError that says where two layouts differ, if they do."""
    if torch.compiler.is_compiling():
        order, other = whole_order(a), whole_order(b)
        if not (a.batch_sizes is b.batch_sizes and order is other):
            same = alike_op(a.batch_sizes, order, b.batch_sizes, other, *names)
            torch._assert_async(same, "packed differently")  # keeps the operator in the graph
            torch._check(a.data.shape[0] == b.data.shape[0], lambda: "packed differently")
        return
    _check(layout_of(a), layout_of(b), names)


def _check(one: Layout, other: Layout, names: tuple[str, str]) -> None:
    difference = _difference(one, other)
    if difference is not None:
        raise ValueError(f"{names[0]} and {names[1]} are packed differently: {difference}")


@torch.library.custom_op("packlib::alike", mutates_args=(),
                         schema="(Tensor sizes, Tensor? order, Tensor other_sizes, "
                                "Tensor? other_order, str name, str other_name) -> Tensor")
def alike_op(sizes: Tensor, order: Tensor | None, other_sizes: Tensor, other_order: Tensor | None,
             name: str, other_name: str) -> Tensor:
    """True, or an error: for the compiler, which sees no values."""
    one, other = (Layout.from_batch_sizes(host(s), None if o is None else host(o))
                  for s, o in ((sizes, order), (other_sizes, other_order)))
    _check(one, other, (name, other_name))
    return torch.ones((), dtype=torch.bool, device="cpu")


@alike_op.register_fake
def _(*_: Any) -> Tensor:
    return torch.empty((), dtype=torch.bool, device="cpu")


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
