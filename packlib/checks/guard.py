"""Finds a forbidden call while the student's function runs, by any spelling.

Two nets. Operators of torch (``aten::_pack_padded_sequence`` and its kin) are replaced for the
time of the call, so it does not matter whether they are reached through ``torch.nn.utils.rnn``,
``torch._VF``, ``torch.ops`` or an alias. Functions written in Python are known by the file that
their code comes from, which an alias shares; other threads are watched too. A call is written down
before the exception is raised: a student who swallows the exception has still made the call.
"""

from __future__ import annotations

import _thread
import gc
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import torch
import torch.nn.utils.rnn

from .own_lines import OwnLine, is_library, own_line

OPERATORS = ("_pack_padded_sequence", "_pad_packed_sequence", "pad_sequence")
KEYS = ("CPU", "AutogradCPU")
# the rooms of packlib that do not pack or pad; all others are forbidden
ALLOWED_ROOMS = ("packlib.viz", "packlib.datasets")
# what runs around the student's function while it is watched; none of it holds an answer
WATCHERS = tuple(
    f"packlib.checks.{name}" for name in ("boundary", "effort", "guard", "limit", "own_lines")
)
# Ways to switch the watch off, or to look at the frames above the call and what they hold.
WAYS_ROUND = {
    *map(id, (sys.setprofile, sys.settrace, sys._getframe, sys._current_frames)),
    *map(id, (gc.get_objects, gc.get_referrers, _thread.start_new_thread)),
}
SWITCHES = (threading.setprofile.__code__, threading.settrace.__code__)
# what is seen of a call that switched the watch off by a way that no hook sees
UNWATCHED: tuple[str, OwnLine | None] = ("sys.setprofile", None)

_PACKLIB = Path(__file__).parent.parent
_harmless: set[str] = set()  # files whose calls need no second look
_open: list[Callable[[str, FrameType | None], None]] = []  # what refuses, of the innermost last


class ForbiddenCall(RuntimeError):
    """Raised in the student's code at the forbidden call."""


@contextmanager
def forbidden_calls() -> Iterator[list[tuple[str, OwnLine | None]]]:
    """Yields the list of (what was called, the student's line); torch is as before on leaving."""
    seen: list[tuple[str, OwnLine | None]] = []

    def refuse(what: str, frame: FrameType | None) -> None:
        seen.append((what, own_line(frame)))
        raise ForbiddenCall(f"{what} is not allowed in this part: write it yourself")

    # Calls no function of Python for what is harmless: it runs at every call, and a RecursionError
    # that strikes inside a hook becomes a SystemError.
    def hook(frame: FrameType, event: str, called: object) -> None:
        if event == "call" and frame.f_code.co_filename not in _harmless:
            what, caller = _forbidden(frame), frame.f_back
        elif event == "c_call" and id(called) in WAYS_ROUND:
            what, caller = _way_round(called, frame), frame
        else:
            return
        if what:
            refuse(what, caller)

    with _replaced_operators(refuse):
        before, before_in_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(hook)
        sys.setprofile(hook)
        try:
            yield seen
        finally:
            unwatched = sys.getprofile() is not hook or threading.getprofile() is not hook
            if unwatched and not seen:  # Python itself takes away a hook that has raised
                seen.append(UNWATCHED)
            sys.setprofile(before)
            threading.setprofile(before_in_threads)  # type: ignore[arg-type]


@contextmanager
def _replaced_operators(refuse: Callable[[str, FrameType | None], None]) -> Iterator[None]:
    _open.append(refuse)
    try:  # torch 2.6 lets Python replace an operator only once: nested guards share the stand-ins
        with _stand_ins() if len(_open) == 1 else nullcontext():
            yield
    finally:
        _open.pop()


@contextmanager
def _stand_ins() -> Iterator[None]:
    def stand_in(name: str) -> Callable[..., None]:
        return lambda *_, **__: _open[-1](f"aten::{name}", sys._getframe(1))

    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():  # torch warns that a kernel is replaced: that is the aim
            warnings.simplefilter("ignore")
            for name in OPERATORS:
                for key in KEYS:
                    library.impl(name, stand_in(name), key)
        yield


def _forbidden(frame: FrameType) -> str:
    """The name of the Python function that is being called, if it is a forbidden one."""
    code = frame.f_code
    if code in SWITCHES and frame.f_back and not is_library(frame.f_back.f_code.co_filename):
        return f"threading.{code.co_name}"
    module = forbidden_module(code.co_filename)
    if module:
        return f"{module}.{code.co_name}"
    if code.co_filename != threading.__file__:  # the switches are in there
        _harmless.add(code.co_filename)
    return ""


def _way_round(called: object, frame: FrameType) -> str:
    """The name of a built-in function that the student's code has no business with."""
    caller: FrameType | None = frame
    while caller and caller.f_code.co_filename == inspect.__file__:
        caller = caller.f_back
    if caller is None or is_library(caller.f_code.co_filename):
        return ""
    return f"{called.__module__}.{called.__name__}"  # type: ignore[attr-defined]


def forbidden_module(filename: str) -> str:
    """The module that a file is, if its functions are forbidden: torch's rnn utilities and packlib.

    By the file and not by what is loaded, for a function may load more while it runs.
    """
    if filename == torch.nn.utils.rnn.__file__:
        return torch.nn.utils.rnn.__name__
    path = Path(filename)
    if _PACKLIB not in path.parents:
        return ""
    parts = path.relative_to(_PACKLIB).with_suffix("").parts
    name = ".".join(("packlib", *parts)).removesuffix(".__init__")
    allowed = name in WATCHERS or name.startswith(ALLOWED_ROOMS) or name == "packlib"
    return "" if allowed else name
