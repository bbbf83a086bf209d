"""The one kernel, compiled for a GPU that is not there (sm_90): what the interpreter cannot see.

The calls are real ones, up to the launch: arguments, tiles and alignment are those of a user.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from packlib.layout import Layout


class Driver:
    """A GPU as far as triton's compiler asks."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


class Compiler:
    """Stands in for the kernel: compiles for each launch, and keeps the results."""

    def __init__(self, kernel):
        self.kernel, self.made = kernel, []

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.made.append(
            self.kernel.warmup(*args, grid=grid, **kwargs))


@pytest.fixture
def compile(compiled, monkeypatch, tmp_path):
    """Makes a move and returns what it was compiled to."""
    from triton.runtime import driver

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiler = Compiler(compiled._copy)
    monkeypatch.setattr(compiled, "_copy", compiler)
    monkeypatch.setattr(driver, "_active", Driver())

    def compile(name, *args):
        getattr(compiled, name)(*args)
        return compiler.made[-1]

    return compile


def layout_for(lengths):
    return Layout.from_lengths(np.array(sorted(lengths, reverse=True)))


# dtype, shape of a row: 16 bytes fit into it a whole number of times
WIDE = [(torch.float32, (64,)), (torch.float32, (256,)), (torch.half, (8,)), (torch.bool, (48,)),
        (torch.float64, (15, 2)), (torch.complex128, ()), (torch.float32, (4100,))]
NARROW = [(torch.float32, ()), (torch.float32, (33,)), (torch.half, (3,)), (torch.bool, (7,)),
          (torch.float64, (5,))]


@pytest.mark.parametrize("dtype, shape", WIDE, ids=str)
def test_wide_rows_move_16_bytes_at_a_time(compile, dtype, shape):
    layout = layout_for([5, 3, 2])
    for kernel in (compile("pack", torch.zeros(3, 5, *shape, dtype=dtype), layout, True),
                   compile("unpack", torch.zeros(10, *shape, dtype=dtype), layout, True)):
        stores, loads = (bits(kernel.asm["ptx"], op) for op in ("st", "ld"))
        assert stores and set(stores) == {128}
        assert loads.count(128) == len(stores)  # the other loads are the table's


@pytest.mark.parametrize("offset, widest", [(1, 32), (2, 64), (4, 128)])
def test_no_access_is_wider_than_addresses_allow(compile, offset, widest):
    """A GPU stops at a wide load from an odd address; the interpreter does not mind."""
    layout = layout_for([5, 3, 2])
    grid = torch.zeros(3 * 5 * 64 + offset)[offset:].view(3, 5, 64)
    pieces = [torch.zeros(5, 64), torch.zeros(3 * 64 + offset)[offset:].view(3, 64),
              torch.zeros(2, 64)]
    for kernel in (compile("pack", grid, layout, True), compile("from_list", pieces, layout)):
        assert set(bits(kernel.asm["ptx"], "st")) == {widest}


def bits(ptx, op):
    """How many bits each load or store of global memory moves."""
    found = re.findall(rf"\b{op}\.global(?:\.[a-uw-z_]\w*)*?(?:\.v(\d))?\.b(\d+)", ptx)
    return [int(count or 1) * int(size) for count, size in found]


@pytest.mark.parametrize("dtype, shape", WIDE + NARROW, ids=str)
def test_registers_suffice(compile, tmp_path, dtype, shape):
    layout = layout_for([5, 3, 2])
    pieces = [torch.zeros(n, *shape, dtype=dtype) for n in (5, 3, 2)]
    for kernel in (compile("pack", torch.zeros(3, 5, *shape, dtype=dtype), layout, True),
                   compile("unpack", torch.zeros(10, *shape, dtype=dtype), layout, True),
                   compile("from_list", pieces, layout)):
        assert stack(kernel.asm["cubin"], tmp_path / "kernel.cubin") == 0  # nothing spilled


def stack(cubin, path):
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    path.write_bytes(cubin)
    shown = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True)
    return int(re.search(r"STACK:(\d+)", shown.stdout)[1])


def test_new_batches_are_not_compiled_for(compile):
    """Of one row size, whatever the lengths, the padding value, the side or the direction."""
    first = {}
    for lengths in ([5, 3, 2], [1], [16] * 16, list(range(1, 70)), [400, 2]):
        layout = layout_for(lengths)
        x = torch.zeros(len(lengths), max(lengths), 6)
        data = torch.zeros(sum(lengths), 6)
        pieces = list(data.split(lengths))
        made = {
            "pack": [compile("pack", x, layout, True), compile("pack", x.transpose(0, 1), layout),
                     compile("pack", x, layout, True, "left"), compile("reverse", data, layout),
                     compile("to_list", data, layout)],
            "list": [compile("from_list", pieces, layout)],
            "unpack": [compile("unpack", data, layout, True, value)
                       for value in (0, 1.5, float("nan"), -float("inf"))],
        }
        for name, kernels in made.items():
            assert {kernel.hash for kernel in kernels} == {first.setdefault(name, kernels[0].hash)}
