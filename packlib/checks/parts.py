"""The parts of the assignments: which laws, which mistakes, which section of the book."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import laws, sources
from .grids import drawn
from .laws import Law
from .mistakes import Mistake
from .mistakes_counting import BATCH_SIZES, LENGTHS
from .mistakes_packing import PACK
from .mistakes_unpacking import UNPACK
from .ragged import Plain, Ragged


@dataclass(frozen=True)
class Section:
    """Where the book explains it; ``file`` is relative to the repository, without its suffix."""

    file: str
    heading: str

    def __str__(self) -> str:
        return f'"{self.heading}" in {self.file}'


@dataclass(frozen=True)
class Part:
    """One part of an assignment: everything that its check needs."""

    name: str
    function: str
    points: int
    outputs: tuple[str, ...]
    arguments: Callable[[Ragged], tuple[Plain, ...]]
    laws: tuple[Law, ...]
    mistakes: tuple[Mistake, ...]
    shown: Callable[[Ragged], list[str]]  # the arguments in words and drawn, for a report
    nudge: str  # the second hint where no mistake is recognised
    read: Section
    earlier: tuple[str, ...] = ()  # functions of parts before, which this one may call
    visible: tuple[Ragged, ...] = sources.VISIBLE
    diagnostic: tuple[Ragged, ...] = sources.DIAGNOSTIC
    hidden: Callable[[int], tuple[Ragged, ...]] = sources.hidden


def _lengths(batch: Ragged) -> list[str]:
    return [f"lengths {list(batch.lengths)}", *drawn(batch)]


def _padded(batch: Ragged) -> list[str]:
    kind = str(batch.dtype).removeprefix("torch.")
    words = f"lengths {list(batch.lengths)}, x {tuple(batch.x.shape)} of {kind}"
    return [words, *drawn(batch)]


def _batch_sizes(batch: Ragged) -> list[str]:
    long_to_short = replace(batch, lengths=tuple(sorted(batch.lengths, reverse=True)))
    return [f"batch_sizes {list(batch.batch_sizes)}", *drawn(long_to_short)]


def _packed(batch: Ragged) -> list[str]:
    options = ""
    if batch.padding_value:
        options += f", padding_value={batch.padding_value:g}"
    if batch.total_length is not None:
        options += f", total_length={batch.total_length}"
    words = f"batch_sizes {list(batch.batch_sizes)}, order {list(batch.order)}{options}"
    return [words, *drawn(batch)]


CHAPTER = "chapters/05_pack_by_hand"
STAIRCASE = Section(CHAPTER, "Rows and columns of a staircase")
BY_HAND = Section(CHAPTER, "The smallest code that shows it")
AND_BACK = Section(CHAPTER, "And back")
PACK_LAWS = (
    laws.order_sorts,
    laws.packed_batch_sizes_count,
    laws.data_runs_by_step,
    laws.padding_may_be_anything,
    laws.packed_dtypes,
)

_ALL = (
    Part(
        name="ps2.batch_sizes",
        function="batch_sizes",
        points=2,
        outputs=("batch_sizes",),
        arguments=Ragged.as_lengths,
        shown=_lengths,
        laws=(laws.batch_sizes_count, laws.batch_sizes_are_int64),
        mistakes=tuple(BATCH_SIZES),
        nudge="Draw one row of boxes for each sequence, and count each column.",
        read=STAIRCASE,
    ),
    Part(
        name="ps2.pack",
        function="pack",
        points=4,
        outputs=("data", "batch_sizes", "order"),
        arguments=Ragged.as_padded,
        shown=_padded,
        laws=PACK_LAWS,
        mistakes=tuple(PACK),
        nudge="Take it apart: which sequences run at step t, and in which order do they stand? "
        "Print order first, then the rows of one step.",
        read=BY_HAND,
        earlier=("batch_sizes",),
    ),
    Part(
        name="ps2.lengths",
        function="lengths_from_batch_sizes",
        points=2,
        outputs=("lengths",),
        arguments=Ragged.as_batch_sizes,
        shown=_batch_sizes,
        laws=(laws.lengths_count, laws.lengths_are_int64),
        mistakes=tuple(LENGTHS),
        nudge="Draw one column of boxes for each step, pushed to the top, and count each row.",
        read=STAIRCASE,
        earlier=("batch_sizes",),
        diagnostic=(*sources.DIAGNOSTIC, sources.WITH_TIES),
    ),
    Part(
        name="ps2.unpack",
        function="unpack",
        points=3,
        outputs=("x", "lengths"),
        arguments=Ragged.as_packed,
        shown=_packed,
        laws=(
            laws.unpacked_shape,
            laws.unpack_undoes_pack,
            laws.rows_in_users_order,
            laws.lengths_in_users_order,
            laws.padding_value_fills,
            laws.unpacked_dtypes,
        ),
        mistakes=tuple(UNPACK),
        nudge="Two steps: lay the rows of each step into a grid that is long to short, then put "
        "the grid's rows back into the user's order.",
        read=AND_BACK,
        earlier=("batch_sizes", "lengths_from_batch_sizes"),
    ),
    Part(
        name="ps2.pack_without_loops",
        function="pack_without_loops",
        points=1,
        outputs=("data", "batch_sizes", "order"),
        arguments=Ragged.as_padded,
        shown=_padded,
        laws=(*PACK_LAWS, laws.no_loops),
        mistakes=tuple(PACK),
        nudge="A mask (T, B) of the running sequences, long to short, picks the rows of data in "
        "the right order. One comparison of two small tensors makes the mask.",
        read=STAIRCASE,
        earlier=("batch_sizes",),
    ),
)
PARTS = {part.name: part for part in _ALL}


def part_named(name: str) -> Part:
    """The part; an unknown name is a ValueError that lists the parts."""
    if name not in PARTS:
        raise ValueError(f"There is no part {name!r}. The parts: {', '.join(PARTS)}.")
    return PARTS[name]
