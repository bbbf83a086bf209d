"""`tools/notebooks.py run`: what a run stores, that it is stable, and what it says of a failure."""

import json

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import notebooks

DRAW = """
from matplotlib import pyplot
from packlib.viz import figure
fig, axes = pyplot.subplots(figsize=(2, 1))
axes.plot([1, 3, 2])
figure(fig, "A line that rises and falls.")
""".strip()


def write(path, *sources, **metadata):
    cells = [new_markdown_cell("# Title"), *(new_code_cell(source) for source in sources)]
    path.write_text(json.dumps(new_notebook(cells=cells, metadata=metadata)), encoding="utf-8")
    return path


def test_a_run_stores_outputs_that_pass_the_gate_and_stay(tmp_path):
    path = write(
        tmp_path / "a.ipynb", "1 + 1", DRAW, language_info={"name": "python", "version": "3.99"}
    )
    assert notebooks.run(path)
    assert notebooks.gate(path) == []
    value, drawn = json.loads(path.read_text(encoding="utf-8"))["cells"][1:]
    assert value["outputs"][0]["data"]["text/plain"] == ["2"]
    assert drawn["metadata"]["mystnb"]["image"]["alt"] == "A line that rises and falls."
    assert "3.99" not in path.read_text(encoding="utf-8")
    before = path.stat().st_mtime_ns
    assert not notebooks.run(path)
    assert path.stat().st_mtime_ns == before


def test_a_failure_names_notebook_cell_and_exception(tmp_path, capsys):
    path = write(tmp_path / "a.ipynb", "x = 1", "# divide\nx / 0")
    text = path.read_text(encoding="utf-8")
    assert notebooks.main(["run", str(path)]) == 1
    assert capsys.readouterr().err == (
        "a.ipynb: cell 3 `# divide` fails with ZeroDivisionError: division by zero\n"
    )
    assert path.read_text(encoding="utf-8") == text


def test_an_announced_exception_is_stored(tmp_path):
    path = write(tmp_path / "a.ipynb", "%xmode Minimal", "1 / 0")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["cells"][2]["metadata"]["tags"] = ["raises-exception"]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    notebooks.run(path)
    (output,) = json.loads(path.read_text(encoding="utf-8"))["cells"][2]["outputs"]
    assert output["ename"] == "ZeroDivisionError"


@pytest.mark.parametrize("left", [{"execution": {}}, {"collapsed": True}, {"vscode": {}}])
def test_what_an_editor_leaves_is_dropped(left):
    cell = new_code_cell("x = 1", metadata={**left, "tags": ["hide-cell"]})
    notebook = notebooks.normalise(new_notebook(cells=[cell], metadata={"widgets": {}}))
    assert notebook.cells[0].metadata == {"tags": ["hide-cell"]}
    assert notebook.metadata == notebooks.NOTEBOOK_METADATA
