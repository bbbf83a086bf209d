"""The laws of packing, each a small named function.

``law(call, batches)`` asks the student's function through a boundary, ``call(*plain) -> plain``, on
one batch after another, and gives None, or the first Breach. A law never looks at how the answer
was made. Laws are read in order: each one may lean on those before it in its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .boundary import Fault
from .grids import Row, cells_of_padded, cells_of_rows, numbers
from .plain import same
from .ragged import Ragged

Call = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Difference:
    """Expected against found, as rows of short cells to be drawn side by side."""

    expected: list[Row]
    found: list[Row]
    remark: str = ""


@dataclass(frozen=True)
class Breach:
    """One law, broken on one batch."""

    law: str
    batch: Ragged
    difference: Difference | None = None
    fault: Fault | None = None

    @property
    def kind(self) -> str:
        return self.fault.kind if self.fault else "value"

    def like(self, other: Breach) -> bool:
        """The same law broken in the same way, on whatever batch."""
        ways = [breach.fault.text if breach.fault else "" for breach in (self, other)]
        return self.law == other.law and self.kind == other.kind and ways[0] == ways[1]


@dataclass(frozen=True)
class Law:
    """A named law; ``at`` tests it on one batch."""

    name: str
    at: Callable[[Call, Ragged], Difference | None]

    def __call__(self, call: Call, batches: Iterable[Ragged]) -> Breach | None:
        for batch in batches:
            try:
                difference = self.at(call, batch)
            except Fault as fault:
                return Breach(fault.law, batch, fault=fault)
            if difference is not None:
                return Breach(self.name, batch, difference)
        return None


def law(name: str) -> Callable[[Callable[[Call, Ragged], Difference | None]], Law]:
    return lambda at: Law(name, at)


def _unequal(name: str, expected: Iterable[int], found: Tensor) -> Difference | None:
    want = list(expected)
    if found.dim() == 1 and found.tolist() == want:
        return None
    if found.dim() != 1:
        shape = tuple(found.shape)
        remark = f"{name} has one dimension, ({len(want)},); yours has the shape {shape}."
        return Difference([(name, numbers(want))], [(name, ("...",))], remark)
    return Difference([(name, numbers(want))], [(name, numbers(found.tolist()))])


def _same_dtype(law: Law, name: str, found: Tensor, like: Tensor | None = None) -> None:
    """The dtype of ``like``, else int64; a hidden input's dtype is not told."""
    wanted = torch.int64 if like is None else like.dtype
    if found.dtype != wanted:
        must = "be int64" if like is None else "keep the dtype of the input"
        kind = str(found.dtype).removeprefix("torch.")
        raise Fault("other-dtype", law.name, f"{name} is {kind}. It must {must}.")


# --- batch_sizes and lengths: each is the conjugate of the other


@law("batch_sizes count the running sequences")
def batch_sizes_count(call: Call, batch: Ragged) -> Difference | None:
    (found,) = call(*batch.as_lengths())
    return _unequal("batch_sizes", batch.batch_sizes, found)


@law("lengths count the steps of each sequence, long to short")
def lengths_count(call: Call, batch: Ragged) -> Difference | None:
    (found,) = call(*batch.as_batch_sizes())
    return _unequal("lengths", sorted(batch.lengths, reverse=True), found)


@law("batch_sizes are int64")
def batch_sizes_are_int64(call: Call, batch: Ragged) -> Difference | None:
    (found,) = call(*batch.as_lengths())
    _same_dtype(batch_sizes_are_int64, "batch_sizes", found)
    return None


@law("lengths are int64")
def lengths_are_int64(call: Call, batch: Ragged) -> Difference | None:
    (found,) = call(*batch.as_batch_sizes())
    _same_dtype(lengths_are_int64, "lengths", found)
    return None


# --- pack


@law("order sorts the lengths, long to short")
def order_sorts(call: Call, batch: Ragged) -> Difference | None:
    order = call(*batch.as_padded())[2]
    found = order.tolist() if order.dim() == 1 else []
    everyone_once = sorted(found) == list(range(len(batch.lengths)))
    if everyone_once and _sorts(found, batch):
        return None
    return _unequal("order", batch.order, order)


def _sorts(order: Iterable[int], batch: Ragged) -> bool:
    """Any order among equal lengths will do."""
    return [batch.lengths[int(b)] for b in order] == sorted(batch.lengths, reverse=True)


@law("batch_sizes count the running sequences")
def packed_batch_sizes_count(call: Call, batch: Ragged) -> Difference | None:
    found = call(*batch.as_padded())[1]
    return _unequal("batch_sizes", batch.batch_sizes, found)


@law("data runs time step by time step")
def data_runs_by_step(call: Call, batch: Ragged) -> Difference | None:
    data, _, order = call(*batch.as_padded())
    ranks = tuple(int(b) for b in order)
    expected = batch.data(ranks)
    if same(data, expected):
        return None
    remark = ""
    if data.shape[1:] != expected.shape[1:]:
        remark = f"data has the shape {tuple(expected.shape)}; yours has {tuple(data.shape)}."
    elif len(data) != len(expected):
        remark = f"data has {len(expected)} rows, one a step of a sequence; yours has {len(data)}."
    return Difference(cells_of_rows(batch, expected), cells_of_rows(batch, data), remark)


@law("padding may be anything")
def padding_may_be_anything(call: Call, batch: Ragged) -> Difference | None:
    """What stands behind the end of a sequence, NaN or an ordinary number, never reaches data."""
    x, lengths = batch.as_padded()
    after_the_end = torch.arange(x.shape[1]) >= lengths[:, None]  # type: ignore[union-attr,index]
    other = x.clone()  # type: ignore[union-attr]
    other[after_the_end] = _other_padding(batch)
    data, again = call(x, lengths)[0], call(other, lengths)[0]
    if same(data, again):
        return None
    remark = "The same batch twice, with other padding the second time."
    return Difference(cells_of_rows(batch, data), cells_of_rows(batch, again), remark)


def _other_padding(batch: Ragged) -> float:
    if batch.dtype.is_floating_point or batch.dtype.is_complex:
        return float("nan")
    return 0 if batch.padding else 1


@law("data keeps the dtype of x; batch_sizes and order are int64")
def packed_dtypes(call: Call, batch: Ragged) -> Difference | None:
    data, batch_sizes, order = call(*batch.as_padded())
    _same_dtype(packed_dtypes, "data", data, like=batch.x)
    _same_dtype(packed_dtypes, "batch_sizes", batch_sizes)
    _same_dtype(packed_dtypes, "order", order)
    return None


GROWN = Ragged((9, 31, 4, 60, 17, 22, 48, 3, 55, 12, 26, 41, 7, 36, 19, 50, 14, 29, 45, 11, 58, 24))
# more than any honest answer varies by, less than the shortest loop adds
SPARE_INSTRUCTIONS, SPARE_TORCH_CALLS = 50, 10


@law("the work does not grow with the batch")
def no_loops(call: Call, batch: Ragged) -> Difference | None:
    """Needs a call that also tells its effort."""
    small = call.effort(*batch.as_padded())  # type: ignore[attr-defined]
    large = call.effort(*GROWN.as_padded())  # type: ignore[attr-defined]
    more = large.instructions - small.instructions
    more_calls = large.torch_calls - small.torch_calls
    if more <= SPARE_INSTRUCTIONS and more_calls <= SPARE_TORCH_CALLS:
        return None
    line = max((large.by_line - small.by_line).items(), key=lambda item: item[1], default=None)
    raise Fault(
        "loops",
        no_loops.name,
        f"For a larger batch your function ran {max(more, 0):,} more Python instructions and "
        f"{max(more_calls, 0):,} more calls into torch. There is a loop over steps or sequences in "
        f"it; a comprehension, map and recursion are loops too.",
        line=line[0] if line else None,
    )


# --- unpack


@law("x has one row a sequence, and total_length steps if you ask")
def unpacked_shape(call: Call, batch: Ragged) -> Difference | None:
    x = call(*batch.as_packed())[0]
    width = batch.total_length or batch.longest
    wanted = (len(batch.lengths), width, *batch.features)
    if tuple(x.shape) == wanted:
        return None
    return Difference([("shape", numbers(wanted))], [("shape", numbers(x.shape))])


@law("unpack undoes pack")
def unpack_undoes_pack(call: Call, batch: Ragged) -> Difference | None:
    """Each sequence comes back whole; in which row is the next law's matter."""
    x = call(*batch.as_packed())[0]
    rows = list(x)
    whole = all(
        any(same(row[:n], batch.sequence(b)) for row in rows) for b, n in enumerate(batch.lengths)
    )
    return None if whole else _other_cells(batch, x)


@law("rows come back in your order")
def rows_in_users_order(call: Call, batch: Ragged) -> Difference | None:
    x = call(*batch.as_packed())[0]
    home = all(same(x[b, :n], batch.sequence(b)) for b, n in enumerate(batch.lengths))
    return None if home else _other_cells(batch, x)


@law("lengths come back in your order")
def lengths_in_users_order(call: Call, batch: Ragged) -> Difference | None:
    return _unequal("lengths", batch.lengths, call(*batch.as_packed())[1])


@law("padding_value fills the rest")
def padding_value_fills(call: Call, batch: Ragged) -> Difference | None:
    x = call(*batch.as_packed())[0]
    wanted = torch.full(x.shape, batch.padding_value, dtype=batch.dtype)
    full = all(same(x[b, n:], wanted[b, n:]) for b, n in enumerate(batch.lengths))
    return None if full else _other_cells(batch, x)


@law("x keeps the dtype of data; lengths are int64")
def unpacked_dtypes(call: Call, batch: Ragged) -> Difference | None:
    x, lengths = call(*batch.as_packed())
    _same_dtype(unpacked_dtypes, "x", x, like=batch.x)
    _same_dtype(unpacked_dtypes, "lengths", lengths)
    return None


def _other_cells(batch: Ragged, found: Tensor) -> Difference:
    shape = (len(batch.lengths), batch.total_length or batch.longest, *batch.features)
    expected = torch.full(shape, batch.padding_value, dtype=batch.dtype)
    for b, n in enumerate(batch.lengths):
        expected[b, :n] = batch.sequence(b)
    return Difference(cells_of_padded(batch, expected), cells_of_padded(batch, found))
