"""What is said about a broken law: everything for visible inputs, law and hint for hidden ones."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent, wrap

from .boundary import Fault
from .examine import Broken
from .grids import beside

WIDTH = 92
INSET = "    "
LEVELS = (1, 2, 3)
MOST_PRINTED = 5
WITH_INPUT = ("value", "raises", "endless", "changes-inputs", "other-dtype")
WITH_NUDGE = ("value", "raises", "not-written")


def visible_report(broken: Broken, level: int = 3) -> str:
    """Level 1 says what broke, 2 adds which mistake it is, 3 adds where to read."""
    blocks = [_headline(broken), *_what_broke(broken)]
    if level >= 2:
        blocks += _mistake(broken)
    blocks.append(f"Read: {broken.part.read}" if level >= 3 else _more(broken, level))
    return "\n\n".join(blocks)


def _more(broken: Broken, level: int) -> str:
    """What the next level would add; a level that would add nothing is passed over."""
    if level == 1 and _mistake(broken):
        what = "says which mistake it looks like" if broken.mistake else "gives a hint"
        following = 2
    else:
        what, following = "says where the book explains it", 3
    call = f'packlib.check("{broken.part.name}", {broken.part.function}, hint={following})'
    return f"More: {call} {what}."


def _headline(broken: Broken) -> str:
    if broken.breach.kind == "not-written":
        return f"{broken.part.name}: {broken.part.function} is not written yet."
    return f"{broken.part.name}: this law is broken: {broken.breach.law}."


def _what_broke(broken: Broken) -> Iterator[str]:
    breach = broken.breach
    if breach.kind == "not-written":
        return
    if breach.fault:
        yield _told(breach.fault)
        if breach.fault.said:
            yield f"It says: {breach.fault.said}"
    if breach.kind in WITH_INPUT:
        yield _input(broken)
    if breach.difference:
        lines = beside(breach.difference.expected, breach.difference.found)
        yield indent("\n".join(lines), INSET)
        if breach.difference.remark:
            yield _wrapped(breach.difference.remark)
    if broken.printed:
        lines = broken.printed.splitlines()[-MOST_PRINTED:]
        yield "Your function printed:\n" + indent("\n".join(lines), INSET)


def hidden_report(broken: Broken) -> str:
    """No input and no value of the test; an exception's own message could repeat one."""
    if broken.breach.kind == "not-written":
        return _headline(broken)
    law = f"this law is broken: {broken.breach.law}."
    blocks = [f"{broken.part.name}, on inputs that are not shown: {law}"]
    if broken.breach.fault:
        blocks.append(_told(broken.breach.fault))
    blocks += [*_mistake(broken), f"Read: {broken.part.read}"]
    return "\n\n".join(blocks)


def _mistake(broken: Broken) -> list[str]:
    if broken.mistake:
        return [_wrapped(f"It looks like this: {broken.mistake.hint}")]
    if broken.breach.kind in WITH_NUDGE:
        return [_wrapped(f"A hint: {broken.part.nudge}")]
    return []  # a fault says itself what to do


def _told(fault: Fault) -> str:
    line = f"\n{INSET}{fault.line}" if fault.line else ""
    return _wrapped(fault.text) + line


def _input(broken: Broken) -> str:
    words, *picture = broken.part.shown(broken.breach.batch)
    return f"The input: {words}\n" + indent("\n".join(picture), INSET)


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, break_long_words=False))
