"""Triton kernels for tensors on a GPU. Nothing of triton is imported until such a tensor comes.

They have been run by triton's interpreter and compiled for sm_90, but on no GPU yet. Until they
have, packlib's moves do not call them; the tests marked ``cuda`` do.
"""

from __future__ import annotations

import functools
import os


def usable(device_type: str) -> bool:
    """Whether the kernels take tensors of this device type: "cuda", or "cpu" when interpreted.

    With ``TRITON_INTERPRET=1`` triton's interpreter runs them on the CPU, slowly, for tests.
    """
    interpreted = device_type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    return (device_type == "cuda" or interpreted) and _triton_found()


@functools.cache
def _triton_found() -> bool:
    try:
        import triton  # type: ignore
    except ImportError:
        return False
    return tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 6)
