"""Weights that somebody replaced: of the wrong shape, missing, of another dtype, complex."""

import re

import pytest
import torch
from torch import nn

import packlib
from tests.packlib.test_rnn import FEATURES, HIDDEN

LENGTHS = [[6, 4, 2], [4, 4, 4], [30] * 16 + [28] * 16]  # the last one padded in a cover
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
WAYS = [(kind, route) for kind in GATES for route in ("auto", "plain", "hoisted", "torch")]
WAYS.append(("LSTM", "cover"))


def batch(lengths, dtype=torch.float32):
    return packlib.pack_sequence([torch.randn(n, FEATURES, dtype=dtype) for n in lengths])


@pytest.mark.parametrize("lengths", LENGTHS, ids=["ragged", "equal", "large"])
@pytest.mark.parametrize(("kind", "route"), WAYS)
@pytest.mark.parametrize(("name", "shape"), [
    ("weight_hh_l1", lambda gates: (HIDDEN, gates + 1)), ("weight_hh_l0", lambda gates: (gates, 1)),
    ("weight_hh_l0", lambda gates: (2, HIDDEN)), ("weight_ih_l0", lambda gates: (gates, 1)),
    ("weight_ih_l1", lambda gates: (gates, HIDDEN - 1)), ("bias_ih_l0", lambda gates: (1,)),
    ("bias_hh_l1", lambda gates: (gates, 1)),
])
def test_of_another_shape(kind, route, lengths, name, shape):
    """A fused kernel reads past their end."""
    layer = getattr(packlib, kind)(FEATURES, HIDDEN, 2, route=route)
    wrong = shape(GATES[kind] * HIDDEN)
    setattr(layer, name, nn.Parameter(torch.ones(wrong)))
    with pytest.raises(RuntimeError, match=f"{name} must have shape .*, got " + re.escape(
            str(wrong))):
        layer(batch(lengths))


def test_the_other_way_round_is_told():
    layer = packlib.LSTM(FEATURES, HIDDEN)
    layer.weight_hh_l0 = nn.Parameter(layer.weight_hh_l0.detach().t())
    with pytest.raises(RuntimeError, match=r"got \(\d, \d+\): it is the other way round, give its"):
        layer(batch(LENGTHS[0]))


@pytest.mark.parametrize("lengths", LENGTHS[:2], ids=["ragged", "equal"])
@pytest.mark.parametrize(("kind", "route"), WAYS)
@pytest.mark.parametrize("name", ["bias_ih_l0", "bias_hh_l0", "weight_ih_l0", "weight_hh_l0"])
def test_missing(kind, route, lengths, name):
    layer = getattr(packlib, kind)(FEATURES, HIDDEN, route=route)
    setattr(layer, name, None)
    hint = "to have no biases" if name.startswith("bias") else "must be a Tensor"
    with pytest.raises(TypeError, match=f"{name} must be a Tensor, got NoneType.*{hint}|{hint}"):
        layer(batch(lengths))


@pytest.mark.parametrize("lengths", LENGTHS[:2], ids=["ragged", "equal"])
@pytest.mark.parametrize(("kind", "route"), WAYS)
@pytest.mark.parametrize("name", ["bias_ih_l0", "bias_hh_l0", "weight_hh_l0"])
def test_of_another_dtype(kind, route, lengths, name):
    layer = getattr(packlib, kind)(FEATURES, HIDDEN, route=route)
    setattr(layer, name, nn.Parameter(getattr(layer, name).detach().double()))
    said = f"{name} must be torch.float32 as weight_ih_l0 is, got torch.float64"
    with pytest.raises(RuntimeError, match=said):
        layer(batch(lengths))


@pytest.mark.parametrize("proj_size", [0, 2])
def test_under_autocast_they_may_differ(proj_size):
    layer = packlib.LSTM(FEATURES, HIDDEN, proj_size=proj_size, route="hoisted")
    layer.weight_hh_l0 = nn.Parameter(layer.weight_hh_l0.detach().bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(batch(LENGTHS[0]))[0].dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:Complex modules")
@pytest.mark.parametrize("lengths", LENGTHS[:2], ids=["ragged", "equal"])
@pytest.mark.parametrize(("kind", "route"), WAYS)
def test_complex_ones_have_torchs_gradients(kind, route, lengths):
    theirs = getattr(nn, kind)(FEATURES, HIDDEN, dtype=torch.complex128)
    ours = getattr(packlib, kind)(FEATURES, HIDDEN, route=route, dtype=torch.complex128)
    ours.load_state_dict(theirs.state_dict())
    packed = batch(lengths, torch.complex128)
    packed.data.requires_grad_()
    found, expected = (torch.autograd.grad(
        layer(packed)[0].data.abs().square().sum(), [packed.data, *layer.parameters()])
        for layer in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="torch 2.6 compiles no layer of ours")
@pytest.mark.filterwarnings("ignore:Complex modules")
def test_complex_ones_are_not_compiled():
    layer = packlib.GRU(FEATURES, HIDDEN, dtype=torch.complex128)
    with pytest.raises(Exception, match="complex numbers"):
        torch.compile(layer, fullgraph=True, backend="eager")(batch(LENGTHS[0], torch.complex128))
