"""The list of references as an ordinary list.

docutils gives each entry the role doc-biblioentry, which ARIA has withdrawn, so that screen readers
find a list without entries.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def visit(self: HTML5Translator, node: nodes.citation) -> None:
    HTML5Translator.visit_citation(self, node)
    self.body[-1] = self.body[-1].replace('role="doc-biblioentry"', 'role="listitem"')


def depart(self: HTML5Translator, node: nodes.citation) -> None:
    HTML5Translator.depart_citation(self, node)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(nodes.citation, override=True, html=(visit, depart))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
