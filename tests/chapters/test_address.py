"""`tools/address.py`: the one place of a chapter that knows where the repository is."""

import json
from pathlib import Path

import pytest

from tools import address

CHAPTERS = sorted((Path(__file__).parents[2] / "chapters").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_set_up_cell_takes_an_address_and_nothing_else_changes(path):
    text = address.fill_in(path.read_text(encoding="utf-8"), "")  # a fork has filled in its own
    filled = address.fill_in(text, "https://host.invalid/a/b")
    before, after = json.loads(text)["cells"], json.loads(filled)["cells"]
    assert [a for a, b in zip(after, before, strict=True) if a != b] == [after[1]]
    assert 'REPOSITORY = "https://host.invalid/a/b"  #' in "".join(after[1]["source"])
    assert address.fill_in(filled, "https://host.invalid/c") == text.replace(
        'REPOSITORY = \\"\\"', 'REPOSITORY = \\"https://host.invalid/c\\"')


def test_a_notebook_without_a_set_up_cell_is_refused():
    with pytest.raises(ValueError, match="found 0"):
        address.fill_in("{}", "https://host.invalid/a")


@pytest.mark.parametrize("bad", [[], ["host.invalid/a"], ['https://a.invalid/"; rm'], ["a", "b"]])
def test_what_is_no_address_is_refused(bad, capsys):
    assert address.main(bad) == 2
    assert "usage" in capsys.readouterr().err
