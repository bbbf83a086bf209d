"""Loops are found however they are written; honest code without loops is let through."""

import itertools
import sys
import threading

import numpy as np
import pytest
import torch

from packlib.checks import PARTS
from packlib.checks.effort import effort_of
from packlib.checks.examine import examine

PART = PARTS["ps2.pack_without_loops"]


def prepared(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    return x[order], (torch.arange(int(n[0]))[:, None] < n).sum(1), order


def with_for(x, lengths):
    rows, sizes, order = prepared(x, lengths)
    steps = []
    for t, n in enumerate(sizes):
        steps.append(rows[:n, t])
    return torch.cat(steps), sizes, order


def with_while_on_one_line(x, lengths):
    rows, sizes, order = prepared(x, lengths)
    steps = []
    while len(steps) < len(sizes):
        steps.append(rows[: sizes[len(steps)], len(steps)])  # noqa: E701
    return torch.cat(steps), sizes, order


def with_comprehension(x, lengths):
    rows, sizes, order = prepared(x, lengths)
    return torch.cat([rows[:n, t] for t, n in enumerate(sizes.tolist())]), sizes, order


def with_generator(x, lengths):
    rows, sizes, order = prepared(x, lengths)
    return torch.cat(tuple(rows[:n, t] for t, n in enumerate(sizes.tolist()))), sizes, order


def with_map_of_lambda(x, lengths):
    rows, sizes, order = prepared(x, lengths)
    return torch.cat([*map(lambda t, n: rows[:n, t], itertools.count(), sizes)]), sizes, order


def with_map_of_c_functions(x, lengths):
    rows, sizes, order = prepared(x, lengths)
    pick = map(torch.Tensor.__getitem__, rows.transpose(0, 1), map(slice, sizes.tolist()))
    return torch.cat(list(pick)), sizes, order


def with_recursion(x, lengths):
    rows, sizes, order = prepared(x, lengths)

    def steps(t):
        return [rows[: sizes[t], t], *steps(t + 1)] if t < len(sizes) else []

    return torch.cat(steps(0)), sizes, order


def with_numpys_vectorize(x, lengths):
    rows, sizes, order = prepared(x, lengths)
    steps = []
    np.vectorize(lambda t: len(steps) or 0)(np.arange(len(sizes)))
    running = torch.arange(len(sizes))[:, None] < torch.sort(lengths, descending=True).values
    return rows.transpose(0, 1)[: len(sizes)][running], sizes, order


LOOPS = [value for name, value in list(globals().items()) if name.startswith("with_")]


@pytest.mark.parametrize("function", LOOPS, ids=lambda function: function.__name__)
def test_a_loop_is_found(function):
    breach = examine(PART, function, PART.visible).breach
    assert breach.kind == "loops"


def test_the_line_that_grew_most_is_told():
    breach = examine(PART, with_comprehension, PART.visible).breach
    assert "for t, n in enumerate(sizes.tolist())" in breach.fault.line.text


def by_nonzero(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    t, place = torch.nonzero(torch.arange(int(n[0]))[:, None] < n, as_tuple=True)
    return x[order[place], t], torch.bincount(t), order


def by_numpy(x, lengths):
    n = lengths.numpy()
    order = np.argsort(-n, kind="stable")
    t, place = np.nonzero(np.arange(n.max())[:, None] < n[order])
    return tuple(map(torch.from_numpy, (x.numpy()[order[place], t], np.bincount(t), order)))


def by_repeat_interleave(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    sizes = (len(n) - torch.bincount(n).cumsum(0))[:-1]
    t = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    place = torch.arange(len(t)) - (sizes.cumsum(0) - sizes)[t]
    return x[order[place], t], sizes, order


def by_unique(x, lengths):
    order = torch.argsort(lengths, descending=True)
    mask = (torch.arange(x.shape[1]) < lengths[order][:, None]).T
    _, sizes = torch.unique(mask.nonzero()[:, 0], return_counts=True)
    return x[order].transpose(0, 1)[mask], sizes, order


def by_trial(x, lengths):
    try:  # on Python 3.11 and later an except clause has instructions of no line
        torch.sort(lengths, descending="yes")
    except TypeError:
        return by_unique(x, lengths)


WITHOUT_LOOPS = [by_nonzero, by_numpy, by_repeat_interleave, by_unique, by_trial]


@pytest.mark.parametrize("function", WITHOUT_LOOPS)
def test_code_without_loops_is_let_through(function):
    assert examine(PART, function, [*PART.visible, *PART.hidden(4)]) is None


def test_counts_bytecode_and_calls_into_torch():
    def steps(count):
        total = torch.zeros(1)
        for _ in range(count):
            total = total + 1
        return total

    few, many = effort_of(lambda: steps(3)), effort_of(lambda: steps(30))
    assert many.torch_calls - few.torch_calls == 27
    assert many.instructions > few.instructions + 27 * 3


def test_the_trace_function_of_others_comes_back():
    def theirs(*_):
        return None

    before = sys.gettrace()
    sys.settrace(theirs)
    try:
        effort_of(lambda: None)
        assert sys.gettrace() is theirs
    finally:
        sys.settrace(before)


def test_a_loop_in_another_thread_is_counted():
    def loop(n):
        for _ in range(n):
            pass

    def in_thread(n):
        thread = threading.Thread(target=loop, args=(n,))
        thread.start()
        thread.join()

    before = threading.gettrace()
    few, many = (effort_of(lambda n=n: in_thread(n)).instructions for n in (10, 1010))
    assert many - few > 1000
    assert threading.gettrace() is before
