"""Right answers of the counting parts, without loops.

They stand in for a student's own earlier functions when a later part is judged: a mistake costs its
points once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

import torch
from torch import Tensor


def conjugate(counts: Tensor) -> Tensor:
    """For each step, how many of ``counts`` are larger: lengths to batch_sizes, and back, sorted.

    >>> conjugate(torch.tensor([2, 5]))
    tensor([2, 2, 1, 1, 1])
    """
    return len(counts) - torch.bincount(counts).cumsum(0)[:-1]


@contextmanager
def standing_in(function: object, names: tuple[str, ...]) -> Iterator[bool]:
    """Puts ``conjugate`` in the place of the named globals of ``function``; yields whether any."""
    own = function.__globals__ if isinstance(function, FunctionType) else {}
    before = {name: own[name] for name in names if name in own}
    own.update(dict.fromkeys(before, _allowed(conjugate)))  # type: ignore[arg-type]
    try:
        yield bool(before)
    finally:
        own.update(before)


def _allowed(function: FunctionType) -> FunctionType:
    """A copy from no file: the guard forbids what comes from the files of packlib."""
    code = function.__code__.replace(co_filename="<frozen stand-in>")
    return FunctionType(code, function.__globals__, function.__name__)
