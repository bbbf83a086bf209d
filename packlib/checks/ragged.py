"""A small ragged batch, described by the few things that matter, and the right answers about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

Plain = Tensor | float | int | None


@dataclass(frozen=True)
class Ragged:
    """One batch of B sequences in the user's order; a test makes all its tensors from it.

    Cells count up from 1, so that each vector is found again in an answer (a bool can only
    alternate). Values are chosen here and nowhere else: a shrunk batch looks like a large one.
    """

    lengths: tuple[int, ...]
    extra: int = 0  # x is this much wider than the longest sequence
    features: tuple[int, ...] = (2,)
    dtype: torch.dtype = torch.float32
    padding: float = -1000.0  # written, minus the row's number, where a sequence has ended
    zero_inside: bool = False  # one true zero vector in the middle of the longest sequence
    late_ties: bool = False  # among equal lengths the later sequence comes first
    padding_value: float = 0.0  # the argument of unpack
    total_extra: int | None = None  # total_length of unpack: this much above the longest

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def total_length(self) -> int | None:
        return None if self.total_extra is None else self.longest + self.total_extra

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Sequences, long to short; ties as ``late_ties`` says."""
        sign = -1 if self.late_ties else 1
        by_length = sorted(range(len(self.lengths)), key=lambda b: (-self.lengths[b], sign * b))
        return tuple(by_length)

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """How many sequences are still running at each step."""
        return tuple(sum(n > t for n in self.lengths) for t in range(self.longest))

    @cached_property
    def x(self) -> Tensor:
        """x: (B, T, *F), the padded batch in the user's order."""
        shape = (len(self.lengths), self.longest + self.extra, *self.features)
        x = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
        x = x % 3 == 1 if self.dtype == torch.bool else x.to(self.dtype)
        if self.zero_inside:
            x[self.order[0], self.longest // 2] = 0
        for b, n in enumerate(self.lengths):
            x[b, n:] = self.padding - b if self.padding else 0
        return x

    def rows(self, order: tuple[int, ...] | None = None) -> list[tuple[int, int]]:
        """(sequence, step) of each row of data, for the given order or the batch's own."""
        ranks = self.order if order is None else order
        return [(b, t) for t in range(self.longest) for b in ranks if self.lengths[b] > t]

    def data(self, order: tuple[int, ...] | None = None) -> Tensor:
        """data: (N, *F), step by step, for the given order or the batch's own."""
        return torch.stack([self.x[b, t] for b, t in self.rows(order)])

    def sequence(self, b: int) -> Tensor:
        return self.x[b, : self.lengths[b]]

    def as_lengths(self) -> tuple[Plain, ...]:
        return (torch.tensor(self.lengths),)

    def as_padded(self) -> tuple[Plain, ...]:
        return self.x, torch.tensor(self.lengths)

    def as_batch_sizes(self) -> tuple[Plain, ...]:
        return (torch.tensor(self.batch_sizes),)

    def as_packed(self) -> tuple[Plain, ...]:
        """The arguments of unpack; the two optional ones only where they are not the defaults."""
        packed = self.data(), torch.tensor(self.batch_sizes), torch.tensor(self.order)
        if self.total_extra is None and self.padding_value == 0:
            return packed
        return *packed, self.padding_value, self.total_length
