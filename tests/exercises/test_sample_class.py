"""The sample class of `make demo`, through nbgrader, from the first step to the grades."""

import contextlib
import csv
import io
import re
import shutil

import pytest
from bs4 import BeautifulSoup
from feedback import HideTests
from grades import read_rows
from nbformat.v4 import new_output
from sample_class import CLASSES, NOT_VALID_JSON, solved
from student_notebooks import part_of, read_notebook
from verdicts import hidden_lines, is_test

from tools import demo

ASSIGNMENT = "ps2_pack_and_unpack"
GUESSES = "wrong_shown_inputs_only"  # right on all that it can see
SOURCE = demo.EXERCISES / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The class of the demo, and one student more, who fails hidden tests only."""
    folder = tmp_path_factory.mktemp("sample") / "class"
    demo.main(["--out", str(folder), "--assignment", ASSIGNMENT])
    extra = folder / "submitted" / "ivo" / ASSIGNMENT
    extra.mkdir(parents=True)
    text = solved(read_notebook(SOURCE), ASSIGNMENT, GUESSES)
    (extra / f"{ASSIGNMENT}.ipynb").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def second_run(folder):
    """What the demo prints when one submission has come in since."""
    paper = io.StringIO()
    with contextlib.redirect_stdout(paper):
        demo.main(["--out", str(folder), "--assignment", ASSIGNMENT])
    return paper.getvalue()


@pytest.fixture(scope="module")
def pages(folder, second_run):
    """The feedback pages, by student."""
    return {
        path.parts[-3]: path.read_text(encoding="utf-8")
        for path in (folder / "feedback").glob(f"*/{ASSIGNMENT}/*.html")
    }


def test_every_student_has_exact_points_and_a_line(folder, second_run):
    parts, rows = read_rows(folder, ASSIGNMENT)
    assert list(parts.values()) == [2, 4, 2, 3, 1, 2]
    assert {row.student: list(row.points.values()) for row in rows} == {
        "amal": [2, 4, 2, 3, 1, None],
        "bo": [2, 4, 2, 3, 1, None],
        "chidi": [2, 0, 2, 3, 1, None],
        "dana": [0, 4, 2, 3, 1, None],
        "emil": [2, 4, 2, 0, 1, None],
        "fay": [0, 0, 0, 0, 0, 0],
        "goran": [0, 4, 2, 3, 1, None],
        "hana": [None] * 6,
        "ivo": [0, 4, 2, 3, 1, None],
    }
    statuses = {row.student: row.status for row in rows}
    assert [name for name, status in statuses.items() if status != "graded"] == [
        "fay", "goran", "hana",
    ]  # fmt: skip
    assert statuses["fay"] == "graded: nothing was answered"
    assert re.fullmatch(
        r"graded; part 1 batch sizes: stopped after \d+ s: endless loop\?", statuses["goran"]
    )
    assert statuses["hana"] == (
        "not graded: the notebook is not valid JSON (line 3, column 1); needs a person"
    )


def test_the_csv_says_the_same(folder, second_run):
    with open(folder / "grades.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert {line["student"]: line["total_auto"] for line in lines} == {
        "amal": "12", "bo": "12", "chidi": "8", "dana": "10", "emil": "9",
        "fay": "0", "goran": "10", "hana": "", "ivo": "10",
    }  # fmt: skip
    assert all(line["max"] == "14" and line["status"] for line in lines)
    assert next(line for line in lines if line["student"] == "amal")["needs_hand_grading"] == (
        "part 6 words"
    )


def test_the_second_run_grades_only_the_newcomer(second_run):
    assert "1 graded, 8 unchanged" in second_run
    assert "grading ivo (1 of 1)" in second_run
    assert "releasing" not in second_run


@pytest.mark.parametrize(
    ("student", "hint"),
    [
        ("chidi", "sequence after sequence"),
        ("dana", "just ended"),
        ("emil", "order"),
        ("fay", "not written yet"),
        ("goran", "loop that never ends"),
        ("ivo", "inputs that are not shown"),
    ],
)
def test_feedback_names_the_mistake_and_the_place_to_read(pages, student, hint):
    alerts = BeautifulSoup(pages[student], "html.parser").select(".alert-danger")
    said = " ".join(" ".join(alert.get_text(" ").split()) for alert in alerts)
    assert hint in said
    assert all(alert.select('a[href*="html/chapters/"]') for alert in alerts)


def test_feedback_shows_no_hidden_test(pages):
    tests = [cell for cell in read_notebook(SOURCE).cells if is_test(cell)]
    secrets = {line for cell in tests for line in hidden_lines(cell.source)}
    secrets |= {match for line in secrets for match in re.findall(r"seed=\d+", line)}
    secrets |= {lengths for cell in tests for lengths in hidden_lengths(cell)}
    assert len(secrets) > 20
    assert len(pages) == 9
    for page in pages.values():
        text = BeautifulSoup(page, "html.parser").get_text()
        assert not [secret for secret in secrets if secret in page or secret in text]


def hidden_lengths(cell):
    """The inputs of the hidden test as a report would write them, but for the plainest ones."""
    part = part_of(cell)
    seed = int(re.search(r"seed=(\d+)", cell.source)[1])
    shown = {tuple(batch.lengths) for batch in part.visible}
    hidden = {tuple(batch.lengths) for batch in part.hidden(seed)} - shown
    return {", ".join(map(str, lengths)) for lengths in hidden if len(set(lengths)) >= 3}


def test_feedback_shows_no_hidden_input_that_a_student_kept():
    notebook = read_notebook(SOURCE)
    tests = [cell for cell in notebook.cells if is_test(cell)]
    (kept, *_) = sorted(hidden_lengths(tests[0]))
    after = notebook.cells[notebook.cells.index(tests[0]) + 1 :]
    for cell in (cell for cell in after if cell.cell_type == "code"):
        cell.outputs = all_kinds_of_outputs(kept)
    for cell in notebook.cells:
        if "points" in cell.metadata.get("nbgrader", {}):
            cell.metadata.nbgrader["score"] = 0
    assert kept in str(notebook)
    HideTests().preprocess(notebook, {})
    assert kept not in str(notebook)


def all_kinds_of_outputs(text):
    report = f"ps2.pack: law.\n\nIt says: {text}\n\nThe input: x\n\nA hint: y\n\nRead: z"
    return [
        new_output("stream", name="stdout", text=text),
        new_output("execute_result", data={"text/plain": text}),
        new_output("display_data", data={"text/html": text, "text/markdown": text}),
        new_output("error", ename="LawBroken", evalue=report, traceback=[text]),
    ]


def test_every_kind_of_student_is_in_the_class():
    answers = CLASSES[ASSIGNMENT]
    readable = {
        answer or "" for student, answer in answers.items() if student not in NOT_VALID_JSON
    }
    assert len(answers) == 8
    assert len([answer for answer in readable if answer.startswith("right")]) == 2
    assert len([answer for answer in readable if answer.startswith("wrong")]) == 4
    assert "" in readable


def test_starting_afresh_keeps_what_was_handed_in(tmp_path):
    own = tmp_path / "submitted" / "ivo" / ASSIGNMENT / "x.ipynb"
    for path in (own, tmp_path / "feedback" / "ivo" / "x.html", tmp_path / "gradebook.db"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    journal = demo.Journal(tmp_path / "demo.json")
    journal.start("old")
    demo.start_afresh(tmp_path, demo.Journal(tmp_path / "demo.json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.json", "submitted"]
    assert own.read_text() == "x"


def test_a_folder_of_somebody_else_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(SystemExit, match="not made by this program"):
        demo.main(["--out", str(tmp_path)])
    assert (tmp_path / "thesis.tex").exists()


def test_the_class_is_made_anew_when_the_assignment_changes(tmp_path, monkeypatch):
    exercises = tmp_path / "exercises"
    shutil.copytree(demo.EXERCISES, exercises, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(demo, "EXERCISES", exercises)
    keys = [demo.course_key(ASSIGNMENT), demo.course_key(ASSIGNMENT)]
    assert keys[0] == keys[1]
    for name in (f"source/{ASSIGNMENT}/{ASSIGNMENT}.ipynb", f"answers/{ASSIGNMENT}/right_loops.py"):
        with open(exercises / name, "a", encoding="utf-8") as file:
            file.write("\n")
        keys.append(demo.course_key(ASSIGNMENT))
    assert len(set(keys)) == 3
