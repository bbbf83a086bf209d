"""HTML that a student's notebook cannot make active: no script, style, frame or outside picture."""

import base64
import binascii
import re

import bleach
from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter
from nbconvert.preprocessors import Preprocessor
from traitlets import Bool

_TAGS = frozenset(
    (
        *(
            "a",
            "abbr",
            "b",
            "br",
            "code",
            "del",
            "em",
            "i",
            "img",
            "s",
            "span",
            "strong",
            "sub",
            "sup",
        ),
        *("blockquote", "dd", "div", "dl", "dt", "hr", "li", "ol", "p", "pre", "ul"),
        *("h1", "h2", "h3", "h4", "h5", "h6"),
        *("caption", "table", "tbody", "td", "tfoot", "th", "thead", "tr"),
    )
)
_PICTURE = re.compile(r"data:image/(png|jpeg|gif);base64,[A-Za-z0-9+/=\s]*\Z")
_LINK = re.compile(r"(https?:|mailto:|[\w./-]*(#[\w-]*)?\Z)", re.I)
_KEPT_OUTPUTS = ("text/plain", "text/html", "text/markdown", "image/png", "image/jpeg")


def _may_stay(tag, name, value):
    if name == "src":
        return tag == "img" and bool(_PICTURE.match(value))
    if name == "href":
        return tag == "a" and bool(_LINK.match(value))
    return name in ("class", "id", "title", "alt", "colspan", "rowspan", "scope", "align")


def clean(html):
    """The same HTML without anything that runs, loads or restyles the page."""
    return bleach.clean(
        html,
        tags=_TAGS,
        attributes=_may_stay,
        protocols={"http", "https", "mailto", "data"},
        strip=True,
    )


class SafeHTMLExporter(HTMLExporter):
    """nbconvert's exporter, except that Markdown is cleaned after it has been made into HTML."""

    @pass_context
    def markdown2html(self, context, source):
        return clean(super().markdown2html(context, source))


class SafeOutputs(Preprocessor):
    """Cleans everything in a notebook that its author can choose and that a page shows."""

    enabled = Bool(True).tag(config=True)

    def preprocess(self, nb, resources):
        # Titles, tags, widgets and sizes would go into the page unescaped; none is needed.
        nb.metadata = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
        for number, cell in enumerate(nb.cells):
            cell["id"] = f"cell-{number}"
            cell.metadata = {
                key: cell.metadata[key] for key in ("nbgrader",) if key in cell.metadata
            }
            if cell.cell_type == "raw":
                cell.source = clean(cell.source)
            if cell.cell_type == "code":
                cell.outputs = [self._clean_output(output) for output in cell.outputs]
        return nb, resources

    def _clean_output(self, output):
        if "metadata" in output:
            output.metadata = {}
        if "data" in output:
            output.data = {
                kind: _clean_data(kind, output.data[kind])
                for kind in _KEPT_OUTPUTS
                if kind in output.data
            }
        return output


def _clean_data(kind, data):
    if kind == "text/html":
        return clean(data)
    if kind.startswith("image/"):
        return _only_base64(data)
    return data  # plain text is escaped by the page's template; Markdown is cleaned by the exporter


def _only_base64(data):
    try:
        return base64.b64encode(base64.b64decode(data)).decode()
    except (binascii.Error, ValueError, TypeError):
        return ""
