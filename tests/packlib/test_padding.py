"""Lists and grids, lengths and masks: against torch, and against loops in plain Python."""

import oracle
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import rnn

import packlib

sides = st.sampled_from(["left", "right"])


def fill(dtype):
    """A padding value that ``dtype`` holds and the data does not."""
    return False if dtype == torch.bool else 111


# --- pad_sequence -------------------------------------------------------------------------------

@given(strategies.batches(), sides)
def test_pad_sequence_equals_torch_and_loops(batch, side):
    value = fill(batch.padded.dtype)
    found = packlib.pad_sequence(batch.sequences, batch.batch_first, value, padding_side=side)
    oracle.same(found, rnn.pad_sequence(batch.sequences, batch.batch_first, value, side))
    longest = max(batch.lengths)
    oracle.same(found, oracle.padded(batch.sequences, longest, batch.batch_first, value, side))


@given(strategies.batches(dtypes=(torch.float64,)), sides)
def test_pad_sequence_has_torchs_gradients(batch, side):
    def grads(pad):
        xs = [s.clone().requires_grad_() for s in batch.sequences]
        grid = pad(xs, batch.batch_first, 3.0, side)
        (grid ** 2 * torch.arange(grid.numel()).view(grid.shape)).sum().backward()
        return [x.grad for x in xs]

    for found, expected in zip(grads(packlib.pad_sequence), grads(rnn.pad_sequence), strict=True):
        oracle.same(found, expected)


@pytest.mark.parametrize("value", [-float("inf"), float("nan"), True, 7, torch.tensor(7.0)])
def test_pad_sequence_takes_any_number(value):
    xs = [torch.ones(2), torch.ones(4)]
    oracle.same(packlib.pad_sequence(xs, padding_value=value), rnn.pad_sequence(xs, False, value))


def test_pad_sequence_pads_complex_with_complex():
    xs = [torch.tensor([1j]), torch.tensor([2j, 3j])]
    assert packlib.pad_sequence(xs, True, 4j).tolist() == [[1j, 4j], [2j, 3j]]


@pytest.mark.parametrize("sequences", [
    [torch.ones(2), torch.ones(0)], [torch.ones(0, 3), torch.ones(0, 3)],
    [torch.ones(2, 0), torch.ones(5, 0)], torch.ones(3, 2), [torch.ones(4, 2)],
], ids=["one empty", "all empty", "no features", "a tensor", "one"])
def test_pad_sequence_at_the_edges(sequences):
    for batch_first in (True, False):
        oracle.same(packlib.pad_sequence(sequences, batch_first),
                    rnn.pad_sequence(sequences, batch_first))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_unsigned_integers_are_padded_with_torchs_default(dtype):
    xs = [torch.tensor([7, 8]).to(dtype), torch.tensor([9]).to(dtype)]
    assert packlib.pad_sequence(xs, batch_first=True).tolist() == [[7, 8], [9, 0]]


def test_pad_sequence_takes_an_iterator():
    xs = [torch.ones(2), torch.ones(4)]
    oracle.same(packlib.pad_sequence(iter(xs)), rnn.pad_sequence(xs))


LIST_FAULTS = [
    ([], RuntimeError, "received an empty list of sequences"),
    (5, RuntimeError, "Expected iterable for input sequences"),
    ({"a": torch.ones(2)}, TypeError, r"must be a list of Tensors, got dict; its values are one"),
    (packlib.pack_sequence([torch.ones(2)]), TypeError, "which is packed already"),
    ([torch.ones(2), [1, 2]], TypeError, "expected Tensor as element 1 in sequences, but got list"),
    ([torch.ones(2), torch.tensor(1.0)], RuntimeError, r"sequences\[1\] is a single number"),
    ([torch.ones(2), torch.ones(2).long()], TypeError, r"sequences\[1\] is torch.int64, but"),
    ([torch.ones(2, 3), torch.ones(1, 1)], RuntimeError, r"sequences\[1\] has steps of shape \(1,"),
    ([torch.ones(2), torch.ones(2, device="meta")], RuntimeError, r"sequences\[1\] is on meta"),
]


@pytest.mark.parametrize(("sequences", "error", "words"), LIST_FAULTS)
@pytest.mark.parametrize("function", [packlib.pad_sequence, packlib.pack_sequence])
def test_lists_that_are_refused(function, sequences, error, words):
    with pytest.raises(error, match=words):
        function(sequences)


@pytest.mark.parametrize(("options", "error", "words"), [
    ({"batch_first": 1}, TypeError, "'batch_first' must be bool, not int"),
    ({"padding_value": None}, TypeError, "'padding_value' must be Number, not NoneType"),
    ({"padding_value": 0.5}, RuntimeError, "padding_value=0.5 cannot be converted to torch.int64"),
    ({"padding_value": float("nan")}, RuntimeError, "cannot be converted to torch.int64"),
    ({"padding_side": "top"}, RuntimeError, "padding_side to be one of left or right, but got top"),
])
def test_pad_sequence_options_that_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        packlib.pad_sequence([torch.tensor([1, 2]), torch.tensor([3])], **options)


# --- unpad_sequence -----------------------------------------------------------------------------

@given(strategies.batches())
def test_unpad_sequence_equals_torch_and_the_sequences(batch):
    before, lengths = batch.padded.clone(), torch.tensor(batch.lengths)
    found = packlib.unpad_sequence(batch.padded, lengths, batch.batch_first)
    theirs = rnn.unpad_sequence(batch.padded.clone(), lengths, batch.batch_first)
    for one, other, s in zip(found, theirs, batch.sequences, strict=True):
        oracle.same(one, other)
        oracle.same(one, s)
    oracle.same(batch.padded, before)  # torch's own turns it over


@given(strategies.batches(), sides)
def test_unpad_undoes_pad(batch, side):
    grid = packlib.pad_sequence(batch.sequences, batch.batch_first, padding_side=side)
    found = packlib.unpad_sequence(grid, batch.lengths, batch.batch_first, padding_side=side)
    for one, s in zip(found, batch.sequences, strict=True):
        oracle.same(one, s)


def test_unpad_keeps_gradients_out_of_the_padding():
    grid = torch.full((3, 6), float("nan"))
    for row, n in enumerate([2, 5, 1]):
        grid[row, :n] = 1.0
    grid.requires_grad_()
    sum((s ** 2).sum() for s in packlib.unpad_sequence(grid, [2, 5, 1], True)).backward()
    assert grid.grad.tolist() == [[2.0] * n + [0.0] * (6 - n) for n in [2, 5, 1]]


def test_unpad_gives_new_tensors():
    """As torch does: changing a sequence does not change the grid, nor break the graph."""
    grid = torch.arange(8.0).view(2, 4).requires_grad_()
    first, second = packlib.unpad_sequence(grid, [3, 4], batch_first=True)
    first.zero_()
    (first.sum() + second.sum()).backward()
    assert grid.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert grid.grad.tolist() == [[0, 0, 0, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_unpad_to_empty_sequences(side):
    grid = torch.arange(8.0).view(2, 4)
    assert [len(s) for s in packlib.unpad_sequence(grid, [0, 4], True, padding_side=side)] == [0, 4]
    assert [len(s) for s in packlib.unpad_sequence(grid, [0, 0], True, padding_side=side)] == [0, 0]
    assert packlib.unpad_sequence(torch.zeros(0, 4), [], batch_first=True) == []


@pytest.mark.parametrize(("lengths", "error", "words"), [
    ([2, 5, 4], ValueError, r"lengths\[1\]=5, but the input has only T=4 steps"),
    ([2, -1, 4], ValueError, "lengths must be at least 0, got -1"),
    ([2, 3], ValueError, "lengths has 2 entries for 3 sequences"),
    ([2, 3, 1, 1], ValueError, r"4 entries for 3 sequences.*Did you mean batch_first=False\?"),
    ([2.0, 3.0, 1.0], TypeError, "must be integers"),
])
def test_unpad_lengths_that_are_refused(lengths, error, words):
    with pytest.raises(error, match=words):
        packlib.unpad_sequence(torch.zeros(3, 4), lengths, batch_first=True)


def test_unpad_wants_a_grid():
    with pytest.raises(TypeError, match="'padded_sequences' must be Tensor, not list"):
        packlib.unpad_sequence([[1, 2]], [2])
    with pytest.raises(IndexError, match="at least 2 dimensions"):
        packlib.unpad_sequence(torch.zeros(3), [3])


# --- masks --------------------------------------------------------------------------------------

@given(strategies.lengths, st.sampled_from([None, 8, 11]))
def test_mask_of_lengths(lengths, max_len):
    mask = packlib.lengths_to_mask(torch.tensor(lengths), max_len)
    total = max_len or max(lengths)
    assert mask.tolist() == [[t < n for t in range(total)] for n in lengths]
    assert [n for n in mask.sum(0).tolist() if n] == oracle.batch_sizes(lengths)
    oracle.same(packlib.mask_to_lengths(mask), torch.tensor(lengths))
    found = packlib.mask_to_lengths(mask.flip(1), padding_side="left")
    oracle.same(found, torch.tensor(lengths))


def test_mask_of_empty_sequences():
    assert packlib.lengths_to_mask([0, 2]).tolist() == [[False, False], [True, True]]
    assert packlib.lengths_to_mask([]).shape == (0, 0)
    assert packlib.mask_to_lengths(torch.zeros(3, 0, dtype=torch.bool)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("lengths", "max_len", "error", "words"), [
    ([2, -1], None, ValueError, "at least 0, got -1"),
    ([2, 5], 4, ValueError, "max_len=4 is shorter than the longest of lengths, 5"),
    ([2.0], None, TypeError, "must be integers"),
    ([2], 2.5, TypeError, "'max_len' must be int, not float"),
    ([2], True, TypeError, "'max_len' must be int, not bool"),
])
def test_mask_faults(lengths, max_len, error, words):
    with pytest.raises(error, match=words):
        packlib.lengths_to_mask(lengths, max_len)


@pytest.mark.parametrize(("mask", "error", "words"), [
    ([[True]], TypeError, "mask must be a bool Tensor, got list"),
    (torch.ones(2, 3).long(), TypeError, r"got torch.int64; of 1 and 0.*mask.bool\(\) makes one"),
    (torch.ones(3, dtype=torch.bool), ValueError, r"mask must be \(B, T\)"),
    (torch.tensor([[False, True]]), ValueError, "real steps after padding"),
])
def test_masks_that_are_refused(mask, error, words):
    with pytest.raises(error, match=words):
        packlib.mask_to_lengths(mask)


def test_a_mask_of_the_other_side_is_told():
    with pytest.raises(ValueError, match="give padding_side='left'"):
        packlib.mask_to_lengths(torch.tensor([[False, True]]))
    with pytest.raises(ValueError, match="padding after real steps.* give padding_side='right'"):
        packlib.mask_to_lengths(torch.tensor([[True, False]]), padding_side="left")
    with pytest.raises(RuntimeError, match="padding_side to be one of left or right"):
        packlib.mask_to_lengths(torch.tensor([[True, False]]), padding_side="top")
