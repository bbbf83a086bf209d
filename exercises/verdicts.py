"""What the outputs of a test cell say, in words that may be shown to the student.

A test cell has a visible part, which the student was given, and hidden parts, which nobody outside
may see: not their text, not their inputs, not the values that they expect. So a message from a
visible test is passed on as it is. From a hidden test only that of `packlib.checks` is, which names
a law, a hint and a place to read; of any other error no more than its kind.
"""

import builtins
import re
from dataclasses import dataclass

_HIDDEN = re.compile(
    r"^\s*#+\s*BEGIN (HIDDEN TESTS|MARK SCHEME).*?^\s*#+\s*END \1[^\n]*\n?", re.M | re.S
)
_FRAME = re.compile(r"Cell In\[(\d+)\], line (\d+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STOPPED = re.compile(r"[Ss]topped after (\d+) s")
_TIMEOUT = "CellTimeoutError"
_FIT_TO_SHOW = "LawBroken"  # packlib.checks writes hidden reports without inputs and values
_TOLD_BY_VALUES = ("    ", "The input:", "It says:", "It looks like this:", "A hint:", "Read:")
_HINTS = ("It looks like this:", "A hint:")


@dataclass(frozen=True)
class Verdict:
    """How a test ended (`passed`, `failed`, `stopped`, `not run`) and what to tell the student."""

    ended: str
    message: str = ""

    @property
    def in_short(self):
        """For the teacher, in a few words."""
        stopped = _STOPPED.search(self.message)
        return f"stopped after {stopped[1]} s: endless loop?" if stopped else self.ended


def is_test(cell):
    """Is this a cell that nbgrader marks by running it?"""
    meta = cell.metadata.get("nbgrader", {})
    return cell.cell_type == "code" and meta.get("grade", False) and not meta.get("solution", False)


def without_hidden(source):
    """The source as the student knows it."""
    return _HIDDEN.sub("", source).rstrip()


def hidden_lines(source):
    """The lines of a cell that nobody may see; a line that is visible elsewhere is no secret."""
    known = {line.strip() for line in without_hidden(source).splitlines()}
    hidden = [line.strip() for part in _HIDDEN.finditer(source) for line in part[0].splitlines()]
    return [line for line in hidden if line and line not in known]


def readable(grade_id):
    """`part_2_pack_tests` -> `part 2 pack`."""
    words = grade_id.replace("-", "_").split("_")
    return " ".join(word for word in words if word not in ("test", "tests"))


def has_hidden(cell):
    """Does this test run anything that the student must not see?"""
    return is_test(cell) and _HIDDEN.search(cell.source) is not None


def verdict_of(cell, sources, wary=False):
    """The verdict on an executed test; `sources` maps execution counts to other cells' text.

    `wary`: hidden tests ran before, so the student's code knows their inputs, and nothing that it
    can choose (its messages, prints and values) is repeated.
    """
    errors = [output for output in cell.outputs if output.output_type == "error"]
    timeout = next((error for error in errors if error.ename == _TIMEOUT), None)
    if timeout is not None:
        return Verdict("stopped", f"{timeout.evalue.capitalize()}. Is there an endless loop?")
    if errors:
        message = _explained(cell, errors[0], sources, wary)
        return Verdict("stopped" if _STOPPED.search(message) else "failed", message)
    if cell.execution_count is None:
        return Verdict("not run", "This test was not run: the program had stopped before it.")
    return Verdict("passed")


def _explained(cell, error, sources, wary):
    if error.ename == _FIT_TO_SHOW:
        report = _plain(error.evalue)
        return _without_values(report) if wary else report
    frames = _frames_of(error)
    visible = _failed_in_visible_part(cell, frames)
    if wary and visible:
        said = _said_warily(error, without_hidden(cell.source))
    else:
        said = _said_by_visible(error) if visible else _said_by_hidden(error)
    lines = [said, *_students_own_line(frames, sources)]
    return "\n".join(lines).strip() or "A test failed."


def _without_values(report):
    """A report on visible inputs, cut down to law, fault, hint and section."""
    paragraphs = report.split("\n\n")
    fault = [text for text in paragraphs[1:2] if not text.startswith(_TOLD_BY_VALUES)]
    # The hint comes last but the section: what looks like one before it may be the student's.
    hint = [text for text in paragraphs[1:][-2:-1] if text.startswith(_HINTS)]
    section = paragraphs[1:][-1:]
    return "\n\n".join([*paragraphs[:1], *fault, *hint, *section])


def _said_warily(error, source):
    """The lines of a message that stand in the visible test, or else the error's kind."""
    if error.ename == "AssertionError":
        known = [line for line in _plain(error.evalue).splitlines() if line and line in source]
        return "\n".join(known) or "A test failed."
    return f"A test ended with {kind_of(error)}."


def _said_by_visible(error):
    message = _plain(error.evalue)
    return message if error.ename == "AssertionError" else f"{error.ename}: {message}"


def _said_by_hidden(error):
    if _is_builtin(error) and error.ename != "AssertionError":
        return f"A hidden test ended with {error.ename}."
    return "A hidden test failed."


def kind_of(error):
    """The error's class, if it is one of Python's own."""
    return error.ename if _is_builtin(error) else "an error"


def _is_builtin(error):
    # A student's own exception class could carry a hidden input in its name.
    return isinstance(getattr(builtins, error.ename, None), type)


def _failed_in_visible_part(cell, frames):
    """Unknown counts as hidden: that can only say too little."""
    line = next((line for count, line in frames if count == cell.execution_count), None)
    if line is None:
        return False
    place = sum(len(text) + 1 for text in cell.source.split("\n")[: line - 1])
    return not any(part.start() <= place < part.end() for part in _HIDDEN.finditer(cell.source))


def own_line_of(error, sources):
    """Where in the student's code an error was raised: a list of one line or none."""
    return _students_own_line(_frames_of(error), sources)


def _frames_of(error):
    trace = _plain("\n".join(error.traceback))
    return [(int(count), int(line)) for count, line in _FRAME.findall(trace)]


def _students_own_line(frames, sources):
    own = [(count, line) for count, line in frames if count in sources]
    if not own:
        return []
    count, line = own[-1]
    text = sources[count].split("\n")
    return [f"In your code: {text[line - 1].strip()}"] if line <= len(text) else []


def _plain(text):
    return _COLOUR.sub("", text)
