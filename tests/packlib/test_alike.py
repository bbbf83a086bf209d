"""``same_layout``: alike only if every row of both is the same step of the same sequence."""

import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import rnn

import packlib
from packlib.alike import check_same_layout, same_layout


def labelled(lengths, pack=packlib.pack_sequence):
    """Each row says which step of which sequence it is."""
    return pack([torch.tensor([[i, t] for t in range(n)]) for i, n in enumerate(lengths)],
                enforce_sorted=False)


@given(strategies.lengths, st.randoms(use_true_random=False))
def test_alike_means_the_same_rows(lengths, random):
    """Against the labels themselves, for lengths in another order and one step more or fewer."""
    shuffled = random.sample(lengths, len(lengths))
    changed = list(lengths)
    changed[random.randrange(len(lengths))] += random.choice([-1, 1])
    for other in (lengths, shuffled, [max(n, 1) for n in changed], [*lengths, 1]):
        p, q = labelled(lengths), labelled(other, rnn.pack_sequence)
        rows = p.data.tolist() == q.data.tolist()
        assert same_layout(p, q) == same_layout(q, p) == rows


def test_values_do_not_matter():
    p = labelled([2, 4, 1, 4, 3])
    assert same_layout(p, p.double().map(lambda x: x[:, 0] * 2))


def test_sorted_by_hand_or_by_the_call():
    """No order, and the order 0, 1, 2: the same rows."""
    xs = [torch.zeros(n) for n in (5, 2, 1)]
    assert same_layout(packlib.pack_sequence(xs), packlib.pack_sequence(xs, enforce_sorted=False))


@pytest.mark.parametrize(("one", "other", "words"), [
    ([2, 5, 1], [2, 5], "a and b are packed differently: 3 sequences and 2$"),
    ([2, 5, 1], [2, 4, 2], "sequence 1 has 5 steps and 4$"),  # sums agree
    ([2, 5, 1], [5, 2, 1], "sequence 0 has 2 steps and 5.*the same in another order"),
])
def test_what_differs_is_said(one, other, words):
    with pytest.raises(ValueError, match=words):
        check_same_layout(labelled(one), labelled(other))


def test_ties_in_another_order_are_said():
    p = labelled([2, 4, 1, 4, 3])
    order = p.sorted_indices[[1, 0, 2, 3, 4]]
    q = packlib.PackedSequence(p.data, p.batch_sizes, order)
    assert q.lengths.tolist() == p.lengths.tolist()
    with pytest.raises(ValueError, match="outputs and labels .* of one length stand in another"):
        check_same_layout(p, q, ("outputs", "labels"))


def test_a_grid_has_no_layout():
    with pytest.raises(TypeError, match="expected a PackedSequence, got Tensor: pack it first"):
        same_layout(labelled([2, 5]), torch.zeros(2, 5))
