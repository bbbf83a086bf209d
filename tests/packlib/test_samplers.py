"""The samplers: each item once, no batch too large, the same for a seed, fair to all ranks."""

import pickle
import random
import time
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from packlib.data import BucketBatchSampler, TokenBatchSampler
from packlib.datasets import japanese_vowels

many = st.lists(st.integers(1, 12), min_size=1, max_size=60)
sizes = st.integers(1, 9)
pools = st.integers(1, 5)
seeds = st.integers(0, 99)
ranks = st.integers(1, 5)
MANY = [(7 * i * i) % 29 + 1 for i in range(300)]  # 1 to 29, unsorted, with ties


def bucket(lengths, **options):
    return BucketBatchSampler(lengths, **({"batch_size": 8, "pool": 3} | options))


def tokens(lengths, **options):
    return TokenBatchSampler(lengths, **({"max_tokens": 90, "pool": 3} | options))


both = pytest.mark.parametrize("make", [bucket, tokens])


def waste(batches, lengths):
    """The part of the padded batches that is padding."""
    cells = sum(len(b) * max(lengths[i] for i in b) for b in batches)
    return 1 - sum(lengths[i] for b in batches for i in b) / cells


def items(batches):
    return sorted(i for batch in batches for i in batch)


def in_ranks(make, lengths, replicas, **options):
    return [list(make(lengths, num_replicas=replicas, rank=r, **options)) for r in range(replicas)]


# --- one rank -----------------------------------------------------------------------------------

@given(many, sizes, pools, seeds, st.booleans())
def test_bucket_gives_each_item_once_in_the_fewest_batches(lengths, size, pool, seed, shuffle):
    sampler = BucketBatchSampler(lengths, size, pool, seed=seed, shuffle=shuffle)
    batches = list(sampler)
    assert items(batches) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // size) == len(sampler)
    assert sorted(map(len, batches))[1:] == [size] * (len(batches) - 1)  # one may be smaller
    assert {type(i) for batch in batches for i in batch} == {int}


@given(many, st.integers(12, 60), pools, seeds, st.booleans())
def test_tokens_give_each_item_once_within_the_budget(lengths, budget, pool, seed, padded):
    sampler = TokenBatchSampler(lengths, budget, padded=padded, pool=pool, seed=seed)
    batches = list(sampler)
    assert items(batches) == list(range(len(lengths)))
    assert len(batches) == len(sampler)
    for batch in batches:
        counts = [lengths[i] for i in batch]
        assert (len(counts) * max(counts) if padded else sum(counts)) <= budget


def test_the_budget_is_used():
    """By hand: 9, 8, 7, 3, 2, 1 in a budget of 16, short ones first."""
    lengths = [9, 2, 8, 3, 7, 1]
    padded = TokenBatchSampler(lengths, 16, shuffle=False)
    packed = TokenBatchSampler(lengths, 16, shuffle=False, padded=False)
    assert [[lengths[i] for i in b] for b in padded] == [[1, 2, 3], [7, 8], [9]]
    assert [[lengths[i] for i in b] for b in packed] == [[1, 2, 3, 7], [8], [9]]


@both
def test_the_seed_and_the_epoch_decide_and_nothing_else(make):
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    first = list(make(MANY, seed=5))
    torch.manual_seed(2)
    np.random.seed(2)
    random.seed(2)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    again = list(make(torch.tensor(MANY), seed=5))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert again == first
    assert list(make(MANY, seed=6)) != first
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@both
def test_every_pass_is_a_new_epoch(make):
    sampler = make(MANY)
    epochs = [list(sampler) for _ in range(3)]
    assert len({str(epoch) for epoch in epochs}) == 3
    assert len({str(sorted(map(sorted, epoch))) for epoch in epochs}) == 3  # not order alone
    sampler.set_epoch(1)
    assert [list(sampler), list(sampler)] == epochs[1:]
    other = make(MANY)
    other.set_epoch(2)
    assert list(other) == epochs[2]


@both
def test_no_two_pairs_of_seed_and_epoch_are_alike(make):
    seen = set()
    for seed in range(4):
        sampler = make(MANY, seed=seed)
        seen.update(str(list(sampler)) for _ in range(4))
    assert len(seen) == 16


@both
def test_an_iterator_that_is_not_read_is_no_epoch(make):
    """DataLoader with persistent workers makes one."""
    sampler = make(MANY)
    iter(sampler)
    assert list(sampler) == list(make(MANY))


def test_the_number_of_batches_is_that_of_the_epoch():
    sampler = tokens(MANY, pool=1)
    counts = []
    for _ in range(6):
        counts.append(sum(1 for _ in sampler))
        assert len(sampler) == counts[-1]  # also in the loop's last step
    assert len(set(counts)) > 1  # else this test would show nothing
    for epoch, count in enumerate(counts):
        sampler.set_epoch(epoch)
        assert len(sampler) == count


@both
def test_without_shuffling_every_epoch_is_the_same_short_ones_first(make):
    sampler = make(MANY, shuffle=False, pool=1000)
    first, second = list(sampler), list(sampler)
    assert first == second
    assert [MANY[i] for batch in first for i in batch] == sorted(MANY)
    of_seven = make(MANY, shuffle=False, drop_last=True, num_replicas=7, rank=3)
    first = list(of_seven)
    assert all(list(of_seven) == first for _ in range(4))


@both
def test_long_batches_come_at_any_time(make):
    """Sorted pools in a row would be a curriculum."""
    sampler = make(MANY)
    places = set()
    for _ in range(20):
        longest = [max(MANY[i] for i in batch) for batch in sampler]
        places.add(longest.index(29))
    assert len(places) > 5


def test_between_two_pools_is_no_step():
    """A batch may begin in one pool and end in the next."""
    sampler = tokens(MANY, pool=10)
    lengths = [[MANY[i] for i in batch] for _ in range(5) for batch in sampler]
    assert max(max(counts) - min(counts) for counts in lengths) < 12


def test_the_pool_trades_padding_for_chance():
    wastes = [waste(bucket(MANY, pool=pool), MANY) for pool in (1, 3, 100)]
    assert wastes[0] > 0.3 > wastes[1] > wastes[2]
    assert wastes[2] < 0.05


def test_vowels_by_32():
    lengths = [len(s) for s in japanese_vowels()[0]]
    draw = random.Random(0)
    shuffled = [draw.sample(range(270), 270) for _ in range(10)]
    plain = [waste([order[i : i + 32] for i in range(0, 270, 32)], lengths) for order in shuffled]
    assert 0.31 < sum(plain) / 10 < 0.37
    sampler = BucketBatchSampler(lengths, 32)
    assert max(waste(sampler, lengths) for _ in range(10)) < 0.10
    budget = TokenBatchSampler(lengths, 640)
    assert max(waste(budget, lengths) for _ in range(10)) < 0.10


@pytest.mark.parametrize("padded", [True, False])
def test_time_grows_with_the_items_not_with_their_square(padded):
    lengths = np.random.default_rng(0).integers(1, 200, 200_000)
    start = time.perf_counter()
    for sampler in (BucketBatchSampler(lengths, 16, num_replicas=8, rank=3),
                    TokenBatchSampler(lengths, 4000, padded=padded, num_replicas=8, rank=3)):
        assert sum(map(len, sampler)) > 20_000
    assert time.perf_counter() - start < 10  # one second as a rule; a square would take an hour


# --- several ranks ------------------------------------------------------------------------------

@given(many, sizes, pools, ranks, seeds)
def test_ranks_share_all_items_evenly(lengths, size, pool, replicas, seed):
    shares = in_ranks(BucketBatchSampler, lengths, replicas, batch_size=size, pool=pool, seed=seed)
    _check_shares(shares, len(lengths), -(-len(lengths) // size))
    assert max(len(b) for share in shares for b in share) <= size


@given(many, st.integers(12, 60), pools, ranks, seeds)
def test_ranks_share_a_budget_evenly(lengths, budget, pool, replicas, seed):
    options = {"max_tokens": budget, "pool": pool, "seed": seed}
    shares = in_ranks(TokenBatchSampler, lengths, replicas, **options)
    _check_shares(shares, len(lengths), len(list(TokenBatchSampler(lengths, **options))))
    for batch in (b for share in shares for b in share):
        assert len(batch) * max(lengths[i] for i in batch) <= budget


def _check_shares(shares, count, batches):
    """``batches``: how many there are for one rank."""
    replicas = len(shares)
    steps = -(-batches // replicas)
    assert [len(share) for share in shares] == [steps] * replicas
    found = [i for share in shares for i in items(share)]
    if steps * replicas <= count:
        assert sorted(found) == list(range(count))
    else:  # not even one item a batch is enough: some are given again, none is lost
        assert set(found) == set(range(count))
        assert len(found) == steps * replicas
        assert max(Counter(found).values()) <= -(-steps * replicas // count)


def test_the_remainder_by_hand():
    """10 items by 4 are 4, 4 and 2: for two ranks one of the fours is halved."""
    shares = in_ranks(BucketBatchSampler, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], 2, batch_size=4)
    assert sorted(len(b) for share in shares for b in share) == [2, 2, 2, 4]
    shares = in_ranks(BucketBatchSampler, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], 7, batch_size=4)
    assert sorted(len(b) for share in shares for b in share) == [1, 1, 1, 1, 2, 2, 2]
    shares = in_ranks(BucketBatchSampler, [3, 1], 5, batch_size=4)
    counts = Counter(i for share in shares for i in items(share))
    assert sorted(counts.values()) == [2, 3]


@both
def test_at_each_step_the_ranks_have_like_lengths(make):
    shares = in_ranks(make, MANY, 3, pool=100)
    longest = [[max(MANY[i] for i in b) for b in share] for share in shares]
    apart = [max(step) - min(step) for step in zip(*longest, strict=True)]
    assert max(apart) <= 5
    first = {min(range(3), key=lambda r: step[r]) for step in zip(*longest, strict=True)}
    assert first == {0, 1, 2}  # and no rank always gets the shortest


@both
def test_the_ranks_agree_in_every_epoch(make):
    samplers = [make(MANY, num_replicas=3, rank=r) for r in range(3)]
    for epoch in range(4):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        assert items(batch for sampler in samplers for batch in sampler) == list(range(300))
        assert len({len(sampler) for sampler in samplers}) == 1


# --- drop_last ----------------------------------------------------------------------------------

@given(many, st.integers(1, 4), ranks, seeds)
def test_drop_last_leaves_out_the_fewest(lengths, size, replicas, seed):
    options = {"batch_size": size, "seed": seed, "drop_last": True}
    kept = len(lengths) // (size * replicas) * size * replicas
    if kept == 0:
        with pytest.raises(ValueError, match="drop_last leaves nothing"):
            in_ranks(BucketBatchSampler, lengths, replicas, **options)
        return
    shares = in_ranks(BucketBatchSampler, lengths, replicas, **options)
    assert {len(b) for share in shares for b in share} == {size}
    found = [i for share in shares for i in items(share)]
    assert len(found) == len(set(found)) == kept
    assert len({len(share) for share in shares}) == 1


def test_drop_last_of_tokens_leaves_out_whole_batches():
    whole = tokens(MANY)
    assert items(tokens(MANY, drop_last=True)) == list(range(300))
    replicas = 7
    spare = len(list(whole)) % replicas
    assert spare
    shares = in_ranks(tokens, MANY, replicas, drop_last=True)
    given_out = {tuple(b) for share in shares for b in share}
    whole.set_epoch(0)
    everything = {tuple(b) for b in whole}
    assert given_out < everything
    assert len(everything - given_out) == spare


def test_what_is_left_out_is_drawn_anew():
    """Were it the end of the sorted items, a model would never see the longest."""
    sampler = bucket(MANY[:43], drop_last=True)
    left_out = Counter(i for _ in range(40) for i in set(range(43)) - set(items(sampler)))
    assert sum(left_out.values()) == 40 * 3
    assert len(left_out) > 35
    assert max(left_out.values()) < 12


# --- with torch ---------------------------------------------------------------------------------

@both
@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_data_loader(make, workers):
    sampler = make(MANY)
    loader = DataLoader(torch.arange(300), batch_sampler=sampler, num_workers=workers,
                        multiprocessing_context="fork" if workers else None,
                        persistent_workers=workers > 0)
    expected = make(MANY)
    for _ in range(2):
        found = [batch.tolist() for batch in loader]
        assert found == list(expected)
        assert len(loader) == len(found)


@both
def test_it_may_be_pickled_in_the_middle(make):
    sampler = make(MANY)
    list(sampler)
    again = pickle.loads(pickle.dumps(sampler))
    assert list(again) == list(sampler)


def test_ranks_are_those_of_torch_distributed(monkeypatch):
    assert (bucket(MANY).num_replicas, bucket(MANY).rank) == (1, 0)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    assert list(bucket(MANY)) == in_ranks(bucket, MANY, 4)[2]
    assert bucket(MANY, num_replicas=1, rank=0).num_replicas == 1


@pytest.mark.parametrize(("epoch", "error", "words"), [
    ("2", TypeError, "'epoch' must be int, not str"),
    (1.5, TypeError, "'epoch' must be int, not float"),
    (-1, ValueError, "epoch must be at least 0, got -1"),
])
def test_epochs_that_are_refused(epoch, error, words):
    sampler = BucketBatchSampler([2, 5], 1)
    before = list(sampler)
    sampler.set_epoch(0)
    with pytest.raises(error, match=words):
        sampler.set_epoch(epoch)
    assert list(sampler) == before


@pytest.mark.parametrize(("arguments", "error", "words"), [
    (([], 4), ValueError, "at least one"),
    (([3, -1], 4), ValueError, "at least 0"),
    (([2.5, 1.0], 4), TypeError, "lengths must be integers"),
    (([2, 5], 0), ValueError, "must be at least 1, got 0"),
    (([2, 5], 2.0), TypeError, "must be int, not float"),
    (([2, 5], True), TypeError, "must be int, not bool"),
])
@pytest.mark.parametrize("sampler", [BucketBatchSampler, TokenBatchSampler])
def test_arguments_that_are_refused(sampler, arguments, error, words):
    with pytest.raises(error, match=words):
        sampler(*arguments)


@pytest.mark.parametrize(("options", "error", "words"), [
    ({"pool": 0}, ValueError, "pool must be at least 1"),
    ({"num_replicas": 2}, ValueError, "both, or neither"),
    ({"rank": 0}, ValueError, "both, or neither"),
    ({"num_replicas": 2, "rank": 2}, ValueError, "rank must be 0 to 1, got 2"),
    ({"num_replicas": 0, "rank": 0}, ValueError, "num_replicas must be at least 1"),
    ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ({"seed": None}, TypeError, "argument 'seed' must be int, not NoneType"),
    ({"shuffle": "False"}, TypeError, "argument 'shuffle' must be bool, not str"),
    ({"drop_last": "no"}, TypeError, "argument 'drop_last' must be bool, not str"),
    ({"drop_last": True, "num_replicas": 301, "rank": 0}, ValueError,
     "drop_last leaves nothing of 300 items for 301 ranks"),
])
@both
def test_options_that_are_refused(make, options, error, words):
    with pytest.raises(error, match=words):
        make(MANY, **options)


def test_more_than_nothing_must_be_left():
    with pytest.raises(ValueError, match="drop_last leaves nothing of 2 items"):
        BucketBatchSampler([1, 2], 4, drop_last=True)
    with pytest.raises(TypeError, match="argument 'padded' must be bool, not str"):
        TokenBatchSampler([1, 2], 4, padded="no")


@pytest.mark.parametrize(("make", "size"), [(bucket, "pool"), (bucket, "batch_size"),
                                            (tokens, "pool"), (tokens, "max_tokens")])
def test_sizes_may_be_as_large_as_any(make, size):
    assert items(make(MANY, **{size: 2**70})) == list(range(300))


def test_an_item_above_the_budget_is_named():
    with pytest.raises(ValueError, match=r"lengths\[2\]=17 is above max_tokens=16"):
        TokenBatchSampler([3, 16, 17, 2], 16)
