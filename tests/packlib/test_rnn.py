"""RNN, GRU and LSTM: torch's outputs, states and gradients on packed input, in the user's order."""

import itertools

import oracle
import pytest
import torch
from torch import nn

import packlib
from packlib.cover import Cost

LENGTHS = [2, 4, 1, 4, 3]  # B = 5; the order is no inverse of itself; B != layers * directions
FEATURES, HIDDEN, PROJ = 3, 6, 4
KINDS = {"RNN": {}, "RNN relu": {"nonlinearity": "relu"}, "GRU": {}, "LSTM": {},
         "LSTM proj": {"proj_size": PROJ}}
CONFIGURATIONS = list(itertools.product([1, 2], [True, False], [True, False]))
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def pair(kind, dtype=torch.float64, **options):
    """Ours and torch's, with the same weights."""
    name = kind.split()[0]
    ours, theirs = (getattr(module, name)(FEATURES, HIDDEN, dtype=dtype, **KINDS[kind], **options)
                    for module in (packlib, nn))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def first_states(layer, dtype=torch.float64, size=5):
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    h = torch.randn(rows, size, layer.proj_size or HIDDEN, dtype=dtype)
    return (h, torch.randn(rows, size, HIDDEN, dtype=dtype)) if layer.mode == "LSTM" else h


def flat(states):
    return list(states) if isinstance(states, tuple) else [states]


def results(layer, xs, states, module):
    """Outputs, last states and the gradients of everything, from one module's own packing."""
    xs = [x.clone().requires_grad_() for x in xs]
    leaves = []
    if states is not None:
        leaves = [s.clone().requires_grad_() for s in flat(states)]
        states = tuple(leaves) if isinstance(states, tuple) else leaves[0]
    packed = module.pack_sequence(xs, enforce_sorted=False)
    output, last = layer(packed, states)
    found = [output.data, *flat(last)]
    draw = torch.Generator().manual_seed(1)
    loss = sum((f * torch.rand(f.shape, generator=draw).to(f)).sum() for f in found)
    leaves = [*xs, *leaves, *layer.parameters()]
    grads = torch.autograd.grad(loss, leaves)
    return [f.detach() for f in found], list(grads)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("given", [True, False], ids=["h0", "no h0"])
@pytest.mark.parametrize(("layers", "bias", "both"), CONFIGURATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_torch(kind, layers, bias, both, given, dtype):
    ours, theirs = pair(kind, dtype, num_layers=layers, bias=bias, bidirectional=both)
    xs = [torch.randn(n, FEATURES, dtype=dtype) for n in LENGTHS]
    states = first_states(ours, dtype) if given else None
    for found, expected in zip(results(ours, xs, states, packlib),
                               results(theirs, xs, states, nn.utils.rnn), strict=True):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("lengths", [[1, 3, 2], [3], [2, 2, 2], [1, 2] * 10], ids=str)
@pytest.mark.parametrize("both", [True, False], ids=["bidirectional", "forward"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_each_sequence_alone(kind, both, lengths):
    """torch's layer on one sequence at a time, unbatched: no padding, no packing, no order."""
    ours, theirs = pair(kind, num_layers=2, bidirectional=both)
    xs = [torch.randn(n, FEATURES, dtype=torch.float64) for n in lengths]
    states = first_states(ours, size=len(lengths))
    output, last = ours(packlib.pack_sequence(xs, enforce_sorted=False), states)
    for i, x in enumerate(xs):
        mine = [s[:, i] for s in flat(states)]
        out, end = theirs(x, tuple(mine) if isinstance(states, tuple) else mine[0])
        torch.testing.assert_close(output.sequence(i), out, rtol=0, atol=1e-10)
        for one, other in zip(flat(last), flat(end), strict=True):
            torch.testing.assert_close(one[:, i], other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_double_backward(kind):
    ours, _ = pair(kind, bidirectional=True)
    x = torch.randn(5, FEATURES, dtype=torch.float64, requires_grad=True)

    def run(x):
        output, last = ours(packlib.pack_sequence([x[:1], x[1:4], x[3:]], enforce_sorted=False))
        return output.data, *flat(last)

    if "relu" not in kind:  # whose second derivative is zero where it exists
        assert torch.autograd.gradgradcheck(run, (x,), fast_mode=True)
    assert torch.autograd.gradcheck(run, (x,), fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_torchs_layer(kind):
    ours, theirs = pair(kind, num_layers=2, bidirectional=True)
    assert isinstance(ours, nn.RNNBase)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("shape", [(4, 2, FEATURES), (4, FEATURES)], ids=["batch", "one sequence"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_plain_tensor_takes_torchs_path(kind, batch_first, shape):
    ours, theirs = pair(kind, batch_first=batch_first)
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_batch_of_torch_is_taken(kind):
    ours, theirs = pair(kind)
    xs = [torch.randn(n, FEATURES, dtype=torch.float64) for n in LENGTHS]
    packed = nn.utils.rnn.pack_sequence(xs, enforce_sorted=False)
    output, last = ours(packed)
    assert type(output) is packlib.PackedSequence
    expected, end = theirs(packed)
    torch.testing.assert_close(output.data, expected.data, rtol=0, atol=1e-10)
    torch.testing.assert_close(last, end, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_dropout_falls_between_layers_and_only_in_training(name):
    layer = getattr(packlib, name)(3, 50, num_layers=2, dropout=0.3)
    # The second layer passes its input through, as far as zeros go: zero in, zero out.
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.weight_ih_l0.normal_(mean=1)
        gates = layer.weight_ih_l1.view(-1, 50, 50)
        gates[{"RNN": 0, "GRU": 2, "LSTM": 2}[name]].copy_(torch.eye(50))
    packed = packlib.pack_sequence([torch.rand(1, 3) for _ in range(80)])
    output, last = layer(packed)
    zeros = (output.data == 0).float().mean()
    assert abs(zeros - 0.3) < 0.03  # 4000 draws: four standard deviations
    first = flat(last)[0][0]
    assert (first != 0).all()  # the state of the first layer is what it was before dropout
    assert not torch.equal(layer(packed)[0].data, output.data)

    layer.eval()
    assert (layer(packed)[0].data != 0).all()
    torch.testing.assert_close(layer(packed)[0].data, layer(packed)[0].data, rtol=0, atol=0)


def test_dropout_keeps_the_mean():
    layer = packlib.RNN(1, 1, num_layers=2, dropout=0.5, nonlinearity="relu", bias=False)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.fill_(1.0 if "ih" in name else 0.0)
    packed = packlib.pack_sequence([torch.ones(1, 1)] * 4000)
    assert sorted(set(layer(packed)[0].data.flatten().tolist())) == [0.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_small_floats(kind, dtype):
    ours, theirs = pair(kind, dtype)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES, dtype=dtype) for n in LENGTHS], False)
    found, expected = ours(packed)[0].data, theirs(packed)[0].data
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_on_the_cpu(kind):
    ours, _ = pair(kind, torch.float32, num_layers=2, bidirectional=True)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES) for n in LENGTHS], False)
    expected, end = ours(packed)
    with torch.autocast("cpu", torch.bfloat16):
        output, last = ours(packed)
    torch.testing.assert_close(output.data.float(), expected.data, rtol=0.05, atol=0.05)
    for one, other in zip(flat(last), flat(end), strict=True):
        torch.testing.assert_close(one.float(), other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_may_be_frozen_and_parametrised(kind):
    ours, _ = pair(kind)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES).double() for n in LENGTHS], False)
    expected = ours(packed)[0].data
    nn.utils.parametrizations.weight_norm(ours, "weight_hh_l0")
    torch.testing.assert_close(ours(packed)[0].data, expected)
    with torch.inference_mode():
        torch.testing.assert_close(ours(packed)[0].data, expected)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_a_list_is_refused_with_the_way_out(name):
    layer = getattr(packlib, name)(3, 5)
    for value in ([torch.zeros(2, 3)], None, (torch.zeros(2, 3),)):
        with pytest.raises(TypeError, match=r"pack_sequence\(sequences, enforce_sorted=False\)"):
            layer(value)


@pytest.mark.parametrize("batch_first", [True, False], ids=["(B, T, F)", "(T, B, F)"])
@pytest.mark.parametrize("given", [True, False], ids=["h0", "no h0"])
@pytest.mark.parametrize("kind", KINDS)
def test_padded_input_with_lengths(kind, given, batch_first):
    """As torch's pack, layer and pad; what stands in the padding never matters."""
    options = {"num_layers": 2, "bidirectional": True, "batch_first": batch_first}
    ours, theirs = pair(kind, **options)
    x = torch.full((5, 7, FEATURES), float("nan"), dtype=torch.float64)
    for b, n in enumerate(LENGTHS):
        x[b, :n] = torch.randn(n, FEATURES)
    x = (x if batch_first else x.transpose(0, 1)).requires_grad_()
    states = first_states(ours) if given else None
    output, last = ours(x, states, lengths=torch.tensor(LENGTHS))
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first, False)
    expected, expected_last = theirs(packed, states)
    expected, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first, total_length=7)
    grads = []
    for result, final, layer in ((output, last, ours), (expected, expected_last, theirs)):
        loss = result.pow(2).sum() + sum(s.pow(3).sum() for s in flat(final))
        grads.append(torch.autograd.grad(loss, [x, *layer.parameters()]))
    for one, other in zip([output, *flat(last), *grads[0]],
                          [expected, *flat(expected_last), *grads[1]], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_padded_input_is_one_call_for_hooks():
    layer, calls = packlib.GRU(FEATURES, HIDDEN), []
    layer.register_forward_hook(lambda module, given, result: calls.append(result))
    layer(torch.zeros(6, 2, FEATURES), lengths=[6, 4])
    assert len(calls) == 1


@pytest.mark.parametrize(("given", "lengths", "error", "words"), [
    (packlib.pack_sequence([torch.zeros(2, FEATURES)]), [2], TypeError, "knows its lengths"),
    (torch.zeros(6, FEATURES), [6], TypeError, r"\(T, B, F\), got shape \(6, 3\)"),
    ([torch.zeros(2, FEATURES)], [2], TypeError, "got list"),
    (torch.zeros(6, 2, FEATURES), [7, 4], ValueError, r"lengths\[0\]=7"),
    (torch.zeros(2, 6, FEATURES), [2, 2], RuntimeError, "batch_first=True"),
    (torch.zeros(6, 2, FEATURES), [6, 0], RuntimeError, "greater than 0"),
    (torch.zeros(6, 2, 5), [6, 4], RuntimeError, "Expected 3, got 5"),
])
def test_lengths_that_cannot_be(given, lengths, error, words):
    with pytest.raises(error, match=words):
        packlib.GRU(FEATURES, HIDDEN)(given, lengths=lengths)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("hx", [[6, 4], (6, 4), torch.tensor([6, 4])], ids=str)
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_lengths_in_the_place_of_states_are_recognised(name, hx, packed):
    x = torch.zeros(6, 2, FEATURES)
    given = packlib.pack_padded_sequence(x, [6, 4]) if packed else x
    with pytest.raises(TypeError, match=r"hx must be first states.*lengths=lengths"):
        getattr(packlib, name)(FEATURES, HIDDEN)(given, hx)


@pytest.mark.parametrize("route", ["auto", "plain", "hoisted", "torch"])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_the_meta_device(name, route):
    """Shapes alone, as torch's layers give them."""
    with torch.device("meta"):
        layer = getattr(packlib, name)(FEATURES, HIDDEN, bidirectional=True, route=route)
        x = torch.zeros(6, 2, FEATURES)
    output, last = layer(packlib.pack_padded_sequence(x, [6, 4]))
    assert output.data.shape == (10, 2 * HIDDEN) and output.data.is_meta
    assert flat(last)[0].shape == (2, 2, HIDDEN)


def test_a_forced_route_shows_and_an_old_pickle_has_the_usual_one():
    layer = packlib.GRU(3, 4, route="plain")
    assert repr(layer) == "GRU(3, 4, route='plain')" and repr(packlib.GRU(3, 4)) == "GRU(3, 4)"
    del layer.route
    assert layer.route == "auto"


def kernels(layer, lengths):
    packed = packlib.pack_sequence([torch.randn(n, FEATURES) for n in lengths], False)
    layer(packed)  # the plan, and the brake of a cover, are kept from the first use on
    layer.zero_grad()  # otherwise the second call adds its gradients to the first's
    with oracle.Work() as work:
        layer(packed)[0].data.sum().backward()
    return len(work.names)


@pytest.mark.parametrize("route", ["plain", "hoisted"])
def test_the_number_of_kernels_follows_the_steps_alone(route):
    """Not the sequences, nor their lengths: a step is one step for all."""
    layer = packlib.LSTM(FEATURES, HIDDEN, route=route)
    assert kernels(layer, [8, 8, 8]) == kernels(layer, [8] * 20)
    per_step = kernels(layer, [9] * 3) - kernels(layer, [8] * 3)
    assert kernels(layer, [40] * 3) == kernels(layer, [8] * 3) + 32 * per_step
    # Where sequences end, h and c are split, and joined again backward: 4 kernels, once.
    assert kernels(layer, list(range(1, 9))) <= kernels(layer, [8] * 3) + 7 * 4


def test_the_number_of_kernels_of_a_cover_follows_its_rectangles(monkeypatch):
    layer = packlib.LSTM(FEATURES, HIDDEN, route="cover")
    monkeypatch.setattr("packlib.rnn.cover_cost", lambda data, w_hh: Cost(10**6, 0, 1))
    assert kernels(layer, [8] * 3) == kernels(layer, [40] * 7) <= 30
    assert kernels(layer, [2, 5, 1]) == kernels(layer, list(range(1, 50))) <= 60
