"""Formulas as MathML, made at build time: no script, no font, nothing from a network.

Every browser of today draws MathML by itself and screen readers read it. docutils, which Sphinx
stands on, translates it from LaTeX. A formula that it does not know is a warning.
"""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, display: bool) -> str:
    # inside a formula of its own docutils calls align by amsmath's other name
    tex = node.astext().replace("{align*}", "{align}").replace("{align}", "{aligned}")
    try:
        made = tex2mathml(tex, as_block=display)
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{escape(node.astext())}</code>"
    # like docutils' parentheses: in LaTeX a brace grows only after left and right
    return re.sub("<mo>([{}])</mo>", r'<mo stretchy="false">\1</mo>', made)


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(mathml(node, display=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    number = f'<span class="eqno">({node["number"]})</span>' if node["number"] else ""
    anchor = f' id="{node["ids"][0]}"' if node["ids"] else ""
    self.body.append(f'<div class="math"{anchor}>{mathml(node, display=True)}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
