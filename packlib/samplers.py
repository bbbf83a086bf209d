"""Batches of sequences of like lengths, each item once an epoch, in an order that is shuffled.

Items are shuffled and cut into pools; each pool is sorted by length and cut into batches; the
batches are shuffled. The larger the pool, the less padding and the less chance in who meets whom.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Sampler

from packlib.host import Ints
from packlib.layout import check_lengths
from packlib.padding import check_bool, check_int


class _LikeLengths(Sampler[list[int]]):
    """What the two samplers share: pools, epochs, ranks. A subclass cuts an order into batches."""

    def __init__(self, lengths: Tensor | list[int], shuffle: bool, drop_last: bool, seed: int,
                 num_replicas: int | None, rank: int | None) -> None:
        self.lengths = check_lengths(lengths)
        if len(self.lengths) == 0 or self.lengths.min() < 0:
            raise ValueError("lengths must be at least 0, and at least one of them")
        check_bool("shuffle", shuffle)
        check_bool("drop_last", drop_last)
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed = _at_least(0, "seed", seed)
        self.num_replicas, self.rank = _place(num_replicas, rank)
        self._made: tuple[int, list[Ints]] | None = None
        self.set_epoch(0)
        if drop_last:  # it may leave nothing, and that is said at once
            self._batches(0)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is; without it, each pass is the epoch after the last."""
        self.epoch = self._next = _at_least(0, "epoch", epoch)

    def __iter__(self) -> Iterator[list[int]]:
        # in a generator: an iterator that nobody reads, as DataLoader makes one, is no epoch
        self.epoch, self._next = self._next, self._next + 1
        for batch in self._batches(self.epoch):
            yield batch.tolist()

    def __len__(self) -> int:
        """Batches of this rank, in the epoch that runs, or ran last, or that was set."""
        return len(self._batches(self.epoch))

    def _batches(self, epoch: int) -> list[Ints]:
        if self._made is None or self._made[0] != epoch:
            # unlike with seed + epoch, no two are alike
            draw = np.random.default_rng([self.seed, epoch if self.shuffle else 0])
            self._made = epoch, self._share(self._cut(self._order(draw)), draw)
        return self._made[1]

    def _order(self, draw: np.random.Generator) -> Ints:
        """The items, pool after pool, sorted up and down in turn: no step between two pools."""
        size = len(self.lengths)
        order = draw.permutation(size) if self.shuffle else np.arange(size)
        order = order[: self._kept()]
        pool = np.arange(len(order)) // min(self._pool_size(), size)
        lengths = self.lengths[order]
        return order[np.lexsort((np.where(pool % 2, -lengths, lengths), pool))]

    def _share(self, batches: list[Ints], draw: np.random.Generator) -> list[Ints]:
        """The batches of this rank; at each step the ranks get batches of like lengths."""
        spare = len(batches) % self.num_replicas
        if spare and self.drop_last:
            left_out = draw.choice(len(batches), spare, replace=False)
            batches = [b for i, b in enumerate(batches) if i not in left_out]
        elif spare:
            batches = _more(batches, self.num_replicas - spare)
        if not batches:
            raise ValueError(f"drop_last leaves nothing of {len(self.lengths)} items for "
                             f"{self.num_replicas} ranks")
        batches.sort(key=lambda batch: self.lengths[batch].max())
        steps = np.arange(len(batches)).reshape(-1, self.num_replicas)
        if self.shuffle:
            steps = draw.permuted(draw.permutation(steps), axis=1)
        return [batches[i] for i in steps[:, self.rank]]

    def _kept(self) -> int:
        """How many items an epoch has."""
        return len(self.lengths)

    def _pool_size(self) -> int:
        raise NotImplementedError

    def _cut(self, order: Ints) -> list[Ints]:
        raise NotImplementedError


class BucketBatchSampler(_LikeLengths):
    """Batches of ``batch_size`` items of like lengths, for ``DataLoader(batch_sampler=...)``.

    Law: each item once an epoch; ``seed`` and epoch decide the order, and nothing else does. Each
    pass is a new epoch.

    In distributed training every rank gets the same number of batches, no batch twice, and at each
    step batches of like lengths. Where the batches cannot be shared evenly, the largest are halved
    until they can. Only where one item a batch is not enough are some batches repeated.

    Args:
        lengths: (B,) integers, one for each item of the data set: ``[len(x) for x in data]``.
        batch_size: items in a batch; one batch an epoch may be smaller.
        pool: batches that are sorted together. 1 is no sorting at all; as many as there are leaves
            the least padding, and little to chance but the order of the batches.
        shuffle: False for evaluation: the same batches each epoch, short ones first.
        drop_last: leave out the fewest items that make all batches full and all ranks equal. They
            are drawn anew each epoch.
        num_replicas, rank: those of ``torch.distributed`` if None, or 1 and 0 if that is not
            initialised. Call ``set_epoch`` on every rank before each epoch.

    Raises:
        TypeError, ValueError: an argument has the wrong type, or is out of range.

    >>> sampler = BucketBatchSampler([9, 2, 8, 3, 7, 1], batch_size=2)
    >>> sorted(sorted(batch) for batch in sampler)
    [[0, 2], [1, 5], [3, 4]]
    """

    def __init__(self, lengths: Tensor | list[int], batch_size: int, pool: int = 100, *,
                 shuffle: bool = True, drop_last: bool = False, seed: int = 0,
                 num_replicas: int | None = None, rank: int | None = None) -> None:
        self.batch_size = _at_least(1, "batch_size", batch_size)
        self.pool = _at_least(1, "pool", pool)
        super().__init__(lengths, shuffle, drop_last, seed, num_replicas, rank)

    def _kept(self) -> int:
        size = len(self.lengths)
        return size - size % (self.batch_size * self.num_replicas) if self.drop_last else size

    def _pool_size(self) -> int:
        return self.pool * self.batch_size

    def _cut(self, order: Ints) -> list[Ints]:
        size = min(self.batch_size, len(self.lengths))
        return [order[start : start + size] for start in range(0, len(order), size)]


class TokenBatchSampler(_LikeLengths):
    """Batches of at most ``max_tokens`` steps, of like lengths: many short items, or few long ones.

    Law: each item once an epoch, no batch above the budget; ``seed`` and epoch decide the order.
    The number of batches differs a little from epoch to epoch.

    In distributed training as ``BucketBatchSampler``.

    Args:
        lengths: (B,) integers, one for each item of the data set.
        max_tokens: the budget of a batch.
        padded: what the budget counts. True: the cells of the padded grid, items times longest
            length. False: the real steps, the sum of lengths, as packed data has them.
        pool: about how many batches are sorted together, as in ``BucketBatchSampler``.
        shuffle: False for evaluation: the same batches each epoch, short ones first.
        drop_last: leave out batches, fewer than there are ranks, where they cannot be shared
            evenly, rather than halve some. With one rank nothing is left out.
        num_replicas, rank: as in ``BucketBatchSampler``.

    Raises:
        ValueError: an item alone is above the budget.
        TypeError, ValueError: an argument has the wrong type, or is out of range.

    >>> sampler = TokenBatchSampler([9, 2, 8, 3, 7, 1], max_tokens=16, shuffle=False)
    >>> list(sampler)
    [[5, 1, 3], [4, 2], [0]]
    """

    def __init__(self, lengths: Tensor | list[int], max_tokens: int, *, padded: bool = True,
                 pool: int = 100, shuffle: bool = True, drop_last: bool = False, seed: int = 0,
                 num_replicas: int | None = None, rank: int | None = None) -> None:
        check_bool("padded", padded)
        self.max_tokens, self.padded = _at_least(1, "max_tokens", max_tokens), padded
        self.pool = _at_least(1, "pool", pool)
        super().__init__(lengths, shuffle, drop_last, seed, num_replicas, rank)
        if self.lengths.max() > max_tokens:
            i = int(self.lengths.argmax())
            raise ValueError(f"lengths[{i}]={self.lengths[i]} is above max_tokens={max_tokens}: "
                             "cut such items, leave them out, or raise the budget")

    def _pool_size(self) -> int:
        return max(1, round(self.pool * self.max_tokens / max(1.0, self.lengths.mean())))

    def _cut(self, order: Ints) -> list[Ints]:
        starts, size, longest, total = [], 0, 0, 0
        for place, length in enumerate(self.lengths[order].tolist()):
            size, longest, total = size + 1, max(longest, length), total + length
            if (size * longest if self.padded else total) > self.max_tokens:
                starts.append(place)
                size, longest, total = 1, length, length
        return np.split(order, starts)


def _more(batches: list[Ints], count: int) -> list[Ints]:
    """The same items in ``count`` more batches: the largest are halved, as long as any can be."""
    made = dict(enumerate(batches))
    heap = [(-len(batch), i) for i, batch in made.items()]
    heapq.heapify(heap)
    wanted = len(batches) + count
    for new in range(len(batches), wanted):
        size, i = heap[0]
        if size == -1:
            return list(islice(cycle(made.values()), wanted))
        made[i], made[new] = np.array_split(made[i], 2)
        heapq.heapreplace(heap, (-len(made[i]), i))
        heapq.heappush(heap, (-len(made[new]), new))
    return list(made.values())


def _place(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """How many ranks there are, and which this is."""
    if num_replicas is None and rank is None:
        ready = dist.is_available() and dist.is_initialized()
        return (dist.get_world_size(), dist.get_rank()) if ready else (1, 0)
    if num_replicas is None or rank is None:
        raise ValueError("num_replicas and rank are given both, or neither")
    if not 0 <= check_int("rank", rank) < _at_least(1, "num_replicas", num_replicas):
        raise ValueError(f"rank must be 0 to {num_replicas - 1}, got {rank}")
    return num_replicas, rank


def _at_least(least: int, name: str, value: Any) -> int:
    number = check_int(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number
