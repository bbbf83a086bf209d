"""The dense cover: rectangles that tile the staircase, at the least cost, and hold states still."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import packlib
from packlib import cover
from packlib.cover import Cost
from packlib.layout import Layout
from tests.packlib.oracle import batch_sizes
from tests.packlib.strategies import lengths as drawn_lengths


def layout_of(lengths):
    return Layout.from_lengths(np.array(sorted(lengths, reverse=True)))


def expense(sizes, cuts, cost):
    """Of the rectangles that the cuts make, written out."""
    pieces = list(itertools.pairwise([0, *cuts, len(sizes)]))
    padded = any(sizes[start] > sizes[stop - 1] for start, stop in pieces)
    return cost.layer + cost.pad * padded + sum(
        cost.call + (stop - start) * (cost.step + sizes[start] * cost.cell)
        for start, stop in pieces)


def cheapest(lengths, cost):
    """Every way of cutting between steps, tried."""
    sizes = batch_sizes(lengths)
    inner = range(1, len(sizes))
    return min(expense(sizes, cuts, cost) for k in range(len(sizes))
               for cuts in itertools.combinations(inner, k))


@given(lengths=drawn_lengths, call=st.integers(0, 30), step=st.integers(0, 5),
       cell=st.integers(0, 3), pad=st.integers(0, 99))
def test_no_cover_is_cheaper(lengths, call, step, cell, pad):
    cost = Cost(call, step, cell, pad, layer=7)
    covering = cover.cover(layout_of(lengths), cost)
    assert covering.price == pytest.approx(cheapest(lengths, cost))
    assert covering.price == pytest.approx(
        expense(batch_sizes(lengths), covering.cuts[1:], cost))


@given(lengths=drawn_lengths, call=st.integers(0, 30))
def test_rectangles_tile_the_staircase(lengths, call):
    covering = cover.cover(layout_of(lengths), Cost(call, 0, 1))
    sizes, step = batch_sizes(lengths), 0
    assert covering.cuts[0] == 0
    for r, start in zip(covering.rectangles, covering.cuts, strict=True):
        assert (start, r.size) == (step, sizes[step])
        step += r.steps
        assert r.following == (sizes[step] if step < len(sizes) else 0)
    assert step == len(sizes)
    assert covering.padded == (sum(covering.cells) > sum(lengths))


@pytest.mark.parametrize(("cost", "shapes"), [
    (Cost(0, 0, 1), [(1, 5), (1, 4), (1, 3), (3, 2)]),  # calls are free: no cell is wasted
    (Cost(1000, 0, 1), [(6, 5)]),  # calls are dear: one for all
    (Cost(3, 0, 1), [(3, 5), (3, 2)]),  # 2 calls and 21 cells; else 1 and 30, or 4 and 18
])
def test_the_balance_of_calls_and_cells(cost, shapes):
    covering = cover.cover(layout_of([2, 6, 1, 6, 3]), cost)
    assert [(r.steps, r.size) for r in covering.rectangles] == shapes


@pytest.mark.parametrize("scale", [1, 100, 10_000, 1e20, 1e35])
def test_the_brake_holds_whatever_the_weights(scale):
    """One padded rectangle against four without padding; large weights must not release it."""
    torch.manual_seed(0)
    layout = layout_of([2, 6, 1, 6, 3])
    weights = [scale * torch.randn(s) for s in ((16, 3), (16, 4), (16,), (16,))]
    data, h, c = torch.randn(18, 3), torch.randn(5, 4), torch.randn(5, 4)
    padded, exact = (cover.lstm(layout, cost, data, h, c, *weights)
                     for cost in (Cost(1000, 0, 1), Cost(0, 0, 1)))
    for found, expected in zip(padded, exact, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("row", [0, 4, 9, 13])  # of each gate
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0"])
def test_a_weight_that_is_no_number_spoils_what_it_reaches_alone(monkeypatch, name, row, value):
    """Whoever looks for the unit that went wrong finds it."""
    monkeypatch.setattr("packlib.rnn.cover_cost", lambda data, w_hh: Cost(10**6, 0, 1))
    layer = packlib.LSTM(3, 4, route="cover")
    with torch.no_grad():
        getattr(layer, name)[row, ...].view(-1)[0] = value
    xs = [torch.randn(n, 3) for n in (6, 2, 1)]
    output, (h_n, c_n) = layer(packlib.pack_sequence(xs))
    for i, x in enumerate(xs):
        alone, (h, c) = torch.nn.LSTM.forward(layer, x)
        torch.testing.assert_close(output.sequence(i), alone, equal_nan=True)
        torch.testing.assert_close((h_n[:, i], c_n[:, i]), (h, c), equal_nan=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_a_first_cell_that_is_no_number_spoils_one_unit_alone(monkeypatch, value):
    monkeypatch.setattr(packlib.rnn, "cover_cost", lambda *_: Cost(1e9, 0, 0))  # one padded call
    torch.manual_seed(0)
    lengths = [1, 3, 4]  # after one step a NaN has not met the other units
    sequences = [torch.randn(n, 5) for n in lengths]
    plain, covered = (packlib.LSTM(5, 4, route=route) for route in ("plain", "cover"))
    covered.load_state_dict(plain.state_dict())
    results = []
    for layer in (plain, covered):
        h0, c0 = torch.zeros(2, 1, 3, 4)
        c0[0, 0, 1] = value
        c0.requires_grad_()
        output, (h_n, c_n) = layer(packlib.pack_sequence(sequences, False), (h0, c0))
        grad, = torch.autograd.grad(output.data[:, 0].nansum(), c0)
        results.append((output.data.detach(), h_n.detach(), c_n.detach(), grad))
    torch.testing.assert_close(results[1], results[0], equal_nan=True)


def test_the_brake_is_a_number_in_half_precision():
    layer = packlib.LSTM(64, 64, route="cover").half()
    with torch.no_grad():
        layer.weight_ih_l0.mul_(100)
    packed = packlib.pack_sequence([torch.randn(3, 64).half(), torch.randn(2, 64).half()])
    output, (h_n, c_n) = layer(packed)
    expected, states = torch.nn.LSTM.forward(layer, packed)
    torch.testing.assert_close(output.data, expected.data, rtol=0.01, atol=0.01)
    torch.testing.assert_close((h_n, c_n), states, rtol=0.01, atol=0.01)
