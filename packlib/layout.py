"""The arithmetic of ragged batches, on the host, in numpy.

Everything that packing knows follows from the lengths. Draw the batch as a grid, longest sequence
first, one row a sequence and one column a step: row sums are the lengths, column sums are the
``batch_sizes``. Each is the *conjugate* of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]


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
    ended = np.cumsum(np.bincount(counts))
    return len(counts) - ended[:-1]


def check_lengths(lengths: Any, name: str = "lengths") -> Ints:
    """Return ``lengths`` as a numpy vector ``(B,)`` of int64, or say what is wrong with them.

    Takes a list, an array or a tensor on any device (a tensor on a GPU is copied once).

    Raises:
        TypeError: they are not integers. torch would cut 56.99 down to 56 in silence.
        RuntimeError: they are not one-dimensional.
    """
    if isinstance(lengths, Tensor):
        if lengths.is_meta:
            raise RuntimeError(f"{name} is on the meta device, which holds no values: give numbers")
        values = lengths.detach()
    else:
        try:
            values = torch.as_tensor(lengths, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} must be a list or a tensor of integers: {error}") from error
    if values.dim() != 1:
        raise RuntimeError(
            f"'{name}' argument should be a 1D int64 tensor, but got {values.dim()}D of shape "
            f"{tuple(values.shape)}: one length for each sequence"
            + (f". If this is a mask, use {name}=mask.sum(1)" if values.dim() == 2 else "")
        )
    if values.numel() and (values.dtype == torch.bool or values.is_floating_point()
                           or values.is_complex()):
        raise TypeError(
            f"{name} must be integers, got {values.dtype}: "
            + ("a mask is not a length, use mask.sum(1)" if values.dtype == torch.bool else
               "round them yourself, so that a fraction is not cut off in silence")
        )
    return host(values).astype(np.int64)  # a copy: the caller may change his own


def host(integers: Tensor) -> Ints:
    """The values of an integer tensor, in numpy; one copy from the device if it is on one."""
    try:
        return integers.cpu().numpy()
    except RuntimeError:  # inside torch.func.grad tensors have no storage to look into
        return np.array(integers.tolist(), dtype=np.int64).reshape(integers.shape)


@dataclass(frozen=True)
class Index:
    """Where each packed row lies in a padded grid of ``cells`` cells, and the way back.

    ``rows`` ``(N,)``: the cell of each packed row (``cell`` on the host). ``slots`` ``(cells,)``:
    the packed row of each cell, 0 for padding. ``pads``: the cells that are padding.
    """

    cell: Ints
    cells: int
    device: torch.device

    @cached_property
    def rows(self) -> Tensor:
        return torch.from_numpy(self.cell).to(self.device)

    @cached_property
    def slots(self) -> Tensor:
        slots = np.zeros(self.cells, dtype=np.int64)
        slots[self.cell] = np.arange(len(self.cell))
        return torch.from_numpy(slots).to(self.device)

    @cached_property
    def pads(self) -> Tensor:
        empty = np.ones(self.cells, dtype=bool)
        empty[self.cell] = False
        return torch.from_numpy(np.flatnonzero(empty)).to(self.device)


@dataclass(frozen=True)
class Layout:
    """Where every step of every sequence lies in packed data.

    ``lengths`` ``(B,)`` and ``order`` ``(B,)`` are in the user's order: ``order[j]`` is the user's
    number of the j-th longest sequence, or None when the batch came sorted. ``batch_sizes``
    ``(T,)``. Row ``offsets[t] + j`` of the data is step ``t`` of the j-th longest sequence.
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
            lengths = lengths[np.argsort(order)]
        return cls(lengths, batch_sizes, order)

    @property
    def num_sequences(self) -> int:
        return len(self.lengths)

    @property
    def num_steps(self) -> int:
        return len(self.batch_sizes)

    @cached_property
    def sizes(self) -> list[int]:
        """``batch_sizes`` as a list, for ``Tensor.split``."""
        return self.batch_sizes.tolist()

    @cached_property
    def inverse(self) -> Ints | None:
        """Place of each of the user's sequences, longest first ``(B,)``; None if sorted."""
        if self.order is None:
            return None
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(len(self.order))
        return inverse

    @cached_property
    def offsets(self) -> Ints:
        """First row of each step ``(T,)``."""
        return np.cumsum(self.batch_sizes) - self.batch_sizes

    @cached_property
    def starts(self) -> Ints:
        """First row of each sequence when they are laid end to end ``(B,)``."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def step(self) -> Ints:
        """Time step of each packed row ``(N,)``."""
        return np.repeat(np.arange(self.num_steps), self.batch_sizes)

    @cached_property
    def rank(self) -> Ints:
        """Place of each packed row's sequence, longest first ``(N,)``."""
        return np.arange(len(self.step)) - self.offsets[self.step]

    @cached_property
    def sequence(self) -> Ints:
        """The user's number of each packed row's sequence ``(N,)``."""
        return self.rank if self.order is None else self.order[self.rank]

    def rows_of(self, i: int) -> Ints:
        """The packed rows of the user's sequence ``i``, step by step."""
        rank = i if self.inverse is None else int(self.inverse[i])
        return self.offsets[: self.lengths[i]] + rank

    def reversed(self, device: torch.device) -> Index:
        """Each sequence's steps from last to first: a permutation that undoes itself."""
        return self._index(("reversed", device), lambda: (
            self.offsets[self.lengths[self.sequence] - 1 - self.step] + self.rank, len(self.step)
        ))

    def before(self, device: torch.device) -> Index:
        """For each row from step 1 on, the row of the same sequence one step before."""
        later = slice(self.sizes[0], None)
        return self._index(("before", device), lambda: (
            self.offsets[self.step[later] - 1] + self.rank[later], len(self.step)
        ))

    def padded(self, total: int, batch_first: bool, device: torch.device,
               padding_side: str = "right") -> Index:
        """Packed rows in a padded grid, flattened: (B, total) if ``batch_first``, else (total, B).
        """
        return self._index(("padded", total, batch_first, padding_side, device), lambda: (
            self._cells(self.sequence, self.step, total, batch_first, padding_side),
            self.num_sequences * total
        ))

    def last(self, device: torch.device) -> Tensor:
        """The row of each sequence's last step ``(B,)``, longest first, in a (T, B, *) grid."""
        def make() -> Tensor:
            ranks = np.arange(self.num_sequences)
            steps = conjugate(self.batch_sizes) - 1
            return torch.from_numpy(steps * self.num_sequences + ranks).to(device)

        return self.kept(("last", device), make)

    def listed(self, device: torch.device) -> Index:
        """Packed rows among the sequences laid end to end, in the user's order."""
        return self._index(("listed", device), lambda: (
            self.starts[self.sequence] + self.step, len(self.step)
        ))

    def filled(self, total: int, batch_first: bool, device: torch.device,
               padding_side: str = "right") -> Index:
        """The sequences laid end to end, in a padded grid as in ``padded``."""
        def make() -> tuple[Ints, int]:
            sequence = np.repeat(np.arange(self.num_sequences), self.lengths)
            step = np.arange(len(sequence)) - self.starts[sequence]
            return (self._cells(sequence, step, total, batch_first, padding_side),
                    self.num_sequences * total)

        return self._index(("filled", total, batch_first, padding_side, device), make)

    def _cells(self, sequence: Ints, step: Ints, total: int, batch_first: bool,
               padding_side: str) -> Ints:
        if padding_side == "left":
            step = step + total - self.lengths[sequence]
        return sequence * total + step if batch_first else step * self.num_sequences + sequence

    def kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for this layout and key."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def _index(self, key: tuple[Any, ...], cells: Callable[[], tuple[Ints, int]]) -> Index:
        return self.kept(key, lambda: Index(*cells(), key[-1]))
