"""Sequences without a step: packed on request, in no row of the data, and back in their places.

Whatever looks at steps gives for them what it gives for nothing, or refuses; a recurrent layer,
which reads no step of theirs, gives their first state as their last.
"""

import copy
import itertools
import pickle
from functools import partial

import oracle
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.utils._pytree import tree_map

import packlib
from packlib.chunks import chunks, run_chunks
from packlib.data import collate_packed
from packlib.interop import (
    from_cu_seqlens,
    from_nested,
    mask_from_packed,
    packed_from_mask,
    to_cu_seqlens,
    to_nested,
)
from packlib.losses import cross_entropy, packed_loss
from packlib.sequence import layout_of

LENGTHS = [2, 0, 4, 1, 0, 3]  # B = 6, four of them with steps; order [2, 5, 0, 3, 1, 4]
EMPTY, FULL = [1, 4], [0, 2, 3, 5]
FEATURES, HIDDEN = 3, 7
batches = partial(strategies.batches, lengths=strategies.with_empty)
NEW_TORCH = pytest.mark.skipif(torch.__version__ < (2, 13), reason="seen to work on torch 2.13")


def drawn(lengths=LENGTHS, features=FEATURES, dtype=torch.float64):
    return [torch.randn(n, features, dtype=dtype) for n in lengths]


def packed(sequences):
    return packlib.pack_sequence(sequences, enforce_sorted=False, allow_empty=True)


def counted(lengths=LENGTHS):
    """Packed rows that are their own numbers in the user's order: 0, 1, 2 and so on."""
    return packed(list(torch.arange(float(sum(lengths))).split(lengths)))


def same_sequences(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        oracle.same(one, other)


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


# --- there and back -----------------------------------------------------------------------------

def test_the_fields():
    p = packed(list(torch.arange(10).split(LENGTHS)))
    assert p.data.tolist() == [2, 7, 0, 6, 3, 8, 1, 4, 9, 5]
    assert p.batch_sizes.tolist() == [4, 3, 2, 1]
    assert p.sorted_indices.tolist() == [2, 5, 0, 3]  # those that have steps
    assert p.unsorted_indices.tolist() == [2, 4, 0, 3, 5, 1]  # the places of all
    assert (p.num_sequences, p.lengths.tolist()) == (6, LENGTHS)
    assert p.sequence(4).shape == (0,) and p.sequence(4).dtype == torch.int64


@given(batches())
def test_a_list(batch):
    p = packed(batch.sequences)
    same_sequences(packlib.unpack_sequence(p), batch.sequences)
    same_sequences([p.sequence(i) for i in range(p.num_sequences)], batch.sequences)
    order = p.sorted_indices.tolist() if p.sorted_indices is not None else range(len(p.lengths))
    oracle.same(p.data, oracle.packed_rows(batch.sequences, order))
    assert p.batch_sizes.tolist() == oracle.batch_sizes(batch.lengths)


@given(batches(), st.sampled_from(["left", "right"]))
def test_a_grid(batch, side):
    p = packlib.pack_padded_sequence(batch.padded, batch.lengths, batch.batch_first, False,
                                     allow_empty=True)
    oracle.same_fields(p, packed(batch.sequences))
    value = strategies.poison(p.dtype)
    found, lengths = packlib.pad_packed_sequence(p, batch.batch_first, value, batch.total,
                                                 padding_side=side)
    expected = oracle.padded(batch.sequences, batch.total, batch.batch_first, value, side)
    oracle.same(found, expected)
    assert lengths.tolist() == batch.lengths
    oracle.same(packlib.pack_padded_sequence(expected, lengths, batch.batch_first, False,
                                             padding_side=side, allow_empty=True).data, p.data)


@given(batches())
def test_a_sorted_batch(batch):
    sequences = sorted(batch.sequences, key=len, reverse=True)
    p = packlib.pack_sequence(sequences, allow_empty=True)
    same_sequences(packlib.unpack_sequence(p), sequences)
    if 0 not in batch.lengths:
        oracle.same_fields(p, packlib.pack_sequence(sequences))  # as if it had not been asked for


@given(batches(), st.sampled_from(["left", "right"]))
def test_a_mask(batch, side):
    p = packed(batch.sequences)
    mask = mask_from_packed(p, batch.total)
    assert mask.tolist() == [[t < n for t in range(batch.total)] for n in batch.lengths]
    grid = oracle.padded(batch.sequences, batch.total, True, strategies.poison(p.dtype), side)
    oracle.same_fields(packed_from_mask(grid, mask.flip(1) if side == "left" else mask,
                                        padding_side=side, allow_empty=True), p)


@given(batches())
def test_offsets_and_nested_tensors(batch):
    p = packed(batch.sequences)
    rows, offsets, longest = to_cu_seqlens(p)
    ends = list(itertools.accumulate(batch.lengths, initial=0))
    assert (offsets.tolist(), longest) == (ends, max(batch.lengths))
    oracle.same(rows, torch.cat(batch.sequences))
    oracle.same_fields(from_cu_seqlens(rows, offsets, allow_empty=True), p)
    nested = to_nested(p)
    same_sequences(nested.unbind(), batch.sequences)
    oracle.same_fields(from_nested(nested, allow_empty=True), p)


@given(batches(dtypes=(torch.float32,)))
def test_fields_alone_say_it_all(batch):
    """Whoever makes, copies or sends a batch by its four fields keeps the empty sequences."""
    p = packed(batch.sequences)
    copies = [packlib.PackedSequence(*p), rnn.PackedSequence(*p), copy.copy(p), copy.deepcopy(p),
              pickle.loads(pickle.dumps(p)), p._replace(data=p.data.clone()), p.map(torch.clone),
              p.with_data(p.data.clone()), p.detach(), p.double().float()]
    for q in copies:
        same_sequences(packlib.unpack_sequence(q), batch.sequences)
        assert packlib.same_layout(p, q)


@NEW_TORCH
def test_tree_map_keeps_them():
    q = tree_map(torch.clone, packed(drawn()))
    assert type(q) is packlib.PackedSequence and q.lengths.tolist() == LENGTHS


@given(strategies.with_empty)
def test_without_them_it_is_an_ordinary_batch(lengths):
    p = counted(lengths)
    q, full = p.without_empty(), [n for n in lengths if n]
    same_sequences(rnn.unpack_sequence(q), [s for s in packlib.unpack_sequence(p) if len(s)])
    assert q.data is p.data and q.lengths.tolist() == full
    packlib.PackedSequence(*q)  # keeps the law
    assert q.without_empty() is q


def test_collated():
    items = [(x, len(x), x[:, 0]) for x in drawn()]
    p, counts, column = collate_packed(items, allow_empty=True)
    assert p.lengths.tolist() == counts.tolist() == LENGTHS
    assert packlib.same_layout(p, column) and column.layout is p.layout
    with pytest.raises(ValueError, match=r"batch\[1\]\[0\] has no steps.*allow_empty=True"):
        collate_packed(items)


# --- what is refused ----------------------------------------------------------------------------

PACKS = {
    "list": lambda lengths, **more: packlib.pack_sequence(
        drawn(lengths), enforce_sorted=False, **more),
    "grid": lambda lengths, **more: packlib.pack_padded_sequence(
        torch.zeros(9, len(lengths), 2), lengths, enforce_sorted=False, **more),
    "mask": lambda lengths, **more: packed_from_mask(
        torch.zeros(len(lengths), 9), packlib.lengths_to_mask(lengths, 9), **more),
    "offsets": lambda lengths, **more: from_cu_seqlens(
        torch.zeros(sum(lengths)), [0, *itertools.accumulate(lengths)], **more),
    "nested": lambda lengths, **more: from_nested(
        torch.nested.as_nested_tensor(drawn(lengths), layout=torch.jagged), **more),
}


@pytest.mark.parametrize("form", PACKS)
def test_only_on_request_and_never_all(form):
    pack = PACKS[form]
    assert pack(LENGTHS, allow_empty=True).lengths.tolist() == LENGTHS
    by_rows = form in ("offsets", "nested")  # where nobody has given lengths
    words = (r"sequence 1 is empty, it begins and ends at row 2; .*allow_empty=True" if by_rows else
             r"has to be greater than 0.*lengths\[1\]=0; .*allow_empty=True")
    with pytest.raises(RuntimeError, match=words):
        pack(LENGTHS)
    with pytest.raises(RuntimeError, match="all 2 sequences are empty, so there is no step"):
        pack([0, 0], allow_empty=True)
    with pytest.raises(TypeError, match="'allow_empty' must be bool, not str"):
        pack(LENGTHS, allow_empty="yes")


def test_lengths_that_are_no_lengths():
    x = torch.zeros(4, 3, 2)
    with pytest.raises(RuntimeError, match=r"at least 0, got lengths\[1\]=-1"):
        packlib.pack_padded_sequence(x, [4, -1, 0], enforce_sorted=False, allow_empty=True)
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        packlib.pack_padded_sequence(x, [4, 0, 2], allow_empty=True)
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        packlib.pack_padded_sequence(torch.zeros(0, 3), [0, 0, 0], allow_empty=True)


DATA, SIZES, ORDER, PLACES = (torch.arange(7.0), *map(torch.tensor, (
    [2, 2, 1, 1, 1], [3, 1], [2, 1, 3, 0])))  # lengths [0, 2, 0, 5]


def test_fields_by_hand():
    assert packlib.PackedSequence(DATA, SIZES, ORDER, PLACES).lengths.tolist() == [0, 2, 0, 5]


@pytest.mark.parametrize(("order", "places", "error", "words"), [
    (PLACES.argsort(), PLACES, ValueError, "sorted_indices must have one entry for each of 2"),
    (None, PLACES, ValueError, "unsorted_indices must have one entry for each of 2"),
    (PLACES.argsort(), None, ValueError, "sorted_indices must have one entry for each of 2"),
    (ORDER, PLACES.int(), RuntimeError, "unsorted_indices must be torch.int64"),
    (ORDER, torch.tensor([2, 1, 3, 1]), RuntimeError, "each of 0 to 3 once"),
    (ORDER.flip(0), PLACES, ValueError, "must be the inverse"),
    (torch.tensor([3, 4]), PLACES, ValueError, "must be the inverse"),
    (torch.tensor([3, -3]), PLACES, ValueError, "must be the inverse"),
])
def test_fields_that_do_not_fit(order, places, error, words):
    with pytest.raises(error, match=words):
        packlib.PackedSequence(DATA, SIZES, order, places)
    with pytest.raises(error, match=words):
        layout_of(rnn.PackedSequence_.__new__(rnn.PackedSequence, DATA, SIZES, order, places))


def test_lengths_taken_for_batch_sizes_are_still_found():
    order = torch.tensor([1, 3, 0, 4, 2])
    with pytest.raises(ValueError, match="one entry for each of 2 sequences, got 5"):
        packlib.PackedSequence(DATA, SIZES, order, order.argsort())


@pytest.mark.parametrize("lengths", [[0, 3, 0], [0, 2, 2], [2, 0, 2], [3, 2, 0], LENGTHS], ids=str)
def test_torch_is_never_silently_wrong(lengths):
    """It has no place for the last of the indices. Were ``sorted_indices`` as long, its LSTM would
    go on with states of whatever stands in memory."""
    p, steps = packed(drawn(lengths, dtype=torch.float32)), sum(n > 0 for n in lengths)
    calls = [partial(rnn.pad_packed_sequence, p), partial(rnn.unpack_sequence, p)]
    for name, both, size in itertools.product(("RNN", "GRU", "LSTM"), (False, True),
                                              (None, steps, len(lengths))):
        layer, h = getattr(nn, name)(FEATURES, HIDDEN, bidirectional=both), None
        if size:
            h = torch.zeros(1 + both, size, HIDDEN)
        calls.append(partial(layer, p, (h, h) if size and name == "LSTM" else h))
    for call in calls:
        with pytest.raises((RuntimeError, IndexError)):
            call()


# --- one sequence at a time, or all together ----------------------------------------------------

@given(batches(dtypes=(torch.float64, torch.int64)))
def test_row_by_row_and_sums(batch):
    p = packed(batch.sequences)
    same_sequences(packlib.unpack_sequence(packlib.reverse(p)),
                   [s.flip(0) for s in batch.sequences])
    oracle.same(packlib.packed_sum(p), torch.stack([s.sum(0) for s in batch.sequences]))
    if p.data.is_floating_point():
        shares = packlib.packed_softmax(p)
        for found, s in zip(packlib.unpack_sequence(shares), batch.sequences, strict=True):
            torch.testing.assert_close(found, s.softmax(0))


@pytest.mark.parametrize(("reduce", "what"), [
    (packlib.last_step, "last step"), (packlib.packed_mean, "mean"),
    (packlib.packed_max, "maximum")])
def test_what_nothing_does_not_have(reduce, what):
    p = counted()
    for _ in range(2):  # asked again, it says the same
        with pytest.raises(ValueError, match=rf"sequence 1 is empty, so it has no {what}: .*"
                                             r"packed.without_empty\(\)"):
            reduce(p)
    expected = {"last step": [1, 5, 6, 9], "mean": [0.5, 3.5, 6, 8], "maximum": [1, 5, 6, 9]}
    assert reduce(p.without_empty()).tolist() == expected[what]


def test_softmax_gradient():
    x = torch.randn(10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: packlib.packed_softmax(packed(list(x.split(LENGTHS)))).data, (x,))


def test_attention_gives_zeros_as_torch_does():
    keys, values = drawn(), drawn(features=2)
    query = torch.randn(6, 2, FEATURES, dtype=torch.float64, requires_grad=True)
    output, weights = packlib.packed_attention(query, packed(keys), packed(values))
    mask = torch.tensor([[t < n for t in range(4)] for n in LENGTHS])
    expected = F.scaled_dot_product_attention(
        query, *(oracle.padded(s, 4, True, 0.0) for s in (keys, values)), attn_mask=mask[:, None])
    close(output, expected)
    assert (output[EMPTY] == 0).all() and weights.lengths.tolist() == LENGTHS
    grad, = torch.autograd.grad(output.pow(2).sum(), query)
    assert (grad[EMPTY] == 0).all() and (grad[FULL][[0, 1, 3]] != 0).any()


def test_losses():
    ids, logits = packed([torch.randint(3, (n,)) for n in LENGTHS]), packed(drawn())
    each = [F.cross_entropy(logits.sequence(i), ids.sequence(i)) for i in FULL]
    close(cross_entropy(logits, ids, "sequence_mean"), torch.stack(each).mean())
    close(cross_entropy(logits, ids), F.cross_entropy(logits.data, ids.data))
    zeros = logits.map(torch.zeros_like)
    squares = [logits.sequence(i).pow(2).mean() for i in FULL]
    close(packed_loss(F.mse_loss, logits, zeros, "sequence_mean"), torch.stack(squares).mean())
    assert packed_loss(F.mse_loss, logits, zeros, "none").lengths.tolist() == LENGTHS


def test_layouts_are_compared():
    p = counted()
    assert packlib.same_layout(p, counted())
    assert not packlib.same_layout(p, p.without_empty())
    assert not packlib.same_layout(p, counted([2, 0, 4, 1, 3, 0]))
    ours = packlib.pack_sequence(list(torch.zeros(5).split([3, 2, 0, 0])), allow_empty=True)
    other = torch.tensor([0, 1, 3, 2])  # the places of empty ones are of no row
    assert packlib.same_layout(ours, packlib.PackedSequence(*ours[:3], other))


# --- in pieces ----------------------------------------------------------------------------------

@settings(max_examples=20)
@given(strategies.with_empty, st.integers(1, 5))
def test_pieces(lengths, steps):
    layer = packlib.GRU(FEATURES, HIDDEN, dtype=torch.float64)
    xs, h = drawn(lengths), torch.randn(1, len(lengths), HIDDEN, dtype=torch.float64)
    p = packed(xs)
    output, last = layer(p, h)
    assert all((piece.lengths > 0).all() for piece in chunks(p, steps))
    found = list(run_chunks(layer, p, steps, h))
    close(torch.cat([o.data for o, _ in found]), output.data)
    close(found[-1][1], last)
    empty = [i for i, n in enumerate(lengths) if n == 0]
    oracle.same(found[-1][1][:, empty], h[:, empty])


def test_pieces_need_a_first_state():
    with pytest.raises(ValueError, match="state must be given, since sequence 1 is empty"):
        run_chunks(packlib.GRU(FEATURES, HIDDEN), packed(drawn()), 2)
