"""Which route a layer takes: the cheapest that can take it."""

import pytest
import torch

import packlib
from packlib import routes
from packlib.layout import Layout, check_lengths
from tests.packlib.test_rnn import FEATURES, HIDDEN


def test_the_choice():
    """Loops for what has no fused kernel, and for the LSTM the cheaper of loop and rectangles."""
    w_hh, layout = torch.zeros(4 * HIDDEN, HIDDEN), Layout.from_lengths(check_lengths([9] * 8))
    data = torch.zeros(72, FEATURES)
    assert routes.choose("GRU", layout, data, w_hh, False) == "hoisted"
    assert routes.choose("LSTM", layout, data.double(), w_hh.double(), False) == "hoisted"
    assert routes.choose("LSTM", layout, data, w_hh, True) == "hoisted"
    if torch.backends.mkldnn.is_available():
        assert routes.choose("LSTM", layout, data, w_hh, False) == "cover"


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
