"""``packlib.testing``: silent on what is equal; names the place and the mistake of what is not.

Every classic mistake is made by hand here, as people make it, and has to be recognised.
"""


import oracle
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import INVERSE, LENGTHS, ORDER, SIZES, fields, grid, said, sequences
from torch.nn.utils import rnn

import packlib
from packlib.testing import (
    assert_packed_equal,
    assert_padded_equal,
    assert_sequences_equal,
    differences,
    lookalikes,
)


@pytest.mark.parametrize("dtype", strategies.DTYPES, ids=str)
@pytest.mark.parametrize("packs", [(rnn, packlib), (packlib, rnn), (rnn, rnn)])
def test_equal_batches_pass(dtype, packs):
    for xs, enforce in ((sequences(dtype=dtype), False),
                        (sequences([6, 4, 4, 1], (), dtype), True)):
        one, other = (room.pack_sequence([x.clone() for x in xs], enforce) for room in packs)
        assert assert_packed_equal(one, other, check_order=True) is None


@given(strategies.batches())
def test_what_the_library_gives_passes(batch):
    packed = rnn.pack_sequence(batch.sequences, enforce_sorted=False)
    ours = packlib.pack_padded_sequence(batch.padded, batch.lengths, batch.batch_first, False)
    assert_packed_equal(ours, packed)
    assert_sequences_equal(packlib.unpack_sequence(packed), batch.sequences)
    assert_padded_equal(packlib.pad_packed_sequence(packed, batch.batch_first)[0], batch.padded,
                        batch.lengths, batch_first=batch.batch_first)


def test_each_kind_of_difference_is_said():
    xs = sequences()
    p = rnn.pack_sequence(xs, enforce_sorted=False)
    for actual, words in [
        (p.data, "expected a PackedSequence, got a Tensor of shape (21, 3): a grid is packed by"),
        (xs, "expected a PackedSequence, got a list of 7: (Tensor, Tensor, Tensor, ...)"),
        ((p, None), "got a tuple of 2: (PackedSequence, NoneType): a layer returns (output"),
        ((p.data, p.batch_sizes), "if these are its fields, make PackedSequence(data"),
        (None, "expected a PackedSequence, got NoneType"),
        (p.float(), "dtype is torch.float32, expected torch.float64"),
        (p.to("meta"), "device is meta, expected cpu"),
        (p._replace(data=p.data[:, :2]), "a step has shape (2,), expected (3,)"),
        (rnn.pack_sequence(xs[:-1], enforce_sorted=False), "6 sequences, expected 7"),
        (rnn.pack_sequence([*xs[:2], xs[4], xs[3], xs[2], *xs[5:]], enforce_sorted=False),
         "sequence 2 has length 3, expected 1"),
        (fields(p.data, [6, 7, 8]), "it breaks the law of packed data: batch_sizes must never"),
    ]:
        assert words in said(assert_packed_equal, actual, p)


@pytest.mark.parametrize("make", [rnn.pack_sequence, packlib.pack_sequence])
def test_the_place_of_a_difference_is_said(make):
    """Steps begin at the rows 0, 7, 12, 16, 19 and 20; the longest are the sequences 5, 1, 3."""
    assert oracle.batch_sizes(LENGTHS) == [7, 5, 4, 3, 1, 1]
    xs = sequences()
    p = make(xs, enforce_sorted=False)
    data = p.data.clone()
    data[17, 1] += 0.5
    data[19, 2] -= 2
    message = said(assert_packed_equal, p._replace(data=data), p)
    first = ", ".join(f"{v:.6g}" for v in data[17].tolist())
    assert message.splitlines() == [
        "packed batches differ: 2 of 21 steps differ",
        f"first: sequence 1, step 3 of 4 (row 17 of data): [{first}], expected "
        f"[{', '.join(f'{v:.6g}' for v in xs[1][3].tolist())}]",
        "greatest difference: 2, sequence 5, step 4 of 6 (row 19 of data) "
        "(allowed is 1e-07 + 1e-07 * |expected|)"]


def test_values_that_look_alike_are_shown_in_full():
    p = rnn.pack_sequence([torch.ones(2).double(), torch.ones(5).double()], enforce_sorted=False)
    message = said(assert_packed_equal, p._replace(data=p.data + 1e-6), p)
    assert "1.000001, expected 1.0" in message


def test_of_a_long_row_the_number_is_shown():
    p = rnn.pack_sequence(sequences(features=(2, 50)), enforce_sorted=False)
    data = p.data.clone()
    data[3, 1, 7] = 1000
    assert "number 57 of 100 is 1000, expected" in said(assert_packed_equal,
                                                        p._replace(data=data), p)


def test_ties_sorted_in_another_way_are_equal_unless_the_order_counts():
    xs = sequences()
    other = [5, 3, 1, 4, 0, 6, 2]
    p = fields(oracle.packed_rows(xs, ORDER), oracle.batch_sizes(LENGTHS), ORDER)
    q = fields(oracle.packed_rows(xs, other), oracle.batch_sizes(LENGTHS), other)
    assert_packed_equal(p, q)
    assert_packed_equal(p, rnn.pack_sequence(xs, enforce_sorted=False), check_order=True)
    assert "of one length are sorted in another way" in said(assert_packed_equal, p, q,
                                                             check_order=True)
    data = q.data.clone()
    data[1] += 1  # in q's order: step 0 of sequence 3
    assert "sequence 3, step 0 of 4 (row 1 of data)" in said(assert_packed_equal,
                                                             q._replace(data=data), p)


def test_wrong_use_is_not_a_failed_test():
    p = rnn.pack_sequence(sequences(), enforce_sorted=False)
    with pytest.raises(TypeError, match="expected a PackedSequence, got Tensor"):
        assert_packed_equal(p, p.data)
    with pytest.raises(ValueError, match="must be either specified or omitted, but got no atol"):
        assert_packed_equal(p, p, rtol=1e-3)
    with pytest.raises(TypeError, match="expected must be a list of sequences, got a Tensor"):
        assert_sequences_equal([], torch.zeros(3))
    with pytest.raises(TypeError, match=r"expected\[1\] is not like expected\[0\]: dtype"):
        assert_sequences_equal([], [torch.zeros(3), torch.zeros(2).long()])
    with pytest.raises(ValueError, match="lengths has 3 entries for 4 sequences"):
        assert_padded_equal(torch.zeros(4, 5), torch.zeros(4, 5), [2, 1, 5], batch_first=True)
    with pytest.raises(ValueError, match="lengths must be at least 0, got -1"):
        assert_padded_equal(torch.zeros(4, 5), torch.zeros(4, 5), [2, 1, -1, 1], batch_first=True)
    with pytest.raises(ValueError, match="only T=5 steps"):
        assert_padded_equal(torch.zeros(4, 5), torch.zeros(4, 5), [2, 1, 6, 1], batch_first=True)


@pytest.mark.parametrize("dtype", strategies.DTYPES, ids=str)
def test_tolerances_are_those_of_torch(dtype):
    """A little inside and a little outside of what assert_close allows."""
    if not (dtype.is_floating_point or dtype.is_complex):
        assert dtype not in differences.TOLERANCES
        return
    rtol, atol = differences.TOLERANCES[dtype]
    one = torch.tensor([100.0], dtype=torch.complex128 if dtype.is_complex else torch.float64)
    for factor in (0.5, 2.0):
        found = (one + factor * (atol + rtol * 100)).to(dtype)
        torch_says = ours_say = True
        try:
            torch.testing.assert_close(found, one.to(dtype))
        except AssertionError:
            torch_says = False
        try:
            assert_sequences_equal([found], [one.to(dtype)])
        except AssertionError:
            ours_say = False
        assert torch_says == ours_say == (factor < 1)


def test_nan_equals_nan_if_asked():
    xs = [torch.tensor([1.0, float("nan")]), torch.tensor([2.0]), torch.ones(5)]
    p = rnn.pack_sequence(xs, enforce_sorted=False)
    assert "greatest difference: nan, sequence 0, step 1 of 2" in said(assert_packed_equal, p, p)
    assert "equal_nan=True lets it be equal" in said(assert_packed_equal, p, p)
    wrong = p._replace(data=p.data + 1)
    assert "equal_nan" not in said(assert_packed_equal, wrong, p)
    assert_packed_equal(p, p, equal_nan=True)
    assert_sequences_equal(xs, xs, equal_nan=True)


# --- classic mistakes of packing


def running(x, order, lengths=LENGTHS):
    """The loop that packs: rows of a grid in some order, as many as run at each step."""
    return torch.cat([x[order][:size, t] for t, size in enumerate(oracle.batch_sizes(lengths))])


PACKED_WRONG = {
    "sequence after sequence in the user's order": lambda xs: fields(torch.cat(xs), SIZES, ORDER),
    "sequence after sequence. A packed": lambda xs: fields(
        torch.cat([xs[i] for i in ORDER]), SIZES, ORDER),
    "You did not sort": lambda xs: fields(running(grid(xs), list(range(7))), SIZES),
    "into that order before taking them": lambda xs: fields(
        running(grid(xs, value=float("nan")), list(range(7))), SIZES, ORDER),
    "in the user's order. Inside a step": lambda xs: fields(
        torch.stack([x[t] for t in range(6) for x in xs if len(x) > t]), SIZES),
    "order of the inverse permutation": lambda xs: fields(running(grid(xs), INVERSE), SIZES, ORDER),
    "you return the inverse of the order": lambda xs: fields(
        oracle.packed_rows(xs, ORDER), SIZES, INVERSE),
    "nothing was sorted": lambda xs: fields(oracle.packed_rows(xs, ORDER), SIZES),
    "batch_sizes holds the sorted lengths": lambda xs: fields(
        oracle.packed_rows(xs, ORDER), sorted(LENGTHS, reverse=True), ORDER),
    "a row for every cell of the padded batch": lambda xs: fields(
        grid(xs, value=-77)[ORDER].transpose(0, 1).flatten(0, 1), [7] * 6, ORDER),
    "batch_sizes are right, but your data has a row for every cell": lambda xs: fields(
        grid(xs)[ORDER].transpose(0, 1).flatten(0, 1), SIZES, ORDER),
    "batch_sizes holds a running total": lambda xs: fields(
        oracle.packed_rows(xs, ORDER), [7, 12, 16, 19, 20, 21], ORDER),
    "The last row of data is missing": lambda xs: fields(
        oracle.packed_rows(xs, ORDER)[:-1], SIZES, ORDER),
    "You read x from its end": lambda xs: fields(running(grid(xs).flip(1), ORDER), SIZES, ORDER),
    "Each sequence runs backwards": lambda xs: fields(
        oracle.packed_rows([torch.stack(list(x)[::-1]) for x in xs], ORDER), SIZES, ORDER),
    "Everything comes one step late": lambda xs: fields(
        oracle.packed_rows([torch.cat([x[:1] * 0, x[:-1]]) for x in xs], ORDER), SIZES, ORDER),
    "Everything comes one step early": lambda xs: fields(
        oracle.packed_rows([torch.cat([x[1:], x[:1] * 0]) for x in xs], ORDER), SIZES, ORDER),
    "The last step of each sequence is repeated": lambda xs: fields(
        oracle.packed_rows([x[-1:].repeat(len(x), 1) for x in xs], ORDER), SIZES, ORDER),
    "view or reshape was used where transpose": lambda xs: fields(
        running(grid(xs).transpose(0, 1).reshape(7, 6, 3), ORDER), SIZES, ORDER),
    "From (B, T) to (T, B), batch and time are mixed up": lambda xs: fields(
        running(grid(xs).view(6, 7, 3).transpose(0, 1), ORDER), SIZES, ORDER),
}


@pytest.mark.parametrize("words", PACKED_WRONG)
def test_mistakes_of_packing_are_named(words):
    xs = sequences()
    wrong = PACKED_WRONG[words](xs)
    message = said(assert_packed_equal, wrong, rnn.pack_sequence(xs, enforce_sorted=False))
    assert "It looks like this mistake: " in message
    assert words in message


@pytest.mark.parametrize("words", [
    "sequence after sequence. A packed", "sequence after sequence in the user's order",
    "You did not sort"])
def test_mistakes_are_named_whatever_the_order_of_ties(words):
    """torch does not sort stably from 17 ties on."""
    lengths = [1 + i * 7 % 3 for i in range(40)] + [6]
    xs = sequences(lengths)
    p = rnn.pack_sequence(xs, enforce_sorted=False)
    order = p.sorted_indices.tolist()
    assert order != sorted(range(41), key=lambda i: -lengths[i]), "or this test shows nothing"
    wrong = {
        "sequence after sequence. A packed": p._replace(data=torch.cat([xs[i] for i in order])),
        "sequence after sequence in the user's order": p._replace(data=torch.cat(xs)),
        "You did not sort": fields(running(grid(xs), list(range(41)), lengths), p.batch_sizes),
    }[words]
    assert words in said(assert_packed_equal, wrong, p)


def test_zero_vectors_taken_for_padding_are_named():
    xs = sequences()
    xs[1][2] = 0
    rows = grid(xs)[ORDER].transpose(0, 1).flatten(0, 1)
    wrong = fields(rows[(rows != 0).any(1)], SIZES, ORDER)
    assert "A vector of zeros inside a sequence is missing" in said(
        assert_packed_equal, wrong, rnn.pack_sequence(xs, enforce_sorted=False))


# --- nothing is named by chance


@given(strategies.batches(dtypes=(torch.float64, torch.int64)), st.randoms(use_true_random=False))
def test_other_differences_get_no_name(batch, random):
    """A single number that stood nowhere in the batch is not the work of any mistake."""
    xs = [x.clone() for x in batch.sequences]
    b = random.randrange(len(xs))
    xs[b].view(-1)[random.randrange(xs[b].numel())] = 1234
    p = rnn.pack_sequence(batch.sequences, enforce_sorted=False)
    assert "looks like" not in said(assert_packed_equal,
                                    rnn.pack_sequence(xs, enforce_sorted=False), p)
    assert "looks like" not in said(assert_sequences_equal, xs, batch.sequences)
    assert "looks like" not in said(assert_padded_equal, rnn.pad_sequence(xs),
                                    rnn.pad_sequence(batch.sequences), batch.lengths)


def test_constant_data_give_no_name():
    """Where right and wrong look the same, nobody can tell them apart."""
    xs = [torch.ones(n, 3) for n in LENGTHS]
    p = rnn.pack_sequence(xs, enforce_sorted=False)
    data = p.data.clone()
    data[4] = 2
    assert "looks like" not in said(assert_packed_equal, p._replace(data=data), p)


def test_what_explains_most_is_named():
    """With one short sequence, the grid turned round could be meant too: its row would be padding.

    And padding of many values is none: only the longest sequence is turned round here.
    """
    xs = sequences([5, 1])
    turned = [x.flip(0) for x in xs]
    assert "Each sequence runs backwards" in said(
        assert_packed_equal, rnn.pack_sequence(turned), rnn.pack_sequence(xs))
    xs = sequences([2, 1, 5])
    only = [torch.full((2, 3), 7.0).double() * torch.tensor([[1], [2]]), xs[1], xs[2].flip(0)]
    assert "looks like" not in said(assert_sequences_equal, only, xs)


def test_every_mistake_of_the_tables_is_right_nowhere():
    """Each makes something else than the right batch of these lengths, or it could not be named."""
    truth = lookalikes.Truth.of(torch.cat(sequences()), LENGTHS, differences.Close(0, 0))
    right = truth.grid()
    for hint, (x,) in lookalikes._answers(lookalikes.GRIDS, right, truth.lengths):
        assert not torch.equal(x[truth.mask], truth.labels), hint
