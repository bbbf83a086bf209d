"""Tests the assignments and their tests: `make check-exercises`.

Every known answer is graded by the test cells of the assignment, in one warm process, and a few of
them by nbgrader too. A right answer that loses points and a wrong one that does not are errors, and
so is each demand (demands.py) that does not hold. The exit code is 0 if there is none.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import warm
from demands import DEMANDS, Assignment, nothing_unlisted
from student_notebooks import filled_in, labels, part_of, with_tests_of

HERE = Path(__file__).resolve().parent
SAMPLE = ("right_masks", "wrong_sequence_major", "wrong_shown_inputs_only")
CONFIG = """
load_subconfig("nbgrader_config.py", path={room!r})
get_config().CourseDirectory.root = {course!r}
"""


@dataclass(frozen=True)
class Graded:
    """One answer and its marks, part -> Mark."""

    answer: object
    marks: dict

    def lost(self):
        return {part for part, mark in self.marks.items() if mark.points < mark.of}

    def complaints(self):
        """False accepts, false rejects, and hints that did not appear."""
        name, loses = self.answer.name, self.answer.loses
        for part in sorted(set(loses) - self.lost()):
            yield f"false accept: {name} keeps its points in {part}"
        for part in sorted(self.lost() - set(loses)):
            yield f"false reject: {name} loses {part}: {self.marks[part].said}"
        for part in sorted(self.lost() & set(loses)):
            mark = self.marks[part]
            if mark.hint != loses[part]:
                hints = f"{loses[part]!r} expected, {mark.hint!r} found"
                yield f"missing hint: {name} in {part}: {hints}"
            if mark.hidden != (part in self.answer.passes_visible):
                which = "hidden" if mark.hidden else "visible"
                yield f"{name} in {part}: it was the {which} test that found it"


def grade_warm(assignment, answer):
    """Grades one answer in this process."""
    handed_in = filled_in(assignment.source, answer)
    return Graded(answer, warm.run(with_tests_of(assignment.source, handed_in)))


def matrix(graded):
    """Answers by parts: a dot for points, the hint for none."""
    parts = list(graded[0].marks)
    width = max(len(one.answer.name) for one in graded)
    titles = [part.split(".")[1] for part in parts]
    columns = [
        max(len(title), *(len(one.marks[part].hint) for one in graded))
        for part, title in zip(parts, titles, strict=True)
    ]
    lines = [_line("", width, titles, columns)]
    for one in graded:
        lost = one.lost()
        cells = [one.marks[part].hint or "lost" if part in lost else "." for part in parts]
        lines.append(_line(one.answer.name, width, cells, columns))
    return "\n".join(lines)


def _line(name, width, cells, columns):
    padded = (f"{cell:{column}}" for cell, column in zip(cells, columns, strict=True))
    return "  ".join([f"{name:{width}}", *padded]).rstrip()


def sample_complaints(assignment, graded):
    """Grades a few answers by nbgrader, and compares the points with those of this process."""
    chosen = [one for one in graded if one.answer.name in SAMPLE]
    with tempfile.TemporaryDirectory() as folder:
        points = _points_by_nbgrader(assignment, [one.answer for one in chosen], Path(folder))
    for one in chosen:
        for part, mark in one.marks.items():
            theirs = points[one.answer.name][part]
            if theirs != mark.points:
                yield f"nbgrader gives {one.answer.name} {theirs} in {part}, here {mark.points}"


def _points_by_nbgrader(assignment, answers, folder):
    """answer -> part -> points, by generate and autograde in a course of its own."""
    from grading import Course  # imports nbgrader's applications, which takes a while

    course = folder.resolve()
    config = CONFIG.format(room=str(assignment.room), course=str(course))
    (course / "nbgrader_config.py").write_text(config, encoding="utf-8")
    _write(assignment.source, course / "source" / assignment.name)
    grader = Course(course, course / "log.txt")
    grader.release(assignment.name)
    for answer in answers:
        notebook = filled_in(assignment.source, answer)
        _write(notebook, course / "submitted" / answer.name / assignment.name)
        grader.grade(assignment.name, answer.name)
    with grader.gradebook() as gradebook:
        return {answer.name: _points(gradebook, assignment, answer.name) for answer in answers}


def _write(notebook, folder):
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{folder.name}.ipynb")


def _points(gradebook, assignment, student):
    submission = gradebook.find_submission_notebook(assignment.name, assignment.name, student)
    scores = {grade.name: grade.auto_score for grade in submission.grades}
    parts = assignment.parts.values()
    return {part_of(cell).name: scores[labels(cell)["grade_id"]] for cell in parts}


def complaints_about(assignment, say=print, sample=True):
    """Checks one assignment and returns all that is wrong."""
    found = [f"{assignment.name}: {text}" for demand in DEMANDS for text in demand(assignment)]
    say(f"{assignment.name}: {len(DEMANDS)} demands, {len(found)} complaints")
    graded = []
    for number, answer in enumerate(assignment.answers, 1):
        graded.append(grade_warm(assignment, answer))
        if number % 10 == 0 or number == len(assignment.answers):
            say(f"  {number} of {len(assignment.answers)} answers graded", flush=True)
    say(f"\n{matrix(graded)}\n")
    about_answers = [text for one in graded for text in one.complaints()]
    for kind in ("false accept", "false reject", "missing hint"):
        say(f"  {kind}s: {sum(text.startswith(kind) for text in about_answers)}")
    found += about_answers
    if sample:
        say(f"  the same through nbgrader: {', '.join(SAMPLE)} ...", flush=True)
        found += sample_complaints(assignment, graded)
    return found


def assignments(room=HERE):
    """All assignments of the course."""
    folders = sorted(path for path in (room / "source").iterdir() if path.is_dir())
    return [Assignment(path.name, room, room.parent) for path in folders]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-nbgrader", action="store_true", help="leave out the sample")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    found = list(nothing_unlisted(HERE))
    for assignment in assignments():
        found += complaints_about(assignment, sample=not options.no_nbgrader)
    for complaint in found:
        print(f"\n{complaint}")
    seconds = time.monotonic() - began
    print(f"\n{'wrong: ' + str(len(found)) if found else 'all right'}, {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
