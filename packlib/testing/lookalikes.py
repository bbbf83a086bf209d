"""Which classic mistake does a wrong batch look like?

Each mistake is made again, on purpose, with the right batch; it is named only if what comes out is
the wrong batch. The functions are those that the exercises know (``packlib.checks``), and a few
more. They work on labels, the numbers of the right rows, so that a mistake that lets padding in is
known whatever was in the padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.checks.mistakes import Answer, Mistakes, long_to_short
from packlib.checks.mistakes_packing import PACK
from packlib.checks.mistakes_unpacking import UNPACK, Packed
from packlib.layout import Layout
from packlib.sequence import whole_order
from packlib.testing.differences import Close, flat, plain

ANY, ZERO = -1, 0  # labels: a row of padding, which may hold anything, and a row of zeros

GRIDS = Mistakes()  # labels (B, T) and lengths (B,) -> (labels,)
CUTS = Mistakes(lambda *plain: (Packed(*plain),))  # as UNPACK


# --- a grid with the wrong steps in it


@GRIDS("Each sequence runs backwards: its last step comes first.")
def each_reversed(x: Tensor, lengths: Tensor) -> Answer:
    return (_each(x, lengths, lambda row: row.flip(0)),)


@GRIDS("The whole grid is turned round, padding too, so short sequences begin in the padding. Turn "
       "each sequence within its own length: packlib.reverse.")
def flipped_with_padding(x: Tensor, lengths: Tensor) -> Answer:
    return (x.flip(1),)


@GRIDS("Everything comes one step late: step t holds what belongs to step t - 1.")
def one_step_late(x: Tensor, lengths: Tensor) -> Answer:
    return (torch.cat([torch.full_like(x[:, :1], ANY), x[:, :-1]], 1),)


@GRIDS("Everything comes one step early: step t holds what belongs to step t + 1.")
def one_step_early(x: Tensor, lengths: Tensor) -> Answer:
    return (torch.cat([x[:, 1:], torch.full_like(x[:, :1], ANY)], 1),)


RESHAPED = ("batch and time are mixed up: view or reshape was used where transpose(0, 1) is meant. "
            "A reshape keeps the numbers in their old order.")


@GRIDS("From (B, T) to (T, B), " + RESHAPED)
def reshaped_to_time_first(x: Tensor, lengths: Tensor) -> Answer:
    return (x.reshape(x.shape[1], x.shape[0]).T,)


@GRIDS("From (T, B) to (B, T), " + RESHAPED)
def reshaped_to_batch_first(x: Tensor, lengths: Tensor) -> Answer:
    return (x.T.reshape(x.shape),)


@GRIDS("The last step of each sequence is repeated in place of the earlier ones.")
def last_step_everywhere(x: Tensor, lengths: Tensor) -> Answer:
    return (_each(x, lengths, lambda row: row[-1:].expand(len(row))),)


def _each(x: Tensor, lengths: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    made = x.clone()
    for row, n in zip(made, lengths.tolist(), strict=True):
        row[:n] = fn(row[:n].clone())
    return made


# --- a packed batch that is cut the wrong way


@CUTS("Batch and time are swapped: look at batch_first, on both sides.")
def axes_swapped(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x[p.home].transpose(0, 1), lengths[p.home]


@CUTS("These are steps and not sequences: data was cut by batch_sizes. A piece of data holds one "
      "step of all the sequences that run there.")
def steps_for_sequences(p: Packed) -> Answer:
    x, _ = p.grid()
    return x.transpose(0, 1), p.batch_sizes


# --- the right batch, and its labels


@dataclass(frozen=True)
class Truth:
    """The right batch: rows (N, *) laid end to end in the user's order, and lengths (B,).

    ``padding`` is one row of what belongs in the padding; None if that may be anything.
    """

    rows: Tensor
    lengths: Tensor
    close: Close
    padding: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor, lengths: Any, close: Close, padding: Any = None) -> Truth:
        rows = plain(rows)
        pad = None if padding is None else torch.full_like(rows.new_empty(rows.shape[1:]), padding)
        return cls(rows, torch.as_tensor(np.asarray(lengths)).long(), close, pad)

    @cached_property
    def labels(self) -> Tensor:
        """A number above 0 for each row (N,); ZERO for those that hold zeros only."""
        numbers = torch.arange(1, len(self.rows) + 1)
        return numbers.where((flat(self.rows) != 0).any(1), torch.tensor(ZERO))

    @cached_property
    def values(self) -> Tensor:
        """The row of each label; the last one, ANY, is padding."""
        zeros = self.rows.new_zeros(1, *self.rows.shape[1:])
        return torch.cat([zeros, self.rows, zeros if self.padding is None else self.padding[None]])

    @property
    def mask(self) -> Tensor:
        """True on the real steps (B, T)."""
        return torch.arange(int(self.lengths.max())) < self.lengths[:, None]

    def grid(self) -> Tensor:
        """Labels (B, T)."""
        x = torch.full(self.mask.shape, ANY)
        x[self.mask] = self.labels
        return x

    def layout(self, order: Tensor) -> Layout:
        return Layout.from_lengths(self.lengths.numpy(), order.numpy())

    def packed(self, order: Tensor) -> Tensor:
        """Number of each packed row among ``rows`` (N,), packed in this order."""
        return self.layout(order).listed(torch.device("cpu"))

    def explained(self, actual: Tensor, labels: Tensor, right: Tensor | None = None) -> int:
        """How many rows (M, *) the labels (M,) explain; 0 if a row contradicts them.

        So it is if right rows would not contradict them either, or if what ANY stands for are
        different rows: padding is one value.
        """
        if actual.shape != (*labels.shape, *self.rows.shape[1:]):
            return 0
        known = labels != ANY if self.padding is None else torch.ones_like(labels, dtype=torch.bool)
        wanted, padding = self.values[labels[known]], flat(actual[~known])
        if not self.close.rows(actual[known], wanted).all():
            return 0
        if right is not None and len(right) == len(known) and self.close.rows(
                right[known], wanted).all():
            return 0
        first = padding[:1]
        one = ((padding == first) | ((padding != padding) & (first != first))).all()
        return int(known.sum()) if one else 0


Found = Iterator[tuple[int, str]]


def of_rows(actual: Tensor, truth: Truth) -> Found:
    """Mistakes in rows (N, *), laid end to end, whose lengths are right."""
    for hint, (x,) in _answers(GRIDS, truth.grid(), truth.lengths):
        yield truth.explained(plain(actual), x[truth.mask], truth.rows), hint


def of_packed(actual: torch_rnn.PackedSequence, truth: Truth, expected_order: Tensor) -> Found:
    """Mistakes in the fields of a packed batch, which need not keep the law."""
    if not isinstance(actual.data, Tensor) or not isinstance(actual.batch_sizes, Tensor):
        return
    order = whole_order(actual)
    data, sizes = plain(actual.data), plain(actual.batch_sizes).long()
    found_order = torch.arange(len(truth.lengths)) if order is None else plain(order).long()
    for order in _orders(truth.lengths, expected_order, found_order):
        right = truth.rows[truth.packed(order)]
        right_sizes = torch.from_numpy(truth.layout(order).batch_sizes)
        alike = torch.equal(sizes, right_sizes) and torch.equal(found_order, order)
        for hint, labels, made_sizes, made_order in _packings(truth, order):
            if torch.equal(sizes, made_sizes) and torch.equal(found_order, made_order):
                yield truth.explained(data, labels, right if alike else None), hint


def _packings(truth: Truth, order: Tensor) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Every way to pack wrongly: its hint, labels, batch_sizes and order.

    The functions sort stably. Where another order is asked for, it is given to their order, and
    sequences of one length change places before: not always, since some mistakes do not sort.
    """
    stable = long_to_short(truth.lengths)
    place = torch.empty_like(stable)
    place[stable] = order
    grid = truth.grid()
    for x in (grid,) if torch.equal(stable, order) else (grid, grid[place]):
        for hint, (labels, sizes, made) in _answers(PACK, x[:, :, None], truth.lengths):
            fits = len(made) == 0 or int(made.max()) < len(place)
            yield hint, labels[:, 0], sizes, place[made] if fits else made


def of_sequences(actual: list[Tensor], truth: Truth) -> Found:
    """Mistakes in a list of sequences (L_i, *)."""
    found_lengths, rows = [len(s) for s in actual], torch.cat([plain(s) for s in actual])
    right = truth.rows if found_lengths == truth.lengths.tolist() else None
    for hint, x, lengths in _unpackings(truth):
        fits = len(x) == len(lengths) and int(lengths.max()) <= x.shape[1]
        if fits and lengths.tolist() == found_lengths:
            labels = torch.cat([row[:n] for row, n in zip(x, found_lengths, strict=True)])
            yield truth.explained(rows, labels, right), hint


def of_padded(actual: Tensor, truth: Truth, total: int) -> Found:
    """Mistakes in a grid (B, T, *) that should be ``total`` wide."""
    actual, size = plain(actual), len(truth.lengths)
    real = torch.zeros(size, total, dtype=torch.bool)
    real[:, : truth.mask.shape[1]] = truth.mask
    labels = torch.full((size, total), ANY)
    labels[real] = truth.labels
    judged = real if truth.padding is None else torch.ones_like(real)
    right = truth.values[labels[judged]]
    for hint, x, lengths in _unpackings(truth, total):
        if x.shape != actual.shape[:2] or not torch.equal(lengths, truth.lengths):
            continue
        if x.shape == judged.shape:
            yield truth.explained(actual[judged], x[judged], right), hint
        else:
            yield truth.explained(actual.flatten(0, 1), x.flatten()), hint


def _unpackings(truth: Truth, total: int | None = None) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Every way to unpack wrongly: its hint, labels (B, T), and lengths."""
    longest = truth.mask.shape[1]
    # UNPACK counts its sequences at step 0, where empty ones are not
    for order in _orders(truth.lengths) if truth.lengths.all() else []:
        sizes = torch.from_numpy(truth.layout(order).batch_sizes)
        labels = truth.labels[truth.packed(order)][:, None]
        total_length = total if total and total > longest else None
        for padding in (ANY, ZERO) if truth.padding is None else (ANY,):
            for hint, (x, lengths) in _answers([*CUTS, *UNPACK], labels, sizes, order, padding,
                                               total_length):
                yield hint, x[:, :, 0], lengths
    for hint, (x,) in _answers(GRIDS, truth.grid(), truth.lengths):
        wide = torch.full((len(x), total or longest), ANY)
        wide[:, :longest] = x
        yield hint, wide, truth.lengths


def most(*found: Found) -> str | None:
    """The mistake that explains most rows, the first of equals; None if none explains any."""
    count, hint = max(chain(*found), key=lambda pair: pair[0], default=(0, ""))
    return hint if count else None


def _answers(mistakes: Iterable[Any], *arguments: Any) -> Iterator[tuple[str, Answer]]:
    for mistake in mistakes:
        try:
            yield mistake.hint, mistake.answer(*arguments)
        except (IndexError, RuntimeError, ValueError):  # not every mistake runs on every batch
            continue


def _orders(lengths: Tensor, *given: Tensor) -> list[Tensor]:
    """The ways to sort that may have been taken: stable, torch's, and the given ones."""
    orders: list[Tensor] = []
    for order in (long_to_short(lengths), lengths.sort(descending=True).indices, *given):
        if not any(torch.equal(order, other) for other in orders) and _sorts(order, lengths):
            orders.append(order)
    return orders


def _sorts(order: Tensor, lengths: Tensor) -> bool:
    return (torch.equal(order.sort().values, torch.arange(len(lengths)))
            and bool((lengths[order].diff() <= 0).all()))
