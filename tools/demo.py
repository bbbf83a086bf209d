"""Grades a sample class from end to end in `_build/class`, and says what came out.

`make demo` runs this last. Nothing outside that folder is written, and what has not changed since
the last run is not done again.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = ROOT / "exercises"
sys.path.append(str(EXERCISES))

CONFIG = '''"""The course of `make demo`: that of exercises/, in this folder."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
load_subconfig("nbgrader_config.py", path={exercises!r})
c = get_config()
c.CourseDirectory.root = str(HERE)
c.HideTests.book_url = {book!r}
'''


class Journal:
    """What was graded, and from what: written after every step, for a run may be interrupted."""

    def __init__(self, path):
        self._path = path
        self.made = path.is_file()
        self._content = json.loads(path.read_text()) if self.made else {}
        self.course = self._content.get("course")

    def knows(self, student, key):
        return self._content.get("graded", {}).get(student) == key

    def start(self, course_key):
        self._write({"course": course_key, "graded": {}})

    def graded(self, student, key):
        self._write({**self._content, "graded": {**self._content["graded"], student: key}})

    def _write(self, content):
        self._content, self.course = content, content["course"]
        half = self._path.with_suffix(".part")
        half.write_text(json.dumps(content, indent=1))
        os.replace(half, self._path)


def digest(paths, *more):
    """One short text that changes when any of the files changes."""
    total = hashlib.sha256("\0".join(more).encode())
    for path in sorted(paths):
        total.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


def course_key(assignment):
    """Everything that the grades of the sample class depend on, submissions apart."""
    source = [path for path in (EXERCISES / "source" / assignment).rglob("*") if path.is_file()]
    answers = (EXERCISES / "answers" / assignment).glob("*.py")
    code = [*EXERCISES.glob("*.py"), *(ROOT / "packlib").rglob("*.py"), Path(__file__)]
    versions = (f"{package} {version(package)}" for package in ("nbgrader", "torch"))
    return digest([*source, *answers, *code], str(ROOT), *versions)


def make_course(folder, assignment, book):
    """A course folder with its configuration and the source of one assignment."""
    shutil.copytree(EXERCISES / "source" / assignment, folder / "source" / assignment)
    # From a feedback page, <step>/<student>/<assignment>/, to the book.
    link = (
        Path(os.path.relpath(book.parent, folder / "feedback" / "student" / assignment)).as_posix()
        + "/"
    )
    config = CONFIG.format(exercises=str(EXERCISES), book=link)
    (folder / "nbgrader_config.py").write_text(config, encoding="utf-8")


def start_afresh(folder, journal):
    """Empties the class folder, if it is one of ours; submissions are left where they are."""
    from nbgrader.utils import remove, rmtree

    if folder.exists() and not journal.made and any(folder.iterdir()):
        raise SystemExit(
            f"{shown(folder)} was not made by this program: give another folder with --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    journal.start(None)
    for path in folder.iterdir():
        if path.name in ("source", "release", "autograded", "feedback"):
            rmtree(str(path))
        elif path.name in ("gradebook.db", "log.txt", "grades.csv"):
            remove(str(path))


def prepare(folder, assignment, book, force):
    """The course, released and with the sample submissions; made only if something has changed."""
    from grading import Course

    journal, key = Journal(folder / "demo.json"), course_key(assignment)
    fresh = force or journal.course != key
    if fresh:
        start_afresh(folder, journal)
        make_course(folder, assignment, book)
    course = Course(folder, folder / "log.txt")
    if fresh:
        from sample_class import hand_in

        with say(f"releasing {assignment}"):
            course.release(assignment)
        hand_in(folder, assignment)
        journal.start(key)
    return course, journal


def grade_class(course, journal, assignment):
    """Grades who has not been graded from the same files; returns how many were, and were not."""
    students = course.students(assignment)
    keys = {}
    for student in students:
        files = [
            path
            for path in (course.folder / "submitted" / student / assignment).rglob("*")
            if path.is_file()
        ]
        keys[student] = digest(files)
    to_do = [
        student
        for student in students
        if not journal.knows(student, keys[student])
        or not (course.folder / "feedback" / student / assignment).is_dir()
    ]
    for number, student in enumerate(to_do, 1):
        with say(f"grading {student} ({number} of {len(to_do)})"):
            course.grade(assignment, student)
        journal.graded(student, keys[student])
    return len(to_do), len(students) - len(to_do)


@contextmanager
def say(what):
    """Prints what is being done, and the seconds that it took."""
    print(f"  {what} ... ", end="", flush=True)
    start, ended = time.monotonic(), "stopped"
    try:
        yield
        ended = f"{time.monotonic() - start:.1f} s"
    finally:
        print(ended, flush=True)


def shown(path):
    """A path as a reader at the root of the repository would type it."""
    path = Path(path).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def summary(folder, assignment, book, parts, rows):
    """What came out, and what to do next."""
    from grades import as_table

    lowest = min((row for row in rows if row.total), key=lambda row: row.total, default=rows[0])
    page = folder / "feedback" / lowest.student / assignment / f"{assignment}.html"
    here = shown(folder)
    missing = "" if book.is_file() else "   (not built yet: make book)"
    return f"""
The sample class, {assignment}

{as_table(parts, rows)}

The book's first page   {shown(book)}{missing}
The grades as CSV       {here}/grades.csv
A feedback page         {shown(page)}
nbgrader's own log      {here}/log.txt

What to do next
  read    open the book's first page in a browser
  grade   the open points by hand: cd {here} && {program("jupyter", folder)} lab
          and choose Nbgrader, Formgrader in the menu
  try it  put your own notebook into {here}/submitted/<your name>/{assignment}
          and run this again: only what has changed is graded
  teach   exercises/ is an ordinary nbgrader course
"""


def program(name, folder):
    """How to call a program of this Python's environment from within a folder."""
    path = Path(sys.executable).parent / name
    return os.path.relpath(path, folder) if path.is_relative_to(ROOT) else str(path)


def main(argv=None):
    """Runs the demo; a second run takes seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--assignment", default="ps2_pack_and_unpack")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "_build" / "class", help="the folder of the sample class"
    )
    parser.add_argument("--book", type=Path, default=ROOT / "_build" / "html" / "index.html")
    parser.add_argument("--force", action="store_true", help="do everything again")
    options = parser.parse_args(argv)
    from grades import read_rows, write_csv

    folder = options.out.resolve()
    print(f"The sample class in {shown(folder)}", flush=True)
    course, journal = prepare(folder, options.assignment, options.book, options.force)
    graded, kept = grade_class(course, journal, options.assignment)
    print(f"  {graded} graded, {kept} unchanged since the last run")
    parts, rows = read_rows(folder, options.assignment)
    write_csv(folder / "grades.csv", parts, rows)
    print(summary(folder, options.assignment, options.book, parts, rows))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Run it again: it goes on where it was.")
