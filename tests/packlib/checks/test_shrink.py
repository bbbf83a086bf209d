"""A breaking batch is made small, and still breaks in the same way."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from packlib.checks import PARTS
from packlib.checks.examine import examine
from packlib.checks.ragged import Ragged
from packlib.checks.shrink import smallest

LARGE = Ragged((5, 9, 2, 7, 7, 3), extra=3, features=(2, 3), padding_value=4.0, total_extra=2)


def test_nothing_but_what_breaks_is_left():
    found = smallest(LARGE, lambda batch: max(batch.lengths) >= 4)
    assert found == Ragged((4,), features=(1,))


def test_order_and_surroundings_stay_where_they_matter():
    found = smallest(LARGE, lambda batch: batch.extra >= 1 and len(batch.lengths) >= 3)
    assert found == Ragged((1, 1, 1), extra=1, features=(1,))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8).map(tuple), st.integers(1, 20))
def test_the_result_breaks_and_no_smaller_one_in_reach_does(lengths, bound):
    batch = Ragged(lengths)

    def breaks(b):
        return sum(b.lengths) >= bound

    if breaks(batch):
        found = smallest(batch, breaks)
        assert sum(found.lengths) == bound
        assert min(found.lengths) >= 1


def test_stops_after_a_while():
    tried = []
    smallest(Ragged((50,) * 40), lambda b: not tried.append(b) and len(b.lengths) == 40)
    assert len(tried) <= 300


def test_an_example_a_student_sees_is_tiny_and_of_the_same_law():
    def batch_sizes(lengths):
        return torch.tensor([int((lengths >= t).sum()) for t in range(int(lengths.max()))])

    part = PARTS["ps2.batch_sizes"]
    broken = examine(part, batch_sizes, part.hidden(8))
    assert broken.breach.batch.lengths == (1, 2)
    assert broken.breach.law == "batch_sizes count the running sequences"


def test_another_exception_is_another_way_to_break():
    def batch_sizes(lengths):
        if len(lengths) > 2:
            raise KeyError
        raise IndexError

    part = PARTS["ps2.batch_sizes"]
    breach = examine(part, batch_sizes, part.visible).breach
    assert "KeyError" in breach.fault.text
    assert len(breach.batch.lengths) == 3
