"""The docstrings of packlib, which are plain text, as reStructuredText for the page of the API.

- ``(B, T, *)`` keeps its star, which would begin emphasis.
- A paragraph that begins with ``Law:``, or ``Raises:`` and text, becomes a field as the sections
  ``Args:`` and ``Returns:`` do, which Sphinx's own napoleon reads.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

LITERAL_OR_STAR = re.compile(r"(``.+?``)|\*")
FIELD = re.compile(r"(Law|Raises): (?=\S)")


def as_rst(lines: list[str]) -> list[str]:
    """The lines of a docstring; examples, from ``>>>`` to the next empty line, stay as they are."""
    made, field, example = [], False, False
    for line in lines:
        if not line.strip():
            field = example = False
        if line.lstrip().startswith(">>> "):
            example = True
        if example:
            made.append(line)
            continue
        if FIELD.match(line):
            field = True
            line = FIELD.sub(r":\1: ", line)
        elif field:
            line = "    " + line
        made.append(LITERAL_OR_STAR.sub(lambda found: found[1] or r"\*", line))
    return made


def rewrite(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
