"""Known mistakes of counting: batch_sizes from lengths, and lengths from batch_sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from .mistakes import Answer, Mistakes, ints, running

BATCH_SIZES = Mistakes()
LENGTHS = Mistakes()


# --- lengths (B,) -> batch_sizes (T,)


@BATCH_SIZES(
    "You return the lengths: one number for each sequence. batch_sizes has one number for "
    "each time step: how many sequences are still running there."
)
def lengths_returned(lengths: Tensor) -> Answer:
    return (lengths,)


@BATCH_SIZES(
    "You return the lengths, sorted: one number for each sequence. batch_sizes has one "
    "number for each time step: how many sequences are still running there."
)
def sorted_lengths_returned(lengths: Tensor) -> Answer:
    return (lengths.sort(descending=True).values,)


@BATCH_SIZES(
    "You also count the sequences that have just ended. A sequence of length 2 has the steps "
    "0 and 1: is it running at step 2?"
)
def counts_just_ended(lengths: Tensor) -> Answer:
    return (ints((lengths >= t).sum() for t in range(int(lengths.max()))),)


@BATCH_SIZES(
    "Your first number belongs to step 1. Steps are counted from 0, and at step 0 every "
    "sequence runs."
)
def starts_at_step_one(lengths: Tensor) -> Answer:
    return (running(lengths, range(1, int(lengths.max()) + 1)),)


@BATCH_SIZES(
    "You go one step too far: the last number is 0. Stop with the last step at which a "
    "sequence runs."
)
def one_step_too_many(lengths: Tensor) -> Answer:
    return (running(lengths, range(int(lengths.max()) + 1)),)


@BATCH_SIZES(
    "You count a sequence once more after its end, so there is one step too many. A sequence "
    "of length 2 has the steps 0 and 1 only."
)
def just_ended_and_one_step_too_many(lengths: Tensor) -> Answer:
    return (ints((lengths >= t).sum() for t in range(int(lengths.max()) + 1)),)


@BATCH_SIZES("You stop one step early: the last step of the longest sequence is missing.")
def one_step_too_few(lengths: Tensor) -> Answer:
    return (running(lengths, range(int(lengths.max()) - 1)),)


@BATCH_SIZES(
    "You take the number of steps from the first length. That is right only if the longest "
    "sequence comes first, and here the lengths are not sorted."
)
def steps_from_first_length(lengths: Tensor) -> Answer:
    return (running(lengths, range(int(lengths[0]))),)


@BATCH_SIZES(
    "You take the number of steps from the last length. That is right only if the longest "
    "sequence comes last, and here the lengths are not sorted."
)
def steps_from_last_length(lengths: Tensor) -> Answer:
    return (running(lengths, range(int(lengths[-1]))),)


@BATCH_SIZES(
    "You make one number for each sequence, as len(lengths) says. The number of steps is "
    "something else: ask the longest sequence."
)
def steps_from_number_of_sequences(lengths: Tensor) -> Answer:
    return (running(lengths, range(len(lengths))),)


@BATCH_SIZES("You stop when the shortest sequence ends. The others still have steps.")
def steps_from_shortest(lengths: Tensor) -> Answer:
    return (running(lengths, range(int(lengths.min()))),)


@BATCH_SIZES(
    "The numbers are right, in the wrong direction: yours rise. Step 0 comes first, and "
    "there all sequences run."
)
def rises(lengths: Tensor) -> Answer:
    return (running(lengths, range(int(lengths.max()))).flip(0),)


@BATCH_SIZES(
    "You count the sequences that have ended before each step. Count those that still run."
)
def counts_the_ended(lengths: Tensor) -> Answer:
    return (ints((lengths <= t).sum() for t in range(int(lengths.max()))),)


@BATCH_SIZES("You count how many sequences end at each step. Count how many still run there.")
def counts_the_ending(lengths: Tensor) -> Answer:
    return (torch.bincount(lengths)[1:],)


@BATCH_SIZES(
    "You return a running total: where each step ends in data. batch_sizes are the sizes "
    "themselves."
)
def running_total(lengths: Tensor) -> Answer:
    return (running(lengths, range(int(lengths.max()))).cumsum(0),)


# --- batch_sizes (T,) -> lengths (B,), long to short


@LENGTHS(
    "You return batch_sizes: one number for each step. lengths has one number for each sequence."
)
def batch_sizes_returned(batch_sizes: Tensor) -> Answer:
    return (batch_sizes,)


@LENGTHS("The lengths are right, in the wrong direction: yours rise. The longest comes first.")
def short_to_long(batch_sizes: Tensor) -> Answer:
    return (running(batch_sizes, range(int(batch_sizes[0]))).flip(0),)


@LENGTHS(
    "Each number is one too small: you give the number of the last step. Steps are counted "
    "from 0, so a sequence whose last step is 1 has the length 2."
)
def index_of_last_step(batch_sizes: Tensor) -> Answer:
    return (running(batch_sizes, range(int(batch_sizes[0]))) - 1,)


@LENGTHS(
    "Some lengths are too large. With 2 sequences running, those are the sequences 0 and 1: "
    "does sequence 2 run there?"
)
def counts_with_equals(batch_sizes: Tensor) -> Answer:
    return (ints((batch_sizes >= b).sum() for b in range(int(batch_sizes[0]))),)


@LENGTHS(
    "Your first number belongs to the second sequence. Sequences are counted from 0, and the "
    "longest runs at every step."
)
def starts_at_sequence_one(batch_sizes: Tensor) -> Answer:
    return (running(batch_sizes, range(1, int(batch_sizes[0]) + 1)),)


@LENGTHS("There is one sequence too many, of length 0. How many sequences run at step 0?")
def one_sequence_too_many(batch_sizes: Tensor) -> Answer:
    return (running(batch_sizes, range(int(batch_sizes[0]) + 1)),)


@LENGTHS("The shortest sequence is missing. How many sequences run at step 0?")
def one_sequence_too_few(batch_sizes: Tensor) -> Answer:
    return (running(batch_sizes, range(int(batch_sizes[0]) - 1)),)


@LENGTHS(
    "You make one number for each step, as len(batch_sizes) says. The number of sequences is "
    "something else: how many run at step 0?"
)
def sequences_from_number_of_steps(batch_sizes: Tensor) -> Answer:
    return (running(batch_sizes, range(len(batch_sizes))),)


@LENGTHS("You return only the sequences that run to the very end. All that run at step 0 count.")
def sequences_from_last_step(batch_sizes: Tensor) -> Answer:
    return (running(batch_sizes, range(int(batch_sizes[-1]))),)


@LENGTHS(
    "You give every sequence the full number of steps. Only the longest has so many: look "
    "where batch_sizes falls."
)
def all_as_long_as_the_longest(batch_sizes: Tensor) -> Answer:
    return (ints([len(batch_sizes)] * int(batch_sizes[0])),)


@LENGTHS(
    "You count how many sequences end at each step. That is a step on the way: who ends "
    "where still has to become one length for each sequence."
)
def falls_only(batch_sizes: Tensor) -> Answer:
    return (batch_sizes - torch.cat([batch_sizes[1:], batch_sizes.new_zeros(1)]),)


@LENGTHS(
    "Each different length comes only once. Where batch_sizes falls by more than one, more "
    "than one sequence has that length."
)
def only_different_lengths(batch_sizes: Tensor) -> Answer:
    falls = batch_sizes - torch.cat([batch_sizes[1:], batch_sizes.new_zeros(1)])
    return (falls.nonzero()[:, 0].add(1).flip(0),)


@LENGTHS(
    "You return a running total: where each step ends in data. A length counts the steps in "
    "which one sequence runs."
)
def total_so_far(batch_sizes: Tensor) -> Answer:
    return (batch_sizes.cumsum(0),)
