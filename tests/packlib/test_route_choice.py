"""Which route a layer takes: the cheapest that can take it."""

import pytest
import torch

import packlib
from packlib import routes
from packlib.layout import Layout, check_lengths
from tests.packlib.test_rnn import FEATURES, HIDDEN

STAIRCASE, TINY, EQUAL = [60, 59, 30, 29, 3, 2], [9, 8, 2], [9] * 8
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(),
                                  reason="this torch has no oneDNN")


@pytest.mark.parametrize(("route", "mode", "lengths", "dtype", "training", "projected"), [
    # without a dense kernel the hoisted loop, or torch's where nothing is kept for a backward
    ("hoisted", "GRU", STAIRCASE, torch.float32, True, False),
    ("hoisted", "GRU", EQUAL, torch.float32, True, False),
    ("torch", "GRU", STAIRCASE, torch.float32, False, False),
    ("hoisted", "LSTM", EQUAL, torch.float64, True, False),
    ("torch", "LSTM", STAIRCASE, torch.float64, False, False),
    ("hoisted", "LSTM", EQUAL, torch.float32, True, True),
    ("torch", "LSTM", STAIRCASE, torch.float32, False, True),
    ("hoisted", "RNN_TANH", TINY, torch.float32, True, False),
    ("hoisted", "RNN_TANH", STAIRCASE, torch.float32, False, False),
    ("torch", "RNN_RELU", TINY, torch.float32, False, False),
    # with one: by torch itself if a single call does it
    *[pytest.param(route, "LSTM", lengths, torch.float32, training, False, marks=needs_onednn)
      for route, lengths, training in [
          ("torch", EQUAL, True), ("torch", EQUAL, False),
          ("cover", STAIRCASE, True), ("cover", STAIRCASE, False),
          ("torch", TINY, False)]],
])
def test_the_choice(route, mode, lengths, dtype, training, projected):
    w_hh, layout = torch.zeros(4 * HIDDEN, HIDDEN), Layout.from_lengths(check_lengths(lengths))
    data = torch.zeros(sum(lengths), FEATURES)
    with torch.set_grad_enabled(training):
        assert routes.choose(mode, layout, data.to(dtype), w_hh, projected) == route


@pytest.mark.parametrize("lengths", [STAIRCASE, EQUAL, TINY], ids=str)
@pytest.mark.parametrize("kind", [packlib.RNN, packlib.GRU, packlib.LSTM])
def test_under_autocast_its_dtype_comes_out_whatever_the_route(kind, lengths):
    layer = kind(FEATURES, HIDDEN)
    packed = packlib.pack_sequence([torch.randn(n, FEATURES) for n in lengths])
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        output, last = layer(packed)
    exact, _ = layer(packed)
    assert output.dtype == torch.bfloat16
    assert {s.dtype for s in (last if isinstance(last, tuple) else [last])} == {torch.bfloat16}
    torch.testing.assert_close(output.data.float(), exact.data, rtol=0, atol=0.03)


UNIFORM = [9 * i % 512 + 1 for i in range(256)]
SKEWED = [512] + [i % 25 + 1 for i in range(255)]


@pytest.mark.parametrize(("route", "mode", "lengths", "hidden", "dtype", "training", "projected"), [
    ("cover", "LSTM", UNIFORM, 128, torch.float32, True, False),
    ("cover", "LSTM", UNIFORM, 128, torch.half, True, False),
    ("cover", "LSTM", SKEWED, 64, torch.float32, False, False),
    ("cover", "LSTM", UNIFORM, 192, torch.float32, False, False),
    ("torch", "LSTM", UNIFORM, 192, torch.float32, True, False),  # too large in training
    ("torch", "LSTM", UNIFORM, 193, torch.float32, False, False),  # too large
    ("torch", "LSTM", UNIFORM, 128, torch.float64, False, False),  # of no dtype of the kernel
    ("torch", "LSTM", UNIFORM, 128, torch.bfloat16, False, False),
    ("torch", "LSTM", [512] * 256, 128, torch.float32, True, False),  # dense all the same
    ("torch", "LSTM", [5, 2, 7], 128, torch.float32, True, False),  # too short: calls cost more
    ("torch", "LSTM", UNIFORM, 128, torch.float32, True, True),  # cannot be projected
    ("torch", "GRU", UNIFORM, 128, torch.float32, True, False),  # has no brake
    ("torch", "RNN_TANH", UNIFORM, 128, torch.float32, True, False),
])
def test_the_choice_on_cuda(route, mode, lengths, hidden, dtype, training, projected):
    layout = Layout.from_lengths(check_lengths(sorted(lengths, reverse=True)))
    assert routes.choose_on_cuda(mode, layout, hidden, dtype, training, projected) == route


@pytest.mark.parametrize("training", [True, False])
def test_on_cuda_cover_pays_only_for_long_sequences(training):
    chosen = [routes.choose_on_cuda("LSTM", Layout.from_lengths(check_lengths([longest, 1])), 64,
                                    torch.float32, training, False) for longest in range(2, 200)]
    assert chosen == sorted(chosen, reverse=True)  # torch, then cover
    assert 20 < chosen.index("cover") < 64


def test_a_route_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="route must be one of auto.*got 'fast'"):
        packlib.GRU(FEATURES, HIDDEN, route="fast")
    with pytest.raises(ValueError, match="route='cover' is for LSTM"):
        packlib.GRU(FEATURES, HIDDEN, route="cover")
    with pytest.raises(ValueError, match="route='cover' cannot take proj_size"):
        packlib.LSTM(FEATURES, HIDDEN, proj_size=2, route="cover")
    layer = packlib.GRU(FEATURES, HIDDEN)
    layer.route = "fast"
    with pytest.raises(ValueError, match="got 'fast'"):
        layer(packlib.pack_sequence([torch.zeros(5, FEATURES), torch.zeros(2, FEATURES)]))
