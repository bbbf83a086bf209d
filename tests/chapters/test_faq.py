"""The proofs of the FAQ: each block runs after the first one, and prints what it says."""

import doctest
import re
from pathlib import Path

import pytest

CHAPTERS = Path(__file__).parents[2] / "chapters"
FAQ = CHAPTERS / "faq.md"
TEXT = FAQ.read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = re.split(r"^(?=\(faq-)", TEXT, flags=re.MULTILINE)
INTRODUCTION, *QUESTIONS = SECTIONS


def heading(section: str) -> str:
    return re.search(r"^### (.*)$", section, re.MULTILINE)[1]


def proof(section: str) -> str:
    (code,) = BLOCK.findall(section)  # exactly one
    return code


def run(code: str, variables: dict) -> dict:
    """Run doctest examples and return their variables; fail with doctest's own report."""
    test = doctest.DocTestParser().get_doctest(code, variables, "proof", str(FAQ), 0)
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append, clear_globs=False)
    assert test.examples, "no example in this block"
    assert not report, "".join(report)
    return test.globs


def without_numbers(message: str) -> str:
    """A message with its shapes, sizes and devices taken out."""
    return re.sub(r"\[[\d, ]+\]|\([\d, ]+\)|\d+|cuda:0|meta", "#", message).replace("cuda:#", "#")


with_every_question = pytest.mark.parametrize("section", QUESTIONS, ids=heading)


@with_every_question
def test_the_proof_holds(section):
    run(proof(section), run(proof(INTRODUCTION), {}))


@with_every_question
def test_the_proof_is_short(section):
    typed = [line for line in proof(section).splitlines() if line.startswith((">>>", "..."))]
    assert len(typed) <= 6


def test_headings_quote_the_messages_that_the_proofs_show():
    _, after = TEXT.split("\n## Error messages\n")
    errors, _ = after.split("\n## ")
    sections = re.split(r"^(?=\(faq-)", errors, flags=re.MULTILINE)[1:]
    assert len(sections) >= 15
    for section in sections:
        quoted = [a or b for a, b in re.findall(r"`` ?(.+?) ?``(?!`)|`([^`]+)`", heading(section))]
        assert quoted, heading(section)
        shown = without_numbers(proof(section))
        assert without_numbers(quoted[0]) in shown, heading(section)


def test_the_batch_on_the_notation_page():
    run(proof((CHAPTERS / "notation.md").read_text(encoding="utf-8")), {})
