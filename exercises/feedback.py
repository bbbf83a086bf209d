"""What a student gets back: own code, points, and what each test has to say, but no hidden test.

Stock nbgrader prints the hidden tests, and the tracebacks through them, into the feedback page.
These steps go into `c.GenerateFeedback.preprocessors` and take them out.
"""

import re
from html import escape

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor, Preprocessor
from nbformat.v4 import new_markdown_cell, new_output
from nbgrader.preprocessors import GetGrades
from safe_html import SafeHTMLExporter, SafeOutputs
from traitlets import Bool, Unicode
from verdicts import (
    has_hidden,
    hidden_lines,
    is_test,
    kind_of,
    own_line_of,
    readable,
    verdict_of,
    without_hidden,
)

__all__ = ["FEEDBACK_STEPS", "SafeHTMLExporter"]

_READ = re.compile(r'Read: "(.+)" in (\S+)')
_SHORTEST_SECRET = 12  # shorter lines, like `)` or `x = 1`, are in everybody's code
_NOT_SHOWN = (
    "What this cell printed is not shown: hidden tests ran before it. "
    "Run the notebook yourself to see it."
)


class OpenPoints(GetGrades):
    """nbgrader's step that fetches grades; it also says which points a person has to give."""

    def _get_score(self, cell, resources):
        super()._get_score(cell, resources)
        name = cell.metadata.nbgrader["grade_id"]
        grade = self.gradebook.find_grade(
            name, self.notebook_id, self.assignment_id, self.student_id
        )
        is_open = grade.needs_manual_grade and grade.manual_score is None
        cell.metadata.nbgrader["open"] = is_open
        if is_open:
            note = f"To be graded by hand: {grade.max_score:g} points are still open."
            comment = cell.metadata.nbgrader.get("comment")
            cell.metadata.nbgrader["comment"] = f"{comment}\n\n{note}" if comment else note


class HideTests(Preprocessor):
    """Puts a verdict in the place of a test's outputs, and removes hidden tests everywhere.

    A function that a hidden test calls can keep its inputs and show them later, in any form. So
    nothing that the student's code wrote after the first hidden test is shown.
    """

    enabled = Bool(True).tag(config=True)
    book_url = Unicode("", help="Where the book is; empty for no links.").tag(config=True)

    def preprocess(self, nb, resources):
        tests = [cell for cell in nb.cells if is_test(cell)]
        others = [cell for cell in nb.cells if not is_test(cell)]
        secrets = [
            line
            for cell in tests
            for line in hidden_lines(cell.source)
            if len(line) >= _SHORTEST_SECRET
        ]
        sources = {
            cell.execution_count: cell.source for cell in others if cell.get("execution_count")
        }
        wary = False
        for cell in nb.cells:
            if is_test(cell):
                verdict = verdict_of(cell, sources, wary)
                wary = wary or has_hidden(cell)
                cell.source = without_hidden(cell.source)
                cell.outputs = [_shown(self._verdict_html(cell, verdict))]
            else:
                if wary:
                    _hide_outputs(cell, sources)
                _remove_secrets(cell, secrets)
        # A program can set the count of its cell to any number.
        for number, cell in enumerate((c for c in nb.cells if c.get("execution_count")), 1):
            cell.execution_count = number
        nb.cells.insert(0, new_markdown_cell(_overview(nb.cells)))
        return nb, resources

    def _verdict_html(self, cell, verdict):
        meta = cell.metadata.nbgrader
        score, points = meta.get("score") or 0, meta.get("points") or 0
        colour = "success" if score == points else "warning" if score > 0 else "danger"
        heading = f"{escape(readable(meta['grade_id']))}: {score:g} of {points:g} points"
        lines = "<br>".join(self._line_html(line) for line in verdict.message.splitlines())
        message = f"<pre>{lines}</pre>" if lines else ""
        return f'<div class="alert alert-{colour}"><strong>{heading}</strong>{message}</div>'

    def _line_html(self, line):
        read = _READ.fullmatch(line)
        if not read or not self.book_url:
            return escape(line)
        heading, page = read.groups()
        place = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        return f'Read: <a href="{escape(self.book_url + page)}.html#{place}">{escape(heading)}</a>'


def _overview(cells):
    """The points of each part, by its name; nbgrader's own list calls every part "Test cell"."""
    lines = ["## Your points", ""]
    for cell in cells:
        meta = cell.metadata.get("nbgrader", {})
        if "points" in meta:
            got = "to be graded by hand, of" if meta.get("open") else f"{meta['score']:g} of"
            lines.append(f"- {readable(meta['grade_id'])}: {got} {meta['points']:g}")
    return "\n".join(lines)


def _shown(html):
    return new_output("display_data", data={"text/html": html, "text/plain": ""})


def _hide_outputs(cell, sources):
    """One sentence for all that the cell wrote; of an error, its kind and the student's line."""
    if not cell.get("outputs"):
        return
    errors = [output for output in cell.outputs if output.output_type == "error"]
    lines = [_NOT_SHOWN]
    for error in errors:
        lines += [f"It ended with {kind_of(error)}.", *own_line_of(error, sources)]
    cell.outputs = [new_output("stream", name="stdout", text="\n".join(lines) + "\n")]


def _remove_secrets(cell, secrets):
    """A student's code can print the history of the session; that is not an answer to show."""
    cell.source = _redacted(cell.source, secrets)
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            output.text = _redacted(output.text, secrets)
        elif output.output_type == "error":
            output.evalue = _redacted(output.evalue, secrets)
            output.traceback = [_redacted(frame, secrets) for frame in _own_frames(output)]
        else:
            output.data = {
                kind: _redacted(str(data), secrets) for kind, data in output.data.items()
            }


def _own_frames(error):
    """Frames in installed packages tell a student little, and show paths of this machine."""
    frames = [frame for frame in error.traceback if "File " not in frame.split("\n")[0]]
    return frames or [f"{error.ename}: {error.evalue}"]


def _redacted(text, secrets):
    return (
        "[left out: it shows hidden tests]" if any(secret in text for secret in secrets) else text
    )


FEEDBACK_STEPS = [OpenPoints, HideTests, SafeOutputs, CSSHTMLHeaderPreprocessor]
