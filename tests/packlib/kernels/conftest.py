"""The kernels without a GPU: run by triton's interpreter, or compiled for one that is not there.

Which of the two it will be, triton decides when a module is imported. So the module is loaded twice
here, under names of its own: nothing stays set in the environment, and ``packlib.kernels.move``
itself, which other tests of the same process may use, is not touched.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

import packlib

SOURCE = Path(packlib.__file__).parent / "kernels" / "move.py"


@pytest.fixture(scope="session")
def interpreted():
    """``packlib.kernels.move``, run step by step on the CPU."""
    return load(True)


@pytest.fixture(scope="session")
def compiled():
    """``packlib.kernels.move``, compiled by triton."""
    return load(False)


def load(interpret):
    triton = import_triton()
    spec = importlib.util.spec_from_file_location(f"move_interpret_{interpret}", SOURCE)
    module = importlib.util.module_from_spec(spec)
    before = dict(os.environ)
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = interpret
        spec.loader.exec_module(module)
    assert dict(os.environ) == before
    return module


def import_triton():
    try:
        import triton
    except ImportError:
        missing = "triton is not installed: pip install 'triton>=3.6'"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return triton
