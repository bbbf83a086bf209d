"""A kernel with one derivative, as cuDNN's: derivatives of any order, and nothing kept too long.

There is no such kernel here, so the CPU's are taken for one.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.autograd.function import once_differentiable

import packlib
from packlib import fused
from tests.packlib import test_route_gradients, test_routes
from tests.packlib.test_rnn import FEATURES, HIDDEN, KINDS, pair

KERNELS = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """The kernels that were called as cuDNN's would be."""
    made, apply = [], fused._Fused.apply
    monkeypatch.setattr(fused, "refuses", lambda data: True)
    monkeypatch.setattr(fused._Fused, "apply", lambda *args: made.append(args) or apply(*args))
    return made


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@KERNELS
def test_gradients_equal_torch(calls, kind, bias):
    test_routes.test_every_route_equals_torch(kind, "torch", bias)
    assert len(calls) == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@KERNELS
def test_gradients_of_gradients_equal_torch(calls, kind, dtype):
    test_route_gradients.test_gradients_can_be_differentiated_again(kind, "torch", dtype)
    assert calls


@KERNELS
def test_eval_mode_and_frozen_weights(calls, kind):
    test_route_gradients.test_eval_mode_and_frozen_weights_have_gradients_too(kind, "torch")
    assert calls


@pytest.mark.parametrize(("lengths", "dim"), [([5, 5, 5], 3), ([5, 2, 5], 2), ([5, 0, 5], 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_lengths_are_dense(calls, monkeypatch, kind, lengths, dim):
    """The fast kernels of cuDNN and oneDNN take dense input alone; of a projection oneDNN has none,
    and torch would warn."""
    ours, theirs = pair(kind, torch.float64, num_layers=2, bidirectional=True)
    ours.route = "torch"
    xs = [torch.randn(n, FEATURES, dtype=torch.float64) for n in lengths]
    alone = [theirs(x)[0] for x in xs if len(x)]
    name, seen = ours.mode.lower(), []
    kernel = getattr(torch._VF, name)
    monkeypatch.setattr(torch._VF, name, lambda x, *rest: seen.append(x.dim()) or kernel(x, *rest))
    output, _ = ours(packlib.pack_sequence(xs, enforce_sorted=False, allow_empty=True))
    for sequence, expected in zip([output.sequence(i) for i, x in enumerate(xs) if len(x)], alone,
                                  strict=True):
        torch.testing.assert_close(sequence, expected)
    assert seen == [2 if kind == "LSTM proj" else dim]


class _Once(torch.autograd.Function):
    """Twice the input; the second derivative is refused, as by cuDNN."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        ctx.saved_tensors  # noqa: B018
        return 2 * grad


def cubed(x):
    return fused.call(lambda x: (_Once.apply(x) * x * x / 2,), lambda x: (x ** 3,), [x])[0]


def test_the_kernel_alone_refuses():
    x = torch.tensor([3.0], requires_grad=True)
    (grad,) = torch.autograd.grad(_Once.apply(x), x, create_graph=True)
    with pytest.raises(RuntimeError):
        grad.backward()


def test_any_order():
    x = torch.tensor([3.0, -1.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(cubed, (x,)) and torch.autograd.gradgradcheck(cubed, (x,))
    result = cubed(x)
    for expected in (3 * x ** 2, 6 * x, 6 * torch.ones_like(x)):
        (result,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        torch.testing.assert_close(result, expected)


def test_backward_twice_as_torch_has_it():
    x = torch.tensor([3.0], requires_grad=True)
    result = cubed(x)
    for _ in range(2):
        (found,) = torch.autograd.grad(result, x, retain_graph=True)
        assert found == 27
    torch.autograd.grad(result, x)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(result, x)


def test_what_the_kernel_kept_is_let_go_after_backward():
    x = torch.tensor([3.0], requires_grad=True)
    result = fused.call(lambda x: (4 * x,), lambda x: (4 * x,), [x])[0]
    inside = weakref.ref(result.grad_fn.outputs[0])
    result.backward()  # while the result is still there
    gc.collect()
    assert inside() is None
    assert x.grad == 4


def test_weights_changed_between_forward_and_backward_are_refused():
    layer = packlib.LSTM(FEATURES, HIDDEN, route="torch")
    output, _ = layer(packlib.pack_sequence([torch.ones(5, FEATURES), torch.ones(2, FEATURES)]))
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.data.sum().backward()


def test_unused_outputs_and_the_states_alone():
    for route in ("torch", "cover"):
        layer = packlib.LSTM(FEATURES, HIDDEN, route=route)
        packed = packlib.pack_sequence([torch.ones(5, FEATURES), torch.ones(2, FEATURES)])
        _, (h, c) = layer(packed)
        found = torch.autograd.grad(c.sum(), list(layer.parameters()), retain_graph=True)
        expected = torch.autograd.grad(c.sum(), list(layer.parameters()), create_graph=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
        assert h.requires_grad


def test_dropout_between_layers_is_torchs_own(calls):
    """The same elements cannot be dropped again, so there is nothing to replay."""
    layer = packlib.LSTM(FEATURES, HIDDEN, num_layers=2, dropout=0.5, route="torch")
    packed = packlib.pack_sequence([torch.randn(5, FEATURES), torch.randn(2, FEATURES)])
    layer(packed)[0].data.sum().backward()
    assert not calls and not torch.equal(layer(packed)[0].data, layer(packed)[0].data)
    layer.eval()(packed)
    assert len(calls) == 1


def test_without_gradients_nothing_is_wrapped(calls):
    packed = packlib.pack_sequence([torch.randn(5, FEATURES), torch.randn(2, FEATURES)])
    layer = packlib.LSTM(FEATURES, HIDDEN, route="torch")
    with torch.no_grad():
        layer(packed)
    with torch.inference_mode():
        layer(packed)
    layer.requires_grad_(False)(packed)
    assert not calls


@KERNELS
def test_autocast(calls, kind):
    layer, _ = pair(kind, torch.float32)
    layer.route = "torch"
    packed = packlib.pack_sequence([torch.randn(5, FEATURES), torch.randn(2, FEATURES)])
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = layer(packed)
    wanted = list(layer.parameters())
    grads = [torch.autograd.grad(output.data.float().sum(), wanted, retain_graph=True),
             torch.autograd.grad(output.data.float().sum(), wanted, create_graph=True)]
    assert calls and all(grad.dtype == torch.float32 for grad in grads[1])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("route", ["torch", "cover"])
def test_checkpointing(route):
    from torch.utils.checkpoint import checkpoint

    layer = packlib.LSTM(FEATURES, HIDDEN, route=route)
    x = torch.randn(5, FEATURES, requires_grad=True)

    def run(x):
        return layer(packlib.pack_sequence([x, x[:2]]))[0].data.sum()

    found = torch.autograd.grad(checkpoint(run, x, use_reentrant=False), x)
    torch.testing.assert_close(found, torch.autograd.grad(run(x), x))
