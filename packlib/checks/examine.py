"""Runs the laws of a part on one function, and finds out what to say about the first broken one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from .boundary import Boundary, Fault
from .laws import Breach, order_sorts, padding_may_be_anything
from .mistakes import Mistake, recognised
from .parts import Part
from .ragged import Ragged
from .right import standing_in
from .shrink import smallest

GUESSABLE = ("value", "raises")  # the ways of breaking a law that a mistake may explain
ONLY_SHOWN = Mistake(
    "only-the-shown-inputs",
    "Your function is right on the inputs that you can see, and wrong on others. Look for a "
    "number or a shape that fits only those: think of ties, of one sequence alone, of more than "
    "16 sequences, of x wider than its longest sequence.",
    answer=lambda *_: (),
)
NAN_PADDING = Mistake(
    "nan-from-padding",
    "Your function is right as long as ordinary numbers stand in the padding. Here it is NaN, and "
    "NaN times 0 is still NaN: leave the padding out, do not multiply it away.",
    answer=lambda *_: (),
)

TIES_LOST = Mistake(
    "ties-lost",
    "Your function is right as long as all lengths differ. Here two sequences have the same "
    "length, and order names one of them twice or not at all. A length is no name of a sequence: "
    "a dict with lengths as keys, or .index, finds only one of those that share it.",
    answer=lambda *_: (),
)


@dataclass(frozen=True)
class Broken:
    """What there is to say: the breach on its smallest batch, and the mistake if known."""

    part: Part
    breach: Breach
    mistake: Mistake | None
    printed: str = ""

    @property
    def hint_id(self) -> str:
        """The recognised mistake's id, else the kind of fault; "" where nothing is known."""
        if self.mistake:
            return self.mistake.id
        return self.breach.fault.kind if self.breach.fault else ""


def examine(part: Part, function: object, batches: Sequence[Ragged]) -> Broken | None:
    """None if every law holds on every batch."""
    call = Boundary(function, part.outputs)
    breach = _first(part, call, batches)
    if breach is None:
        return None
    with standing_in(function, part.earlier) as any_stands_in:
        if any_stands_in:
            helped = Boundary(function, part.outputs)
            other = _first(part, helped, batches)
            if other is None:
                return None
            if breach.kind == "not-written":
                return _explained(part, helped, other)
    return _explained(part, call, breach)


def _first(part: Part, call: Boundary, batches: Sequence[Ragged]) -> Breach | None:
    return next(filter(None, (law(call, batches) for law in part.laws)), None)


def _explained(part: Part, call: Boundary, breach: Breach) -> Broken:
    if breach.kind in ("endless", "not-written", "forbidden", "loops"):
        return Broken(part, breach, None)

    def breaks(batch: Ragged) -> bool:
        found = _first(part, call, [batch])
        return found is not None and found.like(breach)

    batch = smallest(breach.batch, breaks)
    small = _first(part, call, [batch]) if batch != breach.batch else breach
    mistake = _known(part, call, batch, breach.law) if breach.kind in GUESSABLE else None
    return Broken(part, small or breach, mistake, _printed(call, part, batch))


def _known(part: Part, call: Boundary, batch: Ragged, law: str) -> Mistake | None:
    with suppress(Fault):
        if law == order_sorts.name and _loses_ties(part, call, batch):
            return TIES_LOST
        known = recognised(call, part.mistakes, part.diagnostic, part.arguments)
        if known:
            return known
    ordinary = _first(part, call, [replace(batch, padding=-1000.0)])
    only_nan = ordinary is not None and ordinary.law == padding_may_be_anything.name
    return NAN_PADDING if only_nan and batch.dtype.is_floating_point else None


def _loses_ties(part: Part, call: Boundary, batch: Ragged) -> bool:
    order = call(*part.arguments(batch))[part.outputs.index("order")]
    everyone = set(range(len(batch.lengths)))
    tied = len(set(batch.lengths)) < len(batch.lengths)
    return tied and set(order.tolist()) < everyone and _first(part, call, part.diagnostic) is None


def _printed(call: Boundary, part: Part, batch: Ragged) -> str:
    """What the function prints for this batch, asked afresh."""
    again = Boundary(call.function, call.outputs)
    with suppress(Fault):
        again(*part.arguments(batch))
    return again.printed


def with_only_shown(broken: Broken, function: object) -> Broken:
    """For hidden batches: says so if nothing is recognised and all visible batches are right."""
    if broken.mistake or broken.breach.kind not in GUESSABLE:
        return broken
    if examine(broken.part, function, broken.part.visible):
        return broken
    return replace(broken, mistake=ONLY_SHOWN)
