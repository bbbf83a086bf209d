"""The student's own line: the innermost frame that belongs to no library."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

import torch

_CHECKS = str(Path(__file__).parent)
_PACKLIB = str(Path(__file__).parent.parent)
_LIBRARIES = tuple(
    {
        _PACKLIB,
        str(Path(torch.__file__).parent),
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["purelib"],
        sysconfig.get_paths()["platlib"],
        str(Path(sys.prefix) / "lib"),
    }
)


class OwnLine(NamedTuple):
    """Where in the student's code: the function's name, the line in its cell, and its text."""

    function: str
    number: int
    text: str

    def __str__(self) -> str:
        place = "your cell" if self.function == "<module>" else self.function
        return f"line {self.number} of {place}: {self.text}" if self.text else f"in {place}"


def is_library(filename: str) -> bool:
    """True for torch, numpy, packlib, the standard library and frozen modules."""
    return filename.startswith(("<frozen", *_LIBRARIES))


def own_line(frame: FrameType | None) -> OwnLine | None:
    """The innermost frame of the student's, looking outwards from ``frame``."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_CHECKS):
            return None  # the boundary: nothing of the student's lies beyond
        if not is_library(frame.f_code.co_filename):
            return line_of(frame, frame.f_lineno)
        frame = frame.f_back
    return None


def own_line_of(traceback: TracebackType | None) -> OwnLine | None:
    """The innermost line of the student's in a traceback."""
    found = None
    while traceback is not None:
        if not is_library(traceback.tb_frame.f_code.co_filename):
            found = line_of(traceback.tb_frame, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def line_of(frame: FrameType, number: int | None) -> OwnLine:
    if number is None:  # of no line: a generator's start, the end of an except clause
        number = frame.f_code.co_firstlineno
    text = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    return OwnLine(frame.f_code.co_name, number, text)
