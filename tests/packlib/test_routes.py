"""Every route of a layer gives torch's numbers, in any dtype, under autocast and transforms."""

import pytest
import torch
from hypothesis import given
from torch import nn

import packlib
from tests.packlib.strategies import lengths as drawn_lengths
from tests.packlib.test_rnn import FEATURES, first_states, flat, pair, results

WAYS = [("RNN", "plain"), ("RNN", "hoisted"), ("RNN relu", "hoisted"), ("RNN", "torch"),
        ("GRU", "plain"), ("GRU", "hoisted"), ("GRU", "torch"),
        ("LSTM", "plain"), ("LSTM", "hoisted"), ("LSTM", "cover"), ("LSTM", "torch"),
        ("LSTM proj", "plain"), ("LSTM proj", "hoisted"), ("LSTM proj", "torch")]
UNSORTED = [2, 7, 1, 4, 7, 3]  # ties at the top, where the cover has a dense rectangle


def forced(kind, route, dtype=torch.float64, **options):
    ours, theirs = pair(kind, dtype, **options)
    ours.route = route
    return ours, theirs


def compare(ours, theirs, lengths, dtype, tolerance):
    torch.manual_seed(0)
    xs = [torch.randn(n, FEATURES, dtype=dtype) for n in lengths]
    states = first_states(ours, dtype, size=len(lengths))
    for found, expected in zip(results(ours, xs, states, packlib),
                               results(theirs, xs, states, nn.utils.rnn), strict=True):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_every_route_equals_torch(kind, route, bias):
    options = {"num_layers": 2, "bidirectional": True, "bias": bias}
    compare(*forced(kind, route, **options), UNSORTED, torch.float64, 1e-10)
    compare(*forced(kind, route, torch.float32, **options), UNSORTED, torch.float32, 1e-5)


@given(lengths=drawn_lengths)
@pytest.mark.parametrize(("kind", "route"), [
    ("RNN", "hoisted"), ("GRU", "hoisted"), ("LSTM", "hoisted"), ("LSTM", "cover")])
def test_fast_routes_equal_torch_on_drawn_lengths(kind, route, lengths):
    compare(*forced(kind, route, bidirectional=True), lengths, torch.float64, 1e-9)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_under_autocast_a_layer_computes_in_the_dtype_of_autocast(kind):
    ours, theirs = pair(kind, torch.float32)
    xs = [torch.randn(n, FEATURES) for n in UNSORTED]
    with torch.autocast("cpu", torch.bfloat16):
        output, last = ours(packlib.pack_sequence(xs, enforce_sorted=False))
    assert output.dtype == flat(last)[0].dtype == torch.bfloat16
    expected, _ = theirs(nn.utils.rnn.pack_sequence(xs, enforce_sorted=False))
    torch.testing.assert_close(output.data.float(), expected.data, rtol=0.05, atol=0.05)
    output.data.sum().backward()
    assert ours.weight_hh_l0.grad.dtype == torch.float32


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_autocast_leaves_doubles_alone(kind):
    ours, _ = pair(kind)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES).double() for n in (5, 2)])
    expected, _ = ours(packed)
    with torch.autocast("cpu", torch.bfloat16):
        output, last = ours(packed)
        with pytest.raises(ValueError, match="does not match weight dtype"):
            ours.float()(packed)
    assert flat(last)[0].dtype == torch.float64
    torch.testing.assert_close(output.data, expected.data, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_half_precision(kind, dtype):
    ours, theirs = pair(kind, torch.float32)
    xs = [torch.randn(n, FEATURES) for n in UNSORTED]
    packed = packlib.pack_sequence(xs, enforce_sorted=False)
    expected, _ = theirs(packed)
    output, _ = ours.to(dtype)(packed.to(dtype))
    assert output.dtype == dtype
    torch.testing.assert_close(output.data.float(), expected.data, rtol=0.05, atol=0.05)


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="seen to work on torch 2.13")
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own call
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_transforms(kind, route):
    """grad, vmap and jvp of torch.func, against gradients one by one."""
    layer, _ = forced(kind, route, torch.float32)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES) for n in UNSORTED],
                                   enforce_sorted=False)

    def energy(data, w_hh):
        output, last = torch.func.functional_call(
            layer, {"weight_hh_l0": w_hh}, (packed.with_data(data),))
        return output.data.pow(2).sum() + sum(s.pow(3).sum() for s in flat(last))

    weight = layer.weight_hh_l0.detach()
    many = torch.stack([packed.data, packed.data / 2])
    expected = []
    for data in many:
        leaves = data.clone().requires_grad_(), weight.clone().requires_grad_()
        expected.append(torch.autograd.grad(energy(*leaves), leaves))
    found = torch.func.vmap(torch.func.grad(energy, (0, 1)), (0, None))(many, weight)
    for one, other in zip(found, zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(one, torch.stack(other), rtol=1e-4, atol=1e-5)
    step = torch.randn(weight.shape)
    _, moved = torch.func.jvp(lambda w: energy(packed.data, w), (weight,), (step,))
    torch.testing.assert_close(moved, (expected[0][1] * step).sum(), rtol=1e-4, atol=1e-5)
