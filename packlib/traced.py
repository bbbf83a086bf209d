"""What stands in for the plan while ``torch.compile`` or ``torch.export`` looks on.

Then lengths have a shape but no values yet. What depends on values happens inside operators, which
say how large their results are; when they run they make the same plan as ever, and check the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.layout import Layout, check_lengths, host
from packlib.ops import put, take
from packlib.planning import check_total, plan_grid
from packlib.sequence import PackedSequence, layout_of_sizes, whole_order

_op = torch.library.custom_op  # schemas are written out where torch 2.6 cannot read the types
CPU = torch.device("cpu")


def pack(grid: Tensor, lengths: Any, batch_first: bool, enforce_sorted: bool, padding_side: str,
         allow_empty: bool) -> PackedSequence:
    """``pack_padded_sequence``, for the compiler."""
    counts = lengths if isinstance(lengths, Tensor) else torch.as_tensor(lengths, device=CPU)
    batch_sizes, order, inverse, rows = plan_op(
        counts, list(grid.shape[:2]), batch_first, bool(enforce_sorted), padding_side, allow_empty)
    data = take(grid.flatten(0, 1), rows.to(grid.device))
    if enforce_sorted and not allow_empty:
        return PackedSequence.unchecked(data, batch_sizes, None, None)
    return PackedSequence.unchecked(data, batch_sizes, order.to(grid.device),
                                    inverse.to(grid.device))


def pad(packed: torch_rnn.PackedSequence, batch_first: bool, padding_value: Any,
        total_length: int | None, padding_side: str) -> tuple[Tensor, Tensor]:
    """``pad_packed_sequence``, for the compiler."""
    data, batch_sizes, order = packed.data, packed.batch_sizes, whole_order(packed)
    total = batch_sizes.shape[0] if total_length is None else total_length
    lengths, rows = grid_op(batch_sizes, order, data.shape[0], total, batch_first, padding_side)
    size = lengths.shape[0]
    grid = put(data, rows.to(data.device), size * total, padding_value)
    shape = (size, total) if batch_first else (total, size)
    return grid.view(*shape, *data.shape[1:]), lengths


def num_sequences(packed: torch_rnn.PackedSequence) -> int:
    """B, by a shape alone."""
    if packed.unsorted_indices is not None:
        return packed.unsorted_indices.shape[0]
    rows = packed.data.shape[0]
    return grid_op(packed.batch_sizes, None, rows, packed.batch_sizes.shape[0], True, "right")[
        0].shape[0]


@_op("packlib::plan", mutates_args=(),
     schema="(Tensor lengths, SymInt[] shape, bool batch_first, bool enforce_sorted, "
            "str padding_side, bool allow_empty=False) -> (Tensor, Tensor, Tensor, Tensor)")
def plan_op(lengths: Tensor, shape: list[int], batch_first: bool, enforce_sorted: bool,
            padding_side: str, allow_empty: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """batch_sizes (T,), order and its inverse (B,), or (0,) if sorted, rows (N,).

    With ``allow_empty`` there is always an order, of those sequences that have steps.
    """
    layout = plan_grid(check_lengths(lengths), shape, batch_first, enforce_sorted, allow_empty)
    if allow_empty and layout.order is None:
        layout = replace(layout, order=np.arange(layout.num_sequences))
    total = shape[1] if batch_first else shape[0]
    order, inverse = ((torch.zeros(0, dtype=torch.int64, device=CPU) if ints is None
                       else torch.from_numpy(ints)) for ints in (layout.started, layout.inverse))
    rows = layout.padded(total, batch_first, CPU, padding_side)
    return torch.from_numpy(layout.batch_sizes), order, inverse, rows


@plan_op.register_fake
def _(lengths: Tensor, shape: list[int], batch_first: bool, enforce_sorted: bool,
      padding_side: str, allow_empty: bool = False) -> Any:
    new = torch.library.get_ctx().new_dynamic_size
    size = 0 if enforce_sorted and not allow_empty else lengths.shape[0]
    return tuple(torch.empty(n, dtype=torch.int64, device=CPU)
                 for n in (new(), new() if allow_empty else size, size, new()))


@_op("packlib::grid", mutates_args=(),
     schema="(Tensor batch_sizes, Tensor? order, SymInt rows, SymInt total, bool batch_first, "
            "str padding_side) -> (Tensor, Tensor)")
def grid_op(batch_sizes: Tensor, order: Tensor | None, rows: int, total: int, batch_first: bool,
            padding_side: str) -> tuple[Tensor, Tensor]:
    """lengths (B,) in the user's order, and the cell (N,) of each packed row in a padded grid."""
    check_total(total, len(batch_sizes))
    layout = Layout.from_batch_sizes(host(batch_sizes), None if order is None else host(order))
    return (torch.from_numpy(layout.lengths.copy()),
            layout.padded(total, batch_first, CPU, padding_side))


@grid_op.register_fake
def _(batch_sizes: Tensor, order: Tensor | None, rows: int, total: int, batch_first: bool,
      padding_side: str) -> Any:
    size = torch.library.get_ctx().new_dynamic_size() if order is None else order.shape[0]
    return tuple(torch.empty(n, dtype=torch.int64, device=CPU) for n in (size, rows))


@_op("packlib::turn", mutates_args=())
def turn_op(batch_sizes: Tensor, rows: int) -> Tensor:
    """Each sequence's steps from last to first (N,)."""
    return layout_of_sizes(batch_sizes).reversed(CPU).clone()


@turn_op.register_fake
def _(batch_sizes: Tensor, rows: int) -> Tensor:
    return torch.empty(rows, dtype=torch.int64, device=CPU)
