"""Where the inputs come from: a few that teach, and as many hidden ones as a seed gives.

No batch here is its own conjugate, and no order its own inverse: on such inputs wrong answers look
right. One sequence alone is the exception that cannot be helped.
"""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from .ragged import Ragged

NAN = float("nan")  # one object, so that equal batches compare equal

# Two batches without ties on which all known mistakes differ (a test proves it).
DIAGNOSTIC = (
    Ragged((2, 5, 1, 4), extra=1, padding_value=-7.0, total_extra=2),
    Ragged((3, 6, 2, 5, 7), features=(3,), padding=0.0, zero_inside=True),
)
WITH_TIES = Ragged((2, 4, 1, 4, 3), extra=2, padding_value=-7.0, total_extra=1)

VISIBLE = (
    WITH_TIES,
    Ragged((2, 5, 3), features=(3,)),
    Ragged((4,), extra=3, features=(1,), padding=0.0, total_extra=2),
    Ragged((3, 1, 5, 3), features=(), dtype=torch.int64, padding=0.0, zero_inside=True),
    Ragged((3, 7, 2, 5), extra=1, padding=NAN, padding_value=NAN),
    *DIAGNOSTIC,
)


def hidden(seed: int) -> tuple[Ragged, ...]:
    """Seeded batches: every trap at least once, and the known mistakes' two batches."""
    draw = random.Random(seed)
    many = Ragged(_lengths(draw, 23, 5), extra=1, features=(1,), late_ties=True)
    plain = [
        Ragged(_lengths(draw, draw.randint(4, 7), 9), extra=draw.randint(0, 3), features=(2,))
        for _ in range(3)
    ]
    traps = [
        replace(plain[0], padding=NAN, dtype=torch.float64, total_extra=0),
        replace(plain[1], padding=0.0, zero_inside=True, padding_value=NAN),
        replace(plain[2], dtype=torch.int64, features=(), padding=0.0, zero_inside=True),
        replace(plain[0], dtype=torch.bool, features=(3,), padding=1.0, total_extra=3),
        replace(plain[1], dtype=torch.float16, features=(2, 2), padding_value=2.5),
        Ragged((draw.randint(3, 8),), extra=draw.randint(0, 2), features=(2,)),
        Ragged((1,), extra=draw.randint(1, 2), padding_value=-1.0, total_extra=2),
        Ragged((draw.randint(3, 5),) * draw.randint(6, 8), features=(1,)),
        Ragged((1,) * draw.randint(3, 5), extra=1),
    ]
    return (*DIAGNOSTIC, *plain, *traps, many, replace(many, late_ties=False))


def _lengths(draw: random.Random, count: int, longest: int) -> tuple[int, ...]:
    """Unsorted, with a tie, and of an order that is not its own inverse; drawn until it is so."""
    while True:
        lengths = tuple(draw.randint(1, longest) for _ in range(count))
        if len(set(lengths)) < count and not _hides_mistakes(Ragged(lengths)):
            return lengths


def _hides_mistakes(batch: Ragged) -> bool:
    order = batch.order
    self_inverse = all(order[order[b]] == b for b in range(len(order)))
    self_conjugate = sorted(batch.lengths, reverse=True) == list(batch.batch_sizes)
    return self_inverse or self_conjugate
