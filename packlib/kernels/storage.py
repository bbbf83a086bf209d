"""Where the steps of a batch lie, whatever they are stored in: packed rows, a grid, or end to end.

The place of a step is a sum, of something for the step and something for the sequence. Sequences
are counted longest first here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from packlib.host import Ints
from packlib.layout import Layout


class Side(NamedTuple):
    """A storage of sequences: step t of sequence j is row ``steps[t] + sequences[j]``.

    ``skip``: how many steps of padding stand before each sequence ``(B,)``.
    """

    steps: Ints
    sequences: Ints
    skip: Ints


Storage = tuple[Any, ...]  # one of the functions below, then its arguments


def packed(layout: Layout) -> Side:
    """Packed rows (N, *)."""
    ranks = np.arange(layout.num_sequences)
    return Side(layout.offsets, ranks, np.zeros_like(ranks))


def grid(layout: Layout, total: int, batch_first: bool, padding_side: str = "right") -> Side:
    """A flat grid (cells, *): (B, total) if ``batch_first``, else (total, B)."""
    users = longest_first(layout, np.arange(layout.num_sequences))
    by_step, by_sequence = (1, total) if batch_first else (layout.num_sequences, 1)
    skip = (total - longest_first(layout, layout.lengths)) * (padding_side == "left")
    return Side(np.arange(total) * by_step, users * by_sequence, skip)


def listed(layout: Layout, begins: Ints | None = None) -> Side:
    """Sequences laid end to end (N, *), in the user's order; or wherever they ``begin``."""
    starts = layout.starts if begins is None else begins
    return Side(np.arange(layout.num_steps), longest_first(layout, starts), np.zeros_like(starts))


def size(layout: Layout, storage: Storage) -> tuple[int, int]:
    """Steps and rows."""
    if storage[0] is grid:
        return storage[1], storage[1] * layout.num_sequences
    return layout.num_steps, layout.num_rows


def longest_first(layout: Layout, values: Ints) -> Ints:
    """Values (B,) in the user's order, longest sequence first."""
    return values if layout.order is None else values[layout.order]
