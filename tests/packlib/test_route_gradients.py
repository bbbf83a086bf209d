"""Gradients by every route: of any order and any part, from any memory, and what may be changed."""


import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import packlib
from tests.packlib.test_rnn import FEATURES, HIDDEN, first_states, flat
from tests.packlib.test_routes import UNSORTED, WAYS, forced


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_gradients_can_be_differentiated_again(kind, route, dtype):
    """A penalty on the gradient's norm: the gradients of that, against torch's."""
    found = []
    ours, theirs = forced(kind, route, dtype)
    for layer, module in ((ours, packlib), (theirs.double(), nn.utils.rnn)):
        torch.manual_seed(0)
        draw = [torch.randn(n, FEATURES, dtype=torch.float64) for n in UNSORTED]
        xs = [x.to(layer.weight_hh_l0.dtype).requires_grad_() for x in draw]
        output, last = layer(module.pack_sequence(xs, enforce_sorted=False))
        loss = output.data.pow(2).sum() + sum(s.pow(3).sum() for s in flat(last))
        leaves = [*xs, *layer.parameters()]
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.pow(2).sum() for g in first), leaves))
    for one, other in zip(*found, strict=True):
        tolerance = 1e-9 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, check_dtype=False)


@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_eval_mode_and_frozen_weights_have_gradients_too(kind, route):
    ours, theirs = forced(kind, route)
    for layer in (ours, theirs):
        layer.eval().weight_hh_l0.requires_grad_(False)
    grads = []
    for layer, module in ((ours, packlib), (theirs, nn.utils.rnn)):
        torch.manual_seed(0)
        x = torch.randn(5, FEATURES, dtype=torch.float64, requires_grad=True)
        output, _ = layer(module.pack_sequence([x, x[:2], x[:4]], enforce_sorted=False))
        output.data.sum().backward()
        grads.append((x.grad, layer.weight_ih_l0.grad, layer.weight_hh_l0.grad))
    assert grads[0][2] is None
    for one, other in zip(grads[0][:2], grads[1][:2], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("lengths", [UNSORTED, [4, 4, 4]], ids=str)
@pytest.mark.parametrize(("kind", "route", "used"), [
    (*way, used) for way in WAYS for used in ("output", "h_n", "c_n")
    if used != "c_n" or way[0].startswith("LSTM")])
def test_a_loss_may_use_one_of_the_results_alone(kind, route, used, lengths):
    found = []
    for layer, module in zip(forced(kind, route), (packlib, nn.utils.rnn), strict=True):
        torch.manual_seed(0)
        xs = [torch.randn(n, FEATURES).double().requires_grad_() for n in lengths]
        states = first_states(layer, torch.float64, size=len(lengths))
        leaves = [*xs, *(s.requires_grad_() for s in flat(states)), *layer.parameters()]
        output, last = layer(module.pack_sequence(xs, enforce_sorted=False), states)
        chosen = output.data if used == "output" else flat(last)[used == "c_n"]
        found.append(torch.autograd.grad(chosen.pow(2).sum(), leaves, allow_unused=True))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(torch.zeros_like(other) if one is None else one, other)


def strided(x):
    """The same numbers, none beside the other."""
    return torch.stack([x, torch.full_like(x, 9)], -1)[..., 0]


@pytest.mark.parametrize("lengths", [[7, 7, 4, 3, 2, 1], [4, 4, 4]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_data_and_states_may_lie_anywhere_in_memory(kind, route, dtype, lengths):
    """Kernels that look at no stride would read something else."""
    layer, _ = forced(kind, route, dtype)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES, dtype=dtype) for n in lengths])
    states = first_states(layer, dtype, size=len(lengths))
    found = []
    for way in (torch.clone, strided):
        output, last = layer(packed.map(way), way(states) if isinstance(states, torch.Tensor) else
                             tuple(map(way, states)))
        results = [output.data, *flat(last)]
        found.append([*results, *torch.autograd.grad(
            sum(r.pow(2).sum() for r in results), list(layer.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def from_the_run_before(layer, packed):
    _, last = layer(packed)
    return last


def from_the_data(layer, packed):
    h = packed.data.sum() * torch.ones_like(torch.cat(flat(first_states(layer, size=3)), -1))
    if layer.mode != "LSTM":
        return h
    return h[..., :layer.proj_size or HIDDEN], h[..., :HIDDEN]


@pytest.mark.parametrize("first", [from_the_run_before, from_the_data])
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_a_graph_through_first_states_is_counted_once(kind, route, first):
    """Also where the backward is made to be differentiated again."""
    layer, _ = forced(kind, route)
    layer.bias_hh_l0 = layer.bias_ih_l0  # one parameter in two places
    xs = [torch.randn(n, FEATURES).double().requires_grad_() for n in (6, 3, 2)]
    found = []
    for create_graph in (True, False):
        packed = packlib.pack_sequence(xs)
        output, _ = layer(packed, first(layer, packed))
        found.append(torch.autograd.grad(output.data.pow(2).sum(), [*xs, *layer.parameters()],
                                         create_graph=create_graph))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("create_graph", [True, False])
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_batch_sizes_changed_before_the_backward_do_not_reach_it(kind, route, create_graph):
    layer, _ = forced(kind, route)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES).double() for n in (4, 3, 2)])
    (expected,) = torch.autograd.grad(layer(packed)[0].data.pow(2).sum(), layer.weight_hh_l0)
    output, _ = layer(packed)
    output.batch_sizes.copy_(torch.tensor([3, 2, 2, 2]))
    try:
        (found,) = torch.autograd.grad(output.data.pow(2).sum(), layer.weight_hh_l0,
                                       create_graph=create_graph)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_gradients_lie_row_after_row(kind, route):
    layer, _ = forced(kind, route, torch.float32)
    data = torch.randn(10, FEATURES, requires_grad=True)
    packed = packlib.pack_sequence([torch.ones(n, FEATURES) for n in (5, 3, 2)]).with_data(data)
    for grad in torch.autograd.grad(layer(packed)[0].data.sum(), [data, *layer.parameters()]):
        assert grad.is_contiguous()


class _Dead(torch.autograd.Function):
    """Knows no gradient of its input."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


@pytest.mark.parametrize("create_graph", [True, False])
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_what_follows_may_have_no_gradient(kind, route, create_graph):
    layer, _ = forced(kind, route)
    xs = [torch.ones(n, FEATURES).double() for n in UNSORTED]
    output, _ = layer(packlib.pack_sequence(xs, enforce_sorted=False))
    found = torch.autograd.grad(_Dead.apply(output.data).sum(), list(layer.parameters()),
                                create_graph=create_graph, allow_unused=True)
    assert all(grad is None for grad in found)  # as torch's


@pytest.mark.parametrize("create_graph", [True, False])
@pytest.mark.parametrize("by", ["grad", "vmap"])
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_many_gradients_at_once(kind, route, by, create_graph):
    """As one after the other: what torch.autograd.functional.jacobian(vectorize=True) asks for."""
    layer, _ = forced(kind, route)
    torch.manual_seed(0)
    xs = [torch.randn(n, FEATURES, dtype=torch.float64, requires_grad=True) for n in UNSORTED]
    output, last = layer(packlib.pack_sequence(xs, enforce_sorted=False))
    result = torch.cat([output.data.flatten(), *(s.flatten() for s in flat(last))])
    leaves, grads = [*xs, *layer.parameters()], torch.randn(2, len(result), dtype=torch.float64)

    def gradients(grad, **options):
        return torch.autograd.grad(result, leaves, grad, retain_graph=True,
                                   create_graph=create_graph, **options)

    each = [gradients(grad) for grad in grads]
    found = (gradients(grads, is_grads_batched=True) if by == "grad" else
             torch.func.vmap(gradients)(grads))
    for one, *others in zip(found, *each, strict=True):
        torch.testing.assert_close(one, torch.stack(others), rtol=0, atol=1e-10)
        assert one.requires_grad == create_graph


class _Zeros(TorchDispatchMode):
    """The shapes of all zeros that are made."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if "zeros" in func.name() or "zero_" in func.name():
            self.shapes.append(tuple(made.shape))
        return made


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_nothing_is_made_for_what_is_only_kept(kind):
    """Gates are four or three times as large as the output."""
    layer, _ = forced(kind, "hoisted")
    xs = [torch.ones(n, FEATURES).double() for n in UNSORTED]
    output, _ = layer(packlib.pack_sequence(xs, enforce_sorted=False))
    with _Zeros() as zeros:
        output.data.sum().backward()
    states = [shape for shape in zeros.shapes if shape[0] == len(UNSORTED)]
    assert states  # of the last states, which nobody asked about
    assert not [shape for shape in zeros.shapes if shape[0] == sum(UNSORTED)]


@pytest.mark.parametrize("lengths", [[5, 2], [5, 5]], ids=str)
@pytest.mark.parametrize("route", ["hoisted", "cover"])
def test_what_the_backward_needs_may_not_be_changed(route, lengths):
    layer = packlib.LSTM(FEATURES, HIDDEN, route=route)
    output, _ = layer(packlib.pack_sequence([torch.ones(n, FEATURES) for n in lengths]))
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.data.sum().backward()


@pytest.mark.parametrize("lengths", [[5, 2], [5, 5]], ids=str)
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_an_output_may_be_changed_in_place(kind, route, bidirectional, lengths):
    """As torch's: an activation or a dropout in place is common."""
    layer, _ = forced(kind, route, num_layers=2, bidirectional=bidirectional)
    packed = packlib.pack_sequence([torch.ones(n, FEATURES).double() for n in lengths])
    grads = []
    for change in (torch.mul, torch.Tensor.mul_):
        output, last = layer(packed)
        loss = change(output.data, 3).sum() + sum(change(s, 2).pow(2).sum() for s in flat(last))
        grads.append(torch.autograd.grad(loss, list(layer.parameters())))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)
