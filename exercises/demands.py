"""What an assignment must fulfil before students see it.

Each demand is a function of an Assignment that yields complaints; none means that it holds.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import warm
from known_answers import read_answers
from student_notebooks import (
    function_in,
    is_stub,
    is_test,
    labels,
    part_of,
    parts_of,
    read_notebook,
    released,
    with_tests_of,
)

from packlib.checks import PARTS

FEWEST_RIGHT, FEWEST_WRONG = 5, 20
PRIVATE = ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS", "require_hidden", "seed=")


@dataclass(frozen=True)
class Assignment:
    """One assignment of the course in `room`: its source, its known answers, its parts."""

    name: str
    room: Path  # the folder exercises/
    book: Path  # the folder that sections are looked up in

    @property
    def notebook(self):
        return self.room / "source" / self.name / f"{self.name}.ipynb"

    @property
    def answers_folder(self):
        return self.room / "answers" / self.name

    @cached_property
    def source(self):
        return read_notebook(self.notebook)

    @cached_property
    def release(self):
        return released(self.source)

    @cached_property
    def parts(self):
        return parts_of(self.source)

    @cached_property
    def answers(self):
        return read_answers(self.answers_folder, [part.function for part in self.parts])

    @property
    def prefix(self):
        """`ps2` of `ps2_pack_and_unpack`; the names of its parts begin with it."""
        return self.name.split("_")[0]


def source_solves_itself(assignment):
    """The source gets all points."""
    for mark in warm.run(assignment.source).values():
        if mark.points < mark.of:
            yield f"{mark.part}: the source's own solution loses: {mark.said}"


def release_fails_everywhere(assignment):
    """Unsolved, every part fails, and for that reason only."""
    notebook = with_tests_of(assignment.source, assignment.release)
    for mark in warm.run(notebook).values():
        if mark.points or mark.hint != "not-written":
            yield f"{mark.part}: unsolved, it gives {mark.points} points, hint {mark.hint!r}"
    for cell in filter(is_stub, assignment.release.cells):
        if "raise NotImplementedError()" not in cell.source:
            yield f"{labels(cell)['grade_id']}: the stub does not raise NotImplementedError"


def parts_are_whole(assignment):
    """Each part of packlib.checks has its stub, its check, a visible and a hidden test."""
    stubs = {function_in(cell.source) for cell in assignment.source.cells if is_stub(cell)}
    checks = [cell.source for cell in assignment.source.cells if not labels(cell)]
    for cell in filter(is_test, assignment.source.cells):
        if part_of(cell) is None:
            yield f"{labels(cell)['grade_id']}: the test names no part, or several"
    for name, part in PARTS.items():
        if not name.startswith(f"{assignment.prefix}."):
            continue
        if part not in assignment.parts:
            yield f"{name}: no test cell"
            continue
        if part.function not in stubs:
            yield f"{name}: no cell in which to write {part.function}"
        if not any(f'packlib.check("{name}", {part.function})' in text for text in checks):
            yield f"{name}: no cell that calls packlib.check"
        before, _, hidden = assignment.parts[part].source.partition("### BEGIN HIDDEN TESTS")
        if f'.require("{name}", {part.function})' not in before:
            yield f"{name}: no visible test"
        if f'.require_hidden("{name}", {part.function}' not in hidden:
            yield f"{name}: no hidden test"


def points_add_up(assignment):
    """The cells' points are those of packlib.checks, and together what the page says."""
    for part, cell in assignment.parts.items():
        if labels(cell)["points"] != part.points:
            yield f"{part.name}: {labels(cell)['points']} points, packlib.checks says {part.points}"
    total = sum(labels(cell).get("points", 0) for cell in assignment.source.cells)
    said = re.findall(r"\*\*(\d+) points\*\*", assignment.source.cells[0].source)
    if said != [str(total)]:
        yield f"the cells give {total} points, the page says {', '.join(said) or 'nothing'}"
    rows = re.findall(r"^\| \d+ \|.*\| (\d+) \|$", assignment.source.cells[0].source, re.M)
    if sum(map(int, rows)) != total:
        yield f"the rows of the page's table add up to {sum(map(int, rows))}, the cells to {total}"


def every_part_helps(assignment):
    """A nudge, hints for the known mistakes, and a section of the book that is there."""
    for part in assignment.parts:
        if not part.nudge.strip():
            yield f"{part.name}: no second hint"
        if not part.mistakes:
            yield f"{part.name}: no known mistakes"
        for mistake in part.mistakes:
            if not mistake.hint.strip():
                yield f"{part.name}: the mistake {mistake.id} has no hint"
        yield from _section_complaints(assignment, part)


def _section_complaints(assignment, part):
    files = [assignment.book / f"{part.read.file}{suffix}" for suffix in (".ipynb", ".md")]
    file = next(filter(Path.exists, files), None)
    if file is None:
        yield f"{part.name}: the book has no {part.read.file}"
    elif not re.search(rf"^#+ {re.escape(part.read.heading)}$", _text_of(file), re.M):
        yield f'{part.name}: {part.read.file} has no heading "{part.read.heading}"'
    if part.read.heading not in _page_text(assignment):
        yield f'{part.name}: the page does not name the section "{part.read.heading}"'


def _text_of(file):
    if file.suffix == ".md":
        return file.read_text(encoding="utf-8")
    cells = read_notebook(file).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def _page_text(assignment):
    cells = assignment.source.cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def grade_ids_are_unique(assignment):
    """nbgrader finds cells by their grade_id."""
    ids = [labels(cell)["grade_id"] for cell in assignment.source.cells if labels(cell)]
    for name in sorted({name for name in ids if ids.count(name) > 1}):
        yield f"the grade_id {name} is used {ids.count(name)} times"


def release_keeps_secrets(assignment):
    """No solution, no hidden test, no output."""
    given = {line.strip() for cell in assignment.release.cells for line in cell.source.splitlines()}
    for cell in assignment.release.cells:
        for word in PRIVATE:
            if word in cell.source:
                yield f"{labels(cell).get('grade_id', cell.id)}: the release shows {word!r}"
    for cell in assignment.source.cells:
        for line in _solution_lines(cell):
            if line in given:
                yield f"{labels(cell)['grade_id']}: the release shows the solution's line {line!r}"
        if cell.get("outputs") or cell.get("execution_count"):
            yield f"{cell.id}: the source stores outputs"


def _solution_lines(cell):
    if cell.cell_type == "markdown" and labels(cell).get("solution"):
        return cell.source.splitlines()
    inside = re.findall(r"BEGIN SOLUTION\n(.*?)### END SOLUTION", cell.source, re.S)
    return [line.strip() for text in inside for line in text.splitlines() if line.strip()]


def answers_suffice(assignment):
    """Enough known answers, each of which claims what must happen to it."""
    right = [answer for answer in assignment.answers if answer.name.startswith("right_")]
    wrong = [answer for answer in assignment.answers if answer.name.startswith("wrong_")]
    if len(right) < FEWEST_RIGHT or len(wrong) < FEWEST_WRONG:
        yield (
            f"{len(right)} right and {len(wrong)} wrong answers, "
            f"at least {FEWEST_RIGHT} and {FEWEST_WRONG} are needed"
        )
    functions = {part.name: part.function for part in assignment.parts}
    for answer in right:
        if answer.loses:
            yield f"{answer.name}: a right answer loses nothing"
    for answer in wrong:
        if not answer.loses:
            yield f"{answer.name}: does not say which part it loses"
        for name in {*answer.loses, *answer.passes_visible}:
            if functions.get(name) not in answer.functions:
                yield f"{answer.name}: speaks of {name} and does not write it"
    for name in functions:
        if not any(name in answer.loses for answer in wrong):
            yield f"{name}: no wrong answer loses it"


DEMANDS = (
    source_solves_itself,
    release_fails_everywhere,
    parts_are_whole,
    points_add_up,
    every_part_helps,
    grade_ids_are_unique,
    release_keeps_secrets,
    answers_suffice,
)


def nothing_unlisted(room):
    """In source/ and answers/ of the folder `room` lies nothing but assignments and answers."""
    names = {path.stem for path in (room / "source").glob("*/*.ipynb")}
    for path in _files(room / "source"):
        if path.parent.parent != room / "source" or path.name != f"{path.parent.name}.ipynb":
            yield f"unlisted: {path.relative_to(room)}"
    for path in _files(room / "answers"):
        known = path.parent.parent == room / "answers" and path.parent.name in names
        if not known or not re.fullmatch(r"(right|wrong)_\w+\.py", path.name):
            yield f"unlisted: {path.relative_to(room)}"


def _files(folder):
    leftovers = {"__pycache__", ".ipynb_checkpoints"}
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and not leftovers & set(p.parts)]
