"""Known mistakes of pack: (x, lengths) -> data, batch_sizes, order."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .mistakes import Answer, Mistakes, ints, long_to_short, running

PACK = Mistakes()


def _steps(x: Tensor, sizes: Iterable[int | Tensor]) -> Tensor:
    """The first rows of each step, one step after another."""
    return torch.cat([x[: int(size), t] for t, size in enumerate(sizes)])


def _sizes(lengths: Tensor) -> Tensor:
    return running(lengths, range(int(lengths.max())))


def _right(x: Tensor, lengths: Tensor) -> Answer:
    order, sizes = long_to_short(lengths), _sizes(lengths)
    return _steps(x[order], sizes), sizes, order


@PACK(
    "Your data holds the right vectors, sequence after sequence. A packed batch goes time "
    "step by time step: first step 0 of every sequence, then step 1 of those still running, "
    "and so on."
)
def sequence_major(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    return torch.cat([x[b, : lengths[b]] for b in order]), sizes, order


@PACK(
    "Your data holds the right vectors, sequence after sequence in the user's order. A "
    "packed batch goes time step by time step, and the longest sequence comes first in each "
    "step."
)
def sequence_major_unsorted(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    return torch.cat([x[b, : lengths[b]] for b in range(len(x))]), sizes, order


@PACK(
    "You did not sort. The first rows of each step are right only if the longest sequences "
    "come first: sort by length, long to short, and keep the permutation."
)
def no_sort(x: Tensor, lengths: Tensor) -> Answer:
    sizes = _sizes(lengths)
    return _steps(x, sizes), sizes, torch.arange(len(x))


@PACK(
    "You take the right sequences at each step, in the user's order. Inside a step the "
    "longest comes first, so that the ones that end are always the last."
)
def running_but_unsorted(x: Tensor, lengths: Tensor) -> Answer:
    sizes = _sizes(lengths)
    rows = [x[lengths > t, t] for t in range(len(sizes))]
    return torch.cat(rows), sizes, torch.arange(len(x))


@PACK("order is right, but you did not put the rows of x into that order before taking them.")
def order_without_rows(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    return _steps(x, sizes), sizes, order


@PACK(
    "order is right, but inside each step your rows stand in the user's order. The longest "
    "comes first there too."
)
def running_rows_unsorted(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    return torch.cat([x[lengths > t, t] for t in range(len(sizes))]), sizes, order


@PACK("You sort short to long. batch_sizes never grow, so the longest sequence must come first.")
def short_to_long(x: Tensor, lengths: Tensor) -> Answer:
    order, sizes = lengths.sort().indices, _sizes(lengths)
    return _steps(x[order], sizes), sizes, order


@PACK(
    "data is right, but batch_sizes holds the sorted lengths: one number for each sequence. "
    "It needs one number for each time step: how many sequences still run there."
)
def batch_sizes_are_lengths(x: Tensor, lengths: Tensor) -> Answer:
    data, _, order = _right(x, lengths)
    return data, lengths[order], order


@PACK(
    "data is right, but you return the lengths as they came for batch_sizes. It needs one number "
    "for each time step: how many sequences still run there."
)
def batch_sizes_are_unsorted_lengths(x: Tensor, lengths: Tensor) -> Answer:
    data, _, order = _right(x, lengths)
    return data, lengths, order


@PACK(
    "At each step you also take the sequences that have just ended, so one padding of each "
    "of them gets into data. A sequence of length 2 has the steps 0 and 1 only."
)
def counts_just_ended(x: Tensor, lengths: Tensor) -> Answer:
    order = long_to_short(lengths)
    sizes = ints((lengths >= t).sum() for t in range(int(lengths.max())))
    return _steps(x[order], sizes), sizes, order


@PACK(
    "Your data has a row for every cell of the padded batch. Only the steps that exist "
    "belong in it: stop each sequence at its length."
)
def keeps_padding(x: Tensor, lengths: Tensor) -> Answer:
    order, (B, T) = long_to_short(lengths), x.shape[:2]
    return x[order].transpose(0, 1).flatten(0, 1), ints([B] * T), order


@PACK(
    "Your data has a row for every cell of the padded batch, sequence after sequence. It goes time "
    "step by time step, and only the steps that exist belong in it."
)
def keeps_padding_sequence_major(x: Tensor, lengths: Tensor) -> Answer:
    order, (B, T) = long_to_short(lengths), x.shape[:2]
    return x[order].flatten(0, 1), ints([B] * T), order


@PACK(
    "batch_sizes are right, but your data has a row for every cell of the padded batch. Data "
    "has as many rows as batch_sizes add up to."
)
def keeps_padding_beside_right_sizes(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    return x[order].transpose(0, 1).flatten(0, 1), sizes, order


@PACK(
    "You look for padding by its value. A vector of zeros can be data, and padding can be "
    "anything: only lengths know where a sequence ends."
)
def padding_by_value(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    steps = x[order].transpose(0, 1).flatten(0, 1)
    return steps[(steps != 0).flatten(1).any(1)], sizes, order


@PACK(
    "A vector of zeros inside a sequence is missing from your data. Zeros can be data: only "
    "lengths know where a sequence ends."
)
def drops_zero_vectors(x: Tensor, lengths: Tensor) -> Answer:
    data, sizes, order = _right(x, lengths)
    return data[(data != 0).flatten(1).any(1)], sizes, order


@PACK(
    "You put the rows into the order of the inverse permutation. To sort x, index it with "
    "the sorting permutation itself; the inverse undoes the sort."
)
def rows_by_inverse(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    return _steps(x[order.argsort()], sizes), sizes, order


@PACK(
    "data and batch_sizes are right, but you return the inverse of the order. order[0] is "
    "the number of the longest sequence."
)
def order_is_inverse(x: Tensor, lengths: Tensor) -> Answer:
    data, sizes, order = _right(x, lengths)
    return data, sizes, order.argsort()


@PACK(
    "data and batch_sizes are right, but order holds the sorted lengths. It needs the "
    "numbers of the sequences, the longest first."
)
def order_is_lengths(x: Tensor, lengths: Tensor) -> Answer:
    data, sizes, order = _right(x, lengths)
    return data, sizes, lengths[order]


@PACK(
    "data and batch_sizes are right, but order says that nothing was sorted. Without the "
    "permutation nobody can undo your sort."
)
def order_is_arange(x: Tensor, lengths: Tensor) -> Answer:
    data, sizes, order = _right(x, lengths)
    return data, sizes, torch.arange(len(order))


@PACK(
    "You take the number of steps from lengths[0]. The user's first sequence need not be the "
    "longest."
)
def steps_from_first_length(x: Tensor, lengths: Tensor) -> Answer:
    order, sizes = long_to_short(lengths), running(lengths, range(int(lengths[0])))
    return _steps(x[order], sizes), sizes, order


@PACK(
    "You make one step for each sequence, as len(lengths) says. The number of steps is "
    "something else: ask the longest sequence."
)
def steps_from_number_of_sequences(x: Tensor, lengths: Tensor) -> Answer:
    order, sizes = long_to_short(lengths), running(lengths, range(len(lengths)))
    return _steps(x[order], sizes), sizes, order


@PACK(
    "batch_sizes ends with zeros: you go as far as x is wide. x may be wider than its "
    "longest sequence."
)
def steps_from_width(x: Tensor, lengths: Tensor) -> Answer:
    data, _, order = _right(x, lengths)
    return data, running(lengths, range(x.shape[1])), order


@PACK(
    "You go one step too far: the last of batch_sizes is 0. Stop with the last step at which "
    "a sequence runs."
)
def one_step_too_many(x: Tensor, lengths: Tensor) -> Answer:
    data, _, order = _right(x, lengths)
    return data, running(lengths, range(int(lengths.max()) + 1)), order


@PACK("You stop one step early: the last step of the longest sequence is missing.")
def one_step_too_few(x: Tensor, lengths: Tensor) -> Answer:
    order, sizes = long_to_short(lengths), running(lengths, range(int(lengths.max()) - 1))
    return _steps(x[order], sizes), sizes, order


@PACK("The last row of data is missing, while batch_sizes still count it.")
def last_row_lost(x: Tensor, lengths: Tensor) -> Answer:
    data, sizes, order = _right(x, lengths)
    return data[:-1], sizes, order


@PACK(
    "You read x from its end: the first rows of data are the last cells of x, padding too. "
    "Step 0 is x[:, 0]."
)
def runs_backwards(x: Tensor, lengths: Tensor) -> Answer:
    _, sizes, order = _right(x, lengths)
    return _steps(x.flip(1)[order], sizes), sizes, order


@PACK(
    "data is right, but batch_sizes holds a running total: where each step ends in data. It "
    "needs the sizes themselves."
)
def running_total(x: Tensor, lengths: Tensor) -> Answer:
    data, sizes, order = _right(x, lengths)
    return data, sizes.cumsum(0), order
