"""Finds a forbidden call while the student's function runs, by any spelling.

Two nets. Operators of torch (``aten::_pack_padded_sequence`` and its kin) are replaced for the
time of the call, so it does not matter whether they are reached through ``torch.nn.utils.rnn``,
``torch._VF``, ``torch.ops`` or an alias. Functions written in Python are known by their code
objects, which an alias shares. A call is written down before the exception is raised: a student who
swallows the exception has still made the call.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType, ModuleType

import torch
import torch.nn.utils.rnn

from .own_lines import OwnLine, own_line

OPERATORS = ("_pack_padded_sequence", "_pad_packed_sequence", "pad_sequence")
KEYS = ("CPU", "AutogradCPU")
# the rooms of packlib that do not pack or pad; all others are forbidden
ALLOWED_ROOMS = ("packlib.checks", "packlib.viz", "packlib.datasets")


class ForbiddenCall(RuntimeError):
    """Raised in the student's code at the forbidden call."""


@contextmanager
def forbidden_calls() -> Iterator[list[tuple[str, OwnLine | None]]]:
    """Yields the list of (what was called, the student's line); torch is as before on leaving."""
    seen: list[tuple[str, OwnLine | None]] = []
    names = forbidden_code(tuple(_forbidden_modules()))

    def refuse(what: str, frame: FrameType | None) -> None:
        seen.append((what, own_line(frame)))
        raise ForbiddenCall(f"{what} is not allowed in this part: write it yourself")

    def hook(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in names:
            refuse(names[frame.f_code], frame.f_back)

    with _replaced_operators(refuse):
        before = sys.getprofile()
        sys.setprofile(hook)
        try:
            yield seen
        finally:
            sys.setprofile(before)


@contextmanager
def _replaced_operators(refuse: Callable[[str, FrameType | None], None]) -> Iterator[None]:
    def stand_in(name: str) -> Callable[..., None]:
        return lambda *_, **__: refuse(f"aten::{name}", sys._getframe(1))

    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():  # torch warns that a kernel is replaced: that is the aim
            warnings.simplefilter("ignore")
            for name in OPERATORS:
                for key in KEYS:
                    library.impl(name, stand_in(name), key)
        yield


@cache
def forbidden_code(modules: tuple[ModuleType, ...]) -> dict[CodeType, str]:
    """Code object -> name, for every Python function that these modules define."""
    found: dict[CodeType, str] = {}
    for module in modules:
        for value in list(vars(module).values()):
            members = list(vars(value).values()) if isinstance(value, type) else []
            for code in _codes([value, *members]):
                if code.co_filename == module.__file__:
                    found[code] = f"{module.__name__}.{code.co_name}"
    return found


def _forbidden_modules() -> list[ModuleType]:
    """torch's rnn utilities, and the rooms of packlib as far as they are loaded now."""
    ours = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("packlib.") and not name.startswith(ALLOWED_ROOMS) and module
    ]
    return [torch.nn.utils.rnn, *ours]


def _codes(values: list[object]) -> Iterator[CodeType]:
    """The code of functions, and of those inside methods, properties and wrappers."""
    for value in values:
        for name in ("__func__", "fget", "func", "__wrapped__", None):
            function = getattr(value, name, None) if name else value
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType):
                yield code
