"""Triton kernels for tensors on a GPU. Nothing of triton is imported until such a tensor comes.

packlib's moves call them wherever they run, and go by row numbers elsewhere: without triton, and
where it has no compiler. They have been run by triton's interpreter and compiled for sm_90, but on
no GPU yet; the tests marked ``cuda`` do.
"""

from __future__ import annotations

import functools
import os
import warnings
from types import ModuleType

import torch

# Then triton's interpreter runs the kernels on the CPU, slowly, for tests.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def usable(device_type: str) -> bool:
    """Whether the kernels take tensors of this device type: "cuda", or "cpu" when interpreted."""
    if device_type == "cuda":
        return _runs()
    return INTERPRETED and device_type == "cpu" and _triton_found()


@functools.cache
def load() -> ModuleType:
    """``packlib.kernels.move``, which imports triton."""
    from packlib.kernels import move

    return move


@functools.cache
def _triton_found() -> bool:
    try:
        import triton  # type: ignore
    except ImportError:
        return False
    return tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 6)


@functools.cache
def _runs() -> bool:
    """Tried once: to run, triton needs a compiler for C and a GPU that is not too old."""
    if not _triton_found():
        return False
    try:
        return load().works(torch.device("cuda"))
    except Exception as error:
        warnings.warn(f"packlib's kernel for the GPU does not run here ({error}); its moves go by "
                      "row numbers, which is slower and gives the same", stacklevel=2)
        return False
