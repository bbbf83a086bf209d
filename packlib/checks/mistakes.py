"""Known wrong answers, kept as small functions, so that a mistake is recognised and not guessed.

If a student's answers equal those of a mistake on both diagnostic batches, its hint is given. The
two batches have no ties, so "long to short" is one order here. Hints say what went wrong and never
how the right line reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .plain import same
from .ragged import Plain, Ragged

Answer = tuple[Tensor, ...]


@dataclass(frozen=True)
class Mistake:
    """A wrong answer with a name and a hint."""

    id: str
    hint: str
    answer: Callable[..., Answer]


class Mistakes(list[Mistake]):
    """The mistakes of one part; ``@PART("hint")`` adds a function, named for the mistake.

    ``seen`` makes of the plain arguments what the functions take.
    """

    def __init__(self, seen: Callable[..., tuple[Any, ...]] = lambda *plain: plain) -> None:
        super().__init__()
        self.seen = seen

    def __call__(self, hint: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
        def keep(answer: Callable[..., Answer]) -> Callable[..., Answer]:
            name = answer.__name__.replace("_", "-")
            self.append(Mistake(name, hint, lambda *plain: answer(*self.seen(*plain))))
            return answer

        return keep


def recognised(
    call: Callable[..., Answer],
    mistakes: Iterable[Mistake],
    batches: Iterable[Ragged],
    arguments: Callable[[Ragged], tuple[Plain, ...]],
) -> Mistake | None:
    """The mistake whose answers are those of ``call`` on every batch."""
    questions = [arguments(batch) for batch in batches]
    answers = [call(*question) for question in questions]
    for mistake in mistakes:
        pairs = zip(questions, answers, strict=True)
        if all(equal(answer, mistake.answer(*question)) for question, answer in pairs):
            return mistake
    return None


def equal(a: Answer, b: Answer) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def ints(values: Iterable[int | Tensor]) -> Tensor:
    return torch.tensor([int(value) for value in values], dtype=torch.int64)


def running(lengths: Tensor, steps: Iterable[int]) -> Tensor:
    """How many lengths are greater than t, for each t of ``steps``."""
    return ints((lengths > t).sum() for t in steps)


def long_to_short(lengths: Tensor) -> Tensor:
    return torch.sort(lengths, descending=True, stable=True).indices
