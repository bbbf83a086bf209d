"""Run rivals side by side in one process, in several processes, and keep their ratios."""

from __future__ import annotations

import json
import math
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"
THREADS = 2
PROCESSES = 3


def race(rivals: dict[str, Callable[[], object]], rounds: int = 9,
         least_ms: float = 5.0) -> dict[str, float]:
    """Median seconds of one call of each rival.

    Rivals take turns, so that a slow moment of the machine hits all of them. A fast one is called
    several times a turn, for at least ``least_ms``. Everyone is warmed up.
    """
    calls = {name: _calls(run, least_ms) for name, run in rivals.items()}
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, run in rivals.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                run()
            seconds[name].append((time.perf_counter() - start) / calls[name])
    return {name: statistics.median(values) for name, values in seconds.items()}


def _calls(run: Callable[[], object], least_ms: float) -> int:
    run()
    run()
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    return max(1, math.ceil(least_ms / 1000 / max(once, 1e-7)))


def in_fresh_processes(measure: Callable[..., list[dict]], *given: object) -> list[dict]:
    """The rows of ``measure(*given)``, each figure the median of those of a few processes.

    What memory a process happens to get can make one rival twice as slow for as long as it lives.
    """
    rows: list[list[dict]] = []
    for n in range(PROCESSES):
        print(f"process {n + 1} of {PROCESSES}", flush=True)
        with multiprocessing.get_context("spawn").Pool(1, torch.set_num_threads, [THREADS]) as pool:
            rows.append(pool.apply(measure, given))
    return [_middle(same) for same in zip(*rows, strict=True)]


def _middle(rows: tuple[dict, ...]) -> dict:
    return {key: statistics.median(row[key] for row in rows) if isinstance(value, float) else value
            for key, value in rows[0].items()}


def lengths(kind: str, size: int, longest: int) -> torch.Tensor:
    """Unsorted lengths: ``uniform`` in 1..T, or ``skewed``: one of T, the rest up to T/20."""
    generator = torch.Generator().manual_seed(1)
    top = longest if kind == "uniform" else max(1, longest // 20)
    drawn = torch.randint(1, top + 1, (size,), generator=generator)
    drawn[size // 3] = longest
    return drawn


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def save(name: str, rows: list[dict[str, object]], summary: dict[str, float]) -> None:
    """Write ``results/name.json`` with what was measured and on what."""
    RESULTS.mkdir(exist_ok=True)
    report = {"machine": machine(), "processes": PROCESSES,
              "summary": {k: round(v, 2) for k, v in summary.items()}, "rows": rows}
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: benchmarks/results/{path.name}")


def machine() -> dict[str, object]:
    model = next((line.split(":")[1].strip() for line in _cpuinfo() if "model name" in line),
                 platform.processor())
    return {"cpu": model, "threads": torch.get_num_threads(), "torch": torch.__version__,
            "python": platform.python_version()}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
