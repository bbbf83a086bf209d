"""The tests of the assignments are tested: every known answer loses what it must, and no more."""

import check
import pytest
from check import Graded, assignments, grade_warm, matrix, sample_complaints
from known_answers import read_answer
from warm import Mark

EVERY = [(assignment, answer) for assignment in assignments() for answer in assignment.answers]
IDS = [answer.name for _, answer in EVERY]


@pytest.mark.parametrize(("assignment", "answer"), EVERY, ids=IDS)
def test_a_known_answer_gets_the_marks_that_it_says(assignment, answer):
    assert list(grade_warm(assignment, answer).complaints()) == []


def test_the_answers_are_many_and_each_part_has_wrong_ones():
    for assignment in assignments():
        lost = {part for answer in assignment.answers for part in answer.loses}
        assert lost == {part.name for part in assignment.parts}


@pytest.mark.slow
def test_nbgrader_gives_the_same_points():
    for assignment in assignments():
        chosen = [answer for answer in assignment.answers if answer.name in check.SAMPLE]
        assert len(chosen) == len(check.SAMPLE)
        graded = [grade_warm(assignment, answer) for answer in chosen]
        assert list(sample_complaints(assignment, graded)) == []


def answer_that(tmp_path, text):
    path = tmp_path / "wrong_thing.py"
    path.write_text(text)
    return read_answer(path, ["pack", "unpack"])


LOSES_PACK = 'LOSES = {"ps2.pack": "no-sort"}\n\ndef pack(x, lengths):\n    return x\n'
FULL, NONE = Mark("ps2.pack", 4, 4), Mark("ps2.pack", 0, 4, "no-sort", False, "a law is broken")


@pytest.mark.parametrize(
    ("text", "mark", "complaint"),
    [
        (LOSES_PACK, FULL, "false accept: wrong_thing keeps its points in ps2.pack"),
        ("def pack(x, lengths):\n    return x\n", NONE, "false reject: wrong_thing loses ps2.pack"),
        (LOSES_PACK, Mark("ps2.pack", 0, 4, "forbidden"), "missing hint: wrong_thing in ps2.pack"),
        (LOSES_PACK, Mark("ps2.pack", 0, 4, "no-sort", True), "it was the hidden test"),
        (LOSES_PACK + 'PASSES_VISIBLE = {"ps2.pack"}', NONE, "it was the visible test"),
    ],
)
def test_what_goes_wrong_is_said(tmp_path, text, mark, complaint):
    (said,) = Graded(answer_that(tmp_path, text), {"ps2.pack": mark}).complaints()
    assert complaint in said


def test_what_goes_as_it_must_is_not_said(tmp_path):
    graded = Graded(answer_that(tmp_path, LOSES_PACK), {"ps2.pack": NONE})
    assert list(graded.complaints()) == []


def test_the_matrix_has_a_line_for_each_answer(tmp_path):
    answer = answer_that(tmp_path, LOSES_PACK)
    graded = [Graded(answer, {"ps2.pack": NONE}), Graded(answer, {"ps2.pack": FULL})]
    assert matrix(graded).splitlines() == [
        "             pack",
        "wrong_thing  no-sort",
        "wrong_thing  .",
    ]


def test_an_answer_is_taken_apart(tmp_path):
    text = '"""Says why."""\n\nimport math\n\nTWO = 2\n\n\ndef helps():\n    return TWO\n\n\n'
    answer = answer_that(tmp_path, text + LOSES_PACK)
    assert answer.name == "wrong_thing"
    assert answer.helpers == "import math\n\nTWO = 2\n\ndef helps():\n    return TWO"
    assert answer.functions == {"pack": "def pack(x, lengths):\n    return x"}
    assert answer.loses == {"ps2.pack": "no-sort"}


def test_points_that_differ_from_nbgraders_are_said(monkeypatch):
    (assignment,) = assignments()
    answer = next(a for a in assignment.answers if a.name == check.SAMPLE[0])
    marks = {"ps2.pack": FULL}
    monkeypatch.setattr(check, "_points_by_nbgrader", lambda *_: {answer.name: {"ps2.pack": 3.0}})
    (said,) = sample_complaints(assignment, [Graded(answer, marks)])
    assert said == "nbgrader gives right_masks 3.0 in ps2.pack, here 4"


def test_the_exit_code_is_0_only_if_nothing_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(check, "complaints_about", lambda *_, **__: [])
    monkeypatch.setattr(check, "nothing_unlisted", lambda _: [])
    assert check.main(["--no-nbgrader"]) == 0
    monkeypatch.setattr(check, "nothing_unlisted", lambda _: ["unlisted: answers/note.txt"])
    assert check.main(["--no-nbgrader"]) == 1
    assert "unlisted: answers/note.txt" in capsys.readouterr().out
