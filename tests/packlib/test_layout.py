"""The arithmetic on the host: conjugates, orders, where each row lies."""

import contextlib
from itertools import pairwise

import numpy as np
import oracle
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import packlib
from packlib.layout import Layout, check_lengths, conjugate

CPU = torch.device("cpu")


@given(strategies.lengths)
def test_conjugate_counts_the_columns_of_the_mask(lengths):
    assert conjugate(np.array(lengths)).tolist() == oracle.batch_sizes(lengths)


@given(strategies.lengths)
def test_conjugate_twice_sorts(lengths):
    assert conjugate(conjugate(np.array(lengths))).tolist() == sorted(lengths, reverse=True)


def test_conjugate_of_lengths_that_are_not_self_conjugate():
    assert conjugate(np.array([5, 2])).tolist() == [2, 2, 1, 1, 1]
    assert conjugate(np.array([4, 6, 8, 5, 4, 3, 7, 8])).tolist() == [8, 8, 8, 7, 5, 4, 3, 2]


@pytest.mark.parametrize(("counts", "expected"), [([], []), ([0, 0], []), ([0, 2], [1, 1])])
def test_conjugate_of_nothing_and_of_empty_sequences(counts, expected):
    assert conjugate(np.array(counts, dtype=np.int64)).tolist() == expected


def layouts(lengths):
    """The layout of ``lengths`` and its order, longest first and first come first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    return Layout.from_lengths(np.array(lengths), np.array(order)), order


@given(strategies.lengths)
def test_each_row_knows_its_step_and_sequence(lengths):
    layout, order = layouts(lengths)
    rows = [(t, i) for t in range(max(lengths)) for i in order if t < lengths[i]]
    assert list(zip(layout.step.tolist(), layout.sequence.tolist(), strict=True)) == rows
    for i, n in enumerate(lengths):
        assert layout.rows_of(i).tolist() == [rows.index((t, i)) for t in range(n)]


@given(strategies.lengths)
def test_batch_sizes_and_order_give_the_lengths_back(lengths):
    layout, order = layouts(lengths)
    again = Layout.from_batch_sizes(layout.batch_sizes, np.array(order))
    assert again.lengths.tolist() == lengths
    assert (again.num_sequences, again.num_steps) == (len(lengths), max(lengths))


@given(strategies.lengths, st.integers(0, 2), st.booleans(), st.sampled_from(["left", "right"]))
def test_rows_of_a_padded_grid(lengths, extra, batch_first, side):
    layout, order = layouts(lengths)
    size, total = len(lengths), max(lengths) + extra
    grid = [[None] * total for _ in range(size)]
    for row, (t, i) in enumerate((t, i) for t in range(total) for i in order if t < lengths[i]):
        grid[i][t + (total - lengths[i] if side == "left" else 0)] = row
    cells = [grid[i][t] for i in range(size) for t in range(total)] if batch_first else [
        grid[i][t] for t in range(total) for i in range(size)]

    rows = layout.padded(total, batch_first, CPU, side)
    assert rows.tolist() == [cells.index(row) for row in range(sum(lengths))]


@given(strategies.lengths, st.sets(st.integers(1, 5)))
def test_rows_of_rectangles_laid_end_to_end(lengths, inner):
    layout, _ = layouts(lengths)
    sizes = oracle.batch_sizes(lengths)
    cuts = [0, *sorted(cut for cut in inner if cut < len(sizes))]
    cells = [(step, rank) for start, stop in pairwise([*cuts, len(sizes)])
             for step in range(start, stop) for rank in range(sizes[start])]
    real = [(step, rank) for step, size in enumerate(sizes) for rank in range(size)]
    assert [cells[i] for i in layout.tiled(tuple(cuts), CPU)] == real
    rows = {step_rank: row for row, step_rank in enumerate(real)}
    assert layout.tiles(tuple(cuts), CPU).tolist() == [rows.get(cell, len(real)) for cell in cells]


@given(strategies.lengths)
def test_ends_are_the_last_rows(lengths):
    layout, order = layouts(lengths)
    assert layout.ends(CPU).tolist() == [layout.rows_of(i)[-1] for i in order]


@given(strategies.lengths)
def test_reversed_turns_each_sequence_round(lengths):
    layout, _ = layouts(lengths)
    turned = layout.reversed(CPU).numpy()
    for i in range(len(lengths)):
        rows = layout.rows_of(i)
        assert turned[rows].tolist() == rows[::-1].tolist()


def test_rows_are_made_once_for_each_use():
    layout, _ = layouts([2, 4, 1, 4, 3])
    first = layout.padded(6, True, CPU)
    assert layout.padded(6, True, CPU) is first
    others = [layout.padded(7, True, CPU), layout.padded(6, False, CPU),
              layout.padded(6, True, CPU, "left"), layout.padded(6, True, torch.device("meta"))]
    assert all(other is not first for other in others)


def test_what_its_user_changed_is_made_again():
    layout, _ = layouts([2, 4, 1])
    expected = layout.listed(CPU).tolist()
    layout.listed(CPU).zero_()
    assert layout.listed(CPU).tolist() == expected


USES = {
    "pad": lambda p: packlib.pad_packed_sequence(p, total_length=9)[0],
    "sum": packlib.packed_sum,
    "reverse": lambda p: packlib.reverse(p).data,
    "last": packlib.last_step,
    "offsets": lambda p: packlib.to_cu_seqlens(p)[1],
    "layer": lambda p: packlib.LSTM(1, 2, bidirectional=True)(p.map(lambda d: d[:, None]))[0].data,
}


def fake(use, p):
    with FakeTensorMode(allow_non_fake_inputs=True):
        use(p)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("look_on", [
    fake,
    lambda use, p: torch.func.functionalize(lambda d: use(p.with_data(d)))(p.data),
    lambda use, p: make_fx(lambda d: use(p.with_data(d)), tracing_mode="fake")(p.data),
    lambda use, p: torch.func.grad(lambda d: use(p.with_data(d)).sum().float())(p.data),
], ids=["fake", "functionalize", "make_fx", "grad"])
def test_what_was_made_while_somebody_looked_on_is_not_kept(use, look_on):
    def packed():
        return packlib.pack_sequence([torch.ones(2), 2 * torch.ones(3)], enforce_sorted=False)

    p = packed()
    with contextlib.suppress(AssertionError, NotImplementedError):  # not all of it can be traced
        look_on(USES[use], p)
    torch.manual_seed(1)
    after = USES[use](p)
    torch.manual_seed(1)
    expected = USES[use](packed())
    assert type(after) is torch.Tensor
    torch.testing.assert_close(after, expected)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_lengths_may_be_any_integers(dtype):
    found = check_lengths(torch.tensor([2, 5, 1], dtype=dtype))
    assert found.dtype == np.int64 and found.tolist() == [2, 5, 1]


@pytest.mark.parametrize("lengths", [
    [2, 5, 1], (2, 5, 1), np.array([2, 5, 1], dtype=np.int32), np.array([2, 5, 1], dtype=np.uint16),
    [np.int64(2), np.int64(5), np.int64(1)], [torch.tensor(2), torch.tensor(5), torch.tensor(1)],
    torch.tensor([[2, 9], [5, 9], [1, 9]])[:, 0],
], ids=["list", "tuple", "int32 array", "uint16 array", "numpy ints", "0-d tensors", "strided"])
def test_lengths_may_come_in_any_container(lengths):
    assert check_lengths(lengths).tolist() == [2, 5, 1]


def test_lengths_are_copied():
    mine = torch.tensor([2, 5, 1])
    kept = check_lengths(mine)
    mine[0] = 9
    assert kept.tolist() == [2, 5, 1]


@pytest.mark.parametrize(("lengths", "error", "words"), [
    (torch.tensor([2.0, 5.0]), TypeError, "must be integers, got torch.float32: round"),
    (torch.tensor([2.0, 5.5]), TypeError, r"got torch.float32, lengths\[1\]=5.5: round"),
    ([float("nan"), 2.5], TypeError, r"got torch.float32, lengths\[0\]=nan: round"),
    ([2.0, 5.0], TypeError, "must be integers"),
    ([True, False], TypeError, "a mask is not a length"),
    (torch.tensor([1 + 0j]), TypeError, "must be integers"),
    (None, TypeError, "lengths must be a list or a tensor of integers"),
    (["2", "5"], TypeError, "lengths must be a list or a tensor of integers"),
    ([2**63], TypeError, "lengths must be a list or a tensor of integers"),
    (torch.tensor(3), RuntimeError, "0D"),
    (torch.tensor([[2], [5]]), RuntimeError, r"2D of shape \(2, 1\)"),
    (torch.tensor([3, 2**63 + 5], dtype=torch.uint64), RuntimeError,
     r"lengths\[1\]=9223372036854775813 is more than any tensor holds"),
    (torch.ones(2, device="meta"), RuntimeError, "meta device, which holds no values"),
])
def test_lengths_that_are_refused(lengths, error, words):
    with pytest.raises(error, match=words):
        check_lengths(lengths)
