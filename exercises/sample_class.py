"""The sample class: eight submissions, made from the assignment and its known answers.

They are made anew each time, so they follow the assignment when it changes.
"""

from pathlib import Path

import nbformat
from known_answers import read_answer
from student_notebooks import filled_in, function_in, is_stub, labels, read_notebook

ANSWERS = Path(__file__).resolve().parent / "answers"

# What each student hands in: a file of answers/<assignment>, or nothing but the notebook as it was
# given out.
CLASSES = {
    "ps2_pack_and_unpack": {
        "amal": "right_loops",
        "bo": "right_masks",
        "chidi": "wrong_sequence_major",
        "dana": "wrong_counts_just_ended",
        "emil": "wrong_left_sorted",
        "fay": None,
        "goran": "wrong_endless",
        "hana": "right_loops",
    }
}
NOT_VALID_JSON = ("hana",)
WORDS = "Lengths 5 and 2 give batch_sizes 2, 2, 1, 1, 1: one number for a step, not for a sequence."


def hand_in(course, assignment):
    """Puts the submissions into the folder `submitted` of a course with a released assignment."""
    course, name = Path(course), f"{assignment}.ipynb"
    source = read_notebook(course / "source" / assignment / name)
    given_out = (course / "release" / assignment / name).read_text(encoding="utf-8")
    for student, answer in CLASSES[assignment].items():
        text = given_out if answer is None else solved(source, assignment, answer)
        folder = course / "submitted" / student / assignment
        folder.mkdir(parents=True, exist_ok=True)
        text = _with_a_merge_mark(text) if student in NOT_VALID_JSON else text
        (folder / name).write_text(text, encoding="utf-8")


def solved(source, assignment, answer):
    """The text of a notebook with one of the known answers, and with words for each question."""
    asked = [function_in(cell.source) for cell in source.cells if is_stub(cell)]
    notebook = filled_in(source, read_answer(ANSWERS / assignment / f"{answer}.py", asked))
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and labels(cell).get("solution"):
            cell.source = WORDS
    return nbformat.writes(notebook)


def _with_a_merge_mark(text):
    """As git leaves a notebook that was changed in two places."""
    lines = text.split("\n")
    return "\n".join([*lines[:2], "<<<<<<< HEAD", *lines[2:]])
