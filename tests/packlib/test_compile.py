"""torch.compile without a graph break, and torch.export with sizes left open."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import packlib

SETS = [[2, 4, 1, 4, 3], [1, 6, 2], [3, 3, 5, 2, 2, 1, 4], [2, 7, 1, 5], [4, 1, 6, 6, 2, 3]]
FEATURES, HIDDEN = 3, 6


class Model(nn.Module):
    """pack, layer, unpack, as in any user's model."""

    def __init__(self, name: str, enforce_sorted: bool = False, **options):
        super().__init__()
        self.enforce_sorted = enforce_sorted
        self.layer = getattr(packlib, name)(FEATURES, HIDDEN, **options)
        self.head = nn.Linear(HIDDEN * (1 + self.layer.bidirectional), 2)

    def forward(self, x, lengths):
        packed = packlib.pack_padded_sequence(x, lengths, batch_first=True,
                                              enforce_sorted=self.enforce_sorted)
        output, last = self.layer(packed)
        output = output.map(torch.relu)
        padded, lengths = packlib.pad_packed_sequence(output, batch_first=True,
                                                      total_length=x.shape[1])
        return self.head(padded), lengths, last[0] if isinstance(last, tuple) else last


def batch(lengths, extra=1):
    torch.manual_seed(len(lengths))
    x = torch.randn(len(lengths), max(lengths) + extra, FEATURES, requires_grad=True)
    return x, torch.tensor(lengths)


def results(model, x, lengths):
    model.zero_grad()
    padded, counts, last = model(x, lengths)
    grads = torch.autograd.grad(padded.pow(2).sum() + last.pow(3).sum(),
                                [x, *model.parameters()])
    return [padded, counts, last, *grads]


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


# torch 2.6 cannot trace a subclass of a named tuple
NEW_TORCH = pytest.mark.skipif(torch.__version__ < (2, 13), reason="seen to work on torch 2.13")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@NEW_TORCH
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_padded_input_with_lengths_compiles(name):
    layer = getattr(packlib, name)(FEATURES, HIDDEN, batch_first=True, bidirectional=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for lengths in SETS[:3]:
        x, counts = batch(lengths)
        found, expected = (run(x, lengths=counts) for run in (compiled, layer))
        assert found[0].shape == (*x.shape[:2], 2 * HIDDEN)
        same([found[0], *found[1]], [expected[0], *expected[1]])


@NEW_TORCH
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_one_graph_equal_to_eager_and_no_new_one_for_new_lengths(name):
    model = Model(name, bidirectional=True, num_layers=2)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for lengths in SETS:
        inputs = batch(lengths)
        same(results(compiled, *inputs), results(model, *inputs))
    assert counter.frame_count <= 2  # the first sizes, then any


@NEW_TORCH
@pytest.mark.slow
def test_inductor():
    model = Model("LSTM")
    compiled = torch.compile(model, fullgraph=True, backend="inductor", dynamic=True)
    for lengths in SETS[:2]:
        inputs = batch(lengths)
        same(results(compiled, *inputs), results(model, *inputs))


@NEW_TORCH
def test_sorted_input():
    model = Model("GRU", enforce_sorted=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    inputs = batch([6, 4, 4, 1])
    same(results(compiled, *inputs), results(model, *inputs))
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        compiled(*batch([4, 6, 4, 1]))


@NEW_TORCH
def test_checks_hold_in_a_compiled_model():
    model = Model("LSTM")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x, _ = batch([2, 4, 1, 4, 3])
    with pytest.raises(ValueError, match=r"lengths\[1\]=9, but the input has only T=5"):
        compiled(x, torch.tensor([2, 9, 1, 4, 3]))


@NEW_TORCH
def test_export_with_open_sizes():
    model = Model("LSTM", bidirectional=True).eval()
    size, steps = torch.export.Dim("size", min=2), torch.export.Dim("steps", min=2)
    x, lengths = batch(SETS[0])
    exported = torch.export.export(model, (x.detach(), lengths),
                                   dynamic_shapes=({0: size, 1: steps}, {0: size}))
    for lengths in SETS:
        x, counts = batch(lengths)
        same(exported.module()(x.detach(), counts), model(x.detach(), counts))


@pytest.mark.parametrize("turned", [False, True], ids=["row by row", "column by column"])
@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_the_layers_operators_keep_torchs_rules(name, turned):
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[name] * 4
    packed = packlib.pack_sequence([torch.randn(n, 3) for n in SETS[0]], enforce_sorted=False)

    def leaf(*shape):
        made = torch.randn(shape, dtype=torch.float64)
        if turned:  # in memory, as the weights of another library may lie
            made = made.t().contiguous().t()
        return made.requires_grad_()

    states = [leaf(5, 4) for _ in range(1 + (name == "lstm"))]
    inputs = (packed.batch_sizes, leaf(14, 3), *states, leaf(gates, 3), leaf(gates, 4),
              leaf(gates), leaf(gates), *([False] if name == "rnn" else []))
    found = torch.library.opcheck(getattr(packlib.layer_ops, name), inputs)
    assert set(found.values()) == {"SUCCESS"}


@NEW_TORCH
def test_by_the_default_backend_with_weights_column_by_column():
    """It trusts the strides that an operator promises; other backends do not look."""
    torch.manual_seed(0)
    layer = packlib.LSTM(FEATURES, HIDDEN)
    for weight in (layer.weight_ih_l0, layer.weight_hh_l0):
        weight.data = weight.data.t().contiguous().t()
    packed = packlib.pack_sequence([torch.randn(n, FEATURES) for n in (4, 2)])
    state = torch.randn(2, 1, HIDDEN, 2).transpose(2, 3)
    expected, found = (torch.autograd.grad(
        run(packed, (state[0], state[1]))[0].data.pow(2).sum(), list(layer.parameters()))
        for run in (layer, torch.compile(layer, fullgraph=True)))
    same(found, expected)
