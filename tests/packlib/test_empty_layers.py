"""Recurrent layers over batches with empty sequences: their last states are their first ones."""

import itertools

import oracle
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import packlib
from tests.packlib.test_empty import (
    EMPTY,
    FEATURES,
    FULL,
    HIDDEN,
    LENGTHS,
    NEW_TORCH,
    close,
    drawn,
    packed,
)

PROJ = 4
LAYERS = {"RNN": {}, "RNN relu": {"nonlinearity": "relu"}, "GRU": {}, "LSTM": {},
          "LSTM proj": {"proj_size": PROJ}}
ROUTES = ["auto", "plain", "hoisted", "cover", "torch"]
PAIRS = [(kind, route) for kind, route in itertools.product(LAYERS, ROUTES)
         if not (route == "cover" and "LSTM" not in kind or route in ("cover", "hoisted")
                 and "proj" in kind)]


def make(kind, route, dtype=torch.float64, **options):
    name = kind.split()[0]
    options = {**LAYERS[kind], **options, "dtype": dtype}
    ours = getattr(packlib, name)(FEATURES, HIDDEN, route=route, **options)
    theirs = getattr(nn, name)(FEATURES, HIDDEN, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def first_states(layer, size=6):
    rows = layer.num_layers * (1 + layer.bidirectional)
    like = layer.weight_ih_l0
    h = torch.randn(rows, size, layer.proj_size or HIDDEN).to(like).requires_grad_()
    c = torch.randn(rows, size, HIDDEN).to(like).requires_grad_()
    return (h, c) if layer.mode == "LSTM" else (h,)


def hx(layer, states):
    return states if layer.mode == "LSTM" else states[0]


def flat(last):
    return last if isinstance(last, tuple) else (last,)


@pytest.mark.parametrize("both", [False, True], ids=["forward", "bidirectional"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("kind", "route"), PAIRS)
def test_each_sequence_as_if_alone(kind, route, dtype, both):
    """Outputs, states and gradients; an empty one's last state is its first, bit for bit."""
    ours, theirs = make(kind, route, dtype, num_layers=2, bidirectional=both)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    xs = [x.requires_grad_() for x in drawn(dtype=dtype)]
    states = first_states(ours)
    output, last = ours(packed(xs), hx(ours, states))
    expected = {i: theirs(xs[i], hx(theirs, tuple(s[:, i] for s in states))) for i in FULL}
    ends = {i: flat(end) for i, (_, end) in expected.items()}
    for i in FULL:
        close(output.sequence(i), expected[i][0], tolerance)
        for one, other in zip(flat(last), ends[i], strict=True):
            close(one[:, i], other, tolerance)
    for one, first in zip(flat(last), states, strict=True):
        oracle.same(one[:, EMPTY], first[:, EMPTY])

    def loss(outputs, ends):
        return sum(o.pow(2).sum() for o in outputs) + sum(e.pow(3).sum() for e in ends)

    found = torch.autograd.grad(loss([output.data], flat(last)),
                                [*(xs[i] for i in FULL), *states, *ours.parameters()])
    alone = loss([o for o, _ in expected.values()], itertools.chain(
        *ends.values(), (s[:, EMPTY] for s in states)))
    for one, other in zip(found, torch.autograd.grad(
            alone, [*(xs[i] for i in FULL), *states, *theirs.parameters()]), strict=True):
        close(one, other, 10 * tolerance)


@pytest.mark.parametrize(("kind", "route"), PAIRS)
def test_no_state_given_is_zeros(kind, route):
    layer, _ = make(kind, route, bidirectional=True)
    for last in flat(layer(packed(drawn()))[1]):
        assert last.shape[1] == len(LENGTHS)
        assert (last[:, EMPTY] == 0).all() and (last[:, FULL] != 0).any(2).all()


@pytest.mark.parametrize(("kind", "route"), PAIRS)
def test_gradient_to_the_first_state_of_an_empty_one_is_its_own(kind, route):
    layer, _ = make(kind, route, torch.float32)
    states = first_states(layer)
    _, last = layer(packed(drawn(dtype=torch.float32)), hx(layer, states))
    weights = [torch.randn_like(s) for s in states]
    for e, w, s in zip(flat(last), weights, torch.autograd.grad(flat(last), states, weights),
                       strict=True):
        oracle.same(s[:, EMPTY], w[:, EMPTY])
        assert e.shape == w.shape


@pytest.mark.parametrize("route", ["auto", "plain"])
@pytest.mark.parametrize("kind", LAYERS)
def test_double_backward(kind, route):
    layer, _ = make(kind, route, bidirectional=True)
    states = first_states(layer, 4)
    x = torch.randn(6, FEATURES, dtype=torch.float64, requires_grad=True)

    def run(x, *states):
        output, last = layer(packed([x[:2], x[2:2], x[2:5], x[5:]]), hx(layer, states))
        return output.data, *flat(last)

    assert torch.autograd.gradcheck(run, (x, *states), fast_mode=True)
    if "relu" not in kind:
        assert torch.autograd.gradgradcheck(run, (x, *states), fast_mode=True)


@pytest.mark.parametrize("lengths", [[0, 3, 0], [3, 3, 0, 3], [7, 1, 0, 6, 1, 2]], ids=str)
@pytest.mark.parametrize("route", ROUTES)
def test_other_shapes(route, lengths):
    """One sequence with steps; equal ones, a single rectangle; ragged ones, several of them."""
    ours, theirs = make("LSTM", route, torch.float32)
    xs, states = drawn(lengths, dtype=torch.float32), first_states(ours, len(lengths))
    output, last = ours(packed(xs), states)
    for i, x in enumerate(xs):
        mine = tuple(s[:, i] for s in states)
        out, end = theirs(x, mine) if len(x) else (x.new_zeros(0, HIDDEN), mine)
        close(output.sequence(i), out, 1e-5)
        for one, other in zip(last, end, strict=True):
            close(one[:, i], other, 1e-5)


@pytest.mark.parametrize("route", ["auto", "torch"])
def test_autocast(route):
    """Their states are given in autocast's dtype, as all are."""
    layer, _ = make("LSTM", route, torch.float32)
    states = first_states(layer)
    with torch.autocast("cpu", torch.bfloat16):
        _, last = layer(packed(drawn(dtype=torch.float32)), states)
    for one, first in zip(last, states, strict=True):
        oracle.same(one[:, EMPTY], first[:, EMPTY].to(one.dtype))


def test_any_cell():
    cell, xs = nn.LSTMCell(FEATURES, HIDDEN, dtype=torch.float64), drawn()
    states = tuple(torch.randn(6, HIDDEN, dtype=torch.float64) for _ in range(2))
    output, last = packlib.run_packed(cell, packed(xs), states)
    for i, x in enumerate(xs):
        mine = tuple(s[i:i + 1] for s in states)
        for t, row in enumerate(x):
            mine = cell(row[None], mine)
            close(output.sequence(i)[t], mine[0][0])
        for one, other in zip(last, mine, strict=True):
            close(one[i:i + 1], other)
    with pytest.raises(ValueError, match="state must be given, since sequence 1 is empty"):
        packlib.run_packed(cell, packed(xs))


# --- compiled and exported ----------------------------------------------------------------------

class Model(nn.Module):
    def __init__(self, name, enforce_sorted=False, **options):
        super().__init__()
        self.enforce_sorted = enforce_sorted
        self.layer = getattr(packlib, name)(FEATURES, HIDDEN, **options)

    def forward(self, x, lengths, h):
        p = packlib.pack_padded_sequence(x, lengths, True, self.enforce_sorted, allow_empty=True)
        output, last = self.layer(p, (h, h) if self.layer.mode == "LSTM" else h)
        padded, lengths = packlib.pad_packed_sequence(output.map(torch.relu), True,
                                                      total_length=x.shape[1])
        return padded, lengths, *flat(last)


SETS = [LENGTHS, [1, 0, 6], [3, 2, 5, 4, 1], [0, 0, 3, 2, 0, 1, 1]]


def inputs(lengths, rows):
    size = len(lengths)
    return (torch.randn(size, 8, FEATURES, requires_grad=True), torch.tensor(lengths),
            torch.randn(rows, size, HIDDEN, requires_grad=True))


@NEW_TORCH
@pytest.mark.parametrize(("name", "enforce_sorted"), [("LSTM", False), ("GRU", True),
                                                      ("RNN", False)])
def test_one_graph_equal_to_eager(name, enforce_sorted):
    torch._dynamo.reset()
    model = Model(name, enforce_sorted, bidirectional=True, num_layers=2)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for lengths in SETS:
        x, counts, h = inputs(sorted(lengths, reverse=True) if enforce_sorted else lengths, 4)
        results = []
        for run in (compiled, model):
            found = run(x, counts, h)
            loss = sum(f.pow(2).sum() for f in (found[0], *found[2:]))
            results.append([*found, *torch.autograd.grad(loss, [x, h, *model.parameters()])])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        oracle.same(results[0][2][:, counts == 0], h[:, counts == 0])
    assert counter.frame_count <= 2  # the first sizes, then any
    with pytest.raises(RuntimeError, match="sequences are empty, so there is no step"):
        compiled(x, counts * 0, h)
    torch._dynamo.reset()


@NEW_TORCH
def test_export():
    model = Model("LSTM").eval()
    size, steps = torch.export.Dim("size", min=2), torch.export.Dim("steps", min=2)
    x, lengths, h = (t.detach() for t in inputs(LENGTHS, 1))
    exported = torch.export.export(model, (x, lengths, h), dynamic_shapes=(
        {0: size, 1: steps}, {0: size}, {1: size}))
    for counts in SETS:
        x, lengths, h = (t.detach() for t in inputs(counts, 1))
        for one, other in zip(exported.module()(x, lengths, h), model(x, lengths, h), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
