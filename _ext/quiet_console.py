"""Take out what would put an error into the console of every reader.

- sphinx-thebe 0.3.1 adds its inline script twice under Sphinx 7, and the second declares a constant
  again: a SyntaxError.
- pydata-sphinx-theme 0.15 (the newest for Python 3.10) preloads its icon fonts, which a browser
  refuses when a book is opened from disk. The style sheet loads them anyway.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

FONT_PRELOAD = re.compile(r'<link rel="preload" as="font"[^>]*>\n?')


def keep_first_script(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    seen: set[str] = set()
    kept = []
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body")
        if body is None or body not in seen:
            kept.append(script)
        seen.add(body)
    context["script_files"] = kept


def drop_font_preloads(app: Sphinx, failure: Exception | None) -> None:
    if failure or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        shorter = FONT_PRELOAD.sub("", text)
        if shorter != text:
            path.write_text(shorter, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", keep_first_script, priority=999)  # after all who add scripts
    app.connect("build-finished", drop_font_preloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
