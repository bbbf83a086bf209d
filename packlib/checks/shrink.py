"""Makes a breaking batch as small as it can be, one greedy step after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .ragged import Ragged

SECONDS = 1.0
MOST_TRIES = 300


def smallest(batch: Ragged, breaks: Callable[[Ragged], bool]) -> Ragged:
    """The smallest batch found for which ``breaks`` still holds."""
    until, tries = time.monotonic() + SECONDS, 0
    shrinking = True
    while shrinking:
        shrinking = False
        for candidate in _smaller(batch):
            tries += 1
            if tries > MOST_TRIES or time.monotonic() > until:
                return batch
            if breaks(candidate):
                batch, shrinking = candidate, True
                break
    return batch


def _smaller(batch: Ragged) -> Iterator[Ragged]:
    """Bolder steps first: fewer sequences, shorter ones, less around them."""
    lengths = batch.lengths
    if len(lengths) > 3:
        half = len(lengths) // 2
        yield replace(batch, lengths=lengths[:half])
        yield replace(batch, lengths=lengths[half:])
    if len(lengths) > 1:
        for b in range(len(lengths)):
            yield replace(batch, lengths=lengths[:b] + lengths[b + 1 :])
    for b, n in enumerate(lengths):
        for shorter in sorted({n // 2, n - 1} - {0, n}):
            yield replace(batch, lengths=(*lengths[:b], shorter, *lengths[b + 1 :]))
    if batch.extra:
        yield replace(batch, extra=0)
        yield replace(batch, extra=1) if batch.extra > 1 else replace(batch, extra=0)
    if batch.total_extra is not None:
        yield replace(batch, total_extra=None)
    if batch.padding_value:
        yield replace(batch, padding_value=0.0)
    if len(batch.features) > 1 or batch.features != (1,):
        yield replace(batch, features=(1,))
    if batch.zero_inside:
        yield replace(batch, zero_inside=False)
    if batch.late_ties:
        yield replace(batch, late_ties=False)
