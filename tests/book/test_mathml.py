"""Formulas become MathML, and one that cannot is a warning, which fails the build."""

import re
import xml.etree.ElementTree as ET

import pytest
from docutils import nodes

from _ext import mathml

NAME = "{http://www.w3.org/1998/Math/MathML}"


@pytest.fixture
def warnings(monkeypatch):
    heard = []

    def hear(text, *rest, **_):
        heard.append(text % rest)

    monkeypatch.setattr(mathml.logger, "warning", hear)
    return heard


def test_a_formula_is_mathml(warnings):
    tree = ET.fromstring(mathml.mathml(nodes.math_block(text=r"\frac{BT - N}{BT}"), display=True))
    assert (tree.tag, tree.get("display")) == (f"{NAME}math", "block")
    assert len(tree.find(f"{NAME}mfrac")) == 2
    assert not warnings


@pytest.mark.parametrize("name", ["align", "align*", "aligned"])
def test_lines_are_aligned(name, warnings):
    tex = rf"\begin{{{name}}} a &= b \\ c &= d \end{{{name}}}"
    tree = ET.fromstring(mathml.mathml(nodes.math_block(text=tex), display=True))
    assert [len(row) for row in tree.find(f"{NAME}mtable")] == [2, 2]
    assert not warnings


def test_braces_do_not_grow(warnings):
    made = mathml.mathml(nodes.math(text=r"\{i : \ell_i > t\}"), display=False)
    braces = [mo for mo in ET.fromstring(made).iter(f"{NAME}mo") if mo.text in ("{", "}")]
    assert [mo.get("stretchy") for mo in braces] == ["false", "false"]


@pytest.mark.parametrize("tex", [r"\nosuchcommand", r"\begin{nosuch} a \end{nosuch}"])
def test_a_formula_that_is_not_known_is_a_warning(tex, warnings):
    made = mathml.mathml(nodes.math(text=tex + "<b>"), display=False)
    assert made == f"<code>{tex}&lt;b&gt;</code>"
    assert len(warnings) == 1
    assert "formula" in warnings[0]


def test_the_book_has_formulas_and_no_script_for_them(book):
    pages = [path.read_text(encoding="utf-8") for path in book.html.rglob("*.html")]
    assert any("<math " in page for page in pages)
    assert not any(re.search("(?i)<script[^>]*mathjax", page) for page in pages)
