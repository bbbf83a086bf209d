"""Packing and unpacking: bit for bit torch's, and right by loops in plain Python."""

import math

import numpy as np
import oracle
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import rnn

import packlib
from packlib import PackedSequence, ops

FLOATS = (torch.float32, torch.float64)
fills = st.sampled_from([0, 1])  # held by every dtype
extras = st.sampled_from([None, 0, 2])


def pack(batch, module=packlib):
    return module.pack_padded_sequence(batch.padded, batch.lengths, batch.batch_first, False)


# --- pack_padded_sequence -----------------------------------------------------------------------

@given(strategies.batches())
def test_pack_equals_torch_in_every_field(batch):
    found = pack(batch)
    assert type(found) is PackedSequence
    oracle.same_fields(found, pack(batch, rnn))


@given(strategies.batches())
def test_pack_runs_step_by_step_longest_first(batch):
    """The padding is NaN here: none of it may get in."""
    found = pack(batch)
    order = found.sorted_indices.tolist()
    assert sorted(order) == list(range(len(order)))
    assert [batch.lengths[i] for i in order] == sorted(batch.lengths, reverse=True)
    assert found.batch_sizes.tolist() == oracle.batch_sizes(batch.lengths)
    oracle.same(found.data, oracle.packed_rows(batch.sequences, order))


@given(strategies.batches())
def test_pack_of_what_is_sorted_keeps_no_order(batch):
    order = sorted(range(len(batch.lengths)), key=lambda i: -batch.lengths[i])
    dim = 0 if batch.batch_first else 1
    grid, lengths = batch.padded.index_select(dim, torch.tensor(order)), [
        batch.lengths[i] for i in order]
    found = packlib.pack_padded_sequence(grid, lengths, batch.batch_first)
    assert found.sorted_indices is None and found.unsorted_indices is None
    oracle.same_fields(found, rnn.pack_padded_sequence(grid, lengths, batch.batch_first))


@given(strategies.batches(dtypes=FLOATS))
def test_pack_has_torchs_gradients_and_none_in_the_padding(batch):
    def grad(module):
        x = batch.padded.detach().clone().requires_grad_()
        data = module.pack_padded_sequence(x, batch.lengths, batch.batch_first, False).data
        (data ** 2 * torch.arange(data.numel()).view(data.shape)).sum().backward()
        return x.grad

    found = grad(packlib)
    assert found.isfinite().all()
    oracle.same(found, grad(rnn))


@given(strategies.batches())
def test_pack_with_padding_on_the_left(batch):
    left = oracle.padded(batch.sequences, batch.total, batch.batch_first,
                         strategies.poison(batch.padded.dtype), "left")
    found = packlib.pack_padded_sequence(left, batch.lengths, batch.batch_first, False,
                                         padding_side="left")
    oracle.same_fields(found, pack(batch))


X = torch.arange(24.0).view(4, 6)  # B = 4, T = 6


@pytest.mark.parametrize("enforce_sorted", [False, 0, np.bool_(False)])
def test_enforce_sorted_is_read_as_torch_reads_it(enforce_sorted):
    oracle.same_fields(packlib.pack_padded_sequence(X, [2, 5, 1, 4], True, enforce_sorted),
                       rnn.pack_padded_sequence(X, [2, 5, 1, 4], True, enforce_sorted))


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ((X, [5, 4, 2, 1], 1), TypeError, "'batch_first' must be bool, not int"),
    ((X, [5, 4, 2, 1], True, "no"), TypeError, "'enforce_sorted' must be bool, not str"),
    (([[1, 2]], [2]), TypeError, "'input' must be Tensor, not list; .* goes to pack_sequence"),
    ((torch.zeros(4), [4]), IndexError, "input must have at least 2 dimensions"),
    ((torch.zeros(0, 6), [], True), RuntimeError, "Cannot pack empty tensors"),
    ((torch.zeros(4, 6, 0), [5, 4, 2, 1], True), RuntimeError, "Cannot pack empty tensors"),
    ((X, [5, 4, 2], True), RuntimeError, r"got 3 \(batch_size=4\); .* = \(4, 6\)$"),
    ((X, [4, 3, 2, 2, 1], True), RuntimeError, r"got 5 \(batch_size=4\).*Are they batch_sizes"),
    ((X, [5, 4, 2, 0], True), RuntimeError, r"greater than 0.*lengths\[3\]=0; to keep empty"),
    ((X, [5, 4, 2, -1], True), RuntimeError, r"greater than 0.*lengths\[3\]=-1"),
    ((X, [7, 4, 2, 1], True), ValueError, r"lengths\[0\]=7, but the input has only T=6 steps"),
    ((X, [4, 5, 2, 1], True), RuntimeError, "must be sorted in decreasing order"),
])
def test_pack_arguments_that_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        packlib.pack_padded_sequence(*arguments)


def test_a_length_beyond_all_memory_is_refused_at_once():
    with pytest.raises(ValueError, match=r"lengths\[1\]=10000000000000, but the input has only"):
        packlib.pack_padded_sequence(X, [2, 10**13, 1, 4], True, False)


def test_packing_side_is_checked():
    with pytest.raises(RuntimeError, match="padding_side to be one of left or right"):
        packlib.pack_padded_sequence(X, [5, 4, 2, 1], True, padding_side="both")


# --- pad_packed_sequence ------------------------------------------------------------------------

@given(strategies.batches(), st.booleans(), fills, extras)
def test_unpack_equals_torch_and_loops(batch, batch_first, value, extra):
    packed = rnn.pack_sequence(batch.sequences, enforce_sorted=False)  # torch's, for ours to take
    total = None if extra is None else max(batch.lengths) + extra
    found = packlib.pad_packed_sequence(packed, batch_first, value, total)
    theirs = rnn.pad_packed_sequence(packed, batch_first, value, total)
    for one, other in zip(found, theirs, strict=True):
        oracle.same(one, other)
    oracle.same(found[0], oracle.padded(batch.sequences, total or max(batch.lengths), batch_first,
                                        value))
    oracle.same(found[1], torch.tensor(batch.lengths))


@given(strategies.batches())
def test_unpack_undoes_pack(batch):
    found, lengths = packlib.pad_packed_sequence(pack(batch), batch.batch_first,
                                                 total_length=batch.total)
    oracle.same(found, oracle.padded(batch.sequences, batch.total, batch.batch_first, 0))
    assert lengths.tolist() == batch.lengths


@given(strategies.batches(), st.booleans())
def test_pack_undoes_unpack(batch, batch_first):
    packed = packlib.pack_sequence(batch.sequences, enforce_sorted=False)
    again = packlib.pack_padded_sequence(*packlib.pad_packed_sequence(packed, batch_first),
                                         batch_first, enforce_sorted=False)
    oracle.same_fields(again, packed)


@given(strategies.batches(dtypes=FLOATS), st.booleans(), extras)
def test_unpack_has_torchs_gradients(batch, batch_first, extra):
    packed = rnn.pack_sequence(batch.sequences, enforce_sorted=False)
    total = None if extra is None else max(batch.lengths) + extra

    def grad(module):
        x = packed.data.clone().requires_grad_()
        grid = module.pad_packed_sequence(packed._replace(data=x), batch_first, 3.0, total)[0]
        (grid ** 2 * torch.arange(grid.numel()).view(grid.shape)).sum().backward()
        return x.grad

    oracle.same(grad(packlib), grad(rnn))


@given(strategies.batches(), st.booleans())
def test_unpack_with_padding_on_the_left(batch, batch_first):
    packed = packlib.pack_sequence(batch.sequences, enforce_sorted=False)
    found, _ = packlib.pad_packed_sequence(packed, batch_first, 1, batch.total, padding_side="left")
    oracle.same(found, oracle.padded(batch.sequences, batch.total, batch_first, 1, "left"))


def test_unpack_of_complex_with_a_complex_value():
    packed = packlib.pack_sequence([torch.tensor([1j]), torch.tensor([2j, 3j])], False)
    assert packlib.pad_packed_sequence(packed, True, 4j)[0].tolist() == [[1j, 4j], [2j, 3j]]


@pytest.mark.parametrize(("dtype", "value"), [
    (torch.uint8, -1), (torch.uint32, -1), (torch.uint64, -1), (torch.uint64, 2**64 - 1),
    (torch.bool, math.nan), (torch.bool, -math.inf), (torch.bool, 1j), (torch.bool, 0j),
    (torch.float32, -0.0), (torch.complex64, complex(-0.0, 0.0)),
    (torch.complex64, complex(0.0, -0.0))])
@pytest.mark.parametrize("large", [False, True])
def test_unpack_pads_with_any_number_that_torch_takes(dtype, value, large, monkeypatch):
    """To the bit: there is a zero with a sign."""
    if large:
        monkeypatch.setattr(ops, "LARGE", 1)
    packed = packlib.pack_sequence([torch.ones(2).to(dtype), torch.ones(3).to(dtype)], False)
    found, expected = (unpack(packed, True, value)[0].contiguous().view(torch.uint8)
                       for unpack in (packlib.pad_packed_sequence, rnn.pad_packed_sequence))
    oracle.same(found, expected)


@pytest.mark.parametrize("total", [2**45, 2**60])
def test_too_much_memory_is_torchs_error(total):
    with pytest.raises(RuntimeError, match=rf"can't allocate memory.*\({2 * total},\)"):
        packlib.pad_packed_sequence(PACKED, True, total_length=total)


def test_unpack_of_no_features():
    packed = PackedSequence(torch.zeros(7, 0), torch.tensor([2, 2, 1, 1, 1]))
    assert packlib.pad_packed_sequence(packed)[0].shape == (5, 2, 0)


@pytest.mark.parametrize("total", [torch.tensor(7), torch.tensor([2, 7, 1]).max()])
def test_total_length_may_come_from_a_tensor(total):
    packed = packlib.pack_sequence([torch.ones(2), torch.ones(5)], enforce_sorted=False)
    assert packlib.pad_packed_sequence(packed, total_length=total)[0].shape == (7, 2)


PACKED = packlib.pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], False)


@pytest.mark.parametrize(("options", "error", "words"), [
    ({"total_length": 2}, ValueError, "total_length=2 and max sequence length being 3"),
    ({"total_length": 0}, ValueError, "total_length=0 and max sequence length being 3"),
    ({"total_length": 3.5}, TypeError, "'total_length' must be int, not float"),
    ({"total_length": True}, TypeError, "'total_length' must be int, not bool"),
    ({"total_length": torch.tensor([4, 4])}, TypeError, "'total_length' must be int, not Tensor"),
    ({"batch_first": 1}, TypeError, "'batch_first' must be bool, not int"),
    ({"padding_value": "x"}, TypeError, "'padding_value' must be Number, not str"),
    ({"padding_value": 0.5}, RuntimeError, "cannot be converted to torch.int64"),
    ({"padding_side": "x"}, RuntimeError, "padding_side"),
])
def test_unpack_options_that_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        packlib.pad_packed_sequence(PACKED, **options)


@pytest.mark.parametrize("unpack", [packlib.pad_packed_sequence, packlib.unpack_sequence])
@pytest.mark.parametrize("value", [torch.zeros(3, 2), (torch.zeros(3), torch.tensor([2, 1])), None])
def test_unpack_wants_a_packed_sequence(unpack, value):
    with pytest.raises(TypeError, match="expected a PackedSequence, got .*pack it first"):
        unpack(value)


def test_what_a_layer_gives_is_a_pair():
    packed = packlib.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    with pytest.raises(TypeError, match=r"got tuple: .* gives a pair, \(output, last states"):
        packlib.pad_packed_sequence(torch.nn.GRU(2, 4)(packed))


# --- lists --------------------------------------------------------------------------------------

@given(strategies.batches())
def test_pack_sequence_equals_torch_and_packing_a_grid(batch):
    found = packlib.pack_sequence(batch.sequences, enforce_sorted=False)
    oracle.same_fields(found, rnn.pack_sequence(batch.sequences, enforce_sorted=False))
    oracle.same_fields(found, pack(batch))
    if batch.sorted:
        oracle.same_fields(packlib.pack_sequence(batch.sequences),
                           rnn.pack_sequence(batch.sequences))


@given(strategies.batches())
def test_unpack_sequence_equals_torch_and_the_sequences(batch):
    packed = rnn.pack_sequence(batch.sequences, enforce_sorted=False)
    found = packlib.unpack_sequence(packed)
    for one, other, s in zip(found, rnn.unpack_sequence(packed), batch.sequences, strict=True):
        oracle.same(one, other)
        oracle.same(one, s)


@given(strategies.batches(dtypes=FLOATS))
def test_lists_have_torchs_gradients(batch):
    def grads(module):
        xs = [s.clone().requires_grad_() for s in batch.sequences]
        packed = module.pack_sequence([x ** 2 for x in xs], enforce_sorted=False)
        sum((s * (i + 1)).sum() for i, s in enumerate(module.unpack_sequence(packed))).backward()
        return [x.grad for x in xs]

    for found, expected in zip(grads(packlib), grads(rnn), strict=True):
        oracle.same(found, expected)


def test_one_piece_alone_has_a_gradient():
    x = torch.arange(7.0, requires_grad=True)
    packed = packlib.pack_sequence([x[:2], x[2:]], enforce_sorted=False)
    packlib.unpack_sequence(packed)[0].sum().backward()
    assert x.grad.tolist() == [1, 1, 0, 0, 0, 0, 0]


def test_pack_sequence_takes_an_iterator():
    xs = [torch.ones(2), torch.zeros(5)]
    oracle.same_fields(packlib.pack_sequence(iter(xs), False), rnn.pack_sequence(xs, False))


@pytest.mark.parametrize(("sequences", "words"), [
    ([torch.ones(2), torch.ones(5)], "must be sorted in decreasing order"),
    ([torch.ones(2, 0), torch.ones(1, 0)], r"Cannot pack empty tensors.*\(0,\)"),
    ([torch.ones(2), torch.ones(0)], r"greater than 0.*lengths\[1\]=0"),
])
def test_pack_sequence_lengths_that_are_refused(sequences, words):
    with pytest.raises(RuntimeError, match=words):
        packlib.pack_sequence(sequences)


# --- results may be changed ---------------------------------------------------------------------

def test_results_share_nothing_with_what_they_came_from():
    grid, lengths = torch.arange(12.0).view(2, 6), torch.tensor([2, 5])
    packed = packlib.pack_padded_sequence(grid, lengths, True, False)
    before = packed.data.clone()
    lengths.zero_()
    grid.zero_()
    unpacked, counts = packlib.pad_packed_sequence(packed, True)
    unpacked.fill_(-1)
    counts.zero_()
    for s in packlib.unpack_sequence(packed):
        s.fill_(-1)
    oracle.same(packed.data, before)
    assert packlib.pad_packed_sequence(packed)[1].tolist() == [2, 5]


def test_results_may_be_changed_in_place_within_a_graph():
    x = torch.arange(7.0, requires_grad=True)
    packed = packlib.pack_sequence([x[:2] * 1, x[2:] * 1], enforce_sorted=False)
    grid, _ = packlib.pad_packed_sequence(packed, True)
    grid[0, 0] = 5
    grid.masked_fill_(grid == 0, -9)
    (grid * 2).sum().backward()
    assert x.grad.tolist() == [0, 2, 2, 2, 2, 2, 2]
