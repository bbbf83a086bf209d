"""Each law holds for right answers and is broken, by name, by an answer that breaks it alone."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packlib.checks import PARTS
from packlib.checks.boundary import Boundary
from packlib.checks.examine import examine
from packlib.checks.ragged import Ragged

BATCHES = PARTS["ps2.pack"].visible


def batch_sizes(lengths):
    return torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])


def lengths_of(batch_sizes):
    return torch.tensor([int((batch_sizes > b).sum()) for b in range(int(batch_sizes[0]))])


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = batch_sizes(lengths)
    return torch.cat([x[order[:n], t] for t, n in enumerate(sizes.tolist())]), sizes, order


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    lengths = lengths_of(batch_sizes)
    shape = (len(order), total_length or len(batch_sizes), *data.shape[1:])
    x = data.new_full(shape, padding_value)
    row = 0
    for t, n in enumerate(batch_sizes.tolist()):
        x[order[:n], t] = data[row : row + n]
        row += n
    return x, lengths[torch.argsort(order)]


def pack_without_loops(x, lengths):
    n, order = torch.sort(lengths, descending=True)
    running = torch.arange(int(n[0]))[:, None] < n
    return x[order].transpose(0, 1)[: int(n[0])][running], running.sum(1), order


RIGHT = {
    "ps2.batch_sizes": batch_sizes,
    "ps2.pack": pack,
    "ps2.lengths": lengths_of,
    "ps2.unpack": unpack,
    "ps2.pack_without_loops": pack_without_loops,
}

ragged = st.builds(
    Ragged,
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=24).map(tuple),
    extra=st.integers(0, 2),
    features=st.sampled_from([(), (1,), (2,), (2, 3)]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool]),
    padding=st.sampled_from([0.0, -1000.0]),
    zero_inside=st.booleans(),
    late_ties=st.booleans(),
    padding_value=st.sampled_from([0.0, 1.0]),
    total_extra=st.none() | st.integers(0, 2),
)


@pytest.mark.parametrize("name", PARTS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batch=ragged)
def test_right_answers_keep_all_laws_on_any_batch(name, batch):
    assert examine(PARTS[name], RIGHT[name], [batch]) is None


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_right_answers_keep_all_laws_on_hidden_batches(name, seed):
    part = PARTS[name]
    assert examine(part, RIGHT[name], part.hidden(seed)) is None


def changed(change):
    """pack, with its three results changed."""
    return lambda x, lengths: change(*pack(x, lengths), x, lengths)


def changed_back(change):
    """unpack, with its two results changed."""

    def unpacked(data, batch_sizes, order, padding_value=0.0, total_length=None):
        return change(*unpack(data, batch_sizes, order, padding_value, total_length), order)

    return unpacked


def swapped(rows):
    rows = rows.clone()
    rows[[0, 1]] = rows[[1, 0]]
    return rows


def padded_otherwise(x, lengths, order):
    for row, n in zip(x, lengths.tolist(), strict=True):
        row[n:] = 5
    return x, lengths


def from_padding(x, lengths):
    """Right only while the padding is a finite number."""
    data, sizes, order = pack(x, lengths)
    waste = x.double().flatten().sum() * 0
    return (data + waste).to(x.dtype), sizes, order


BREAKS = {
    ("ps2.batch_sizes", "batch_sizes count the running sequences"): lambda n: batch_sizes(n) + 1,
    ("ps2.batch_sizes", "batch_sizes are int64"): lambda n: batch_sizes(n).int(),
    ("ps2.lengths", "lengths count the steps of each sequence, long to short"): lambda n: (
        lengths_of(n).flip(0)
    ),
    ("ps2.lengths", "lengths are int64"): lambda n: lengths_of(n).double(),
    ("ps2.pack", "order sorts the lengths, long to short"): changed(
        lambda data, sizes, order, *_: (data, sizes, order.flip(0))
    ),
    ("ps2.pack", "batch_sizes count the running sequences"): changed(
        lambda data, sizes, order, *_: (data, sizes.flip(0), order)
    ),
    ("ps2.pack", "data runs time step by time step"): changed(
        lambda data, sizes, order, *_: (swapped(data), sizes, order)
    ),
    ("ps2.pack", "data keeps the dtype of x; batch_sizes and order are int64"): changed(
        lambda data, sizes, order, *_: (data.double(), sizes, order)
    ),
    ("ps2.unpack", "x has one row a sequence, and total_length steps if you ask"): changed_back(
        lambda x, lengths, _: (x[:, :-1], lengths)
    ),
    ("ps2.unpack", "unpack undoes pack"): changed_back(lambda x, n, _: (x.flip(1), n)),
    ("ps2.unpack", "rows come back in your order"): changed_back(lambda x, n, o: (x[o], n)),
    ("ps2.unpack", "lengths come back in your order"): changed_back(lambda x, n, o: (x, n[o])),
    ("ps2.unpack", "padding_value fills the rest"): changed_back(padded_otherwise),
    ("ps2.unpack", "x keeps the dtype of data; lengths are int64"): changed_back(
        lambda x, lengths, _: (x, lengths.int())
    ),
    ("ps2.pack_without_loops", "the work does not grow with the batch"): pack,
}


@pytest.mark.parametrize(("broken", "function"), BREAKS.items(), ids=[law for _, law in BREAKS])
def test_each_law_is_broken_by_its_own_name(broken, function):
    part, law = PARTS[broken[0]], broken[1]
    assert examine(part, function, part.visible).breach.law == law


def test_padding_law_alone_finds_what_lets_padding_in():
    part = PARTS["ps2.pack"]
    finite = [batch for batch in part.visible if batch.padding == batch.padding]
    assert examine(part, from_padding, finite).breach.law == "padding may be anything"


def test_every_law_of_every_part_is_broken_by_some_answer_here():
    named = {law.name for part in PARTS.values() for law in part.laws}
    assert named == {law for _, law in BREAKS} | {"padding may be anything"}


def test_any_order_among_equal_lengths_is_right():
    def later_first(x, lengths):
        n = lengths.tolist()
        order = torch.tensor(sorted(range(len(n)), key=lambda b: (n[b], b), reverse=True))
        sizes = batch_sizes(lengths)
        return torch.cat([x[order[:k], t] for t, k in enumerate(sizes.tolist())]), sizes, order

    part = PARTS["ps2.pack"]
    assert examine(part, later_first, [*part.visible, *part.hidden(3)]) is None


def test_an_order_is_judged_together_with_its_data():
    def two_sorts(x, lengths):
        data, sizes, _ = pack(x, lengths)
        n = lengths.tolist()
        order = sorted(range(len(n)), key=lambda b: (n[b], b), reverse=True)
        return data, sizes, torch.tensor(order)

    assert examine(PARTS["ps2.pack"], two_sorts, BATCHES).breach.law.startswith("data runs")


def test_a_law_takes_plain_values_and_gives_the_first_breach():
    part = PARTS["ps2.batch_sizes"]
    seen = []

    def spying(lengths):
        seen.append(type(lengths))
        return lengths

    first_law = part.laws[0]
    breach = first_law(Boundary(spying, ("batch_sizes",)), part.visible)
    assert set(seen) == {torch.Tensor}
    assert breach.batch == part.visible[0]
    assert first_law(Boundary(batch_sizes, ("batch_sizes",)), part.visible) is None


@pytest.mark.parametrize("name", PARTS)
def test_a_wild_answer_breaks_a_law_and_never_the_checker(name):
    part = PARTS[name]
    wild = [
        torch.tensor(3),
        torch.zeros(0),
        torch.zeros(2, 0, dtype=torch.int64),
        torch.full((4,), float("nan")),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([1 + 2j]),
        torch.tensor([True]),
        torch.full((3, 9, 2), -1),
    ]
    for value in wild:
        answer = value if len(part.outputs) == 1 else (value,) * len(part.outputs)
        assert examine(part, lambda *_, a=answer: a, part.visible) is not None
