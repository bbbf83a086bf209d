"""The demands on an assignment hold, and each one fails when a fault is planted."""

import shutil
from dataclasses import replace
from pathlib import Path

import demands
import nbformat
import pytest
from check import assignments
from demands import DEMANDS, Assignment, nothing_unlisted
from student_notebooks import is_stub, labels, released

ROOT = Path(__file__).resolve().parents[2]
NAME = "ps2_pack_and_unpack"


@pytest.mark.parametrize("demand", DEMANDS, ids=lambda demand: demand.__name__)
@pytest.mark.parametrize("assignment", assignments(), ids=lambda assignment: assignment.name)
def test_the_demand_holds(assignment, demand):
    assert list(demand(assignment)) == []


def test_nothing_unlisted_lies_about():
    assert list(nothing_unlisted(ROOT / "exercises")) == []


@pytest.fixture
def room(tmp_path):
    """A copy of the course in which a fault may be planted."""
    for folder in ("source", "answers"):
        shutil.copytree(ROOT / "exercises" / folder, tmp_path / "exercises" / folder)
    (tmp_path / "chapters").mkdir()
    shutil.copy(ROOT / "chapters" / "05_pack_by_hand.ipynb", tmp_path / "chapters")
    return tmp_path / "exercises"


def planted(room, grade_id, old, new):
    """The assignment with one text replaced in one cell."""
    path = room / "source" / NAME / f"{NAME}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if labels(cell).get("grade_id") == grade_id]
    assert old in cell.source
    cell.source = cell.source.replace(old, new)
    nbformat.write(notebook, path)
    return Assignment(NAME, room, room.parent)


def relabelled(room, name, **changes):
    """The assignment with other nbgrader metadata in one cell."""
    path = room / "source" / NAME / f"{NAME}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if labels(cell).get("grade_id") == name]
    cell.metadata["nbgrader"].update(changes)
    nbformat.write(notebook, path)
    return Assignment(NAME, room, room.parent)


def complaint(demand, assignment):
    return "\n".join(demand(assignment))


def test_a_wrong_solution_in_the_source(room):
    wrong = planted(room, "part_2_pack", "descending=True", "descending=False")
    said = complaint(demands.source_solves_itself, wrong)
    assert said.startswith("ps2.pack: the source's own solution loses")


def test_a_part_that_passes_unsolved(room):
    begin = "    ### BEGIN SOLUTION\n"
    early = "    return (batch_sizes[:, None] > torch.arange(int(batch_sizes[0]))).sum(0)\n"
    solved = planted(room, "part_3_lengths", begin, early + begin)
    said = complaint(demands.release_fails_everywhere, solved)
    assert said == "ps2.lengths: unsolved, it gives 2 points, hint ''"


def test_a_stub_that_is_lost(room):
    lost = planted(room, "part_3_lengths", "### BEGIN SOLUTION", "")
    lost = planted(room, "part_3_lengths", "### END SOLUTION", "pass")
    said = complaint(demands.release_fails_everywhere, lost)
    assert said == "ps2.lengths: unsolved, it gives 0 points, hint 'NameError'"


def test_a_stub_that_does_not_raise(room, monkeypatch):
    quiet = demands.released(Assignment(NAME, room, room.parent).source)
    for cell in filter(is_stub, quiet.cells):
        cell.source = cell.source.replace("raise NotImplementedError()", "pass")
    monkeypatch.setattr(demands, "released", lambda _: quiet)
    said = complaint(demands.release_fails_everywhere, Assignment(NAME, room, room.parent))
    assert "part_3_lengths: the stub does not raise NotImplementedError" in said
    assert "ps2.lengths: unsolved, it gives 0 points, hint 'not-plain'" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('checks.require("ps2.pack", pack)', "checks", "ps2.pack: no visible test"),
        ('checks.require_hidden("ps2.pack", pack, ', "print(", "ps2.pack: no hidden test"),
        ('"ps2.pack"', '"ps2.pakc"', "names no part, or several"),
        ('"ps2.pack"', '"ps2.pakc"', "ps2.pack: no test cell"),
    ],
)
def test_a_part_that_is_not_whole(room, old, new, said):
    assert said in complaint(demands.parts_are_whole, planted(room, "part_2_pack_tests", old, new))


def test_a_part_without_a_stub_or_a_check(room):
    renamed = planted(room, "part_2_pack", "def pack(", "def packs(")
    assert "no cell in which to write pack" in complaint(demands.parts_are_whole, renamed)
    path = room / "source" / NAME / f"{NAME}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "check-unpack"]
    nbformat.write(notebook, path)
    said = complaint(demands.parts_are_whole, Assignment(NAME, room, room.parent))
    assert "ps2.unpack: no cell that calls packlib.check" in said


def test_points_that_do_not_add_up(room):
    said = complaint(demands.points_add_up, relabelled(room, "part_2_pack_tests", points=5))
    assert "ps2.pack: 5 points, packlib.checks says 4" in said
    assert "the cells give 15 points, the page says 14" in said
    assert "the rows of the page's table add up to 14, the cells to 15" in said


def test_a_grade_id_that_is_used_twice(room):
    twice = relabelled(room, "part_3_lengths_tests", grade_id="part_2_pack_tests")
    assert complaint(demands.grade_ids_are_unique, twice) == (
        "the grade_id part_2_pack_tests is used 2 times"
    )


def test_a_solution_in_the_release(room):
    leaky = planted(room, "part_4_text", "Write `unpack", "    x[order[:size], t] = data[start")
    leaky = planted(
        room, "part_4_text", "data[start(", "data[start : start + size]\nWrite `unpack("
    )
    said = complaint(demands.release_keeps_secrets, leaky)
    assert "part_4_unpack: the release shows the solution's line 'x[order[:size], t]" in said


def test_a_hidden_test_in_the_release(room):
    said = complaint(
        demands.release_keeps_secrets,
        planted(room, "part_1_text", "Stuck?", "The test calls require_hidden. Stuck?"),
    )
    assert said == "part_1_text: the release shows 'require_hidden'"


def test_stored_outputs(room):
    assignment = Assignment(NAME, room, room.parent)
    cell = next(cell for cell in assignment.source.cells if is_stub(cell))
    cell.execution_count = 3
    assert "stores outputs" in complaint(demands.release_keeps_secrets, assignment)


def with_part(assignment, **changes):
    """The assignment with a changed record of its first part."""
    (part, cell), *others = assignment.parts.items()
    assignment.__dict__["parts"] = {replace(part, **changes): cell, **dict(others)}
    return assignment


def test_a_part_without_hints(room):
    assignment = with_part(Assignment(NAME, room, room.parent), nudge=" ", mistakes=())
    said = complaint(demands.every_part_helps, assignment)
    assert "ps2.batch_sizes: no second hint" in said
    assert "ps2.batch_sizes: no known mistakes" in said


def test_a_mistake_without_a_hint(room):
    assignment = Assignment(NAME, room, room.parent)
    first, *others = next(iter(assignment.parts)).mistakes
    assignment = with_part(assignment, mistakes=(replace(first, hint=""), *others))
    assert "lengths-returned has no hint" in complaint(demands.every_part_helps, assignment)


def test_a_section_that_the_book_does_not_have(room):
    chapter = room.parent / "chapters" / "05_pack_by_hand.ipynb"
    notebook = nbformat.read(chapter, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("## And back", "## And back again")
    nbformat.write(notebook, chapter)
    said = complaint(demands.every_part_helps, Assignment(NAME, room, room.parent))
    assert said == 'ps2.unpack: chapters/05_pack_by_hand has no heading "And back"'
    chapter.unlink()
    said = complaint(demands.every_part_helps, Assignment(NAME, room, room.parent))
    assert "ps2.unpack: the book has no chapters/05_pack_by_hand" in said


def test_a_section_that_the_page_does_not_name(room):
    silent = planted(room, "part_4_text", "*And back*", "*the end*")
    said = complaint(demands.every_part_helps, silent)
    assert said == 'ps2.unpack: the page does not name the section "And back"'


def test_answers_that_do_not_suffice(room):
    folder = room / "answers" / NAME
    for path in sorted(folder.glob("wrong_*.py"))[19:]:
        path.unlink()
    said = complaint(demands.answers_suffice, Assignment(NAME, room, room.parent))
    assert "8 right and 19 wrong answers, at least 5 and 20 are needed" in said
    assert "ps2.lengths: no wrong answer loses it" not in said
    assert "ps2.pack_without_loops" not in said or "no wrong answer loses it" in said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("wrong_a", "def pack(x, lengths):\n    return x", "wrong_a: does not say which part"),
        ("wrong_a", 'LOSES = {"ps2.pack": "no-sort"}', "speaks of ps2.pack and does not write it"),
        ("wrong_a", 'LOSES = {"ps2.pakc": "no-sort"}', "speaks of ps2.pakc and does not write it"),
        ("right_a", 'LOSES = {"ps2.pack": "no-sort"}', "right_a: a right answer loses nothing"),
    ],
)
def test_answers_that_claim_nothing_or_too_much(room, name, text, said):
    (room / "answers" / NAME / f"{name}.py").write_text(text)
    assert said in complaint(demands.answers_suffice, Assignment(NAME, room, room.parent))


@pytest.mark.parametrize(
    "place",
    [
        f"source/{NAME}/notes.txt",
        f"source/{NAME}/other.ipynb",
        "source/lost.ipynb",
        f"answers/{NAME}/helper.py",
        "answers/ps9_nothing/right_one.py",
        "answers/right_one.py",
    ],
)
def test_a_file_that_nobody_lists(room, place):
    path = room / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    assert list(nothing_unlisted(room))[0] == f"unlisted: {place}"


def test_leftovers_of_python_and_jupyter_are_no_matter(room):
    for folder in (f"source/{NAME}/.ipynb_checkpoints", f"answers/{NAME}/__pycache__"):
        (room / folder).mkdir(exist_ok=True)
        (room / folder / "left.pyc").write_text("")
    assert list(nothing_unlisted(room)) == []


def test_the_release_has_no_code_but_stubs():
    (assignment,) = assignments()
    for cell in filter(is_stub, released(assignment.source).cells):
        *_, comment, last = cell.source.rstrip().splitlines()
        assert (comment.strip(), last.strip()) == (
            "# YOUR CODE HERE",
            "raise NotImplementedError()",
        )
