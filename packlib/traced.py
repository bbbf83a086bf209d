"""What stands in for the plan while ``torch.compile`` or ``torch.export`` looks on.

Then lengths have a shape but no values yet. What depends on values happens inside operators, which
say how large their results are; when they run they make the same plan as ever, and check the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import rnn as torch_rnn

from packlib.host import CPU, host
from packlib.layout import PIECE, Layout, check_lengths
from packlib.ops import put, take
from packlib.planning import check_total, plan, plan_grid, refuse_empty
from packlib.sequence import NOT_PACKED, PackedSequence, layout_of_sizes, whole_order

_op = torch.library.custom_op  # schemas are written out where torch 2.6 cannot read the types


def pack(grid: Tensor, lengths: Any, batch_first: bool, enforce_sorted: bool, padding_side: str,
         allow_empty: bool) -> PackedSequence:
    """``pack_padded_sequence``, for the compiler."""
    counts = lengths if isinstance(lengths, Tensor) else torch.as_tensor(lengths, device=CPU)
    made = plan_op(counts, list(grid.shape[:2]), batch_first, bool(enforce_sorted), padding_side,
                   allow_empty)
    return _packed(enforce_sorted and not allow_empty, grid.flatten(0, 1), *made)


def pack_listed(data: Tensor, lengths: Tensor, enforce_sorted: bool,
                allow_empty: bool) -> PackedSequence:
    """Pack sequences that lie end to end, data (N, *), for the compiler."""
    made = plan_op(lengths, [data.shape[0]], True, bool(enforce_sorted), "right", allow_empty)
    torch._check(made[3].shape[0] == data.shape[0])  # no new size, since this one is known
    return _packed(enforce_sorted and not allow_empty, data, *made)


def _packed(as_it_came: bool, flat: Tensor, batch_sizes: Tensor, order: Tensor, inverse: Tensor,
            rows: Tensor) -> PackedSequence:
    data = take(flat, rows.to(flat.device))
    if as_it_came:
        return PackedSequence.unchecked(data, batch_sizes, None, None)
    return PackedSequence.unchecked(data, batch_sizes, order.to(flat.device),
                                    inverse.to(flat.device))


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


class Rows(NamedTuple):
    """Whose step each packed row is: what of a ``Layout`` is asked for where it has no values."""

    lengths: Tensor  # (B,), as all of it in the user's order
    sequence: Tensor  # (N,)
    step: Tensor  # (N,)

    @property
    def num_sequences(self) -> int:
        return self.lengths.shape[0]

    @property
    def listed(self) -> Tensor:
        """Each row among the sequences laid end to end (N,)."""
        starts = self.lengths.cumsum(0) - self.lengths
        return starts[self.sequence] + self.step

    @property
    def piece(self) -> Tensor:
        """``Layout.piece`` (N,)."""
        return (self._piece_ends - self._pieces)[self.sequence] + self.step // PIECE

    @property
    def owner(self) -> Tensor:
        """``Layout.owner``, and some more: how many there may be is known, not how many are."""
        most = self.step.shape[0] // PIECE + self.num_sequences
        count = torch.arange(most, device=CPU)
        return torch.searchsorted(self._piece_ends, count, right=True).clamp(
            max=self.num_sequences - 1)

    @property
    def _pieces(self) -> Tensor:
        return (self.lengths + PIECE - 1) // PIECE

    @property
    def _piece_ends(self) -> Tensor:
        return self._pieces.cumsum(0)

    @property
    def last_step(self) -> Tensor:
        """The last row of each sequence (B,)."""
        count = torch.arange(self.step.shape[0], device=CPU)
        return torch.zeros_like(self.lengths).scatter_reduce(0, self.sequence, count, "amax")


def rows_of(packed: torch_rnn.PackedSequence, what: str = "") -> Rows:
    """``layout_of``, for the compiler. With ``what`` no sequence may be empty: it has none."""
    if not isinstance(packed, torch_rnn.PackedSequence):
        raise TypeError(NOT_PACKED.format(type(packed).__name__))
    total = packed.batch_sizes.shape[0]
    lengths, cell = grid_op(packed.batch_sizes, whole_order(packed), packed.data.shape[0], total,
                            True, "right", what)
    return Rows(lengths, cell // total, cell % total)


def num_sequences(packed: torch_rnn.PackedSequence) -> int:
    """B, by a shape alone."""
    if packed.unsorted_indices is not None:
        return packed.unsorted_indices.shape[0]
    return rows_of(packed).num_sequences


def turn(packed: torch_rnn.PackedSequence) -> Tensor:
    """Rows (N,) that turn each sequence round."""
    return turn_op(packed.batch_sizes, packed.data.shape[0]).to(packed.data.device)


def like(packed: torch_rnn.PackedSequence, data: Tensor) -> tuple[Any, ...]:
    """The fields of ``packed`` with other data."""
    torch._check(data.shape[0] == packed.data.shape[0],
                 lambda: "data must have one row for each real step")
    indices = (i if i is None or i.device == data.device else i.to(data.device)
               for i in (packed.sorted_indices, packed.unsorted_indices))
    return data, packed.batch_sizes, *indices


def to_cu_seqlens(packed: torch_rnn.PackedSequence) -> tuple[Tensor, Tensor, int]:
    """``to_cu_seqlens``, for the compiler."""
    at, data = rows_of(packed), packed.data
    rows = put(data, at.listed.to(data.device), data.shape[0])
    ends = F.pad(at.lengths.cumsum(0), (1, 0))
    return rows, ends.to(data.device, torch.int32), packed.batch_sizes.shape[0]


def without_empty(packed: PackedSequence) -> PackedSequence:
    """The sequences that have steps, numbered anew."""
    order = packed.sorted_indices
    if order is None or whole_order(packed) is order:
        return packed
    order = torch.searchsorted(order.sort().values, order)
    return PackedSequence.unchecked(packed.data, packed.batch_sizes, order, order.argsort())


def same_shape(found: Sequence[int], expected: Sequence[int]) -> bool:
    """Are the sizes equal? Those that the compiler does not know are compared when it runs."""
    if not torch.compiler.is_compiling():
        return tuple(found) == tuple(expected)
    from torch.fx.experimental.symbolic_shapes import guard_or_true

    if len(found) != len(expected):
        return False
    for one, other in zip(found, expected, strict=True):
        if not guard_or_true(one == other):
            return False
        torch._check(one == other)
    return True


@_op("packlib::plan", mutates_args=(),
     schema="(Tensor lengths, SymInt[] shape, bool batch_first, bool enforce_sorted, "
            "str padding_side, bool allow_empty=False) -> (Tensor, Tensor, Tensor, Tensor)")
def plan_op(lengths: Tensor, shape: list[int], batch_first: bool, enforce_sorted: bool,
            padding_side: str, allow_empty: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """batch_sizes (T,), order and its inverse (B,), or (0,) if sorted, rows (N,).

    Rows are those of a grid of ``shape``, (B, T) or (T, B), or of sequences end to end, (N,). With
    ``allow_empty`` there is always an order, of those sequences that have steps.
    """
    counts, in_grid = check_lengths(lengths), len(shape) == 2
    layout = (plan_grid(counts, shape, batch_first, enforce_sorted, allow_empty) if in_grid
              else plan(counts, enforce_sorted, allow_empty))
    if allow_empty and layout.order is None:
        layout = replace(layout, order=np.arange(layout.num_sequences))
    order, inverse = ((torch.zeros(0, dtype=torch.int64, device=CPU) if ints is None
                       else torch.from_numpy(ints)) for ints in (layout.started, layout.inverse))
    rows = (layout.padded(shape[1] if batch_first else shape[0], batch_first, CPU, padding_side)
            if in_grid else layout.listed(CPU))
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
            "str padding_side, str what=\"\") -> (Tensor, Tensor)")
def grid_op(batch_sizes: Tensor, order: Tensor | None, rows: int, total: int, batch_first: bool,
            padding_side: str, what: str = "") -> tuple[Tensor, Tensor]:
    """lengths (B,) in the user's order, and the cell (N,) of each packed row in a padded grid."""
    check_total(total, len(batch_sizes))
    layout = Layout.from_batch_sizes(host(batch_sizes), None if order is None else host(order))
    if what:
        refuse_empty(layout, what)
    return (torch.from_numpy(layout.lengths.copy()),
            layout.padded(total, batch_first, CPU, padding_side))


@grid_op.register_fake
def _(batch_sizes: Tensor, order: Tensor | None, rows: int, total: int, batch_first: bool,
      padding_side: str, what: str = "") -> Any:
    size = torch.library.get_ctx().new_dynamic_size() if order is None else order.shape[0]
    return tuple(torch.empty(n, dtype=torch.int64, device=CPU) for n in (size, rows))


@_op("packlib::turn", mutates_args=())
def turn_op(batch_sizes: Tensor, rows: int) -> Tensor:
    """Each sequence's steps from last to first (N,)."""
    return layout_of_sizes(batch_sizes).reversed(CPU).clone()


@turn_op.register_fake
def _(batch_sizes: Tensor, rows: int) -> Tensor:
    return torch.empty(rows, dtype=torch.int64, device=CPU)
