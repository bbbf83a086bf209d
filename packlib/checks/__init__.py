"""Laws and hints for the exercises: for a self-learner, for visible tests and for hidden ones.

>>> import torch
>>> def batch_sizes(lengths):
...     return torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])
>>> check("ps2.batch_sizes", batch_sizes)
ps2.batch_sizes: all laws hold.
True
"""

from __future__ import annotations

from .examine import Broken, examine, with_only_shown
from .parts import PARTS, Part, part_named
from .report import LEVELS, hidden_report, visible_report

__all__ = ["PARTS", "Broken", "LawBroken", "Part", "check", "require", "require_hidden"]


class LawBroken(AssertionError):
    """A law of a part does not hold; ``law`` and ``hint`` (its id) say which and why."""

    def __init__(self, text: str, broken: Broken, hidden: bool = False) -> None:
        super().__init__(text)
        self.hidden = hidden
        self.part, self.law, self.hint = broken.part.name, broken.breach.law, broken.hint_id

    def _render_traceback_(self) -> list[str]:
        """Asked by IPython: the report alone, for a traceback would show the test's text."""
        return str(self).splitlines()


def check(part: str, function: object, hint: int = 1) -> bool:
    """Test ``function`` by the laws of ``part``, print what broke, and say whether all held.

    ``hint`` 1 says what broke, 2 adds which mistake it looks like, 3 adds where to read.
    Raises ValueError for an unknown part or hint.

    >>> check("ps2.batch_sizes", lambda lengths: lengths, hint=2)  # doctest: +ELLIPSIS
    ps2.batch_sizes: this law is broken: batch_sizes count the running sequences.
    ...
    It looks like this: You return the lengths: one number for each sequence. ...
    False
    """
    if hint not in LEVELS:
        levels = "1 (what broke), 2 (which mistake) or 3 (where to read)"
        raise ValueError(f"hint is {levels}, not {hint!r}")
    asked = part_named(part)
    broken = examine(asked, function, asked.visible)
    print(visible_report(broken, hint) if broken else f"{part}: all laws hold.")
    return broken is None


def require(part: str, function: object) -> None:
    """Raise LawBroken, with the full report, unless the laws hold on the visible inputs."""
    asked = part_named(part)
    broken = examine(asked, function, asked.visible)
    if broken:
        raise LawBroken(visible_report(broken), broken)


def require_hidden(part: str, function: object, seed: int) -> None:
    """Raise LawBroken unless the laws hold on inputs drawn from ``seed``.

    The report names law, hint and section, and neither inputs nor values.
    """
    asked = part_named(part)
    broken = examine(asked, function, asked.hidden(seed))
    if broken:
        broken = with_only_shown(broken, function)
        raise LawBroken(hidden_report(broken), broken, hidden=True)
