"""Collate functions: against loops in plain Python, through workers and pinning, and their errors.
"""

import pickle
from collections import namedtuple
from functools import partial

import numpy as np
import oracle
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import rnn
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

import packlib
from packlib.data import BucketBatchSampler, Padded, collate_packed, collate_padded

Item = namedtuple("Item", "ids label")
LENGTHS = [2, 4, 1, 4, 3]


def items(lengths=LENGTHS):
    """Ids with a 0 inside, a tag for each, frames, a box of fixed shape, a label, a name."""
    return [{"ids": torch.arange(n) % 3, "tags": torch.arange(n) + 10 * b,
             "frames": strategies.values((n, 6), torch.float32, b), "box": torch.full((3,), b),
             "label": b, "name": f"item {b}"} for b, n in enumerate(lengths)]


pack_all = partial(collate_packed, fixed=["box"])
pad_all = partial(collate_padded, fixed=["box"], padding_value={"tags": -100})


# --- values -------------------------------------------------------------------------------------

@given(strategies.batches())
def test_packed_is_what_plain_python_packs(batch):
    packed = collate_packed(batch.sequences)
    assert type(packed) is packlib.PackedSequence
    assert packed.batch_sizes.tolist() == oracle.batch_sizes(batch.lengths)
    assert packed.lengths.tolist() == batch.lengths
    order = range(len(batch.lengths))
    if packed.sorted_indices is not None:
        order = packed.sorted_indices.tolist()
    assert sorted(order, key=lambda b: -batch.lengths[b]) == list(order)
    oracle.same(packed.data, oracle.packed_rows(batch.sequences, order))


@given(strategies.batches())
def test_padded_is_what_plain_python_pads(batch):
    padded = collate_padded(batch.sequences, padding_value=1)
    assert type(padded) is Padded
    oracle.same(padded.grid, oracle.padded(batch.sequences, max(batch.lengths), True, 1))
    oracle.same(padded.lengths, torch.tensor(batch.lengths))
    longest = range(max(batch.lengths))
    assert padded.mask.tolist() == [[t < n for t in longest] for n in batch.lengths]


@given(strategies.batches(), st.sampled_from([collate_packed, collate_padded]))
def test_labels_stay_in_the_users_order(batch, collate):
    labels = [b * 7 % 5 for b in range(len(batch.lengths))]
    _, found = collate(list(zip(batch.sequences, labels, strict=True)))
    oracle.same(found, torch.tensor(labels))


def test_fields_of_one_item_share_one_layout():
    batch = pack_all(items())
    ids, tags, frames = batch["ids"], batch["tags"], batch["frames"]
    assert ids.layout is tags.layout is frames.layout
    assert ids.sorted_indices is tags.sorted_indices is frames.sorted_indices
    for name in ("ids", "tags", "frames"):
        for found, item in zip(packlib.unpack_sequence(batch[name]), items(), strict=True):
            oracle.same(found, item[name])
    assert list(batch) == list(items()[0])
    assert batch["box"].tolist() == [[b] * 3 for b in range(5)]
    assert batch["label"].tolist() == [0, 1, 2, 3, 4]
    assert batch["name"] == ["item 0", "item 1", "item 2", "item 3", "item 4"]


def test_each_field_has_its_padding_value():
    batch = pad_all(items())
    assert batch["ids"].grid.tolist() == [[0, 1, 0, 0], [0, 1, 2, 0], [0] * 4, [0, 1, 2, 0],
                                          [0, 1, 2, 0]]
    assert batch["ids"].lengths.tolist() == LENGTHS  # not from ids that are not 0
    assert batch["tags"].grid[4].tolist() == [40, 41, 42, -100]
    assert batch["frames"].grid.shape == (5, 4, 6)
    assert batch["box"].shape == (5, 3)
    assert batch["label"].tolist() == [0, 1, 2, 3, 4]


def test_a_loss_ignores_the_padding():
    tags = [torch.tensor([1, 0]), torch.tensor([2, 1, 1, 0, 2]), torch.tensor([0])]
    logits = strategies.values((3, 5, 4), torch.float32)
    grid = collate_padded(tags, padding_value=-100).grid
    found = torch.nn.functional.cross_entropy(logits.transpose(1, 2), grid)
    each = [torch.log_softmax(logits[b, t], 0)[int(tag)]
            for b, row in enumerate(tags) for t, tag in enumerate(row)]
    torch.testing.assert_close(found, -sum(each) / 8)


def test_fields_with_lengths_of_their_own():
    pairs = [(torch.arange(n), torch.arange(m) + 50, n) for n, m in [(2, 3), (5, 1), (3, 6)]]
    source, target, counts = collate_packed(pairs, own_lengths=1)
    assert (source.lengths.tolist(), target.lengths.tolist()) == ([2, 5, 3], [3, 1, 6])
    for b, (one, other, _) in enumerate(pairs):
        oracle.same(source.sequence(b), one)
        oracle.same(target.sequence(b), other)
    assert counts.tolist() == [2, 5, 3]
    source, target, _ = collate_padded(pairs, own_lengths=1)
    assert (source.grid.shape, target.grid.shape) == ((3, 5), (3, 6))


def test_a_batch_has_the_form_of_an_item():
    pairs = [(torch.arange(n), n) for n in LENGTHS]
    assert type(collate_packed(pairs)) is tuple
    named = collate_packed([Item(*pair) for pair in pairs])
    assert type(named) is Item
    oracle.same_fields(named.ids, collate_packed([ids for ids, _ in pairs]))
    assert collate_packed([3, 1, 2]).tolist() == [3, 1, 2]
    assert collate_packed(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(("values", "dtype"), [
    ([1, 2], torch.int64), ([1.5, 2.0], torch.float32), ([True, False], torch.bool),
    ([np.float64(1.5), np.float64(2)], torch.float64), ([np.bool_(True)] * 2, torch.bool),
    ([torch.tensor(3, dtype=torch.int16)] * 2, torch.int16), ([1j, 2j], torch.complex64),
])
def test_numbers_keep_their_kind(values, dtype):
    _, labels = collate_packed([(torch.ones(n), v) for n, v in zip([2, 5], values, strict=True)])
    assert labels.dtype == dtype
    assert labels.tolist() == [complex(v) if dtype.is_complex else v for v in values]


@pytest.mark.parametrize("collate", [collate_packed, collate_padded])
def test_arrays_are_taken_as_tensors(collate):
    arrays = [(np.arange(n), np.ones((n, 3), np.float32), n) for n in LENGTHS]
    tensors = [tuple(torch.as_tensor(field) for field in item) for item in arrays]
    for found, expected in zip(collate(arrays), collate(tensors), strict=True):
        equal_batches(found, expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", [
    lambda a: a[::-1], lambda a: a.astype(">i8"), lambda a: np.frombuffer(a.tobytes(), a.dtype),
    lambda a: a.view(np.dtype([("x", a.dtype), ("y", a.dtype)]))["y"], np.asfortranarray,
], ids=["backwards", "big-endian", "read-only", "one of two fields", "columns first"])
def test_arrays_may_lie_anywhere_in_memory(change):
    arrays = [change(np.arange(n)) for n in (4, 8, 2)]
    packed = collate_packed(arrays)
    assert [packed.sequence(i).tolist() for i in range(3)] == [a.tolist() for a in arrays]


def test_padded_takes_a_sequence_without_steps():
    padded = collate_padded([torch.ones(2, 3), torch.ones(0, 3), torch.ones(4, 3)])
    assert padded.lengths.tolist() == [2, 0, 4]
    assert padded.mask.sum(1).tolist() == [2, 0, 4]


# --- workers and pinning ------------------------------------------------------------------------

def equal_batches(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, rnn.PackedSequence):
        oracle.same_fields(found, expected)
        assert found.lengths.tolist() == expected.lengths.tolist()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            equal_batches(found[name], expected[name])
    elif isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            equal_batches(one, other)
    elif isinstance(expected, torch.Tensor):
        oracle.same(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("collate", [pack_all, pad_all], ids=["packed", "padded"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_batches_come_through_workers(collate, start):
    data = items([2, 4, 1, 4, 3, 6, 2])
    sampler = BucketBatchSampler([len(item["ids"]) for item in data], 3, shuffle=False)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate, num_workers=1,
                        multiprocessing_context=start)
    expected = [collate([data[i] for i in batch]) for batch in sampler]
    found = list(loader)
    assert len(found) == len(loader) == 3
    for one, other in zip(found, expected, strict=True):
        equal_batches(one, other)


@pytest.mark.parametrize("collate", [pack_all, pad_all], ids=["packed", "padded"])
def test_batches_are_pinned_field_by_field(collate, monkeypatch):
    """What DataLoader's pin_memory does to a batch; without a GPU, a clone stands for the copy."""
    pinned = []

    def clone(tensor, device=None):  # torch 2.6 names the device
        pinned.append(tensor)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", clone)
    batch = collate(items())
    equal_batches(pin_memory(batch), batch)
    for name in ("ids", "tags", "frames"):
        assert any(t is batch[name][0] for t in pinned), name  # data of packed, grid of padded


def test_pickled():
    for collate in (pack_all, pad_all):
        equal_batches(pickle.loads(pickle.dumps(collate))(items()), collate(items()))
        equal_batches(pickle.loads(pickle.dumps(collate(items()))), collate(items()))


def test_a_model_trains_on_what_the_loader_gives():
    data = [(torch.full((n, 4), float(n % 2)), n % 2) for n in LENGTHS * 4]
    loader = DataLoader(data, collate_fn=collate_packed,
                        batch_sampler=BucketBatchSampler([len(x) for x, _ in data], 3))
    gru, head = packlib.GRU(4, 6), torch.nn.Linear(6, 2)
    adam = torch.optim.Adam([*gru.parameters(), *head.parameters()], lr=0.05)
    losses = []
    for _ in range(4):
        for packed, labels in loader:
            loss = torch.nn.functional.cross_entropy(head(gru(packed)[1][0]), labels)
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
    assert sum(losses[-7:]) < 0.2 * sum(losses[:7])


# --- errors -------------------------------------------------------------------------------------

def changed(i, name, value):
    batch = items()
    batch[i][name] = value
    return batch


FAULTS = [
    (changed(3, "ids", [1, 2, 3, 4]), TypeError, r"batch\[3\]\['ids'\] is of type list.*as_tensor"),
    (changed(0, "ids", np.array(["a", "b"])), TypeError, r"\['ids'\] is an array of dtype <U1"),
    (changed(2, "ids", np.array([None])), TypeError, r"\['ids'\] is an array of dtype object"),
    (changed(2, "label", np.datetime64("now")), TypeError, r"\['label'\] is an array of .*date"),
    (changed(1, "ids", np.ma.masked_less(np.arange(4), 2)), TypeError, r"\['ids'\] is a masked"),
    (changed(2, "label", None), TypeError, r"batch\[2\]\['label'\] is of type NoneType"),
    (changed(2, "name", 5), TypeError, r"batch\[2\]\['name'\] is of type int, but"),
    (changed(4, "tags", torch.ones(3)), TypeError,
     r"batch\[4\]\['tags'\] is torch.float32, but batch\[0\]\['tags'\] is torch.int64"),
    (changed(4, "label", 1.5), TypeError, r"batch\[4\]\['label'\] is torch.float32"),
    (changed(1, "frames", torch.ones(4, 5)), ValueError,
     r"batch\[1\]\['frames'\] has shape \(4, 5\), but batch\[0\]\['frames'\] \(2, 6\): only"),
    (changed(1, "frames", torch.ones(4)), ValueError, r"batch\[1\]\['frames'\] has shape \(4,\)"),
    (changed(1, "ids", torch.tensor(4)), ValueError, r"batch\[1\]\['ids'\] has shape \(\)"),
    (changed(1, "box", torch.ones(4).long()), ValueError,
     r"batch\[1\]\['box'\] has shape \(4,\), but batch\[0\]\['box'\] \(3,\): this field is"),
    (changed(1, "label", torch.ones(3).long()), ValueError, r"batch\[1\]\['label'\] has shape"),
    (changed(2, "ids", torch.ones(1, device="meta").long()), ValueError,
     r"batch\[2\]\['ids'\] is on meta, but batch\[0\]\['ids'\] on cpu"),
    (changed(3, "tags", torch.arange(5)), ValueError,
     r"batch\[3\]\['tags'\] has 5 steps, but batch\[3\]\['ids'\] has 4: .*own_lengths"),
    ([{"ids": torch.ones(2)}, {"tags": torch.ones(2)}], ValueError,
     r"batch\[1\] has the fields \['tags'\], but batch\[0\] has the fields \['ids'\]"),
    ([(torch.ones(2), 1), torch.ones(3)], ValueError, r"batch\[1\] has no fields, but batch\[0\]"),
    ([(torch.ones(2), 1), (torch.ones(3),)], ValueError, r"batch\[1\] has the fields \[0\], but"),
    ([torch.ones(2), [1.0]], TypeError, r"batch\[1\] is of type list"),
    ([], ValueError, "batch is empty"),
]


@pytest.mark.parametrize(("batch", "error", "words"), FAULTS)
@pytest.mark.parametrize("collate", [collate_packed, collate_padded])
def test_the_item_and_the_field_are_named(collate, batch, error, words):
    fixed = "box" if batch and isinstance(batch[0], dict) and "box" in batch[0] else ()
    with pytest.raises(error, match=words):
        collate(batch, fixed=fixed)


def test_a_fixed_field_that_is_not_named_as_such_is_noticed():
    with pytest.raises(ValueError, match=r"batch\[0\]\['box'\] has 3 steps.*'box'.*in fixed"):
        collate_packed(items())


def test_packed_names_the_item_without_steps():
    batch = [(torch.ones(n), 0) for n in (2, 0, 3)]
    with pytest.raises(ValueError, match=r"batch\[1\]\[0\] has no steps.*collate_padded"):
        collate_packed(batch)


@pytest.mark.parametrize("options", [{"fixed": "boxx"}, {"own_lengths": ["boxx"]},
                                     {"padding_value": {"boxx": 1}}])
def test_a_slip_in_a_name_is_noticed(options):
    with pytest.raises(ValueError, match="no field is named 'boxx', there are"):
        collate_padded(items(), **options)


def test_default_collate_cannot_do_this():
    """Why there is this module at all: torch's own function on the same items."""
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        torch.utils.data.default_collate([item["ids"] for item in items()])
