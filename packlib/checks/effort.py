"""How much Python one call runs: instructions of bytecode, and calls into torch.

A loop over steps or sequences makes these grow with the input, in whatever way it is written; an
answer without loops takes the same number for ten sequences as for a thousand.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

from .own_lines import OwnLine, is_library, line_of


@dataclass
class Effort:
    """What one call cost."""

    instructions: int = 0
    torch_calls: int = 0
    by_line: Counter[OwnLine] = field(default_factory=Counter)  # the student's lines only


def effort_of(call: Callable[[], object]) -> Effort:
    """Runs ``call`` three times: to warm up, to count bytecode, to count calls into torch."""
    effort = Effort()
    call()
    _count_instructions(call, effort)
    with _Counting(effort):
        call()
    return effort


def _count_instructions(call: Callable[[], object], effort: Effort) -> None:
    places: Counter[tuple[object, int]] = Counter()
    frames: dict[object, FrameType] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            effort.instructions += 1
            places[frame.f_code, frame.f_lineno] += 1
            frames[frame.f_code] = frame
        return trace

    before, before_in_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)  # type: ignore[arg-type]
    for (code, number), count in places.items():
        frame = frames[code]
        if not is_library(frame.f_code.co_filename):
            effort.by_line[line_of(frame, number)] += count


class _Counting(TorchFunctionMode):
    def __init__(self, effort: Effort) -> None:
        super().__init__()
        self.effort = effort

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.effort.torch_calls += 1
        return func(*args, **(kwargs or {}))
