"""One result for each sequence, and softmax within it: as each sequence alone, in plain torch."""

import math

import oracle
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

import packlib
from packlib.reduce import (
    last_step,
    packed_attention,
    packed_max,
    packed_mean,
    packed_softmax,
    packed_sum,
    reverse,
)

LENGTHS = [2, 4, 1, 4, 3]
FLOATS = (torch.float32, torch.float64, torch.half, torch.bfloat16)
REAL = (*FLOATS, torch.int64, torch.bool)
REDUCTIONS = {"last_step": last_step, "sum": packed_sum, "mean": packed_mean, "max": packed_max,
              "softmax": lambda p: packed_softmax(p).data, "reverse": lambda p: reverse(p).data}
packs = st.sampled_from([packlib.pack_sequence, rnn.pack_sequence])


def packed(sequences, pack=packlib.pack_sequence):
    return pack(sequences, enforce_sorted=False)


def drawn(lengths, *trailing, dtype=torch.float64):
    return [torch.randn(n, *trailing, dtype=dtype) for n in lengths]


def each(fn, sequences):
    return torch.stack([fn(s) for s in sequences])


# --- as each sequence alone ---------------------------------------------------------------------

@given(strategies.batches(), packs)
def test_last_step(batch, pack):
    oracle.same(last_step(packed(batch.sequences, pack)), each(lambda s: s[-1], batch.sequences))


@given(strategies.batches(), packs)
def test_reverse(batch, pack):
    p = packed(batch.sequences, pack)
    turned = reverse(p)
    for found, s in zip(packlib.unpack_sequence(turned), batch.sequences, strict=True):
        oracle.same(found, s.flip(0))
    oracle.same_fields(turned._replace(data=p.data), p)
    oracle.same_fields(reverse(turned), p)


@given(strategies.batches(), packs)
def test_sum(batch, pack):
    oracle.same(packed_sum(packed(batch.sequences, pack)),
                each(lambda s: s.sum(0), batch.sequences))


@given(strategies.batches(dtypes=REAL), packs)
def test_max(batch, pack):
    oracle.same(packed_max(packed(batch.sequences, pack)),
                each(lambda s: s.amax(0), batch.sequences))


@given(strategies.batches(dtypes=(*FLOATS, torch.complex64)), packs)
def test_mean(batch, pack):
    torch.testing.assert_close(packed_mean(packed(batch.sequences, pack)),
                               each(lambda s: s.mean(0), batch.sequences))


@given(strategies.batches(dtypes=FLOATS), packs)
def test_softmax(batch, pack):
    sequences = [s / 16 for s in batch.sequences]
    found = packlib.unpack_sequence(packed_softmax(packed(sequences, pack)))
    for one, s in zip(found, sequences, strict=True):
        torch.testing.assert_close(one, s.softmax(0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_small_integers_add_up_to_int64_and_keep_their_maximum(dtype):
    p = packed([torch.tensor([100, 100, 100], dtype=dtype), torch.tensor([7], dtype=dtype)])
    oracle.same(packed_sum(p), torch.tensor([300, 7]))
    oracle.same(packed_max(p), torch.tensor([100, 7], dtype=dtype))


# --- against a padded grid and its mask ---------------------------------------------------------

def test_pooling_is_that_of_a_masked_grid():
    """Zeros in the padding would win the maximum of negative numbers, and weigh in the mean."""
    sequences = [-s.abs() for s in drawn(LENGTHS, 3)]
    grid = rnn.pad_sequence(sequences, batch_first=True)
    mask = packlib.lengths_to_mask(LENGTHS)[..., None]
    p = packed(sequences)
    oracle.same(packed_max(p), grid.masked_fill(~mask, -math.inf).amax(1))
    assert not torch.equal(packed_max(p), grid.amax(1))
    torch.testing.assert_close(packed_mean(p), (grid * mask).sum(1) / mask.sum(1))
    shares = grid.masked_fill(~mask, -math.inf).softmax(1)
    torch.testing.assert_close(packlib.pad_packed_sequence(packed_softmax(p), True)[0], shares)


@pytest.mark.parametrize("kind", [nn.LSTM, packlib.LSTM, nn.GRU, packlib.RNN])
def test_last_step_of_a_layer_is_its_state(kind):
    layer = kind(3, 6, num_layers=2).double()
    output, state = layer(packed(drawn(LENGTHS, 3)))
    h_n = state[0] if isinstance(state, tuple) else state
    torch.testing.assert_close(last_step(output), h_n[-1], rtol=0, atol=1e-12)


def test_the_backward_half_ends_at_the_first_step():
    output, (h_n, _) = nn.LSTM(3, 6, bidirectional=True).double()(packed(drawn(LENGTHS, 3)))
    forward, backward = last_step(output)[:, :6], last_step(reverse(output))[:, 6:]
    torch.testing.assert_close(forward, h_n[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(backward, h_n[1], rtol=0, atol=1e-12)
    assert (last_step(output)[:, 6:] - h_n[1]).abs().max() > 0.01


# --- gradients ----------------------------------------------------------------------------------

@pytest.mark.parametrize("lengths", [LENGTHS, [1, 3, 2, 6], [3], [2, 2, 2]], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_of_first_and_second_order(name, lengths):
    """gradcheck compares with finite differences, so with no code of ours."""
    p = packed(drawn(lengths, 2))
    data = p.data.clone().requires_grad_()

    def reduce(data):
        return REDUCTIONS[name](p.with_data(data ** 3))

    assert torch.autograd.gradcheck(reduce, (data,), fast_mode=True)
    assert torch.autograd.gradgradcheck(reduce, (data,), fast_mode=True)


@pytest.mark.parametrize("name", ["max", "mean", "softmax", "last_step"])
def test_gradients_equal_those_of_each_sequence_alone(name):
    alone = {"max": lambda s: s.amax(0), "mean": lambda s: s.mean(0),
             "softmax": lambda s: (s.softmax(0) ** 2).sum(0), "last_step": lambda s: s[-1]}
    ours = REDUCTIONS | {"softmax": lambda p: packed_sum(packed_softmax(p).map(torch.square))}
    sequences = [s.round(decimals=0).requires_grad_() for s in drawn(LENGTHS, 3)]  # many ties
    weights = torch.rand(len(LENGTHS), 3, dtype=torch.float64)
    found = torch.autograd.grad((ours[name](packed(sequences)) * weights).sum(), sequences)
    expected = torch.autograd.grad((each(alone[name], sequences) * weights).sum(), sequences)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_nan_in_the_padding_reaches_neither_results_nor_gradients(name):
    grid = torch.full((5, 6, 2), math.nan)
    for row, n in zip(grid, LENGTHS, strict=True):
        row[:n] = torch.randn(n, 2)
    grid.requires_grad_()
    result = REDUCTIONS[name](packlib.pack_padded_sequence(grid, LENGTHS, True, False))
    (result ** 2).sum().backward()
    assert result.isfinite().all() and grid.grad.isfinite().all()
    for row, n in zip(grid.grad, LENGTHS, strict=True):
        assert not row[n:].any()


# --- numbers at their limits --------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_half_precision_is_added_in_float32(dtype):
    """4,099 ones: in half precision 2,048 + 1 is 2,048."""
    p = packed([torch.ones(3, dtype=dtype), torch.ones(4099, dtype=dtype)])
    oracle.same(packed_sum(p), torch.tensor([3, 4099]).to(dtype))
    oracle.same(packed_mean(p), torch.ones(2, dtype=dtype))
    assert packed_softmax(p).sequence(1)[0] == torch.tensor(1 / 4099).to(dtype)


@pytest.mark.parametrize("steps", [255, 256, 257, 160_001])
def test_long_sums_lose_no_more_than_torchs(steps):
    """Added one by one in float32, 160,000 numbers are off by some 0.1 %."""
    sequences = [torch.rand(steps, 2), torch.rand(3, 2), torch.rand(steps // 2 + 1, 2)]
    p = packed(sequences)
    for ours, alone in ((packed_sum, torch.sum), (packed_mean, torch.mean)):
        exact = each(lambda s, alone=alone: alone(s.double(), 0), sequences)
        torch.testing.assert_close(ours(p).double(), exact, rtol=2e-6, atol=0)
    total = each(lambda s: s.sum(0).double(), packlib.unpack_sequence(packed_softmax(p)))
    torch.testing.assert_close(total, torch.ones_like(total), rtol=2e-6, atol=0)


def test_ones_are_counted_beyond_what_float32_counts_one_by_one():
    many = 2**24 + 1000
    assert packed_sum(packed([torch.ones(many), torch.ones(2)])).tolist() == [many, 2]


def test_softmax_of_large_scores():
    p = packed([torch.tensor([1e4, 1e4 - 1]), torch.tensor([-1e4, -1e4, -1e4])])
    first, second = packlib.unpack_sequence(packed_softmax(p))
    torch.testing.assert_close(first, torch.tensor([1.0, 0.0]).softmax(0))
    torch.testing.assert_close(second, torch.full((3,), 1 / 3))


def test_a_score_of_minus_infinity_has_no_share_and_no_nan():
    data = torch.tensor([1.0, 2.0, -math.inf, 0.0, -math.inf, 3.0], requires_grad=True)
    p = packlib.PackedSequence(data, torch.tensor([3, 2, 1]))  # [1, 0, 3], [2, -inf], [-inf]
    shares = packed_softmax(p)
    assert shares.sequence(1).tolist() == [1.0, 0.0]
    assert shares.sequence(2).isnan().all()  # as torch: nothing to share
    (grad,) = torch.autograd.grad((shares.data[[0, 1, 3, 4, 5]] ** 2).sum(), data)
    assert grad[[0, 1, 3, 4, 5]].isfinite().all()


# --- what it costs ------------------------------------------------------------------------------

SHAPES = [[2, 3, 1], [20, 30, 10], [2, 3, 1] * 9, list(range(1, 28))]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_work_does_not_grow(name):
    """The number of kernels is the same for any T, B and number of distinct lengths."""
    counts = set()
    for lengths in SHAPES:
        p = packed(drawn(lengths, 3))
        leaf = p.with_data(p.data.clone().requires_grad_())
        REDUCTIONS[name](p)  # the rows are counted once for a layout
        with oracle.Work() as forward:
            result = REDUCTIONS[name](leaf)
        with oracle.Work() as backward:
            result.backward(torch.ones_like(result))
        counts.add((len(forward.names), len(backward.names)))
    assert len(counts) == 1, counts
    if name in ("last_step", "reverse"):
        assert counts.pop()[0] == 1  # one gather


# --- attention ----------------------------------------------------------------------------------

def attention(q, k, v, lengths, scale=None):
    """torch's, on padded keys, with the padding masked out."""
    k, v = (rnn.pad_sequence(x, batch_first=True, padding_value=99.0) for x in (k, v))
    mask = packlib.lengths_to_mask(lengths)[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


@given(strategies.lengths, st.integers(1, 4), st.sampled_from([None, 0.3]), packs)
@settings(max_examples=25)
def test_attention_is_that_of_a_masked_grid(lengths, queries, scale, pack):
    k, v = drawn(lengths, 3), drawn(lengths, 2)
    q = torch.randn(len(lengths), queries, 3, dtype=torch.float64)
    found, weights = packed_attention(q, packed(k, pack), packed(v, pack), scale=scale)
    torch.testing.assert_close(found, attention(q, k, v, lengths, scale))
    one, its_weights = packed_attention(q[:, 0], packed(k, pack), packed(v, pack), scale=scale)
    oracle.same(one, found[:, 0])
    oracle.same(its_weights.data, weights.data[:, 0])
    for i, w in enumerate(packlib.unpack_sequence(weights)):
        assert w.shape == (lengths[i], queries)
        torch.testing.assert_close(w.T @ v[i], found[i])


def test_attention_to_the_keys_themselves():
    k, q = drawn(LENGTHS, 3), torch.randn(5, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(packed_attention(q, packed(k))[0], attention(q, k, k, LENGTHS))


def test_attention_to_keys_without_features_is_the_mean():
    lengths = [2, 3]
    keys, values = drawn(lengths, 0), drawn(lengths, 4)
    packed_values = packed(values)
    without = packed_values.map(lambda data: data[:, :0])
    found, weights = packed_attention(torch.zeros(2, 0, dtype=torch.float64), without,
                                      packed_values)
    torch.testing.assert_close(found, each(lambda v: v.mean(0), values))
    torch.testing.assert_close(found, attention(torch.zeros(2, 1, 0, dtype=torch.float64), keys,
                                                values, lengths)[:, 0])
    assert weights.sequence(0).tolist() == [0.5, 0.5]


def test_gradients_of_attention():
    q = torch.randn(5, 2, 3, dtype=torch.float64)
    leaves = [x.requires_grad_() for x in (q, *drawn(LENGTHS, 3), *drawn(LENGTHS, 4))]

    def ours(q, *rest):
        return packed_attention(q, packed(rest[:5]), packed(rest[5:]))[0]

    weights = torch.rand(5, 2, 4, dtype=torch.float64)
    found = torch.autograd.grad((ours(*leaves) * weights).sum(), leaves)
    expected = torch.autograd.grad(
        (attention(q, leaves[1:6], leaves[6:], LENGTHS) * weights).sum(), leaves)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradgradcheck(ours, leaves, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.half, torch.bfloat16])
def test_attention_keeps_the_dtype(dtype):
    k, q = drawn(LENGTHS, 3, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    found, weights = packed_attention(q, packed(k))
    assert found.dtype == weights.dtype == dtype
    exact = attention(q[:, None].double(), *[[s.double() for s in k]] * 2, LENGTHS)[:, 0]
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2 * torch.finfo(dtype).eps)


def test_attention_under_autocast_is_in_its_dtype():
    """As torch's: mixed dtypes are common there, such as a parameter for a query."""
    k, q = drawn(LENGTHS, 3, dtype=torch.float32), torch.randn(5, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found, weights = packed_attention(q, packed(k).map(torch.Tensor.bfloat16))
    assert found.dtype == weights.dtype == torch.bfloat16
    exact = attention(q[:, None], k, k, LENGTHS)[:, 0]
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.03)
    found.sum().backward()
    assert q.grad.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        double, _ = packed_attention(q.double(), packed(k).map(torch.Tensor.double))
    assert double.dtype == torch.float64


KEYS = packed(drawn([2, 5, 1], 4, dtype=torch.float32))


@pytest.mark.parametrize(("query", "keys", "values", "error", "words"), [
    (torch.zeros(3, 5), KEYS, None, ValueError, r"with B=3, F=4, got \(3, 5\)"),
    (torch.zeros(2, 4), KEYS, None, ValueError, r"with B=3, F=4, got \(2, 4\)"),
    (torch.zeros(4), KEYS, None, ValueError, r"got \(4,\)"),
    (torch.zeros(3, 4), KEYS.map(lambda k: k[:, 0]), None, ValueError, r"keys must have data"),
    (torch.zeros(3, 4), KEYS, packed(drawn([5, 2, 1], 4, dtype=torch.float32)), ValueError,
     "keys and values are packed differently: sequence 0 has 2 steps and 5"),
    (torch.zeros(3, 4).double(), KEYS, None, TypeError, "float64, torch.float32 and torch.float32"),
    (torch.zeros(3, 4).long(), KEYS.long(), None, TypeError, "one floating dtype"),
    (KEYS, KEYS, None, TypeError, "query must be a Tensor, got PackedSequence"),
    (torch.zeros(3, 4), torch.zeros(3, 6, 4), None, TypeError, "got Tensor: pack it first"),
])
def test_attention_that_is_refused(query, keys, values, error, words):
    with pytest.raises(error, match=words):
        packed_attention(query, keys, values)


# --- errors, devices, transforms ----------------------------------------------------------------

@pytest.mark.parametrize(("fn", "dtype", "words"), [
    (packed_mean, torch.int64, "wants floating numbers, got torch.int64: ids have no mean"),
    (packed_mean, torch.bool, "wants floating numbers, got torch.bool"),
    (packed_softmax, torch.int64, "wants real floating numbers, got torch.int64"),
    (packed_softmax, torch.complex64, "wants real floating numbers, got torch.complex64"),
    (packed_max, torch.complex64, "wants real numbers, got torch.complex64"),
])
def test_dtypes_that_are_refused(fn, dtype, words):
    with pytest.raises(TypeError, match=words):
        fn(packed([torch.ones(2, dtype=dtype), torch.ones(5, dtype=dtype)]))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_grid_is_refused(name):
    with pytest.raises(TypeError, match="expected a PackedSequence, got Tensor: pack it first"):
        REDUCTIONS[name](torch.zeros(3, 6, 2))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_they_follow_the_data_to_another_device(name):
    p = packed(drawn(LENGTHS, 2))
    here, there = REDUCTIONS[name](p), REDUCTIONS[name](p.to("meta"))
    assert there.is_meta and there.shape == here.shape and there.dtype == here.dtype


@pytest.mark.parametrize("name", REDUCTIONS)
def test_they_may_be_mapped_and_differentiated(name):
    """torch.func's vmap of grad, against a plain loop of plain gradients."""
    p = packed(drawn(LENGTHS, 2))
    many = torch.randn(3, *p.data.shape, dtype=torch.float64)

    def energy(data):
        return (REDUCTIONS[name](p.with_data(data)) ** 3).sum()

    found = torch.func.vmap(torch.func.grad(energy))(many)
    for one, data in zip(found, many, strict=True):
        leaf = data.clone().requires_grad_()
        torch.testing.assert_close(one, torch.autograd.grad(energy(leaf), leaf)[0])
