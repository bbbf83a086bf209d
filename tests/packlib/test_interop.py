"""Masks, offsets and nested tensors: there is the same batch, back is where it came from."""

import oracle
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import rnn

import packlib
from packlib.interop import (
    from_cu_seqlens,
    from_nested,
    mask_from_packed,
    packed_from_mask,
    to_cu_seqlens,
    to_nested,
)

LENGTHS = [2, 4, 1, 4, 3]
packs = st.sampled_from([packlib.pack_sequence, rnn.pack_sequence])


def packed(sequences, pack=packlib.pack_sequence):
    return pack(sequences, enforce_sorted=False)


def same_sequences(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        oracle.same(one, other)


def jagged(sequences):
    return torch.nested.as_nested_tensor(sequences, layout=torch.jagged)


# --- masks --------------------------------------------------------------------------------------

@given(strategies.batches(), st.sampled_from(["left", "right"]))
def test_pack_by_a_mask(batch, side):
    grid = oracle.padded(batch.sequences, batch.total, True, strategies.poison(
        batch.padded.dtype), side)
    mask = torch.tensor([[t < n for t in range(batch.total)] for n in batch.lengths])
    mask = mask.flip(1) if side == "left" else mask
    p = packed_from_mask(grid, mask, padding_side=side)
    oracle.same_fields(p, packed(batch.sequences))
    same_sequences(packlib.unpack_sequence(p), [x[m] for x, m in zip(grid, mask, strict=True)])


@given(strategies.lengths, st.sampled_from([None, 8, 11]), packs)
def test_the_mask_of_a_batch(lengths, total, pack):
    p = packed([torch.zeros(n) for n in lengths], pack)
    mask = mask_from_packed(p, total)
    steps = total or max(lengths)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[t < n for t in range(steps)] for n in lengths]
    grid, _ = packlib.pad_packed_sequence(p, True, total_length=total)
    oracle.same_fields(packed_from_mask(grid, mask), packed([torch.zeros(n) for n in lengths]))


def test_the_mask_is_on_the_datas_device():
    assert mask_from_packed(packed([torch.zeros(2), torch.zeros(5)]).to("meta")).is_meta


def test_changing_the_mask_changes_no_layout():
    p = packed([torch.zeros(2), torch.zeros(5)])
    mask_from_packed(p).zero_()
    assert p.lengths.tolist() == [2, 5]


X, MASK = torch.zeros(3, 5, 2), packlib.lengths_to_mask([2, 5, 1])


@pytest.mark.parametrize(("x", "mask", "side", "error", "words"), [
    (X, MASK.long(), "right", TypeError, "mask must be a bool Tensor, got torch.int64"),
    (X, MASK.tolist(), "left", TypeError, "mask must be a bool Tensor, got list"),
    (X.tolist(), MASK, "right", TypeError, "x must be a Tensor, got list"),
    (X, MASK[0], "left", ValueError, r"mask must be \(B, T\)"),
    (X, ~MASK, "right", ValueError, "or True on the padding"),
    (X, MASK, "left", ValueError, "padding after real steps; is it padded on the right"),
    (X, MASK.flip(1), "right", ValueError, "is it padded on the left"),
    (X, MASK[:2], "right", ValueError, r"mask \(2, 5\) must have the first two dimensions of x"),
    (X.transpose(0, 1), MASK, "right", ValueError, r"x\.transpose\(0, 1\) has them"),
    (X, MASK & False, "right", RuntimeError, r"greater than 0.*lengths\[0\]=0"),
    (X, MASK, "top", RuntimeError, "padding_side to be one of left or right, but got top"),
])
def test_masks_that_are_refused(x, mask, side, error, words):
    with pytest.raises(error, match=words):
        packed_from_mask(x, mask, padding_side=side)


def test_a_mask_of_too_few_steps():
    with pytest.raises(ValueError, match="max_len=4 is shorter than the longest of lengths, 5"):
        mask_from_packed(packed([torch.zeros(2), torch.zeros(5)]), 4)


# --- cu_seqlens ---------------------------------------------------------------------------------

@given(strategies.batches(), packs)
def test_offsets_both_ways(batch, pack):
    p = packed(batch.sequences, pack)
    rows, offsets, longest = to_cu_seqlens(p)
    oracle.same(rows, torch.cat(batch.sequences))
    ends = [sum(batch.lengths[:i]) for i in range(len(batch.lengths) + 1)]
    oracle.same(offsets, torch.tensor(ends, dtype=torch.int32))
    assert longest == max(batch.lengths)
    for form in (offsets, offsets.long(), ends):
        oracle.same_fields(from_cu_seqlens(rows, form), packed(batch.sequences))


def test_changing_the_offsets_changes_no_layout():
    p = packed([torch.zeros(2), torch.zeros(5)])
    to_cu_seqlens(p)[1].zero_()
    assert to_cu_seqlens(p)[1].tolist() == [0, 2, 7]


ROWS = torch.zeros(7, 2)


@pytest.mark.parametrize(("data", "offsets", "error", "words"), [
    (ROWS, [2, 5], ValueError, r"from 0 up to 7.*got \[2, 5\]; these are lengths"),
    (ROWS, [0, 2, 6], ValueError, r"from 0 up to 7, the rows of data, got \[0, 2, 6\]$"),
    (ROWS, [0, 5, 2, 7], ValueError, r"got \[0, 5, 2, 7\]"),
    (ROWS, [1, 2, 7], ValueError, r"got \[1, 2, 7\]"),
    (ROWS, [], ValueError, r"got \[\]"),
    (torch.zeros(0), [0], ValueError, r"got \[0\]"),
    (ROWS, [0, 2, 2, 7], RuntimeError, r"sequence 1 is empty, .* at row \d.*allow_empty=True"),
    (ROWS, [[0, 2, 7]], RuntimeError, r"got 2D of shape \(1, 3\)$"),
    (torch.tensor(1.0), [0, 1], ValueError, r"data must be \(N, \*\), got a single number"),
    (ROWS, [0.0, 7.0], TypeError, "cu_seqlens must be integers, got torch.float32"),
    (ROWS, torch.tensor([[0, 7]]), RuntimeError, "'cu_seqlens' argument should be a 1D"),
    ([1, 2], [0, 2], TypeError, "data must be a Tensor, got list"),
])
def test_offsets_that_are_refused(data, offsets, error, words):
    with pytest.raises(error, match=words):
        from_cu_seqlens(data, offsets)


# --- nested tensors -----------------------------------------------------------------------------

@given(strategies.batches(), packs)
@settings(max_examples=30)
def test_nested_both_ways(batch, pack):
    nested = to_nested(packed(batch.sequences, pack))
    same_sequences(nested.unbind(), batch.sequences)
    oracle.same_fields(from_nested(nested), packed(batch.sequences))
    oracle.same_fields(from_nested(jagged(batch.sequences)), packed(batch.sequences))


@given(strategies.lengths)
@settings(max_examples=20)
def test_a_nested_tensor_with_holes(lengths):
    """Sequences cut out of a grid, left where they are."""
    grid = strategies.values((len(lengths), 12, 3), torch.float32)
    starts = [(5 * i) % (13 - n) for i, n in enumerate(lengths)]
    nested = torch.nested.narrow(grid, 1, torch.tensor(starts), torch.tensor(lengths),
                                 layout=torch.jagged)
    cut = [row[a:a + n] for row, a, n in zip(grid, starts, lengths, strict=True)]
    oracle.same_fields(from_nested(nested), packed(cut))


def test_batches_of_one_layout_are_nested_tensors_of_one_shape():
    p = packed([torch.randn(n, 4) for n in LENGTHS])
    joined = to_nested(p) * 2 + to_nested(p.map(torch.sin))
    expected = packlib.unpack_sequence(p.map(lambda x: x * 2 + x.sin()))
    same_sequences(joined.unbind(), expected)


def test_the_longest_length_is_known_to_the_nested_tensor():
    """torch pads a jagged tensor by the length that it was told."""
    sequences = [torch.ones(n, 2) for n in LENGTHS]
    grid = to_nested(packed(sequences)).to_padded_tensor(7.0)
    oracle.same(grid, oracle.padded(sequences, 4, True, 7.0))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_attention_of_torch_on_packed_data():
    """Self-attention within each sequence, through the nested form and back."""
    attend = torch.nn.functional.scaled_dot_product_attention
    sequences = [torch.randn(n, 2, 4) for n in LENGTHS]  # (L, heads, E)
    q = to_nested(packed(sequences)).transpose(1, 2)
    found = from_nested(attend(q, q, q).transpose(1, 2).contiguous())
    for one, s in zip(packlib.unpack_sequence(found), sequences, strict=True):
        s = s.transpose(0, 1)[None]
        torch.testing.assert_close(one, attend(s, s, s)[0].transpose(0, 1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize(("nested", "error", "words"), [
    (lambda: torch.zeros(3, 5), TypeError, "nested tensor of layout torch.jagged$"),
    (lambda: [torch.zeros(3)], TypeError, "nested tensor of layout torch.jagged$"),
    (lambda: torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(5, 3)]), TypeError,
     r"as_nested_tensor\(x\.unbind\(\), layout=torch\.jagged\) makes one"),
    (lambda: jagged([torch.zeros(2, 3), torch.zeros(5, 3)]).transpose(1, 2), ValueError,
     "jagged dimension must be the second"),
    (lambda: jagged([torch.zeros(2, 3), torch.zeros(0, 3)]), RuntimeError,
     r"sequence 1 is empty, .* at row \d.*allow_empty=True"),
])
def test_nested_tensors_that_are_refused(nested, error, words):
    with pytest.raises(error, match=words):
        from_nested(nested())


# --- gradients, cost, types ---------------------------------------------------------------------

FORMS = {
    "cu_seqlens": lambda p: from_cu_seqlens(*to_cu_seqlens(p)[:2]),
    "nested": lambda p: from_nested(to_nested(p)),
    "mask": lambda p: packed_from_mask(packlib.pad_packed_sequence(p, True)[0],
                                       mask_from_packed(p)),
}


@pytest.mark.parametrize("lengths", [LENGTHS, [1, 3, 2, 6], [3], [2, 2, 2]], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_gradients_go_there_and_back(name, lengths):
    p = packed([torch.randn(n, 2, dtype=torch.float64) for n in lengths])
    data = p.data.clone().requires_grad_()

    def there_and_back(data):
        return FORMS[name](p.with_data(data ** 3)).data

    assert torch.autograd.gradcheck(there_and_back, (data,), fast_mode=True)
    if name != "nested":  # torch itself gives nested tensors no second derivative
        assert torch.autograd.gradgradcheck(there_and_back, (data,), fast_mode=True)
    weights = torch.rand_like(p.data)
    (grad,) = torch.autograd.grad((there_and_back(data) * weights).sum(), data)
    torch.testing.assert_close(grad, 3 * p.data ** 2 * weights)


def test_gradients_from_a_nested_tensor_alone():
    leaves = [torch.randn(n, 2, requires_grad=True) for n in LENGTHS]
    p = from_nested(torch.nested.as_nested_tensor(leaves, layout=torch.jagged))
    p.data.square().sum().backward()
    for x in leaves:
        oracle.same(x.grad, 2 * x.detach())


@pytest.mark.parametrize("make", [lambda p: to_cu_seqlens(p)[0], lambda p: to_nested(p).values()])
def test_the_way_there_is_one_move(make):
    counts = set()
    for lengths in ([2, 3, 1], [20, 30, 10], list(range(1, 28))):
        p = packed([torch.randn(n, 3) for n in lengths])
        make(p)  # the rows are counted once for a layout
        with oracle.Work() as work:
            make(p)
        assert work.names.count("packlib.put.default") == 1
        counts.add(len(work.names))
    assert len(counts) == 1, counts


@pytest.mark.parametrize("function", [to_cu_seqlens, to_nested, mask_from_packed])
def test_a_grid_is_refused(function):
    with pytest.raises(TypeError, match="got Tensor: pack it first"):
        function(torch.zeros(3, 6, 4))


def test_offsets_that_somebody_changed_are_made_again():
    p = packed([torch.ones(2), torch.ones(3)])
    to_nested(p).offsets().zero_()
    assert [x.tolist() for x in to_nested(p).unbind()] == [
        x.tolist() for x in packlib.unpack_sequence(p)]
