"""``PackedSequence``: the law of its fields, the names it adds, and torch's behaviour kept."""

import copy
import operator
import pickle

import oracle
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import rnn

import packlib
from packlib import PackedSequence, invert_permutation

SEQUENCES = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0, 6.0, 7.0]),
             torch.tensor([8.0])]  # lengths [2, 5, 1], order [1, 0, 2]
CYCLE = [torch.tensor([1.0]), torch.tensor([2.0, 3.0, 4.0]), torch.tensor([5.0, 6.0])]


def packed(sequences=CYCLE):
    return packlib.pack_sequence(sequences, enforce_sorted=False)


# --- invert_permutation -------------------------------------------------------------------------

@given(st.permutations(range(7)))
def test_inverse(order):
    inverse = invert_permutation(torch.tensor(order))
    assert [order[i] for i in inverse.tolist()] == list(range(7))
    oracle.same(inverse, rnn.invert_permutation(torch.tensor(order)))


def test_inverse_of_none_and_of_nothing():
    assert invert_permutation(None) is None
    assert invert_permutation(torch.tensor([], dtype=torch.int64)).tolist() == []


@pytest.mark.parametrize(("value", "error", "words"), [
    ([1, 0], TypeError, "must be a Tensor, got list"),
    (torch.tensor([1, 0], dtype=torch.int32), RuntimeError, "must be torch.int64"),
    (torch.tensor([0, 0]), RuntimeError, "each of 0 to 1 once"),
    (torch.tensor([1, 2, 3]), RuntimeError, "each of 0 to 2 once"),
    (torch.tensor([[1, 0]]), IndexError, "must be 1D"),
])
def test_inverse_of_what_is_no_permutation(value, error, words):
    with pytest.raises(error, match=words):
        invert_permutation(value)


# --- the law of the fields ----------------------------------------------------------------------

DATA, SIZES = torch.arange(6.0), torch.tensor([3, 2, 1])


@pytest.mark.parametrize(("fields", "error", "words"), [
    (([1, 2], torch.tensor([1, 1])), TypeError, "data must be a Tensor, got list"),
    ((DATA, [3, 2, 1]), TypeError, "batch_sizes must be a Tensor, got list"),
    ((DATA, SIZES.int()), TypeError, "1D tensor of torch.int64, got 1D torch.int32"),
    ((DATA, SIZES[None]), TypeError, "got 2D"),
    ((DATA, SIZES.to("meta")), ValueError, "batch_sizes should always be on CPU"),
    ((DATA, torch.tensor([], dtype=torch.int64)), RuntimeError, "batch_sizes can not be empty"),
    ((DATA, torch.tensor([3, 4, -1])), ValueError, "must be at least 1"),
    ((DATA, torch.tensor([3, 3, 0])), ValueError, "must be at least 1"),
    ((DATA, torch.tensor([2, 1, 3])), ValueError, "must never grow"),
    ((DATA, torch.tensor([3, 2])), ValueError, "add up to 5 steps, but data has 6 rows"),
    ((torch.tensor(1.0), torch.tensor([1])), ValueError, "data has 0 rows"),
    ((DATA, SIZES, torch.tensor([1, 2])), ValueError, "one entry for each of 3 sequences, got 2"),
    ((DATA, SIZES, torch.tensor([1, 2, 2])), RuntimeError, "each of 0 to 2 once"),
    ((DATA, SIZES, [1, 2, 0]), TypeError, "sorted_indices must be a Tensor"),
    ((DATA, SIZES, torch.tensor([1, 2, 0]), torch.tensor([1, 2, 0])), ValueError,
     "must be the inverse of sorted_indices"),
    ((DATA, SIZES, None, torch.tensor([0, 0, 1])), RuntimeError, "unsorted_indices must hold each"),
    ((DATA,), AssertionError, "list or tuple of length 2"),
])
def test_fields_that_break_the_law(fields, error, words):
    with pytest.raises(error, match=words):
        PackedSequence(*fields)


@pytest.mark.parametrize("made", [
    lambda p: p._replace(data=torch.zeros(9)),
    lambda p: p._replace(batch_sizes=torch.tensor([2, 3, 1])),
    lambda p: p._replace(batch_sizes=torch.tensor([3, 2, 2])),
    lambda p: PackedSequence._make([p.data, p.batch_sizes - 1, None, None]),
], ids=["rows", "growing", "sum", "_make"])
def test_fields_replaced_behind_the_constructor_are_checked_when_used(made):
    for use in (packlib.pad_packed_sequence, packlib.unpack_sequence, lambda p: p.lengths):
        with pytest.raises(ValueError, match="batch_sizes"):
            use(made(packed()))


@pytest.mark.parametrize("origin", [packed, lambda: PackedSequence(DATA, SIZES.clone())],
                         ids=["packed", "by hand"])
def test_batch_sizes_changed_in_place_are_seen(origin):
    p = origin()
    assert p.lengths.sum() == len(p.data)
    p.batch_sizes[0] = 2
    for use in (packlib.pad_packed_sequence, packlib.unpack_sequence, lambda p: p.lengths):
        with pytest.raises(ValueError, match="batch_sizes add up to"):
            use(p)


def test_an_order_changed_in_place_is_seen():
    p = packed()
    torchs = rnn.pack_sequence(CYCLE, enforce_sorted=False)
    for fields in (p, torchs):
        fields.sorted_indices.copy_(torch.tensor([2, 1, 0]))
        fields.unsorted_indices.copy_(torch.tensor([2, 1, 0]))
    for found, expected in zip(packlib.pad_packed_sequence(p), rnn.pad_packed_sequence(torchs),
                               strict=True):
        oracle.same(found, expected)


def test_what_is_kept_is_nobody_elses():
    p = packlib.pack_sequence([*CYCLE, torch.zeros(0)], enforce_sorted=False, allow_empty=True)
    layout = p.layout
    first = p.without_empty()
    for fields in (p, first):
        for field in fields[1:]:
            field.zero_()
    assert layout.batch_sizes.tolist() == [3, 2, 1]
    assert layout.order.tolist() == [1, 2, 0, 3]
    again = PackedSequence.from_layout(p.data, layout).without_empty()
    oracle.same(again.lengths, torch.tensor([1, 3, 2]))


def test_the_inverse_is_filled_in():
    p = PackedSequence(DATA, SIZES, torch.tensor([1, 2, 0]))
    assert p.unsorted_indices.tolist() == [2, 0, 1]


def test_the_order_is_filled_in_from_its_inverse():
    p = packed()
    by_inverse = [make(p.data, p.batch_sizes, None, p.unsorted_indices)
                  for make in (PackedSequence, rnn.PackedSequence)]
    assert by_inverse[0].sorted_indices.tolist() == p.sorted_indices.tolist()
    initial = torch.arange(6.0).view(1, 3, 2)
    gru = packlib.GRU(1, 2)
    _, last = gru(p.map(lambda data: data[:, None]), initial)
    for q in by_inverse:
        for found, expected in zip(packlib.unpack_sequence(q), CYCLE, strict=True):
            oracle.same(found, expected)
        assert packlib.last_step(q).tolist() == [1.0, 4.0, 6.0]
        assert not packlib.same_layout(q, PackedSequence(p.data, p.batch_sizes))
        ours = PackedSequence.like(q, q.data[:, None])
        torch.testing.assert_close(gru(ours, initial)[1], last)


def test_the_inverse_is_filled_in_where_states_come_back():
    """No constructor leaves it out, but ``_replace`` can."""
    p = packed().map(lambda data: data[:, None])
    gru = packlib.GRU(1, 2)
    total = packlib.run_packed(lambda x, s: s + x, p, torch.zeros(3, 1))[1]
    assert total.flatten().tolist() == [1.0, 9.0, 11.0]
    for whole in (p, rnn.PackedSequence(*p)):
        half = whole._replace(unsorted_indices=None)
        torch.testing.assert_close(gru(half)[1], gru(p)[1])
        found = packlib.run_packed(lambda x, s: s + x, half, torch.zeros(3, 1))[1]
        torch.testing.assert_close(found, total)


# Torch's kernels read these numbers as if they lay one after the other.
@pytest.mark.parametrize("kind", ["every second", "one repeated"])
@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_batch_sizes_that_do_not_lie_one_after_the_other(kind, mode):
    sizes = (torch.tensor([4, 3, 2, 1, 2, 1, 2, 1])[::2] if kind == "every second"
             else torch.tensor([2]).expand(5))
    assert int(sizes.sum()) == 10
    data = torch.randn(10, 2)
    layer = getattr(torch.nn, mode)(2, 3)
    expected = layer(rnn.PackedSequence(data, torch.tensor(sizes.tolist())))[0].data
    whole = rnn.PackedSequence(data, sizes)
    for made in (PackedSequence(data, sizes), PackedSequence.like(whole, data)):
        torch.testing.assert_close(layer(made)[0].data, expected)
    ours = getattr(packlib, mode)(2, 3, route="torch")
    ours.load_state_dict(layer.state_dict())
    replaced = PackedSequence(data, torch.tensor(sizes.tolist()))._replace(batch_sizes=sizes)
    for made in (whole, replaced):
        torch.testing.assert_close(ours(made)[0].data, expected)


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_fields_of_inference_mode_may_be_trained_with(mode):
    """As new data of an old layout are; torch takes no order that was made there."""
    with torch.inference_mode():
        old = packed()
    data = torch.randn(6, 2, requires_grad=True)
    layer = getattr(packlib, mode)(2, 3)
    expected = torch.autograd.grad(layer(packed().with_data(data))[0].data.sum(), data)
    for new in (old.with_data(data), PackedSequence(data, *old[1:]), rnn.PackedSequence(
            data, *old[1:])):
        found = torch.autograd.grad(layer(new)[0].data.sum(), data)
        torch.testing.assert_close(found, expected)


def test_the_pair_is_taken_as_one_argument():
    oracle.same_fields(PackedSequence((DATA, SIZES)), rnn.PackedSequence((DATA, SIZES)))


# --- names it adds ------------------------------------------------------------------------------

@given(strategies.batches())
def test_lengths_and_sequences_come_in_the_users_order(batch):
    p = packed(batch.sequences)
    oracle.same(p.lengths, torch.tensor(batch.lengths))
    assert p.num_sequences == len(batch.lengths)
    for i, s in enumerate(batch.sequences):
        oracle.same(p.sequence(i), s)
        oracle.same(p.sequence(i - len(batch.sequences)), s)


@pytest.mark.parametrize("i", [3, -4])
def test_there_is_no_such_sequence(i):
    with pytest.raises(IndexError, match=f"sequence {i} of a batch of 3"):
        packed().sequence(i)


def test_lengths_are_a_copy():
    p = packed()
    p.lengths.zero_()
    assert p.lengths.tolist() == [1, 3, 2]


def test_map_and_with_data_keep_the_order():
    p = packed()
    tripled = p.map(lambda data: data * 3)
    assert [s.tolist() for s in packlib.unpack_sequence(tripled)] == [[3], [6, 9, 12], [15, 18]]
    wide = p.with_data(torch.stack([p.data, -p.data], dim=1))
    assert wide.sequence(2).tolist() == [[5, -5], [6, -6]]
    for q in (tripled, wide):
        oracle.same_fields(q._replace(data=p.data), p)


@pytest.mark.parametrize("data", [torch.zeros(5), torch.zeros(7, 2), torch.tensor(1.0), [1, 2]])
def test_with_data_wants_a_row_for_each_step(data):
    with pytest.raises(ValueError, match="data must have 6 rows, one for each real step, got"):
        packed().with_data(data)


def test_detach_device_and_dtype():
    x = torch.ones(6, dtype=torch.float64, requires_grad=True)
    p = packed().with_data(x)
    assert p.data.requires_grad and not p.detach().data.requires_grad
    assert (p.dtype, p.device) == (torch.float64, torch.device("cpu"))
    assert p.to("meta").device == torch.device("meta")


# --- what torch's does --------------------------------------------------------------------------

CASTS = {"double": torch.float64, "float": torch.float32, "half": torch.half, "long": torch.int64,
         "int": torch.int32, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
         "cpu": torch.float32}


@pytest.mark.parametrize("name", CASTS)
def test_casts_keep_type_and_layout(name):
    p = packed()
    cast = getattr(p, name)()
    assert type(cast) is PackedSequence
    assert cast.data.dtype == CASTS[name]
    oracle.same_fields(cast, getattr(rnn.pack_sequence(CYCLE, enforce_sorted=False), name)())
    assert [s.tolist() for s in packlib.unpack_sequence(cast)] == [[1], [2, 3, 4], [5, 6]]


def test_to_returns_itself_when_nothing_changes():
    p = packed()
    assert p.to(torch.float32) is p and p.cpu() is p and p.float() is p
    assert p.to("cpu", torch.float64).dtype == torch.float64
    assert p.to(torch.zeros(1, dtype=torch.half)).dtype == torch.half


def test_to_another_device_moves_all_but_batch_sizes():
    moved = packed().to("meta")
    assert [field.device.type for field in moved] == ["meta", "cpu", "meta", "meta"]
    assert moved.lengths.tolist() == [1, 3, 2]  # known without reading the device
    assert packlib.pad_packed_sequence(moved)[0].shape == (3, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pinned_and_on_the_gpu():
    p = packed()
    pinned = p.pin_memory()
    assert type(pinned) is PackedSequence and pinned.is_pinned()
    there = pinned.cuda()
    assert there.is_cuda and there.sorted_indices.is_cuda and not there.batch_sizes.is_cuda
    assert [s.tolist() for s in packlib.unpack_sequence(there)] == [[1], [2, 3, 4], [5, 6]]


def test_flags_of_the_cpu():
    assert not packed().is_cuda and not packed().is_pinned()


def test_it_is_torchs_and_a_named_tuple():
    p = packed()
    assert isinstance(p, rnn.PackedSequence) and isinstance(p, tuple)
    assert len(p) == 4 and list(p._asdict()) == list(rnn.PackedSequence._fields)
    data, sizes, order, inverse = p
    assert data is p.data and p[1] is sizes and p[-1] is inverse and p[2:] == (order, inverse)
    assert repr(p) == repr(rnn.pack_sequence(CYCLE, enforce_sorted=False))


@pytest.mark.parametrize("again", [
    copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p)),
    lambda p: pickle.loads(pickle.dumps(p, protocol=2)),
], ids=["copy", "deepcopy", "pickle", "pickle 2"])
def test_copies(again):
    p = packed()
    p.lengths  # noqa: B018 - a plan that is made already must not be in the way
    q = again(p)
    assert type(q) is PackedSequence
    oracle.same_fields(q, p)
    assert q.lengths.tolist() == [1, 3, 2]


def test_a_copy_that_is_deep_shares_nothing():
    p = packed()
    q = copy.deepcopy(p)
    q.data.zero_()
    assert packlib.unpack_sequence(p)[0].tolist() == [1]


# --- what would go wrong in silence --------------------------------------------------------------

@pytest.mark.parametrize("wrong", [
    lambda p: p + p, lambda p: 1 + p, lambda p: p * 2, lambda p: 2 * p, lambda p: p - p,
    lambda p: p / 2, lambda p: -p, lambda p: p ** 2, lambda p: p @ p, lambda p: torch.ones(6) * p,
    lambda p: p < p, lambda p: p >= p,
])
def test_arithmetic_says_what_to_do(wrong):
    with pytest.raises(TypeError, match=r"use p\.map\(fn\), or p\.with_data"):
        wrong(packed())


@pytest.mark.parametrize("key", [(slice(None), -1), (0, 0), torch.tensor([True]), torch.tensor(0)])
def test_indexing_like_a_tensor_says_what_to_do(key):
    with pytest.raises(TypeError, match=r"\.sequence\(i\) for one sequence"):
        packed()[key]


def test_comparing_two_says_what_to_do():
    p = packed()
    assert operator.eq(p, p) and not operator.ne(p, p) and p in [p]
    assert operator.ne(p, 3) and not operator.eq(p, 3)
    for compare in (operator.eq, operator.ne):
        with pytest.raises(TypeError, match="assert_close"):
            compare(p, packed())


def test_it_can_be_a_key():
    p = packed()
    assert {p: "here"}[p] == "here"


class TestTheLayoutIsFoundAgain:
    """A batch that comes out of torch's layer has the index tensors that went in."""

    def out_of_a_layer(self):
        packed = packlib.pack_sequence([torch.zeros(n, 3) for n in [2, 4, 1, 4, 3]],
                                       enforce_sorted=False)
        return packed, torch.nn.GRU(3, 6)(packed)[0]

    def test_as_it_was(self):
        packed, output = self.out_of_a_layer()
        assert type(output) is torch.nn.utils.rnn.PackedSequence
        assert packlib.sequence.layout_of(output) is packed.layout

    def test_not_after_an_index_has_changed(self):
        packed, output = self.out_of_a_layer()
        order = output.sorted_indices.clone()
        output.sorted_indices[0], output.sorted_indices[1] = order[1], order[0]
        with pytest.raises(ValueError, match="must be the inverse"):
            packlib.pad_packed_sequence(output)

    def test_not_with_other_rows_or_another_order(self):
        packed, output = self.out_of_a_layer()
        with pytest.raises(ValueError, match="add up to 14 steps, but data has 13"):
            packlib.pad_packed_sequence(output._replace(data=output.data[:-1]))
        turned = output._replace(sorted_indices=None, unsorted_indices=None)
        assert packlib.sequence.layout_of(turned).lengths.tolist() == [4, 4, 3, 2, 1]

    def test_it_is_forgotten_with_the_batch(self):
        before = len(packlib.sequence._PLANS)
        packed, output = self.out_of_a_layer()
        assert len(packlib.sequence._PLANS) == before + 1
        del packed, output
        assert len(packlib.sequence._PLANS) == before
