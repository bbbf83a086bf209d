"""The grades of an assignment as a table and as CSV.

python exercises/grades.py --course exercises --assignment ps2_pack_and_unpack --csv grades.csv
"""

import argparse
import csv
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

from nbgrader.api import Gradebook, MissingEntry  # noqa: E402
from statuses import NOT_GRADED, status_of  # noqa: E402
from verdicts import readable  # noqa: E402

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Row:
    """One student: points per part (None if a person still has to give them), what happened.

    ``auto`` and ``total`` are None if the submission was not graded: 0 would read as a mark.
    """

    student: str
    points: dict
    auto: float | None
    total: float | None
    by_hand: tuple
    status: str


def read_rows(course, assignment):
    """The parts with their most points, and a row for every student of the course."""
    course = Path(course)
    with Gradebook(f"sqlite:///{(course / 'gradebook.db').resolve()}") as gradebook:
        parts = _parts(gradebook.find_assignment(assignment))
        students = sorted(student.id for student in gradebook.students)
        return parts, [_row(gradebook, course, assignment, student, parts) for student in students]


def _parts(assignment):
    """Each marked cell's most points, in the order of the numbers in their names."""
    cells = [
        cell
        for notebook in assignment.notebooks
        for cell in [*notebook.grade_cells, *notebook.task_cells]
    ]
    cells.sort(key=lambda cell: (cell.notebook.name, _natural(cell.name)))
    return {readable(cell.name): cell.max_score for cell in cells}


def _natural(name):
    return [int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name)]


def _row(gradebook, course, assignment, student, parts):
    try:
        submission = gradebook.find_submission(assignment, student)
    except MissingEntry:
        return Row(student, dict.fromkeys(parts), 0, 0, (), "nothing was handed in")
    grades = {
        readable(grade.name): grade
        for notebook in submission.notebooks
        for grade in notebook.grades
    }
    penalty = sum(notebook.late_submission_penalty or 0 for notebook in submission.notebooks)
    status = status_of(course, assignment, submission)
    graded = not status.startswith(NOT_GRADED)
    auto = sum(grade.auto_score or 0 for grade in grades.values())
    total = sum(grade.score for grade in grades.values()) - penalty
    return Row(
        student=student,
        points={part: None if _open(grades[part]) else grades[part].score for part in parts},
        auto=auto if graded else None,
        total=total if graded else None,
        by_hand=tuple(part for part in parts if grades[part].needs_manual_grade),
        status=f"{status}; {penalty:g} points off for being late" if penalty else status,
    )


def _open(grade):
    return grade.needs_manual_grade and grade.manual_score is None


def write_csv(path, parts, rows):
    """Writes the rows; what a spreadsheet would take for a formula gets a quote mark before it."""
    most = sum(parts.values())
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = [f"{part} (of {points:g})" for part, points in parts.items()]
        heading = [
            "student",
            *columns,
            "total_auto",
            "total",
            "max",
            "needs_hand_grading",
            "status",
        ]
        writer.writerow(map(_harmless, heading))
        for row in rows:
            points = [_number(row.points[part]) for part in parts]
            sums = [_number(row.auto), _number(row.total), _number(most)]
            cells = [row.student, *points, *sums]
            writer.writerow(map(_harmless, [*cells, "; ".join(row.by_hand), row.status]))


def _harmless(cell):
    return "'" + cell if cell.startswith(_FORMULA) and not _is_number(cell) else cell


def _is_number(cell):
    return re.fullmatch(r"-?\d+(\.\d+)?", cell) is not None


def _number(value, missing=""):
    return missing if value is None else f"{value:g}"


def as_table(parts, rows):
    """The same as aligned plain text; `?` marks points that a person still has to give."""
    numbers = [f"[{number}]" for number in range(1, len(parts) + 1)]
    lines = [["student", *numbers, "total", "of", "status"]]
    most = sum(parts.values())
    for row in rows:
        points = [_number(row.points[part], "?") for part in parts]
        lines.append([row.student, *points, _number(row.total, "?"), _number(most), row.status])
    key = [
        f"{number} {part}, {points:g} point{'' if points == 1 else 's'}"
        for number, (part, points) in zip(numbers, parts.items(), strict=True)
    ]
    return "\n".join([_aligned(lines), "", *key, "?   to be graded by hand"])


def _aligned(lines):
    """Names and remarks to the left, numbers to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def main(argv=None):
    """Prints the table, and writes the CSV if asked."""
    parser = argparse.ArgumentParser(
        description="The grades of an assignment, from nbgrader's gradebook."
    )
    parser.add_argument(
        "--course", required=True, help="the folder with nbgrader_config.py and gradebook.db"
    )
    parser.add_argument("--assignment", required=True)
    parser.add_argument("--csv", help="write the grades to this file too")
    options = parser.parse_args(argv)
    if not (Path(options.course) / "gradebook.db").is_file():
        parser.error(
            f"there is no gradebook.db in {options.course}: nothing has been released there yet"
        )
    try:
        parts, rows = read_rows(options.course, options.assignment)
    except MissingEntry:
        parser.error(f"the gradebook knows no assignment called {options.assignment}")
    print(as_table(parts, rows))
    if options.csv:
        write_csv(options.csv, parts, rows)


if __name__ == "__main__":
    main()
