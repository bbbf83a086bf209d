"""The gate: the chapters pass it, and a notebook with any one fault does not."""

import copy
import json

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import notebooks

CHAPTERS = sorted(notebooks.CHAPTERS.glob("*.ipynb"))
PIXEL = "iVBORw0KGgo="


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_passes(path):
    assert notebooks.gate(path) == []


def test_there_are_chapters():
    assert CHAPTERS


def code(source, count, outputs=(), **metadata):
    return new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def picture(alt="A rising line."):
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return new_output("display_data", {"image/png": PIXEL, "text/plain": "x"}, metadata=metadata)


def a_good_notebook():
    """One of everything that is allowed."""
    raised = new_output(
        "error", ename="ValueError", evalue="no", traceback=["Traceback", "ValueError: no"]
    )
    return new_notebook(
        metadata=copy.deepcopy(notebooks.NOTEBOOK_METADATA),
        cells=[
            new_markdown_cell(
                "# Title\n\n![A cat](cat.png)\n\n:::{image} cat.png\n:alt: A cat\n:::"
            ),
            code("print(1)", 1, [new_output("stream", name="stdout", text="1\n")]),
            code("raise ValueError('no')", 2, [raised], tags=["raises-exception"]),
            code("plot()", 3, [picture()], mystnb={"image": {"alt": "A rising line."}}),
            *[code(f"x = {n}", n) for n in range(4, 13)],
            code("solution = 1", 13, tags=["hide-cell"]),
        ],
    )


def gate(notebook, tmp_path):
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return notebooks.gate(path)


def test_a_good_notebook_passes(tmp_path):
    assert gate(a_good_notebook(), tmp_path) == []


def out_of_order(notebook):
    notebook.cells[2].execution_count = 7


def never_run(notebook):
    notebook.cells[1].execution_count = None


def warning(notebook):
    notebook.cells[1].outputs[0].name = "stderr"


def error_without_tag(notebook):
    del notebook.cells[2].metadata["tags"]


def tag_without_error(notebook):
    notebook.cells[2].outputs = []


def picture_without_alt(notebook):
    notebook.cells[3].outputs = [picture(alt="")]


def other_alt_on_the_page(notebook):
    notebook.cells[3].metadata = {"mystnb": {"image": {"alt": "plot.png"}}}


def html_picture_without_alt(notebook):
    notebook.cells[1].outputs = [new_output("display_data", {"text/html": '<img src="cat.png">'})]


def markdown_picture_without_alt(notebook):
    notebook.cells[0].source = "![](cat.png)"


def html_in_markdown_without_alt(notebook):
    notebook.cells[0].source = '<img alt="" src="cat.png">'


def directive_without_alt(notebook):
    notebook.cells[0].source = ":::{figure} cat.png\n:name: cat\nA caption\n:::\n\n:alt: elsewhere"


def path_in_stdout(notebook):
    notebook.cells[1].outputs[0].text = "saved in /home/ann/x.pt\n"


def path_in_traceback(notebook):
    notebook.cells[2].outputs[0].traceback[0] = "File C:\\Users\\x.py"


def address_in_a_value(notebook):
    notebook.cells[1].outputs = [
        new_output("display_data", {"text/plain": "<f at 0x7f00deadbeef>"})
    ]


def no_id(notebook):
    del notebook.cells[1]["id"]


def same_id(notebook):
    notebook.cells[1].id = notebook.cells[2].id


def timing(notebook):
    notebook.cells[1].metadata["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}


def python_version(notebook):
    notebook.metadata["language_info"]["version"] = "3.11.7"


def empty_code(notebook):
    notebook.cells[13].source = " \n"


def empty_text(notebook):
    notebook.cells[0].source = ""


def thirteen_cells(notebook):
    notebook.cells[13].metadata["tags"] = []


def too_large(notebook):
    notebook.cells[1].outputs[0].text = "1" * notebooks.MAX_BYTES


FAULTS = [
    (out_of_order, "cell 3 `raise ValueError('no')` has count 7 instead of 2"),
    (never_run, "cell 2 `print(1)` has count None instead of 1"),
    (warning, "cell 2 `print(1)` writes to stderr"),
    (error_without_tag, "fails without the tag raises-exception"),
    (tag_without_error, "has the tag raises-exception and does not fail"),
    (picture_without_alt, "cell 4 `plot()` shows a picture without alt"),
    (other_alt_on_the_page, "mystnb.image.alt is not the picture's alt"),
    (html_picture_without_alt, "shows HTML with a picture without alt"),
    (markdown_picture_without_alt, "has a picture without alt"),
    (html_in_markdown_without_alt, "has a picture without alt"),
    (directive_without_alt, "has a picture without alt"),
    (path_in_stdout, "shows a path or an address: /home/"),
    (path_in_traceback, "shows a path or an address: C:\\U"),
    (address_in_a_value, "shows a path or an address: 0x7f00deadbeef"),
    (no_id, "cell 2 `print(1)` has no id"),
    (same_id, "shares its id"),
    (timing, "has metadata that nobody reads (execution)"),
    (python_version, "the notebook's metadata names a machine or a version"),
    (empty_code, "cell 14 `` is empty"),
    (empty_text, "cell 1 `` is empty"),
    (thirteen_cells, "13 code cells outside solutions and set-up, at most 12"),
    (too_large, "bytes, at most 200,000"),
]


@pytest.mark.parametrize(
    ("spoil", "message"), FAULTS, ids=lambda case: getattr(case, "__name__", "")
)
def test_one_fault_is_found_and_named(spoil, message, tmp_path):
    notebook = a_good_notebook()
    spoil(notebook)
    faults = gate(notebook, tmp_path)
    assert faults
    assert all(message in fault for fault in faults), faults


def test_every_rule_is_tried():
    """No rule without a notebook that it refuses."""
    silent = set(notebooks.RULES)
    for spoil, _ in FAULTS:
        notebook = a_good_notebook()
        spoil(notebook)
        silent -= {rule for rule in notebooks.RULES if list(rule(notebook))}
    assert not silent


def test_the_command_fails_on_a_fault(tmp_path, capsys):
    notebook = a_good_notebook()
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    good.write_text(json.dumps(notebook), encoding="utf-8")
    never_run(notebook)
    bad.write_text(json.dumps(notebook), encoding="utf-8")
    assert notebooks.main(["gate", str(good)]) == 0
    assert notebooks.main(["gate", str(good), str(bad)]) == 1
    assert "bad.ipynb: cell 2" in capsys.readouterr().out
