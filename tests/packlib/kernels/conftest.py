"""The kernels without a GPU: run by triton's interpreter, or compiled for one that is not there.

Which of the two it will be, triton decides when a module is imported. So the module is loaded twice
here, under names of its own: nothing stays set in the environment, and ``packlib.kernels.move``
itself, which other tests of the same process may use, is not touched.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path

import pytest

import packlib
from packlib import kernels
from packlib.padding import flat_grid

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
    for name in (pack, unpack, reverse):
        setattr(module, name.__name__, functools.partial(name, module))
    return module


def pack(module, x, layout, batch_first=False, padding_side="right", reverse=False):
    flat, batch_first = flat_grid(x, batch_first)
    cells = module.grid, len(flat) // layout.num_sequences, batch_first, padding_side
    return module.move(flat, layout, (module.packed,), cells, reverse)


def unpack(module, data, layout, batch_first=False, value=0.0, total=None, padding_side="right",
           reverse=False):
    count, steps = layout.num_sequences, layout.num_steps if total is None else total
    cells = module.move(data, layout, (module.grid, steps, batch_first, padding_side),
                        (module.packed,), reverse, value)
    return cells.unflatten(0, (count, steps) if batch_first else (steps, count))


def reverse(module, data, layout):
    return module.move(data, layout, (module.packed,), (module.packed,), reverse=True)


@pytest.fixture
def launches(interpreted, monkeypatch):
    """packlib's own functions go by the interpreted kernel; gives its launches."""
    made, launch = [], interpreted._launch
    monkeypatch.setattr(kernels, "INTERPRETED", True)
    monkeypatch.setattr(kernels, "load", lambda: interpreted)
    monkeypatch.setattr(interpreted, "_launch",
                        lambda *args, **options: made.append(args) or launch(*args, **options))
    return made


def import_triton():
    try:
        import triton
        import triton.knobs  # of triton 3.6, and the kernels ask for no less
    except ImportError:
        missing = "triton is not installed, or is too old: pip install 'triton>=3.6'"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return triton
