"""``packlib.testing``: silent on what is equal; names the place and the mistake of what is not.

Every classic mistake is made by hand here, as people make it, and has to be recognised.
"""


import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import packed_with_empty, said, sequences
from torch import nn
from torch.nn.utils import rnn

import packlib
from packlib.testing import (
    assert_layer_equal,
    one_by_one,
)

LAYERS = [nn.LSTM, nn.GRU, nn.RNN]


def layer_of(kind=nn.GRU, **options):
    return kind(3, 5, **options).double()


def first_states(layer, kind=nn.GRU, size=7):
    count = layer.num_layers * (1 + layer.bidirectional)
    draw = torch.Generator().manual_seed(1)
    states = tuple(torch.randn(count, size, 5, generator=draw, dtype=torch.float64)
                   for _ in range(2))
    return states if kind is nn.LSTM else states[0]


def packed():
    return rnn.pack_sequence([x / 50 for x in sequences()], enforce_sorted=False)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("given", [True, False])
def test_right_layers_pass(kind, bidirectional, num_layers, given):
    reference = layer_of(kind, bidirectional=bidirectional, num_layers=num_layers)
    ours = getattr(packlib, kind.__name__)(3, 5, num_layers=num_layers,
                                           bidirectional=bidirectional).double()
    ours.load_state_dict(reference.state_dict())
    hx = first_states(reference, kind) if given else None
    p = packed()
    assert_layer_equal(ours, reference, p, hx)
    assert_layer_equal(ours, one_by_one(reference), packlib.PackedSequence(*p), hx)
    assert_layer_equal(reference, one_by_one(reference), p, hx)
    in_order = rnn.pack_sequence([p.data[:4], p.data[4:6], p.data[6:7]])
    assert_layer_equal(ours, one_by_one(ours), in_order)


def test_any_cell_passes():
    cell = nn.LSTMCell(3, 5).double()
    states = tuple(s[0] for s in first_states(layer_of(nn.LSTM), nn.LSTM))

    def run(p, state=None):
        return packlib.run_packed(cell, p, state)

    assert_layer_equal(run, one_by_one(run, batch_dim=0), packed(), states, batch_dim=0)

    def wrong(p, state=None):
        output, (h, c) = run(p, state)
        return output, (h[p.sorted_indices], c)

    message = said(assert_layer_equal, wrong, run, packed(), states, batch_dim=0)
    assert message.startswith("the layer is wrong in h_n; right: output; c_n\nh_n: 5 of 7 seq")
    assert "the last states are still sorted" in message


def test_one_by_one_runs_each_sequence_alone():
    """Against a loop over the sequences as plain tensors."""
    layer = layer_of(nn.LSTM, num_layers=2, bidirectional=True)
    hx, p = first_states(layer, nn.LSTM), packed()
    output, (h, c) = one_by_one(layer)(p, hx)
    assert isinstance(output, packlib.PackedSequence)
    for b, x in enumerate(rnn.unpack_sequence(p)):
        rows, (h_n, c_n) = layer(x, tuple(s[:, b] for s in hx))
        torch.testing.assert_close(output.sequence(b), rows)
        torch.testing.assert_close(h[:, b], h_n)
        torch.testing.assert_close(c[:, b], c_n)


def through_padding(layer, p, hx):
    x, lengths = rnn.pad_packed_sequence(p)
    output, states = layer(x, hx)
    return rnn.pack_padded_sequence(output, lengths, enforce_sorted=False), states


def padded_output(layer, p, hx):
    output, _ = layer(p, hx)
    return output, rnn.pad_packed_sequence(output, batch_first=True)


def last_column(layer, p, hx):
    output, (x, _) = padded_output(layer, p, hx)
    return output, x[:, -1][None]


def backward_at_the_last_step(layer, p, hx):
    output, (x, lengths) = padded_output(layer, p, hx)
    lasts = x[torch.arange(7), lengths - 1]
    return output, torch.stack([lasts[:, :5], lasts[:, 5:]])


def turned_too_little(layer, p, hx):
    output, h = layer(p, hx)
    xs = [torch.cat([x[:, :5], x[:, 5:].flip(0)], 1) for x in rnn.unpack_sequence(output)]
    return rnn.pack_sequence(xs, enforce_sorted=False), h


def swapped(layer, p, hx):
    output, h = layer(p, hx)
    return output._replace(data=output.data.roll(5, 1)), h[[1, 0]]


def no_cut(layer, p, hx):
    """The loop over batch_sizes that keeps the last rows of the state and not the first."""
    h, outputs = hx[0][p.sorted_indices], []
    for x in p.data.split(p.batch_sizes.tolist()):
        h = layer(x[None], h[None, -len(x):])[0][0]
        outputs.append(h)
    return p._replace(data=torch.cat(outputs)), layer(p, hx)[1]


def only_the_longest(layer, p, hx):
    h, outputs = hx[0][p.sorted_indices], []
    for x in p.data.split(p.batch_sizes.tolist()):
        h = layer(x[None], h[None, :len(x)])[0][0]
        outputs.append(h)
    return p._replace(data=torch.cat(outputs)), h[None]


def with_states(change):
    def run(layer, p, hx):
        output, states = layer(p, hx)
        return output, change(p, states)

    return run


def with_first(change):
    return lambda layer, p, hx: layer(p, change(p, hx))


def no_sorting(layer, p, hx):
    """A loop that never looks at sorted_indices."""
    output, h = layer(rnn.PackedSequence(p.data, p.batch_sizes), hx)
    return p._replace(data=output.data), h


LAYERS_WRONG = [  # words of the hint, options of the layer, the mistake, what is wrong
    ("last states are still sorted", {}, with_states(lambda p, h: h[:, p.sorted_indices]), "h_n"),
    ("put back with sorted_indices", {}, with_states(
        lambda p, h: h[:, p.sorted_indices][:, p.sorted_indices]), "h_n"),
    ("hx is not sorted as the data", {}, with_first(lambda p, h: h[:, p.unsorted_indices]),
     "output; h_n"),
    ("no states are sorted", {}, no_sorting, "output; h_n"),
    ("hx is sorted with unsorted_indices", {}, with_first(
        lambda p, h: h[:, p.unsorted_indices][:, p.unsorted_indices]), "output; h_n"),
    ("hx is not used", {}, with_first(lambda p, h: None), "output; h_n"),
    ("runs on through the padding", {}, through_padding, "h_n"),
    ("runs on through the padding", {"bidirectional": True}, through_padding,
     "output, backward; h_n"),
    ("last step of the longest sequence", {}, last_column, "h_n"),
    ("read at each sequence's last step", {"bidirectional": True}, backward_at_the_last_step,
     "h_n, backward"),
    ("last rows of data", {}, lambda layer, p, hx: (
        lambda o: (o, o.data[-7:][None]))(layer(p, hx)[0]), "h_n"),
    ("not turned round again", {"bidirectional": True}, turned_too_little, "output, backward"),
    ("forward and backward direction are swapped", {"bidirectional": True}, swapped,
     "output; h_n"),
    ("layers come last first", {"num_layers": 3}, with_states(lambda p, h: h.flip(0)),
     "h_n, layer 0; h_n, layer 2"),
    ("direction by direction", {"num_layers": 2, "bidirectional": True}, with_states(
        lambda p, h: h[[0, 2, 1, 3]]), "h_n, layer 0, backward; h_n, layer 1, forward"),
    ("states are cut off at the wrong end", {}, no_cut, "output"),
    ("Each sequence runs backwards", {}, lambda layer, p, hx: (
        packlib.reverse(layer(p, hx)[0]), layer(p, hx)[1]), "output"),
]


@pytest.mark.parametrize(("words", "options", "wrong", "where"), LAYERS_WRONG,
                         ids=[f"{w}-{o}" for w, o, *_ in LAYERS_WRONG])
def test_mistakes_of_layers_are_named(words, options, wrong, where):
    layer = layer_of(**options)
    p, hx = packed(), first_states(layer)
    message = said(assert_layer_equal, lambda p, hx: wrong(layer, p, hx), layer, p, hx)
    first, *_, last = message.splitlines()
    assert first.split("; right:")[0] == f"the layer is wrong in {where}"
    assert last.startswith("It looks like this mistake: ")
    assert words in last


@pytest.mark.parametrize(("words", "change"), [
    ("h_n and c_n are swapped", lambda p, s: s[::-1]),
    ("last states are still sorted", lambda p, s: (s[0], s[1][:, p.sorted_indices])),
])
def test_mistakes_of_two_states_are_named(words, change):
    layer = layer_of(nn.LSTM)
    wrong = with_states(change)
    assert words in said(assert_layer_equal, lambda p, hx: wrong(layer, p, hx), layer, packed(),
                         first_states(layer, nn.LSTM))


@pytest.mark.parametrize(("words", "wrong", "shape"), [
    ("only the sequences that run to the last step", only_the_longest, (1, 1, 5)),
    ("the states are batch first", with_states(lambda p, h: h.transpose(0, 1)), (7, 1, 5)),
])
def test_states_of_a_wrong_shape_are_named(words, wrong, shape):
    layer = layer_of(nn.RNN)
    message = said(assert_layer_equal, lambda p, hx: wrong(layer, p, hx), layer, packed(),
                   first_states(layer))
    assert f"h_n has shape {shape}, expected (1, 7, 5)" in message
    assert words in message


def test_two_mistakes_at_once_are_both_named():
    layer = layer_of(nn.LSTM)

    def wrong(p, hx):
        output, (h, c) = layer(p, hx)
        again = c[:, p.sorted_indices][:, p.sorted_indices]
        return output, (h[:, p.sorted_indices], again)

    message = said(assert_layer_equal, wrong, layer, packed(), first_states(layer, nn.LSTM))
    assert "(h_n): the last states are still sorted" in message
    assert "(c_n): the last states are put back with sorted_indices" in message


def test_one_wrong_number_in_a_state_gets_a_place_and_no_name():
    layer = layer_of(num_layers=2, bidirectional=True)

    def wrong(p, hx):
        output, h = layer(p, hx)
        spoiled = h.clone()
        spoiled[3, 4, 1] += 0.25
        return output, spoiled

    message = said(assert_layer_equal, wrong, layer, packed(), first_states(layer))
    assert message.startswith("the layer is wrong in h_n, layer 1, backward; right: output; h_n, "
                              "layer 0, forward; h_n, layer 0, backward; h_n, layer 1, forward\n"
                              "h_n, layer 1, backward: 1 of 7 sequences differ\n"
                              "first: sequence 4: [")
    assert "looks like" not in message


@given(st.integers(0, 99))
def test_other_weights_get_no_name(seed):
    layer, other = layer_of(), layer_of()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for w in other.parameters():
            w.copy_(torch.rand(w.shape, generator=generator, dtype=w.dtype))
    message = said(assert_layer_equal, lambda p, hx: other(p, hx), layer, packed(),
                   first_states(layer))
    assert "looks like" not in message


def test_what_the_tolerance_hides_is_no_mistake():
    """Here zeros for hx would pass as right, so they cannot be why something else does not."""
    layer, p, ones = layer_of(), packed(), torch.ones(1, 7, 5).double()
    close = 1e-7  # what float64 allows around 0

    def run(p, h, off=0.0):
        return layer(p)[0], 0.8 * close * h - off

    message = said(assert_layer_equal, lambda p, h: run(p, h, 1.5 * close), run, p, ones)
    assert message.startswith("the layer is wrong in h_n; right: output")
    assert "looks like" not in message


def scaled(tensor, by):
    """The same values with another gradient."""
    return tensor.detach() + by * (tensor - tensor.detach())


@pytest.mark.parametrize(("spoil", "words"), [
    (lambda layer, p, h: layer(p._replace(data=p.data.detach()), h),
     "outputs and states are right, but no gradient reaches data"),
    (lambda layer, p, h: layer(p, h.detach()), "but no gradient reaches h0"),
    (lambda layer, p, h: layer(p._replace(data=scaled(p.data, 2)), h),
     "the layer is wrong in gradient of data; right: gradient of h0\ngradient of data: 21 of 21"),
    (lambda layer, p, h: layer(p, torch.cat([h[:, :4], scaled(h[:, 4:5], 2), h[:, 5:]], 1)),
     "right: gradient of data\ngradient of h0: 1 of 7 sequences differ\nfirst: sequence 4: ["),
])
def test_wrong_gradients_are_said(spoil, words):
    layer = layer_of()
    p, hx = packed(), first_states(layer)
    assert words in said(assert_layer_equal, lambda p, h: spoil(layer, p, h), layer, p, hx)
    assert_layer_equal(lambda p, h: spoil(layer, p, h), layer, p, hx, gradients=False)


def test_a_gradient_gets_no_name_of_a_states_mistake():
    layer = layer_of()

    def wrong(p, h):
        mixed = h.detach() + (h - h.detach())[:, p.unsorted_indices]
        return layer(p, mixed)

    message = said(assert_layer_equal, wrong, layer, packed(), first_states(layer))
    assert "gradient of h0: 5 of 7 sequences differ" in message
    assert "looks like" not in message


def test_wrong_gradients_of_parameters_are_said():
    class Spoiled(nn.GRU):
        def forward(self, p, hx=None):
            w = dict(self.named_parameters())
            w["weight_hh_l0"] = scaled(w["weight_hh_l0"], 3)
            return torch.func.functional_call(right, w, (p, hx))

    right = layer_of()
    wrong = layer_of(Spoiled)
    with pytest.raises(ValueError, match="weight_ih_l0 of layer and reference differ"):
        assert_layer_equal(wrong, right, packed(), first_states(right))
    wrong.load_state_dict(right.state_dict())
    message = said(assert_layer_equal, wrong, right, packed(), first_states(right))
    assert "but the gradient of weight_hh_l0 is not: 75 of 75 numbers differ\nfirst: [0, 0]: " in (
        message)


def test_parameters_of_other_names_are_refused():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer_of()

    with pytest.raises(ValueError, match="only one of layer and reference has the parameters bias"):
        assert_layer_equal(layer_of(), Other(), packed())


def test_layers_that_give_something_else():
    layer, p = layer_of(), packed()
    for wrong, words in [
        (lambda p: layer(p)[0], "the layer must return (output, states) with a PackedSequence"),
        (lambda p: (layer(p)[0].data, layer(p)[1]), "got a tuple of 2: (Tensor, Tensor)"),
        (lambda p: (layer(p)[0], None), "must return states that are tensors"),
        (lambda p: (layer(p)[0].float(), layer(p)[1]), "output: dtype is torch.float32"),
        (lambda p: (layer(p)[0], layer(p)[1].float()), "h_n: dtype is torch.float32"),
        (lambda p: (layer(p)[0], (layer(p)[1],) * 2), "2 states, expected 1"),
        (lambda p: (rnn.PackedSequence(*layer(p)[0][:2]), layer(p)[1]),
         "the output of the layer has other lengths than its input: sequence 0 has length 6"),
        (lambda p: (layer(p)[0]._replace(data=layer(p)[0].data[:, :4]), layer(p)[1]),
         "output: a step has shape (4,), expected (5,)"),
    ]:
        assert words in said(assert_layer_equal, wrong, layer, p)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
@pytest.mark.parametrize("given", [True, False])
def test_layers_that_take_empty_sequences(name, given):
    layer, kind = layer_of(getattr(packlib, name)), getattr(nn, name)
    p = packed_with_empty([x / 50 for x in sequences([2, 0, 5, 1])])
    hx = first_states(layer, kind, size=4) if given else None
    assert_layer_equal(layer, one_by_one(layer), p, hx)

    def spoiled(p, hx=None):
        output, last = layer(p, hx)
        return packlib.reverse(output), last

    assert "Each sequence runs backwards" in said(assert_layer_equal, spoiled, layer, p, hx)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("given", [True, False])
def test_an_empty_sequence_alone_keeps_its_first_state(kind, given):
    layer, xs = layer_of(kind), [x / 50 for x in sequences([2, 0, 5, 1])]
    hx = first_states(layer, kind, size=4) if given else None
    output, last = one_by_one(layer)(packed_with_empty(xs), hx)
    for s, first in zip(*((s if isinstance(s, tuple) else (s,)) for s in (last, hx)), strict=False):
        oracle.same(s[:, 1], torch.zeros(1, 5).double() if first is None else first[:, 1])
        assert s.shape == (1, 4, 5)
    torch.testing.assert_close(output.sequence(2), layer(xs[2], None if hx is None else (
        hx[:, 2] if kind is nn.GRU else tuple(s[:, 2] for s in hx)))[0])
