"""Pictures of a ragged batch: text in a terminal, a table on GitHub, a live element in the book."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from operator import index
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from packlib.layout import Layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SEQUENCES = 16  # torch's descending sort keeps ties in order up to 16, and so do we
MAX_LENGTH = 24  # nobody reads more columns than this
# how the browser takes a list of lengths and words apart: packviz.js has the same two patterns
SEPARATORS = re.compile(r"[\s,;()\[\]]")
NUMBER = re.compile(r"-?[\d.]+", re.ASCII)
PAD = "pad"


def show(lengths: Iterable[int | str], names: Sequence[str] | None = None) -> PaddedGrid:
    """Draw a batch: the padded grid, longest sequence first, its ``batch_sizes`` and packed data.

    A length n is drawn as the cells a0, a1, ... of a sequence a; a word is drawn as itself, one
    cell a letter. ``names`` replaces a, b, c. At most 16 sequences of at most 24 steps.

    Raises TypeError for what is neither a whole number nor a word, RuntimeError for a length below
    1 (as torch does), ValueError for what does not fit into the picture.

    >>> show([2, 5])
    step          0   1    2    3    4  length
    b            b0  b1   b2   b3   b4       5
    a            a0  a1  pad  pad  pad       2
    batch_sizes   2   2    1    1    1       7
    <BLANKLINE>
    data: b0 a0 b1 a1 b2 b3 b4
    The padded batch has 10 cells, but only 7 real steps: padding wastes 30 %.
    """
    if isinstance(lengths, str):
        raise TypeError(f"lengths must be a list of whole numbers or words, got {lengths!r}")
    entries = [_entry(value) for value in lengths]
    if not 1 <= len(entries) <= MAX_SEQUENCES:
        raise ValueError(f"lengths must have 1 to {MAX_SEQUENCES} entries, got {len(entries)}")
    labels = ascii_lowercase if names is None else _names(names, len(entries))
    rows = [
        Row(entry, list(entry))
        if isinstance(entry, str)
        else Row(label, [f"{label}{t}" for t in range(entry)])
        for entry, label in zip(entries, labels, strict=False)
    ]
    attributes = {"lengths": ",".join(map(str, entries))}
    if names is not None:
        attributes["names"] = ",".join(labels)
    return PaddedGrid(rows, attributes)


@dataclass(frozen=True)
class Row:
    """One sequence of the picture: its name and the text of each of its cells."""

    name: str
    cells: list[str]


class PaddedGrid:
    """What ``show`` returns: a picture as text, and as HTML where that can be seen."""

    def __init__(self, rows: list[Row], attributes: dict[str, str]) -> None:
        lengths = np.array([len(row.cells) for row in rows])
        order = np.argsort(-lengths, kind="stable")
        layout = Layout.from_lengths(lengths, order)
        self.rows = [rows[i] for i in order]
        self.batch_sizes: list[int] = layout.batch_sizes.tolist()
        self.data = [rows[i].cells[t] for i, t in zip(layout.sequence, layout.step, strict=True)]
        self.attributes = attributes

    @property
    def sentence(self) -> str:
        """What the padding costs, in words."""
        real, cells = sum(self.batch_sizes), len(self.rows) * len(self.batch_sizes)
        if real == cells:
            return f"Every cell of the batch is a real step ({real} of {cells}): nothing is wasted."
        # whole numbers, half rounded up: the browser must come to the same figure
        waste = (200 * (cells - real) + cells) // (2 * cells)
        return (
            f"The padded batch has {cells} cells, but only {real} real steps: "
            f"padding wastes {waste} %."
        )

    def table(self) -> list[list[str]]:
        """The grid as text, heading first, ``batch_sizes`` last, lengths on the right."""
        steps = range(len(self.batch_sizes))
        return [
            ["step", *map(str, steps), "length"],
            *(
                [row.name, *row.cells, *[PAD] * (len(steps) - len(row.cells)), str(len(row.cells))]
                for row in self.rows
            ),
            ["batch_sizes", *map(str, self.batch_sizes), str(sum(self.batch_sizes))],
        ]

    def __repr__(self) -> str:
        table = self.table()
        first, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([head.ljust(first), *map(str.rjust, cells, widths)]) for head, *cells in table
        ]
        return "\n".join([*lines, "", "data: " + " ".join(self.data), self.sentence])

    def _repr_html_(self) -> str:
        heading, *body, sizes = self.table()
        attributes = "".join(f' {key}="{escape(text)}"' for key, text in self.attributes.items())
        return "\n".join(
            [
                f"<pack-viz{attributes}>",
                "<table>",
                "<caption>The padded batch, longest sequence first</caption>",
                f"<thead>{_heading_html(heading)}</thead>",
                "<tbody>",
                *map(_row_html, body),
                "</tbody>",
                f"<tfoot>{_row_html(sizes)}</tfoot>",
                "</table>",
                f"<p>data: {escape(' '.join(self.data))}</p>",
                f"<p>{self.sentence}</p>",
                "</pack-viz>",
            ]
        )


class Picture:
    """What ``figure`` returns: a PNG with its text for those who cannot see it."""

    def __init__(self, png: bytes, alt: str) -> None:
        self.png = png
        self.alt = alt

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"image/png": self.png, "text/plain": self.alt}, {"image/png": {"alt": self.alt}}


def figure(fig: Figure, alt: str) -> Picture:
    """Show a matplotlib figure together with its alternative text, and close it.

    ``alt`` says in words what the picture shows; where there is no picture, it is printed instead.
    Raises ValueError if ``alt`` is empty.

    >>> from matplotlib import pyplot
    >>> figure(pyplot.figure(), "Nothing yet: an empty page.")
    Nothing yet: an empty page.
    """
    from matplotlib import pyplot

    if not alt.strip():
        raise ValueError("alt must say in words what the picture shows, got an empty text")
    png = BytesIO()
    # no "Software" entry, so that the bytes do not name the version of matplotlib
    fig.savefig(png, format="png", dpi=120, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(fig)
    return Picture(png.getvalue(), " ".join(alt.split()))


def _entry(value: object) -> int | str:
    """A length as an int, or a word, refused if it cannot be drawn."""
    if isinstance(value, str):
        return _word("lengths", value)
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"lengths must hold whole numbers or words, got {value!r}")
    try:
        length = index(value)
    except TypeError as error:  # a tensor or array that is no single whole number
        raise TypeError(f"lengths must hold whole numbers or words, got {value!r}") from error
    if length < 1:
        raise RuntimeError(f"lengths must be at least 1, got {length}")
    if length > MAX_LENGTH:
        raise ValueError(f"lengths must be at most {MAX_LENGTH} in a picture, got {length}")
    return length


def _word(argument: str, word: str) -> str:
    """``word``, refused if the browser could not read it back from a list of lengths."""
    if not 1 <= len(word) <= MAX_LENGTH or NUMBER.fullmatch(word) or SEPARATORS.search(word):
        raise ValueError(
            f"{argument} must hold words of 1 to {MAX_LENGTH} characters, without spaces, commas, "
            f"semicolons or brackets, and no numbers, got {word!r}"
        )
    return word


def _names(names: Sequence[str], count: int) -> list[str]:
    if len(names) != count:
        raise ValueError(f"names must have one entry a sequence, got {len(names)} for {count}")
    return [_word("names", name) for name in names]


def _heading_html(cells: list[str]) -> str:
    return "<tr>" + "".join(f'<th scope="col">{cell}</th>' for cell in cells) + "</tr>"


def _row_html(cells: list[str]) -> str:
    name, *rest = map(escape, cells)
    return (
        f'<tr><th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
    )
