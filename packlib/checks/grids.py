"""Small drawings in text: a batch, and what was expected beside what was found.

A vector is drawn by its name: ``b2`` is step 2 of the sequence ``b``. Everything fits a page: long
rows and tall grids are cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from torch import Tensor

from .ragged import Ragged

Row = tuple[str, tuple[str, ...]]
MOST_COLUMNS, MOST_ROWS = 12, 12
PAD = "·"


def numbers(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def letter(sequence: int) -> str:
    return chr(ord("a") + sequence) if sequence < 26 else f"s{sequence}."


def _key(vector: Tensor) -> tuple[object, ...]:
    return tuple(vector.reshape(-1).tolist())


def _names(batch: Ragged) -> dict[tuple[object, ...], str]:
    """Vector -> its name; empty where two vectors are equal and a name would say too much."""
    names = {
        _key(batch.x[b, t]): f"{letter(b)}{t}"
        for b, n in enumerate(batch.lengths)
        for t in range(n)
    }
    if len(names) < sum(batch.lengths):
        return {}
    pads = {
        _key(vector): PAD
        for b, n in enumerate(batch.lengths)
        for vector in batch.x[b, n:]
        if batch.padding
    }
    return {**pads, **names}


def _cell(vector: Tensor, names: dict[tuple[object, ...], str]) -> str:
    key = _key(vector)
    if any(value != value for value in key):
        return "nan"
    if key in names:
        return names[key]
    first = key[0] if key else "empty"
    return f"{first:g}" if isinstance(first, float) else str(first)


def cells_of_padded(batch: Ragged, x: Tensor) -> list[Row]:
    """x: (B, T, *F) -> one row a sequence."""
    if x.dim() < 2:
        return [("x", (f"shape {tuple(x.shape)}",))]
    names = _names(batch)
    rows = x[:MOST_ROWS, :MOST_COLUMNS]
    return [(f"row {b}", tuple(_cell(v, names) for v in row)) for b, row in enumerate(rows)]


def cells_of_rows(batch: Ragged, data: Tensor) -> list[Row]:
    """data: (N, *F) -> one row a step, as wide as the right batch_sizes say; then the rest."""
    if data.dim() < 1:
        return [("data", (f"shape {tuple(data.shape)}",))]
    names = _names(batch)
    widths = [*batch.batch_sizes, max(0, len(data) - sum(batch.batch_sizes))]
    titles = [*(f"step {t}" for t in range(batch.longest)), "too many"]
    rows: list[Row] = []
    start = 0
    for title, width in zip(titles, widths, strict=True):
        cells = tuple(_cell(vector, names) for vector in data[start : start + width])
        rows.append((title, cells))
        start += width
    return [row for row in rows if row[1]]


def drawn(batch: Ragged) -> list[str]:
    """The padded batch: one line a sequence, a dot for each padding."""
    names = _names(batch)
    width = batch.longest + batch.extra
    lines = []
    for b, n in list(enumerate(batch.lengths))[:MOST_ROWS]:
        cells = [_cell(batch.x[b, t], names) if t < n else PAD for t in range(width)]
        lines.append(_line(cells))
    if len(batch.lengths) > MOST_ROWS:
        lines.append(f"... and {len(batch.lengths) - MOST_ROWS} more sequences")
    return lines


def beside(expected: list[Row], found: list[Row]) -> list[str]:
    """Both drawings side by side; a found cell that is not the expected one stands in [ ]."""
    left: list[tuple[str, str, str]] = []
    for want, have in zip_longest(expected[:MOST_ROWS], found[:MOST_ROWS], fillvalue=("", ())):
        marked = [
            cell if cell == other else f"[{cell or ' '}]"
            for cell, other in zip_longest(have[1], want[1], fillvalue="")
        ]
        left.append((want[0] or have[0], _line(want[1]), _line(marked)))
    names = max(len(name) for name, _, _ in left)
    width = max(len("expected"), *(len(want) for _, want, _ in left))
    head = f"{'':{names}}  {'expected':{width}}  found"
    return [head, *(f"{n:{names}}  {w:{width}}  {h}".rstrip() for n, w, h in left)]


def _line(cells: Iterable[str]) -> str:
    cells = list(cells)
    rest = ["..."] if len(cells) > MOST_COLUMNS else []
    return " ".join(f"{cell:2}" for cell in [*cells[:MOST_COLUMNS], *rest]).rstrip()
