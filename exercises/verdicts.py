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


def verdict_of(cell, sources):
    """The verdict on an executed test; `sources` maps execution counts to other cells' text."""
    errors = [output for output in cell.outputs if output.output_type == "error"]
    timeout = next((error for error in errors if error.ename == _TIMEOUT), None)
    if timeout is not None:
        return Verdict("stopped", f"{timeout.evalue.capitalize()}. Is there an endless loop?")
    if errors:
        message = _explained(cell, errors[0], sources)
        return Verdict("stopped" if _STOPPED.search(message) else "failed", message)
    if cell.execution_count is None:
        return Verdict("not run", "This test was not run: the program had stopped before it.")
    return Verdict("passed")


def _explained(cell, error, sources):
    if error.ename == _FIT_TO_SHOW:
        return _plain(error.evalue)
    trace = _plain("\n".join(error.traceback))
    frames = [(int(count), int(line)) for count, line in _FRAME.findall(trace)]
    said = _said_by_visible if _failed_in_visible_part(cell, frames) else _said_by_hidden
    lines = [said(error), *_students_own_line(cell, frames, sources)]
    return "\n".join(lines).strip() or "A test failed."


def _said_by_visible(error):
    message = _plain(error.evalue)
    return message if error.ename == "AssertionError" else f"{error.ename}: {message}"


def _said_by_hidden(error):
    # A student's own exception class could carry a hidden input in its name.
    known = isinstance(getattr(builtins, error.ename, None), type)
    if known and error.ename != "AssertionError":
        return f"A hidden test ended with {error.ename}."
    return "A hidden test failed."


def _failed_in_visible_part(cell, frames):
    """Unknown counts as hidden: that can only say too little."""
    line = next((line for count, line in frames if count == cell.execution_count), None)
    if line is None:
        return False
    place = sum(len(text) + 1 for text in cell.source.split("\n")[: line - 1])
    return not any(part.start() <= place < part.end() for part in _HIDDEN.finditer(cell.source))


def _students_own_line(cell, frames, sources):
    own = [(count, line) for count, line in frames if count in sources]
    if not own:
        return []
    count, line = own[-1]
    text = sources[count].split("\n")
    return [f"In your code: {text[line - 1].strip()}"] if line <= len(text) else []


def _plain(text):
    return _COLOUR.sub("", text)
