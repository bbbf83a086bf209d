"""Lists of sequences and padded grids, compared; every mistake in them is made by hand here."""


import oracle
import pytest
import torch
from samples import INVERSE, LENGTHS, ORDER, SIZES, grid, packed_with_empty, said, sequences
from torch.nn.utils import rnn

from packlib.testing import (
    assert_packed_equal,
    assert_padded_equal,
    assert_sequences_equal,
)


def test_lists_that_differ():
    xs = sequences()
    for actual, words in [
        (grid(xs), "expected a list of sequences, got a Tensor of shape (7, 6, 3)"),
        (rnn.pack_sequence(xs, enforce_sorted=False), "got PackedSequence"),
        (xs[:-1], "6 sequences, expected 7"),
        ([], "0 sequences, expected 7"),
        ([*xs[:2], xs[4], *xs[3:]], "sequence 2 has length 3, expected 1"),
        ([xs[0].float(), *xs[1:]], "sequence 0: dtype is torch.float32"),
        ([*xs[:4], xs[4] + torch.tensor([[0, 0, 0], [0, 1, 0], [0, 0, 0]]), *xs[5:]],
         "1 of 21 steps differ\nfirst: sequence 4, step 1 of 3: ["),
    ]:
        message = said(assert_sequences_equal, actual, xs)
        assert words in message
        assert "looks like" not in message
    assert_sequences_equal(tuple(xs), xs)
    assert_sequences_equal([], [])


def unpacked(x, lengths):
    return [row[:n] for row, n in zip(x, lengths, strict=True)]


LISTS_WRONG = {
    "Everything is right, and still long to short": lambda xs: [xs[i] for i in ORDER],
    "Undoing needs its inverse": lambda xs: [[xs[i] for i in ORDER][j] for j in ORDER],
    "but the rows of x are still long to short": lambda xs: unpacked(
        grid(xs)[ORDER], LENGTHS),
    "You cut data into sequences as if each lay in one piece": lambda xs: [
        list(oracle.packed_rows(xs, ORDER).split([LENGTHS[i] for i in ORDER]))[j]
        for j in INVERSE],
    "These are steps and not sequences": lambda xs: list(
        oracle.packed_rows(xs, ORDER).split(SIZES)),
    "Your sequences stand at the right end": lambda xs: unpacked(
        oracle.padded(xs, 6, True, 0, side="left"), LENGTHS),
    "Each sequence runs backwards": lambda xs: [x.flip(0) for x in xs],
    "The whole grid is turned round": lambda xs: unpacked(grid(xs).flip(1), LENGTHS),
    "Everything comes one step late": lambda xs: [
        torch.cat([x[:1] * 0, x[:-1]]) for x in xs],
    "every length is the width of x": lambda xs: list(grid(xs)),
}


@pytest.mark.parametrize("words", LISTS_WRONG)
def test_mistakes_of_unpacking_are_named(words):
    xs = sequences()
    message = said(assert_sequences_equal, LISTS_WRONG[words](xs), xs)
    assert "It looks like this mistake: " in message
    assert words in message


GRIDS_WRONG = {
    "the rows of x are still long to short": lambda x: x[ORDER],
    "It is the rows": lambda x: x[ORDER][ORDER],
    "Batch and time are swapped": lambda x: x.transpose(0, 1),
    "view or reshape was used": lambda x: x.transpose(0, 1).reshape(x.shape),
    "The last step is missing": lambda x: torch.cat([x[:, :-1], x[:, -1:] * 0], 1),
    "The whole grid is turned round": lambda x: x.flip(1),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("words", GRIDS_WRONG)
def test_mistakes_in_grids_are_named(words, batch_first):
    x = grid(sequences())
    actual = GRIDS_WRONG[words](x)
    if not batch_first:
        x, actual = x.transpose(0, 1), actual.transpose(0, 1)
    message = said(assert_padded_equal, actual, x, LENGTHS, batch_first=batch_first)
    assert words.lower() in message.lower()


@pytest.mark.parametrize("batch_first", [True, False])
def test_padding_counts_only_if_asked(batch_first):
    xs = sequences()
    x, other = grid(xs), grid(xs, value=-5)
    other[2, 3] = 8
    if not batch_first:
        x, other = x.transpose(0, 1), other.transpose(0, 1)
    given = {"batch_first": batch_first}
    assert_padded_equal(other, x, LENGTHS, **given)
    assert_padded_equal(x, other, LENGTHS, padding_value=0, **given)
    message = said(assert_padded_equal, other, x, LENGTHS, padding_value=-5, **given)
    assert message.startswith(
        "all real steps are equal, only the padding differs: 1 of 21 cells differ\n"
        "first: sequence 2, step 3 (its length is 1): [8, 8, 8], expected [-5, -5, -5]")
    assert "looks like" not in message


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda xs: grid(xs), "You fill with 0 whatever padding_value says"),
    (lambda xs: torch.stack([torch.cat([s, s[-1:].repeat(6 - len(s), 1)]) for s in xs]),
     "After its end you repeat the last vector"),
])
def test_mistakes_in_the_padding_are_named(wrong, words):
    xs = sequences()
    message = said(assert_padded_equal, wrong(xs), grid(xs, value=-5), LENGTHS, batch_first=True,
                   padding_value=-5)
    assert "only the padding differs" in message
    assert words in message


def test_grids_of_other_widths_and_kinds():
    xs = sequences()
    x, wide = grid(xs), grid(xs, total=9)
    assert_padded_equal(wide, x, LENGTHS, batch_first=True)
    assert_padded_equal(x, wide, LENGTHS, batch_first=True)
    message = said(assert_padded_equal, x, wide, LENGTHS, batch_first=True, padding_value=0)
    assert "shape is (7, 6, 3), expected (7, 9, 3)" in message
    assert "whatever total_length says" in message
    for actual, words in [(xs, "expected a padded grid, got a list of 7"),
                          (x.float(), "dtype is torch.float32"),
                          (x[:, :5], "shape is (7, 5, 3), expected (7, 6, 3)"),
                          (x[0, 0], "shape is (3,)"),
                          (x[..., 0], "shape is (7, 6), expected (7, 6, 3)")]:
        assert words in said(assert_padded_equal, actual, x, LENGTHS, batch_first=True)


def test_empty_sequences():
    xs = sequences([2, 0, 5, 1])
    assert_sequences_equal(xs, xs)
    assert "Each sequence runs backwards" in said(assert_sequences_equal, [x.flip(0) for x in xs],
                                                  xs)
    assert "2 sequences" not in said(assert_sequences_equal, [xs[i] for i in (2, 0, 3, 1)], xs)
    x = grid(xs)
    assert_padded_equal(x, x, [2, 0, 5, 1], batch_first=True, padding_value=0)
    wrong = x.clone()
    wrong[2, 4] = 9
    assert "sequence 2, step 4 of 5" in said(assert_padded_equal, wrong, x, [2, 0, 5, 1],
                                             batch_first=True)


def test_empty_sequences_in_packed_batches():
    xs = sequences([2, 0, 5, 1])
    p = packed_with_empty(xs)
    assert_packed_equal(p, packed_with_empty([x.clone() for x in xs]))
    wrong = p.with_data(torch.cat(xs))
    assert "sequence after sequence in the user's order" in said(assert_packed_equal, wrong, p)
    wrong = packed_with_empty([x.flip(0) for x in xs])
    assert "Each sequence runs backwards" in said(assert_packed_equal, wrong, p)
    wrong = packed_with_empty([xs[0], xs[3], xs[2], xs[1]])
    assert "sequence 1 has length 1, expected 0" in said(assert_packed_equal, wrong, p)
