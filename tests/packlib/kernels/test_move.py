"""The one kernel, interpreted on the CPU: bit for bit what torch and plain Python say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from oracle import Work, packed_rows, padded, same
from strategies import DTYPES, batches, in_memory, poison, values
from torch.nn.utils import rnn

from packlib.layout import Layout

LENGTHS = [2, 4, 1, 4, 3]  # longest first: a 4-cycle of five sequences, with a tie
MORE_DTYPES = [*DTYPES, torch.int32, torch.int16, torch.uint8, torch.complex128]
SHAPES = [(), (1,), (3,), (2, 4), (33,)]
SIDES = ["right", "left"]


def layout_for(lengths):
    order = torch.sort(torch.tensor(lengths), descending=True).indices
    return Layout.from_lengths(np.array(lengths), order.numpy())


def padding_value(dtype):
    return {torch.bool: True, torch.uint8: 7}.get(dtype, 2 - 3j if dtype.is_complex else -3)


def sequences(lengths, shape, dtype):
    return list(values((sum(lengths), *shape), dtype).split(lengths))


@pytest.mark.parametrize("dtype", MORE_DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pack_and_unpack_equal_torch(interpreted, shape, dtype):
    layout, value = layout_for(LENGTHS), padding_value(dtype)
    for batch_first in (False, True):
        x = values((5, 6, *shape) if batch_first else (6, 5, *shape), dtype)
        expected = rnn.pack_padded_sequence(x, LENGTHS, batch_first, enforce_sorted=False)
        data = interpreted.pack(x, layout, batch_first)
        same(data, expected.data)
        for total in (None, 7):
            same(interpreted.unpack(data, layout, batch_first, value, total),
                 rnn.pad_packed_sequence(expected, batch_first, value, total)[0])


@pytest.mark.parametrize("dtype", MORE_DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lists_equal_torch(interpreted, shape, dtype):
    layout, whole = layout_for(LENGTHS), sequences(LENGTHS, shape, dtype)
    expected = rnn.pack_sequence(whole, enforce_sorted=False).data
    same(interpreted.from_list(whole, layout), expected)  # pieces of one storage
    same(interpreted.from_list([s.clone() for s in whole], layout), expected)  # of their own
    packed, listed = (interpreted.packed,), (interpreted.listed,)
    same(interpreted.move(torch.cat(whole), layout, packed, listed), expected)
    same(interpreted.move(expected, layout, listed, packed), torch.cat(whole))
    for found, sequence in zip(interpreted.to_list(expected, layout), whole, strict=True):
        same(found, sequence)


@settings(max_examples=20)  # the interpreter is slow
@given(batch=batches(dtypes=(torch.float32, torch.half, torch.complex64, torch.bool)))
def test_any_batch_packs_and_unpacks_on_both_sides(interpreted, batch):
    layout, value = layout_for(batch.lengths), padding_value(batch.padded.dtype)
    rows = packed_rows(batch.sequences, layout.order.tolist())
    same(interpreted.pack(batch.padded, layout, batch.batch_first), rows)
    for side in SIDES:
        grid = padded(batch.sequences, batch.total, batch.batch_first, value, side)
        same(interpreted.unpack(rows, layout, batch.batch_first, value, batch.total, side), grid)
        same(interpreted.pack(grid, layout, batch.batch_first, side), rows)


@pytest.mark.parametrize("how", ["transposed", "strided", "expanded", "offset"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.uint8], ids=str)
def test_any_memory(interpreted, dtype, how):
    layout, x = layout_for(LENGTHS), values((5, 6, 4), dtype)
    x = values((5 * 6 * 4 + 1,), dtype)[1:].view(5, 6, 4) if how == "offset" else in_memory(x, how)
    for batch_first in (False, True):
        grid = x if batch_first else x.transpose(0, 1)
        expected = rnn.pack_padded_sequence(grid, LENGTHS, batch_first, enforce_sorted=False)
        same(interpreted.pack(grid, layout, batch_first), expected.data)
    whole = [row[:n] for row, n in zip(x, LENGTHS, strict=True)]  # some at odd addresses
    same(interpreted.from_list(whole, layout), expected.data)
    wide = values((14, 9), dtype)[:, :4]  # packed rows with gaps between them
    same(interpreted.unpack(wide, layout), interpreted.unpack(wide.clone(), layout))
    same(interpreted.reverse(wide, layout), interpreted.reverse(wide.clone(), layout))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_reversal(interpreted, batch_first, side):
    layout = layout_for(LENGTHS)
    whole = sequences(LENGTHS, (3,), torch.float32)
    turned = [s.flip(0) for s in whole]
    rows, backwards = (packed_rows(s, layout.order.tolist()) for s in (whole, turned))
    same(interpreted.reverse(rows, layout), backwards)
    grid = padded(whole, 6, batch_first, -1.0, side)
    same(interpreted.pack(grid, layout, batch_first, side, reverse=True), backwards)
    same(interpreted.unpack(backwards, layout, batch_first, -1.0, 6, side, reverse=True), grid)
    same(interpreted.pack(grid, layout, batch_first, side), rows)  # by another table


@pytest.mark.parametrize("value, dtype", [
    (math.nan, torch.float32), (-0.0, torch.half), (math.inf, torch.bfloat16), (-1, torch.int16),
    (2**62 + 1, torch.int64), (-0.0, torch.float64), (complex(math.nan, -0.0), torch.complex128),
], ids=str)
def test_padding_value_keeps_its_bits(interpreted, value, dtype):
    found = interpreted.unpack(values((7, 3), dtype), layout_for([5, 2]), True, value)
    same(bits(found[1, 2:]), bits(torch.full((3, 3), value, dtype=dtype)))


def bits(x):
    return (torch.view_as_real(x) if x.is_complex() else x).view(torch.uint8)


def test_padding_never_gets_out(interpreted):
    layout, whole = layout_for(LENGTHS), sequences(LENGTHS, (2,), torch.float32)
    grid = padded(whole, 9, True, poison(torch.float32))
    same(interpreted.pack(grid, layout, True), packed_rows(whole, layout.order.tolist()))


@pytest.mark.parametrize("lengths", [[3, 0, 5, 0], [0, 2, 0, 5]], ids=str)
def test_zero_lengths(interpreted, lengths):
    layout, whole = layout_for(lengths), sequences(lengths, (2,), torch.float32)
    rows = packed_rows(whole, layout.order.tolist())
    for batch_first in (False, True):
        grid = padded(whole, 6, batch_first, -1.0)
        same(interpreted.pack(grid, layout, batch_first), rows)
        same(interpreted.unpack(rows, layout, batch_first, -1.0, 6), grid)
    same(interpreted.from_list(whole, layout), rows)
    same(torch.cat(interpreted.to_list(rows, layout)), torch.cat(whole))
    none = layout_for([0, 0, 0])
    same(interpreted.unpack(rows[:0], none, True, 2.0, 4), torch.full((3, 4, 2), 2.0))


def test_no_features(interpreted):
    layout = layout_for(LENGTHS)
    assert interpreted.pack(torch.empty(5, 6, 0), layout, True).shape == (14, 0)
    assert interpreted.unpack(torch.empty(14, 0), layout, True).shape == (5, 4, 0)


@pytest.mark.parametrize("tile", [(2, 2, 4), (1, 4, 8), (4, 1, 2)])
def test_many_programs(interpreted, monkeypatch, tile):
    """Interpreted tests are small and fit in one tile: cut them into many."""
    monkeypatch.setattr(interpreted, "tile", lambda width: tile)
    lengths = [7, 1, 4, 4, 2]
    layout, whole = layout_for(lengths), sequences(lengths, (5,), torch.float32)
    rows = packed_rows(whole, layout.order.tolist())
    for side in SIDES:
        grid = padded(whole, 9, True, -2.0, side)
        same(interpreted.pack(grid, layout, True, side), rows)
        same(interpreted.unpack(rows, layout, True, -2.0, 9, side), grid)
    same(interpreted.from_list([s.clone() for s in whole], layout), rows)
    same(torch.cat(interpreted.to_list(rows, layout)), torch.cat(whole))
    backwards = packed_rows([s.flip(0) for s in whole], layout.order.tolist())
    same(interpreted.reverse(rows, layout), backwards)


class Launches:
    """Stands in for the kernel, and counts."""

    def __init__(self):
        self.count = 0

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *args, **kwargs):
        self.count += 1


@pytest.mark.parametrize("lengths", [[2, 5, 1], list(range(1, 61)), [90, 3, 200, 7]], ids=len)
def test_launches_depend_on_nothing(interpreted, monkeypatch, lengths):
    launches = Launches()
    monkeypatch.setattr(interpreted, "_copy", launches)
    layout, size, longest = layout_for(lengths), len(lengths), max(lengths)
    x, data = torch.zeros(size, longest, 3), torch.zeros(sum(lengths), 3)
    whole = sequences(lengths, (3,), torch.float32)
    for move, most in ((lambda: interpreted.pack(x, layout, True), 1),
                       (lambda: interpreted.pack(x.transpose(0, 1), layout), 1),
                       (lambda: interpreted.pack(x[..., ::2], layout, True), 2),
                       (lambda: interpreted.unpack(data, layout, True, 1.0, longest + 2), 1),
                       (lambda: interpreted.unpack(data.expand(2, -1, -1)[1], layout), 1),
                       (lambda: interpreted.from_list(whole, layout), 1),
                       (lambda: interpreted.to_list(data, layout), 1),
                       (lambda: interpreted.reverse(data, layout), 1)):
        launches.count = 0
        with Work() as work:
            move()
        made = [name for name in work.names if "empty" not in name]
        on_host = made.count("full.default") + made.count("lift_fresh_copy.default")
        assert launches.count == 1
        assert launches.count + len(made) - on_host <= most, made


def test_a_table_is_made_once(interpreted, monkeypatch):
    made = []
    table = interpreted._table
    monkeypatch.setattr(interpreted, "_table", lambda *a: made.append(1) or table(*a))
    layout, x = layout_for(LENGTHS), torch.zeros(5, 6, 3)
    for _ in range(3):
        interpreted.unpack(interpreted.pack(x, layout, True), layout, True)
    interpreted.pack(torch.zeros(5, 6, 8, dtype=torch.half), layout, True)  # any row goes by it
    assert len(made) == 2


def test_table_does_not_grow_with_the_rows(interpreted):
    layout = layout_for([1000, 10, 900, 800])
    table = interpreted.table(layout, (interpreted.packed,), (interpreted.grid, 1000, True),
                              torch.device("cpu"))
    assert table.numel() == 5 * 4 + 1000 + 1000
