"""The table and the CSV, from a gradebook that is filled by hand."""

import csv

import pytest
from grades import Row, as_table, main, read_rows, write_csv
from nbgrader.api import Gradebook

ASSIGNMENT = "ps9_gradebook"
PARTS = {"part 2 unpack": 3.0, "part 10 pack": 4.0, "part 11 why": 2.0}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Ana is graded by hand too, Ben waits for it, Cy handed in nothing, and Di was late."""
    folder = tmp_path_factory.mktemp("course")
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as gradebook:
        gradebook.add_assignment(ASSIGNMENT)
        gradebook.add_notebook("nb", ASSIGNMENT)
        for name, most, kind in [
            ("part_10_pack", 4, "code"),
            ("part_2_unpack_tests", 3, "code"),
            ("part_11_why", 2, "markdown"),
        ]:
            gradebook.add_grade_cell(name, "nb", ASSIGNMENT, max_score=most, cell_type=kind)
        gradebook.add_solution_cell("part_11_why", "nb", ASSIGNMENT)
        for student in ("ana", "ben", "cy", "di"):
            gradebook.add_student(student)
        _hand_in(
            gradebook,
            folder,
            "ana",
            {"part_2_unpack_tests": 3, "part_10_pack": 4, "part_11_why": None},
            by_hand=1.5,
        )
        _hand_in(
            gradebook,
            folder,
            "ben",
            {"part_2_unpack_tests": 3, "part_10_pack": 0, "part_11_why": None},
        )
        _hand_in(
            gradebook,
            folder,
            "di",
            {"part_2_unpack_tests": 3, "part_10_pack": 0, "part_11_why": None},
            penalty=2,
        )
    return folder


def _hand_in(gradebook, folder, student, scores, by_hand=None, penalty=None):
    submission = gradebook.add_submission(ASSIGNMENT, student)
    notebook = submission.notebooks[0]
    notebook.late_submission_penalty = penalty
    for grade in notebook.grades:
        grade.auto_score = scores[grade.name]
        grade.needs_manual_grade = scores[grade.name] is None and by_hand is None
        if scores[grade.name] is None:
            grade.manual_score = by_hand
    gradebook.db.commit()
    graded = folder / "autograded" / student / ASSIGNMENT
    graded.mkdir(parents=True)
    (graded / "nb.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )


def test_parts_are_in_the_order_of_their_numbers(course):
    parts, _ = read_rows(course, ASSIGNMENT)
    assert list(parts.items()) == list(PARTS.items())


def test_points_that_a_person_has_to_give_are_open_and_not_zero(course):
    _, rows = read_rows(course, ASSIGNMENT)
    ben = rows[1]
    assert ben.points == {"part 2 unpack": 3, "part 10 pack": 0, "part 11 why": None}
    assert (ben.auto, ben.total, ben.by_hand, ben.status) == (3, 3, ("part 11 why",), "graded")


def test_points_given_by_hand_count_in_the_total_only(course):
    _, rows = read_rows(course, ASSIGNMENT)
    ana = rows[0]
    assert ana.points["part 11 why"] == 1.5
    assert (ana.auto, ana.total, ana.by_hand) == (7, 8.5, ())


def test_a_student_without_a_submission_has_a_row(course):
    _, rows = read_rows(course, ASSIGNMENT)
    assert rows[2] == Row("cy", dict.fromkeys(PARTS), 0, 0, (), "nothing was handed in")


def test_a_late_submission_says_what_it_cost(course):
    _, rows = read_rows(course, ASSIGNMENT)
    assert rows[3].total == 1
    assert rows[3].status == "graded; 2 points off for being late"


def test_csv_keeps_awkward_names_in_one_cell_and_disarms_formulas(tmp_path):
    names = ["o'neil, bob", '=cmd|" /C calc"!A0', "@sum", "+1+2", "-2+3", 'say "hi"', "two\nlines"]
    rows = [Row(name, dict.fromkeys(PARTS, 1.5), 4.5, 4.5, (), "=status") for name in names]
    write_csv(tmp_path / "grades.csv", PARTS, rows)
    with open(tmp_path / "grades.csv", newline="", encoding="utf-8") as file:
        heading, *lines = csv.reader(file)
    assert heading == [
        "student",
        "part 2 unpack (of 3)",
        "part 10 pack (of 4)",
        "part 11 why (of 2)",
        "total_auto",
        "total",
        "max",
        "needs_hand_grading",
        "status",
    ]
    assert [line[0] for line in lines] == [
        "o'neil, bob",
        '\'=cmd|" /C calc"!A0',
        "'@sum",
        "'+1+2",
        "'-2+3",
        'say "hi"',
        "two\nlines",
    ]
    assert all(
        line[1:] == ["1.5", "1.5", "1.5", "4.5", "4.5", "9", "", "'=status"] for line in lines
    )


def test_csv_leaves_open_points_blank(tmp_path):
    row = Row(
        "bo", {**dict.fromkeys(PARTS, 0.0), "part 11 why": None}, 0, 0, ("part 11 why",), "graded"
    )
    write_csv(tmp_path / "grades.csv", PARTS, [row])
    assert (tmp_path / "grades.csv").read_text().splitlines()[
        1
    ] == "bo,0,0,,0,0,9,part 11 why,graded"


def test_who_was_not_graded_has_no_total(tmp_path):
    row = Row("bo", dict.fromkeys(PARTS), None, None, tuple(PARTS), "not graded: x")
    write_csv(tmp_path / "grades.csv", PARTS, [row])
    line = (tmp_path / "grades.csv").read_text().splitlines()[1]
    assert line == "bo,,,,,,9,part 2 unpack; part 10 pack; part 11 why,not graded: x"
    assert "bo         ?    ?    ?      ?   9  not graded: x" in as_table(PARTS, [row])


def test_table_is_aligned_and_marks_open_points(course):
    parts, rows = read_rows(course, ASSIGNMENT)
    assert as_table(parts, rows).splitlines() == [
        "student  [1]  [2]  [3]  total  of  status",
        "ana        3    4  1.5    8.5   9  graded",
        "ben        3    0    ?      3   9  graded",
        "cy         ?    ?    ?      0   9  nothing was handed in",
        "di         3    0    ?      1   9  graded; 2 points off for being late",
        "",
        "[1] part 2 unpack, 3 points",
        "[2] part 10 pack, 4 points",
        "[3] part 11 why, 2 points",
        "?   to be graded by hand",
    ]


def test_command_prints_the_table_and_writes_the_csv(course, capsys):
    main(["--course", str(course), "--assignment", ASSIGNMENT, "--csv", str(course / "out.csv")])
    assert "ben        3    0    ?" in capsys.readouterr().out
    assert len((course / "out.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("folder", "assignment", "said"),
    [
        ("nowhere", ASSIGNMENT, "there is no gradebook.db"),
        (".", "ps99", "knows no assignment called ps99"),
    ],
)
def test_command_says_what_is_missing(course, capsys, folder, assignment, said):
    with pytest.raises(SystemExit):
        main(["--course", str(course / folder), "--assignment", assignment])
    assert said in capsys.readouterr().err
