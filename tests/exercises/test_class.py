"""A whole class is graded: no submission stops another, and each one gets a line."""

import json
import os
import shutil
from pathlib import Path

import pytest
from grades import read_rows
from grading import Course, _Autograde, _Feedback
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from toy_course import (
    ASSIGNMENT,
    ENDLESS,
    RIGHT,
    SQUARES,
    make_course,
    submit,
    submit_text,
)

from tools import demo

DAMAGED_LABELS = {"grade_id": "double", "grade": False, "solution": True, "schema_version": 1}
UNSTOPPABLE = """
def double(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""


def open_course(folder):
    return Course(folder, folder / "log.txt")


@pytest.fixture(scope="module")
def released_once(tmp_path_factory):
    folder = make_course(tmp_path_factory.mktemp("class"))
    open_course(folder).release(ASSIGNMENT)
    return folder


@pytest.fixture
def released(released_once, tmp_path):
    """A course with the assignment released and nothing handed in."""
    return Path(shutil.copytree(released_once, tmp_path / "course"))


def ungraded(reason):
    return f"not graded: {reason}; needs a person"


def grade(folder):
    journal = demo.Journal(folder / "demo.json")
    if not journal.made:
        journal.start("key")
    return demo.grade_class(open_course(folder), journal, ASSIGNMENT)


def rows_by_student(folder):
    _, rows = read_rows(folder, ASSIGNMENT)
    return {row.student: row for row in rows}


def test_bad_submissions_do_not_stop_the_others(released):
    submit_text(released, "a_not_json", '{"cells": [\n  oops\n]}')
    submit_text(released, "b_not_a_notebook", "[1, 2]")
    submit_text(released, "c_empty", "")
    submit(released, "d_endless", {**RIGHT, **ENDLESS})
    submit(released, "e_kills_python", {**RIGHT, "double": "import os\nos._exit(0)"})
    submit(released, "f_squares", {**RIGHT, **SQUARES})
    submit(released, "g_unsolved", {}, question="")
    path = submit(released, "h_renamed", RIGHT)
    path.rename(path.with_name("my homework.ipynb"))
    path = submit(released, "l_link", RIGHT)
    path.unlink()
    path.symlink_to(released / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb")
    content = json.loads(submit(released, "i_damaged_labels", RIGHT).read_text())
    content["cells"][1]["metadata"]["nbgrader"] = DAMAGED_LABELS
    submit_text(released, "i_damaged_labels", json.dumps(content))
    submit(released, "j [bracket] o'neil", RIGHT)
    submit(released, "k_right", RIGHT)

    assert grade(released) == (12, 0)

    rows = rows_by_student(released)
    parts = ["part 1 double", "part 2 triple", "part 3 why"]
    assert {student: [row.points[part] for part in parts] for student, row in rows.items()} == {
        "a_not_json": [None, None, None],
        "b_not_a_notebook": [None, None, None],
        "c_empty": [None, None, None],
        "d_endless": [0, 3, None],
        "e_kills_python": [None, None, None],
        "f_squares": [0, 3, None],
        "g_unsolved": [0, 0, 0],
        "h_renamed": [None, None, None],
        "i_damaged_labels": [None, None, None],
        "j [bracket] o'neil": [2, 3, None],
        "k_right": [2, 3, None],
        "l_link": [None, None, None],
    }
    assert {student: row.status for student, row in rows.items()} == {
        "a_not_json": ungraded("the notebook is not valid JSON (line 2, column 3)"),
        "b_not_a_notebook": ungraded("the file is JSON, but not a notebook: it has no cells"),
        "c_empty": ungraded("the notebook is not valid JSON (line 1, column 1)"),
        "d_endless": "graded; part 1 double: stopped after 4 s: endless loop?",
        "e_kills_python": ungraded("the program ended Python itself (out of memory, or exit?)"),
        "f_squares": "graded",
        "g_unsolved": "graded: nothing was answered",
        "h_renamed": ungraded(
            "there is no notebook called warm_up.ipynb (notebooks found: my homework.ipynb)"
        ),
        "i_damaged_labels": ungraded(
            "the labels that nbgrader puts on cells are damaged (a copied cell?)"
        ),
        "j [bracket] o'neil": "graded",
        "k_right": "graded",
        "l_link": ungraded("the notebook is a link to another file"),
    }
    for student, row in rows.items():
        page = released / "feedback" / student / ASSIGNMENT / f"{ASSIGNMENT}.html"
        assert page.is_file(), student
        assert row.by_hand == tuple(part for part in parts if row.points[part] is None)
    assert "not valid JSON (line 2" in (
        released / "feedback" / "a_not_json" / ASSIGNMENT / f"{ASSIGNMENT}.html"
    ).read_text(encoding="utf-8")


def test_nbgraders_own_command_records_why_it_gave_up(released):
    submit(released, "bo", {**RIGHT, "double": "import os\nos._exit(0)"})
    course = open_course(released)
    with pytest.raises(NbGraderException):
        course._run(Autograde, ASSIGNMENT, "bo")
    row = rows_by_student(released)["bo"]
    assert row.status == ungraded("the program ended Python itself (out of memory, or exit?)")
    assert (row.auto, row.total) == (None, None)
    assert row.by_hand == ("part 1 double", "part 2 triple", "part 3 why")
    submit(released, "bo", RIGHT)
    course._run(Autograde, ASSIGNMENT, "bo")
    row = rows_by_student(released)["bo"]
    assert (row.total, row.status, row.by_hand) == (5, "graded", ("part 3 why",))


def test_nothing_ungraded_is_left_empty_in_the_gradebook(released):
    submit_text(released, "bo", "not JSON")
    grade(released)
    with Gradebook(f"sqlite:///{released / 'gradebook.db'}") as gradebook:
        notebook = gradebook.find_submission(ASSIGNMENT, "bo").notebooks[0]
        assert len(notebook.grades) == 3
        assert all(mark.auto_score == 0 and mark.needs_manual_grade for mark in notebook.grades)


def test_a_loop_that_cannot_be_interrupted_costs_that_student_only(released):
    submit(released, "amal", {**RIGHT, "double": UNSTOPPABLE})
    submit(released, "bo", RIGHT)
    grade(released)
    rows = rows_by_student(released)
    assert rows["amal"].status.startswith("not graded: a cell could not be stopped")
    assert rows["bo"].total == 5


def test_a_warning_costs_nothing(released):
    warns = "import warnings\n\ndef double(x):\n    warnings.warn('soon')\n    return 2 * x"
    submit(released, "bo", {**RIGHT, "double": warns})
    grade(released)
    assert rows_by_student(released)["bo"].points["part 1 double"] == 2


def test_a_deleted_test_comes_back(released):
    content = json.loads(submit(released, "bo", {**RIGHT, **SQUARES}).read_text())
    del content["cells"][2]
    submit_text(released, "bo", json.dumps(content))
    grade(released)
    row = rows_by_student(released)["bo"]
    assert row.points == {"part 1 double": 0, "part 2 triple": 3, "part 3 why": None}


def test_a_second_run_grades_only_what_has_changed(released):
    submit(released, "amal", RIGHT)
    submit(released, "bo", {**RIGHT, **SQUARES})
    assert grade(released) == (2, 0)
    assert grade(released) == (0, 2)
    submit(released, "bo", RIGHT)
    assert grade(released) == (1, 1)
    assert rows_by_student(released)["bo"].points["part 1 double"] == 2


def test_a_notebook_that_became_unreadable_loses_its_old_points(released):
    submit(released, "bo", RIGHT)
    grade(released)
    submit_text(released, "bo", "{")
    grade(released)
    row = rows_by_student(released)["bo"]
    assert row.total is None and row.status.startswith("not graded: the notebook is not valid JSON")
    assert not (released / "autograded" / "bo" / ASSIGNMENT).exists()
    submit(released, "bo", RIGHT)
    grade(released)
    row = rows_by_student(released)["bo"]
    assert (row.total, row.status, row.by_hand) == (5, "graded", ("part 3 why",))


@pytest.mark.parametrize("where", ["before its points are saved", "before its feedback is made"])
def test_an_interrupted_run_is_finished_by_the_next(released, monkeypatch, where):
    for student in ("amal", "bo", "chi"):
        submit(released, student, RIGHT)

    with monkeypatch.context() as patch:
        cut_off(patch, _Autograde if "points" in where else _Feedback, "bo")
        with pytest.raises(KeyboardInterrupt):
            grade(released)

    assert (released / "autograded" / "bo" / ASSIGNMENT).exists()
    assert grade(released) == (2, 1)
    rows = rows_by_student(released)
    assert {student: (row.total, row.status) for student, row in rows.items()} == dict.fromkeys(
        ["amal", "bo", "chi"], (5, "graded")
    )


def cut_off(patch, converter, student):
    """Makes the program end as by a pulled plug: nothing is tidied up."""
    convert = converter.convert_notebooks

    def pulled_plug(self):
        if self.coursedir.student_id == student:
            self.notebooks = list(self.assignments.values())[0]
            self.init_assignment(ASSIGNMENT, student)
            folder = self.coursedir.format_path("autograded", student, ASSIGNMENT)
            os.makedirs(folder, exist_ok=True)
            raise KeyboardInterrupt
        return convert(self)

    patch.setattr(converter, "convert_notebooks", pulled_plug)
