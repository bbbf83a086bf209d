"""The arithmetic of ragged batches, on the host, in numpy.

Everything that packing knows follows from the lengths. Draw the batch as a grid, longest sequence
first, one row a sequence and one column a step: row sums are the lengths, column sums are the
``batch_sizes``. Each is the *conjugate* of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from packlib.host import CPU, Ints, host, near, stream
from packlib.ops import watched

T = TypeVar("T")
PIECE = 256  # steps that are added up one by one; float32 loses small numbers against a large sum
INTEGERS = frozenset([torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16,
                      torch.uint32, torch.uint64])


def conjugate(counts: Ints) -> Ints:
    """Count, for each step ``t``, the entries of ``counts`` that are larger than ``t``.

    Turns lengths ``(B,)`` into ``batch_sizes`` ``(T,)``, and ``batch_sizes`` back into the lengths,
    longest first: applied twice it sorts.

    >>> conjugate(np.array([2, 5]))
    array([2, 2, 1, 1, 1])
    >>> conjugate(np.array([2, 2, 1, 1, 1]))
    array([5, 2])
    """
    if len(counts) == 0:
        return np.zeros(0, dtype=np.int64)
    ended = np.bincount(counts).cumsum()
    return len(counts) - ended[:-1]


def check_lengths(lengths: Any, name: str = "lengths") -> Ints:
    """Return ``lengths`` as a numpy vector ``(B,)`` of int64, or say what is wrong with them.

    Takes a list, an array or a tensor on any device (a tensor on a GPU is copied once).

    Raises:
        TypeError: they are not integers. torch would cut 56.99 down to 56 in silence.
        RuntimeError: they are not one-dimensional.
    """
    refuse_tracing()
    if isinstance(lengths, Tensor):
        if lengths.is_meta:
            raise RuntimeError(f"{name} is on the meta device, which holds no values: give numbers")
        values = lengths
    else:
        try:
            values = torch.as_tensor(lengths, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} must be a list or a tensor of integers: {error}") from error
    if values.dim() != 1:
        raise RuntimeError(
            f"'{name}' argument should be a 1D int64 tensor, but got {values.dim()}D of shape "
            f"{tuple(values.shape)}" + _one_for_each(name, values)
        )
    if values.dtype not in INTEGERS and values.numel():
        raise TypeError(
            f"{name} must be integers, got {values.dtype}{_first_fraction(name, values)}: "
            + ("a mask is not a length, use mask.sum(1)" if values.dtype == torch.bool else
               "round them yourself, so that a fraction is not cut off in silence")
        )
    counts = host(values)
    if values.dtype == torch.uint64 and (counts >= 2**63).any():
        i = counts.argmax()
        raise RuntimeError(f"{name}[{i}]={counts[i]} is more than any tensor holds")
    return counts.astype(np.int64)  # a copy: the caller may change his own


def _one_for_each(name: str, values: Tensor) -> str:
    if name != "lengths":
        return ""
    return ": one length for each sequence" + (
        ". If this is a mask, use lengths=mask.sum(1)" if values.dim() == 2 else "")


def _first_fraction(name: str, values: Tensor) -> str:
    """The number that cannot be a length, if one cannot."""
    if not values.is_floating_point() or not (parts := values.detach() % 1).any():
        return ""
    i = int(parts.ne(0).nonzero()[0])
    value = values[i] if values.dtype == torch.float64 else values[i].float()
    return f", {name}[{i}]={host(value.detach())!s}"  # in numpy's digits, as few as tell it apart


def refuse_tracing() -> None:
    """torch.jit.trace would keep the plan of the example for every later batch."""
    if torch.jit.is_tracing():
        raise RuntimeError("packlib cannot be traced by torch.jit.trace: use torch.export or "
                           "torch.compile, or torch.nn.utils.rnn in what you trace")


def eager_only(function: str, instead: str) -> None:
    """Refuse what no graph can hold, since it follows from the values of lengths.

    torch.compile leaves its graph for such a function, or raises under ``fullgraph=True``.
    """
    if not torch.compiler.is_compiling():
        return
    message = f"packlib: {function} depends on the values of lengths, no graph has them: {instead}"
    if not torch.compiler.is_dynamo_compiling():  # torch.export, which runs this as plain Python
        raise RuntimeError(message)
    torch._dynamo.graph_break(msg=message)


class once(Generic[T]):
    """``functools.cached_property`` without the lock that it takes before Python 3.12."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value = instance.__dict__[self.name] = self.make(instance)
        return value


@dataclass(frozen=True)
class Layout:
    """Where every step of every sequence lies in packed data.

    ``lengths`` ``(B,)`` and ``order`` ``(B,)`` are in the user's order: ``order[j]`` is the user's
    number of the j-th longest sequence, or None when the batch came sorted. ``batch_sizes``
    ``(T,)``. Row ``offsets[t] + j`` of the data is step ``t`` of the j-th longest sequence.

    Packed data may come with empty sequences, of length 0: they have no rows, stand last in the
    order, and are not counted by ``batch_sizes[0]``. Then there is an order, even if it is 0 to B.
    """

    lengths: Ints
    batch_sizes: Ints
    order: Ints | None = None
    _kept: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_lengths(cls, lengths: Ints, order: Ints | None = None) -> Layout:
        return cls(lengths, conjugate(lengths), order)

    @classmethod
    def from_batch_sizes(cls, batch_sizes: Ints, order: Ints | None = None) -> Layout:
        lengths = conjugate(batch_sizes)
        if order is not None:
            longest_first, lengths = lengths, np.zeros_like(order)  # the last ones may be empty
            lengths[order[:len(longest_first)]] = longest_first
        return cls(lengths, batch_sizes, order)

    @property
    def num_sequences(self) -> int:
        return len(self.lengths)

    @property
    def num_steps(self) -> int:
        return len(self.batch_sizes)

    @once
    def num_empty(self) -> int:
        """How many sequences have no step."""
        return len(self.lengths) - int(self.batch_sizes[0])

    @property
    def started(self) -> Ints | None:
        """``order`` without the empty sequences: one for each of ``batch_sizes[0]``."""
        return None if self.order is None else self.order[:self.batch_sizes[0]]

    @once
    def without_empty(self) -> tuple[Layout, Ints]:
        """The same rows with the empty sequences left out, and the user's numbers of the others."""
        return self.part(0, self.num_steps)

    def part(self, first: int, stop: int) -> tuple[Layout, Ints]:
        """The layout of steps ``first`` to ``stop``, and the user's numbers of its sequences.

        Those that have no step there are not in it; the others stay in the user's order.
        """
        sizes = self.batch_sizes[first:stop].copy()
        running = np.arange(sizes[0]) if self.order is None else self.order[:sizes[0]]
        numbers = np.sort(running)
        order = None if self.order is None else np.searchsorted(numbers, running)
        return Layout.from_batch_sizes(sizes, order), numbers

    @once
    def num_rows(self) -> int:
        return int(self.batch_sizes.sum())

    @once
    def sizes(self) -> list[int]:
        """``batch_sizes`` as a list, for ``Tensor.split``."""
        return self.batch_sizes.tolist()

    @once
    def inverse(self) -> Ints | None:
        """Place of each of the user's sequences, longest first ``(B,)``; None if sorted."""
        if self.order is None:
            return None
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(len(self.order))
        return inverse

    @once
    def offsets(self) -> Ints:
        """First row of each step ``(T,)``."""
        return self.batch_sizes.cumsum() - self.batch_sizes

    @once
    def starts(self) -> Ints:
        """First row of each sequence when they are laid end to end ``(B,)``."""
        return self.lengths.cumsum() - self.lengths

    @once
    def step(self) -> Ints:
        """Time step of each packed row ``(N,)``."""
        return np.repeat(np.arange(self.num_steps), self.batch_sizes)

    @once
    def rank(self) -> Ints:
        """Place of each packed row's sequence, longest first ``(N,)``."""
        rank = self.offsets.repeat(self.batch_sizes)
        return np.subtract(np.arange(len(rank)), rank, out=rank)  # no fresh memory: it is slow

    def by_rank(self, values: Ints) -> Ints:
        """Values ``(B,)`` in the user's order, longest sequence first."""
        return values if self.order is None else values.take(self.order)

    def by_sequence(self, values: Ints) -> Ints:
        """For each packed row, the value of its sequence; values ``(B,)`` in the user's order."""
        return self.by_rank(values).take(self.rank)

    def _places(self, first: Ints, stride: int = 1) -> Ints:
        """For each packed row ``first`` of its rank ``(B,)``, and ``stride`` more for each step."""
        places = first.take(self.rank)
        places += np.arange(0, self.num_steps * stride, stride).repeat(self.batch_sizes)
        return places

    @property
    def sequence(self) -> Ints:
        """The user's number of each packed row's sequence ``(N,)``."""
        return self.by_sequence(np.arange(self.num_sequences))

    @property
    def pieces(self) -> Ints:
        """How many pieces of ``PIECE`` steps each sequence has, the last may be shorter ``(B,)``.
        """
        return -(-self.lengths // PIECE)

    @property
    def piece(self) -> Ints:
        """The number of each packed row's piece, sequence after sequence ``(N,)``."""
        first = self.pieces.cumsum() - self.pieces
        return self.by_sequence(first) + self.step // PIECE

    @property
    def owner(self) -> Ints:
        """The user's number of the sequence that each piece is of."""
        return np.repeat(np.arange(self.num_sequences), self.pieces)

    def rows_of(self, i: int) -> Ints:
        """The packed rows of the user's sequence ``i``, step by step."""
        rank = i if self.inverse is None else int(self.inverse[i])
        return self.offsets[: self.lengths[i]] + rank

    # What follows are rows for ``take`` and ``put``, made once for each device.

    def reversed(self, device: torch.device) -> Tensor:
        """Each sequence's steps from last to first ``(N,)``: a permutation that undoes itself."""
        return self.rows(("reversed", device), lambda: (
            self.offsets[self.by_sequence(self.lengths) - 1 - self.step] + self.rank))

    def before(self, device: torch.device) -> Tensor:
        """For each row from step 1 on, the row of the same sequence one step before."""
        later = slice(self.sizes[0], None)
        return self.rows(("before", device), lambda: (
            self.offsets[self.step[later] - 1] + self.rank[later]))

    def ends(self, device: torch.device) -> Tensor:
        """Each sequence's last row, longest sequence first, without the empty ones."""
        def make() -> Ints:
            ranks = np.arange(self.batch_sizes[0])
            return self.offsets.take(self.by_rank(self.lengths)[:len(ranks)] - 1) + ranks

        return self.rows(("ends", device), make)

    def tiled(self, cuts: tuple[int, ...], device: torch.device) -> Tensor:
        """The cell of each packed row in rectangles laid end to end ``(N,)``.

        One begins at each of the steps ``cuts``, of all sequences that have that step; a step has a
        cell for each of them, longest sequence first.
        """
        return self.rows(("tiled", cuts, device), lambda: self._tiled(cuts))

    def _tiled(self, cuts: tuple[int, ...]) -> Ints:
        widths = self._widths(cuts)
        places = (widths.cumsum() - widths - self.offsets).repeat(self.batch_sizes)
        places += np.arange(len(places))
        return places

    def tiles(self, cuts: tuple[int, ...], device: torch.device) -> Tensor:
        """The packed row of each cell of these rectangles; N, a row too many, for padding."""
        def make() -> Ints:
            rows = np.full(self._widths(cuts).sum(), self.num_rows)
            rows[self._tiled(cuts)] = np.arange(self.num_rows)
            return rows

        return self.rows(("tiles", cuts, device), make)

    def _widths(self, cuts: tuple[int, ...]) -> Ints:
        """Cells of each step (T,)."""
        steps = [stop - start for start, stop in pairwise((*cuts, self.num_steps))]
        return self.batch_sizes.take(cuts).repeat(steps)

    def padded(self, total: int, batch_first: bool, device: torch.device,
               padding_side: str = "right") -> Tensor:
        """Each packed row in a flat grid, (B, total) if ``batch_first``, else (total, B)."""
        def make() -> Ints:
            users = np.arange(self.num_sequences) if self.order is None else self.order
            return self._places(*self._grid(users, total, batch_first, padding_side))

        return self.rows(("padded", total, batch_first, padding_side, device), make)

    def listed(self, device: torch.device) -> Tensor:
        """Each packed row among the sequences laid end to end, in the user's order ``(N,)``."""
        return self.rows(("listed", device), lambda: self._places(self.by_rank(self.starts)))

    def filled(self, total: int, batch_first: bool, device: torch.device,
               padding_side: str = "right") -> Tensor:
        """Each row of the sequences laid end to end, in a grid as in ``padded``."""
        def make() -> Ints:
            users = np.arange(self.num_sequences)
            first, stride = self._grid(users, total, batch_first, padding_side)
            step = np.arange(self.lengths.sum()) - np.repeat(self.starts, self.lengths)
            return np.repeat(first, self.lengths) + step * stride

        return self.rows(("filled", total, batch_first, padding_side, device), make)

    def _grid(self, users: Ints, total: int, batch_first: bool,
              padding_side: str) -> tuple[Ints, int]:
        """Of a flat grid: the cell of each of these sequences' first step, and from step to step.
        """
        stride = 1 if batch_first else self.num_sequences
        first = users * total if batch_first else users
        if padding_side == "left":
            first = first + (total - self.lengths[users]) * stride
        return first, stride

    def kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for this layout and key."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def rows(self, name: tuple[Any, ...], make: Callable[[], Ints]) -> Tensor:
        """Integers that ``make`` counts, on the device that ends their name; made once."""
        device = name[-1]
        if watched():  # a mode or a transform may make them into something of its own
            return near(device, make())
        key = name if device == CPU else (*name, stream(device))
        kept = self._kept.get(key)
        if kept is None or kept._version:  # somebody they were handed to has changed them
            if torch.is_inference_mode_enabled():
                with torch.inference_mode(False):  # kept ones may serve a backward pass later
                    return self.rows(name, make)
            kept = self._kept[key] = near(device, make())
        return kept
