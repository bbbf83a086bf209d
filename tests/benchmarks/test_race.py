"""Ratios of several processes: what a process happens to get is not taken for a result."""

import os
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROW = """[{'process': float(__import__('os').getpid()), 'case': (3, 5), 'move': 'pack',
           'threads': float(__import__('torch').get_num_threads())}]"""


@pytest.fixture
def race(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import race

    yield race
    sys.modules.pop("race", None)


def test_each_figure_is_the_median_and_the_rest_stays(race, monkeypatch):
    rows = iter([[{"case": (3, 5), "ratio": 9.0}, {"case": (4, 4), "ratio": 2.0}],
                 [{"case": (3, 5), "ratio": 1.0}, {"case": (4, 4), "ratio": 8.0}],
                 [{"case": (3, 5), "ratio": 2.5}, {"case": (4, 4), "ratio": 3.0}]])
    monkeypatch.setattr(race.multiprocessing, "get_context", lambda kind: _Here())
    assert race.in_fresh_processes(lambda: next(rows)) == [
        {"case": (3, 5), "ratio": 2.5}, {"case": (4, 4), "ratio": 3.0}]


class _Here:
    """A pool that is this process."""

    def Pool(self, *_):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def apply(self, function, given):
        return function(*given)


@pytest.mark.slow
def test_the_processes_are_fresh_and_have_the_threads(race, capsys):
    [row] = race.in_fresh_processes(eval, ROW)
    assert row["process"] != os.getpid()
    assert row["threads"] == race.THREADS
    assert row["case"] == (3, 5)
    assert "process 3 of 3" in capsys.readouterr().out
