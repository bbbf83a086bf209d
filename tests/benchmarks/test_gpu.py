"""The benchmark for GPUs, as far as it goes without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(*arguments):
    return subprocess.run([sys.executable, BENCHMARKS / "gpu.py", *arguments],
                          capture_output=True, text=True, timeout=300)


def results():
    return sorted((path.name, path.stat().st_mtime) for path in (BENCHMARKS / "results").iterdir())


def test_dry_run_checks_every_row_and_writes_nothing():
    before = results()
    done = run("--dry")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("dry run on the CPU: these times mean nothing")
    rows = [line for line in done.stdout.splitlines() if line.startswith("what ")]
    timed = [row for row in rows if "copy speed" not in row]
    assert len(timed) == 3 * 6 + 3 * 6 and all("right True" in row for row in timed)
    assert "0 wrong" in done.stdout
    assert results() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_says_so_where_there_is_no_gpu():
    before = results()
    done = run()
    assert done.returncode == 1
    assert "torch sees no GPU here, so nothing was measured and nothing written" in done.stdout
    assert results() == before


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu

    return gpu


def test_wrong_numbers_are_seen(gpu):
    x, y = torch.ones(3, 2), torch.ones(3, 2)
    assert gpu.equal([x], [y]) and gpu.near([x], [y])
    y[1, 1] = 1.1
    assert not gpu.equal([x], [y]) and not gpu.near([x], [y])
    assert not gpu.equal([x], [x, x])
    y[1, 1] = float("nan")
    assert not gpu.near([x], [y])


def test_report_is_json(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu.kernels, "usable", lambda kind: False)
    bench = gpu.Bench("cpu")
    bench.dry = False
    monkeypatch.setattr(bench, "wait", lambda: None)
    bench.measure("pack", (2, 3), "uniform", lambda: None, lambda: None, True, 8, (1e9, 0))
    bench.measure("pack", (2, 3), "equal", lambda: None, lambda: None, True, 8, (float("inf"), 1e9))
    gpu.save(bench, "NVIDIA Imaginary 1")
    text = (tmp_path / "gpu.json").read_text()
    report = gpu.json.loads(text, parse_constant=pytest.fail)
    assert report["machine"]["gpu"] == "NVIDIA Imaginary 1"
    assert [row["met"] for row in report["rows"]] == [True, False]


def test_no_file_hides_a_package_that_torch_imports():
    """Scripts see their own folder first: a cuda.py there would be taken for NVIDIA's package."""
    assert not [path.name for path in BENCHMARKS.glob("*.py") if path.stem in ("cuda", "triton")]
