"""Known mistakes of unpack: (data, batch_sizes, order, ...) -> x, lengths in the user's order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .mistakes import Answer, Mistakes, running

UNPACK = Mistakes(lambda *plain: (Packed(*plain),))


class Packed(NamedTuple):
    """The arguments of unpack, and the steps of the right way that the mistakes share."""

    data: Tensor
    batch_sizes: Tensor
    order: Tensor
    padding_value: float = 0.0
    total_length: int | None = None

    def grid(self) -> tuple[Tensor, Tensor]:
        """x: (B, T, *F) and lengths: (B,), both long to short."""
        lengths = running(self.batch_sizes, range(int(self.batch_sizes[0])))
        width = self.total_length or len(self.batch_sizes)
        x = self.data.new_full((len(lengths), width, *self.data.shape[1:]), self.padding_value)
        start = 0
        for t, size in enumerate(self.batch_sizes.tolist()):
            x[:size, t] = self.data[start : start + size]
            start += size
        return x, lengths

    @property
    def home(self) -> Tensor:
        """The inverse of order: where each of the user's sequences stands."""
        return self.order.argsort()


@UNPACK(
    "Everything is right, and still long to short. Put the rows and the lengths back into "
    "the user's order: order says which sequence each sorted row is."
)
def left_sorted(p: Packed) -> Answer:
    return p.grid()


@UNPACK(
    "x is right, but the lengths are still long to short. They belong to the rows: put them "
    "back in the same way."
)
def lengths_left_sorted(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x[p.home], lengths


@UNPACK(
    "The lengths are right, but the rows of x are still long to short. Put them back in the "
    "same way."
)
def rows_left_sorted(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x, lengths[p.home]


WRONG_WAY = (
    "You undo the sort with the sorting permutation itself. Undoing needs its inverse. Both "
    "are the same only when swapping twice brings everything home, as in [1, 0]."
)


@UNPACK(WRONG_WAY)
def sorts_again(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x[p.order], lengths[p.order]


@UNPACK(WRONG_WAY + " (Your lengths are right: it is the rows.)")
def rows_sorted_again(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x[p.order], lengths[p.home]


@UNPACK(WRONG_WAY + " (Your rows are right: it is the lengths.)")
def lengths_sorted_again(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x[p.home], lengths[p.order]


@UNPACK("You fill with 0 whatever padding_value says. It is an argument: use it.")
def padding_value_ignored(p: Packed) -> Answer:
    x, lengths = p._replace(padding_value=0.0).grid()
    return x[p.home], lengths[p.home]


@UNPACK(
    "x is as wide as its longest sequence whatever total_length says. If it is given, x has "
    "that many steps."
)
def total_length_ignored(p: Packed) -> Answer:
    x, lengths = p._replace(total_length=None).grid()
    return x[p.home], lengths[p.home]


@UNPACK(
    "You use neither padding_value nor total_length. Both are arguments that the caller may give."
)
def both_options_ignored(p: Packed) -> Answer:
    x, lengths = p._replace(padding_value=0.0, total_length=None).grid()
    return x[p.home], lengths[p.home]


@UNPACK("The steps that total_length adds are filled with 0. padding_value belongs there as well.")
def zeros_beyond_the_longest(p: Packed) -> Answer:
    x, lengths = p.grid()
    x[:, len(p.batch_sizes) :] = 0
    return x[p.home], lengths[p.home]


@UNPACK(
    "You cut data into sequences as if each lay in one piece. data goes time step by time "
    "step: batch_sizes says how many rows belong to each step."
)
def reads_sequence_major(p: Packed) -> Answer:
    x, lengths = p.grid()
    for row, piece in zip(x, p.data.split(lengths.tolist()), strict=True):
        row[: len(piece)] = piece
    return x[p.home], lengths[p.home]


@UNPACK("x stands on its side: you return (T, B, F). This course is batch first: (B, T, F).")
def time_first(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x[p.home].transpose(0, 1), lengths[p.home]


@UNPACK(
    "Your sequences stand at the right end and the padding comes first. Step 0 belongs in "
    "the first column."
)
def padding_on_the_left(p: Packed) -> Answer:
    x, lengths = p.grid()
    rows = [row.roll(x.shape[1] - int(n), 0) for row, n in zip(x, lengths, strict=True)]
    return torch.stack(rows)[p.home], lengths[p.home]


@UNPACK("The last step is missing: padding stands where the longest sequences end.")
def last_step_lost(p: Packed) -> Answer:
    x, lengths = p.grid()
    x[:, len(p.batch_sizes) - 1] = p.padding_value
    return x[p.home], lengths[p.home]


@UNPACK(
    "x is right, but you return batch_sizes as lengths. lengths has one number for each sequence."
)
def lengths_are_batch_sizes(p: Packed) -> Answer:
    x, _ = p.grid()
    return x[p.home], p.batch_sizes


@UNPACK(
    "x is right, but every length is the width of x. Each sequence has its own: how often "
    "does it run?"
)
def lengths_are_the_width(p: Packed) -> Answer:
    x, lengths = p.grid()
    return x[p.home], torch.full_like(lengths, x.shape[1])


@UNPACK("After its end you repeat the last vector of a sequence. padding_value belongs there.")
def last_step_repeated(p: Packed) -> Answer:
    x, lengths = p.grid()
    for row, n in zip(x, lengths.tolist(), strict=True):
        row[n:] = row[n - 1]
    return x[p.home], lengths[p.home]
