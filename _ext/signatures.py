"""The arguments of a long signature as lines.

Sphinx makes them a list of definitions that define nothing, which screen readers cannot make sense
of.
"""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

LINES = [("<dl>", '<span class="sig-lines">'), ("</dl>", "</span>"),
         ("<dd>", '<span class="sig-line">'), ("</dd>", "</span>")]


def visit(self: HTML5Translator, node: nodes.Element) -> None:
    node["begin"] = len(self.body)
    HTML5Translator.visit_desc_parameterlist(self, node)


def depart(self: HTML5Translator, node: nodes.Element) -> None:
    HTML5Translator.depart_desc_parameterlist(self, node)
    made = "".join(self.body[node["begin"] :])
    for tag, other in LINES:
        made = made.replace(tag, other)
    self.body[node["begin"] :] = [made]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(addnodes.desc_parameterlist, override=True, html=(visit, depart))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
