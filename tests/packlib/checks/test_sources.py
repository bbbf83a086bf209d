"""The inputs: right by torch's own functions, free of examples that hide mistakes, complete."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from packlib.checks.plain import same
from packlib.checks.ragged import Ragged
from packlib.checks.sources import DIAGNOSTIC, VISIBLE, hidden

HIDDEN = hidden(seed=11)
ALL = [*VISIBLE, *HIDDEN]

ragged = st.builds(
    Ragged,
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8).map(tuple),
    extra=st.integers(0, 2),
    features=st.sampled_from([(), (1,), (3,), (2, 2)]),
    dtype=st.sampled_from([torch.float32, torch.int64, torch.bool]),
    padding=st.sampled_from([0.0, -1000.0]),
    late_ties=st.booleans(),
)


def packed_by_torch(batch):
    """torch's own pack, given x long to short in the batch's order."""
    order = torch.tensor(batch.order)
    lengths = torch.tensor(batch.lengths)
    return pack_padded_sequence(batch.x[order], lengths[order], batch_first=True)


@given(ragged)
def test_right_answers_are_those_of_torch(batch):
    packed = packed_by_torch(batch)
    assert same(batch.data(), packed.data)
    assert list(batch.batch_sizes) == packed.batch_sizes.tolist()
    x, lengths = pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == sorted(batch.lengths, reverse=True)
    for place, b in enumerate(batch.order):
        assert same(x[place, : lengths[place]], batch.sequence(b))


@given(ragged)
def test_order_is_sorted_and_late_ties_turn_equal_lengths_round(batch):
    keys = [(-batch.lengths[b], -b if batch.late_ties else b) for b in batch.order]
    assert keys == sorted(keys)


def long_to_short(batch):
    return sorted(batch.lengths, reverse=True)


# one sequence, or all equal, cannot be otherwise; all others must not hide mistakes
TELLING = [batch for batch in ALL if len(set(batch.lengths)) > 1]


def hides_mistakes(batch):
    order = batch.order
    own_inverse = [order[b] for b in order] == list(range(len(order)))
    return own_inverse or long_to_short(batch) == list(batch.batch_sizes)


@pytest.mark.parametrize("batch", TELLING, ids=lambda batch: str(batch.lengths))
def test_no_batch_is_its_own_conjugate_nor_its_order_its_own_inverse(batch):
    assert not hides_mistakes(batch)


def test_nor_does_any_seed_draw_such_a_batch():
    drawn = [batch for seed in range(50) for batch in hidden(seed)]
    assert [b.lengths for b in drawn if len(set(b.lengths)) > 1 and hides_mistakes(b)] == []


def test_hidden_batches_hold_every_trap():
    assert any(len(batch.lengths) == 1 for batch in HIDDEN)
    assert any(len(batch.lengths) > 16 and len(set(batch.lengths)) < 10 for batch in HIDDEN)
    assert any(len(set(batch.lengths)) == 1 < len(batch.lengths) for batch in HIDDEN)
    assert any(batch.padding != batch.padding for batch in HIDDEN)
    assert any(batch.extra for batch in HIDDEN)
    assert any(batch.features == () and batch.zero_inside for batch in HIDDEN)
    assert any(batch.late_ties for batch in HIDDEN)
    assert any(batch.total_extra for batch in HIDDEN)
    assert any(batch.padding_value != batch.padding_value for batch in HIDDEN)
    kinds = {batch.dtype for batch in HIDDEN}
    assert kinds >= {torch.float32, torch.float64, torch.float16, torch.int64, torch.bool}
    assert {len(batch.features) for batch in HIDDEN} == {0, 1, 2}


def test_hidden_batches_follow_the_seed():
    assert hidden(5) == hidden(5)
    assert hidden(5) != hidden(6)


def test_hidden_batches_are_not_the_visible_ones():
    shown = {batch.lengths for batch in VISIBLE}
    fresh = [batch for batch in HIDDEN if batch.lengths not in shown]
    assert len(fresh) >= len(HIDDEN) - len(DIAGNOSTIC) - 1


@pytest.mark.parametrize("batch", DIAGNOSTIC, ids=lambda batch: str(batch.lengths))
def test_diagnostic_batches_have_no_ties(batch):
    assert len(set(batch.lengths)) == len(batch.lengths)


def test_a_zero_vector_is_inside_the_longest_sequence():
    batch = Ragged((2, 5, 3), zero_inside=True)
    zero = (batch.x == 0).all(-1).nonzero().tolist()
    assert zero == [[1, 2]]
