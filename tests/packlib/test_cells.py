"""``run_packed``: any cell over a packed batch equals the cell over each sequence alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import lengths as drawn_lengths
from torch import nn

import packlib
from packlib.cells import gru_step, lstm_step, rnn_step, run_packed

LENGTHS = [2, 4, 1, 4, 3]
CYCLE = [1, 3, 2]  # its order is a 3-cycle, so its own inverse it is not


def sequences(lengths=LENGTHS, features=3):
    return [torch.randn(n, features, dtype=torch.float64) for n in lengths]


def alone(cell, sequence, state):
    """The outputs and the last state of one sequence, step by step; ``state`` has one row."""
    outputs = []
    for x in sequence:
        state = cell(x[None], state)
        outputs.append(state[0] if isinstance(state, tuple) else state)
    return torch.cat(outputs), state


def row(state, i):
    return tuple(s[i:i + 1] for s in state) if isinstance(state, tuple) else state[i:i + 1]


def check(cell, xs, state):
    packed = packlib.pack_sequence(xs, enforce_sorted=False)
    output, last = run_packed(cell, packed, state)
    assert output.lengths.tolist() == [len(x) for x in xs]
    for i, x in enumerate(xs):
        expected, end = alone(cell, x, None if state is None else row(state, i))
        torch.testing.assert_close(output.sequence(i), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(row(last, i), end, rtol=0, atol=1e-12)


class LayerNormLSTMCell(nn.Module):
    """A cell that torch has no fused layer for."""

    def __init__(self, features, hidden):
        super().__init__()
        self.x, self.h = nn.Linear(features, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.norms = nn.ModuleList([nn.LayerNorm(4 * hidden), nn.LayerNorm(4 * hidden),
                                    nn.LayerNorm(hidden)])

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.norms[0](self.x(x)) + self.norms[1](self.h(h))).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.norms[2](c).tanh(), c


def state_of(cell, size, hidden=5):
    h, c = torch.randn(2, size, hidden, dtype=torch.float64)
    return (h, c) if isinstance(cell, (nn.LSTMCell, LayerNormLSTMCell)) else h


CELLS = [nn.RNNCell, nn.GRUCell, nn.LSTMCell, LayerNormLSTMCell]


@pytest.mark.parametrize("lengths", [LENGTHS, CYCLE, [3], [2, 2, 2]], ids=str)
@pytest.mark.parametrize("kind", CELLS)
def test_any_cell_equals_each_sequence_alone(kind, lengths):
    cell = kind(3, 5).double()
    check(cell, sequences(lengths), state_of(cell, len(lengths)))


@pytest.mark.parametrize("kind", CELLS[:3])
def test_without_a_state_the_cell_makes_its_own(kind):
    check(kind(3, 5).double(), sequences(), None)


@given(drawn_lengths, st.integers(0, 9))
def test_running_sums(lengths, seed):
    """A cell that adds, on whole numbers: equal means equal."""
    draw = torch.Generator().manual_seed(seed)
    xs = [torch.randint(-9, 9, (n, 2), generator=draw).double() for n in lengths]
    start = torch.randint(-9, 9, (len(xs), 2), generator=draw).double()
    packed = packlib.pack_sequence(xs, enforce_sorted=False)
    output, last = run_packed(lambda x, s: s + x, packed, start)
    for i, x in enumerate(xs):
        sums = start[i] + x.cumsum(0)
        assert torch.equal(output.sequence(i), sums)
        assert torch.equal(last[i], sums[-1])


@given(drawn_lengths)
def test_the_cell_sees_only_what_is_running(lengths):
    seen = []

    def cell(x, state):
        assert len(x) == len(state)
        seen.append(len(x))
        return state

    packed = packlib.pack_sequence([torch.zeros(n) for n in lengths], enforce_sorted=False)
    run_packed(cell, packed, torch.zeros(len(lengths)))
    assert seen == [sum(n > t for n in lengths) for t in range(max(lengths))]


def test_gradients_equal_those_of_each_sequence_alone():
    cell, xs = nn.LSTMCell(3, 5).double(), [x.requires_grad_() for x in sequences()]
    state = tuple(s.requires_grad_() for s in state_of(cell, len(xs)))
    leaves = [*xs, *state, *cell.parameters()]

    output, (h, c) = run_packed(cell, packlib.pack_sequence(xs, enforce_sorted=False), state)
    weights = [torch.rand(n, 1, dtype=torch.float64) for n in LENGTHS]
    loss = sum((o * w).sum() for o, w in zip(packlib.unpack_sequence(output), weights,
                                              strict=True)) + (h * c).sum()
    found = torch.autograd.grad(loss, leaves)

    loss = 0
    for i, (x, w) in enumerate(zip(xs, weights, strict=True)):
        out, (h, c) = alone(cell, x, row(state, i))
        loss = loss + (out * w).sum() + (h * c).sum()
    for one, other in zip(found, torch.autograd.grad(loss, leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_list_of_states_is_a_tuple():
    cell, xs = nn.LSTMCell(3, 5).double(), sequences(CYCLE)
    packed = packlib.pack_sequence(xs, enforce_sorted=False)
    state = state_of(cell, 3)
    torch.testing.assert_close(run_packed(cell, packed, list(state))[1],
                               run_packed(cell, packed, state)[1])


@pytest.mark.parametrize(("state", "error", "words"), [
    (torch.zeros(2, 5), ValueError, r"one row for each of 3 sequences, got shape \(2, 5\)"),
    (torch.tensor(0.0), ValueError, r"one row for each of 3 sequences, got shape \(\)"),
    ((torch.zeros(3, 5), torch.zeros(1, 5)), ValueError, "one row for each of 3 sequences"),
    ("zeros", TypeError, "state must be a Tensor or a tuple of them, got str"),
    ((torch.zeros(3, 5), None), TypeError, "state must be a Tensor or a tuple of them"),
])
def test_states_that_are_refused(state, error, words):
    packed = packlib.pack_sequence(sequences(CYCLE), enforce_sorted=False)
    with pytest.raises(error, match=words):
        run_packed(lambda x, s: s, packed, state)


def test_a_padded_grid_is_refused():
    with pytest.raises(TypeError, match="expected a PackedSequence, got Tensor: pack it first"):
        run_packed(lambda x, s: s, torch.zeros(3, 6, 4), torch.zeros(3, 5))


def weights(cell, name):
    return (getattr(cell, f"{name}_ih"), getattr(cell, f"{name}_hh"))


@pytest.mark.parametrize("bias", [True, False])
def test_the_steps_are_torchs_cells(bias):
    x, h, c = (torch.randn(4, n, dtype=torch.float64) for n in (3, 5, 5))

    def parts(cell):
        w_ih, w_hh = weights(cell, "weight")
        b_ih, b_hh = weights(cell, "bias") if bias else (None, None)
        return nn.functional.linear(x, w_ih, b_ih), w_hh, b_hh

    for activation in ("tanh", "relu"):
        cell = nn.RNNCell(3, 5, bias, activation, dtype=torch.float64)
        gi, w_hh, b_hh = parts(cell)
        found = rnn_step(gi, h, w_hh, b_hh, getattr(torch, activation))
        torch.testing.assert_close(found, cell(x, h), rtol=0, atol=1e-14)
    cell = nn.GRUCell(3, 5, bias, dtype=torch.float64)
    gi, w_hh, b_hh = parts(cell)
    torch.testing.assert_close(gru_step(gi, h, w_hh, b_hh), cell(x, h), rtol=0, atol=1e-14)
    cell = nn.LSTMCell(3, 5, bias, dtype=torch.float64)
    gi, w_hh, b_hh = parts(cell)
    torch.testing.assert_close(lstm_step(gi, (h, c), w_hh, b_hh), cell(x, (h, c)), rtol=0,
                               atol=1e-14)
