"""Grading a class through nbgrader in one process.

Its slow start is paid once, and no submission stops another.
"""

import logging
import os
from contextlib import contextmanager
from html import escape
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import rmtree
from statuses import record_ungraded, why_failed, why_unreadable
from traitlets.config import PyFileConfigLoader

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="max-width: 40em; margin: 3em auto; font-family: sans-serif; line-height: 1.5">
<h1>{title}</h1>
<p>{what}</p>
<p>{then}</p>
</body></html>
"""
_UNGRADED = (
    "This submission could not be graded: {reason}.",
    "No points are lost yet: a person will look at it. If you can, open the file in Jupyter, "
    "choose “Restart Kernel and Run All Cells”, save it, and hand it in again.",
)
_NO_PAGE = (
    "This submission was graded, but its feedback page could not be made ({reason}).",
    "Please ask your teacher.",
)


class Course:
    """An nbgrader course with its own configuration; nbgrader's messages go to `log_file`."""

    def __init__(self, folder, log_file):
        self.folder = Path(folder).resolve()
        self._config = PyFileConfigLoader("nbgrader_config.py", path=str(self.folder)).load_config()
        self._directory = CourseDirectory(config=self._config)
        self._log_file = log_file
        # The kernel's debugger would warn on our terminal, once per submission.
        os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

    def gradebook(self):
        """The gradebook, to be used in a `with`."""
        return Gradebook(self._directory.db_url, self._directory.course_id)

    def release(self, assignment):
        """Makes the students' version of an assignment."""
        self._run(GenerateAssignment, assignment)

    def students(self, assignment):
        """Who handed in something for an assignment."""
        return sorted(
            path.parent.name
            for path in (self.folder / "submitted").glob(f"*/{assignment}")
            if path.is_dir()
        )

    def grade(self, assignment, student):
        """Autogrades one submission and writes its feedback.

        One that cannot be graded is recorded as such, with the reason, and raises nothing.
        """
        reason = self._why_not_gradable(assignment, student)
        if reason is None:
            self._write_feedback(assignment, student)
        else:
            self._remove_graded(assignment, student)
            with self.gradebook() as gradebook:
                record_ungraded(gradebook, assignment, student, reason)
            self._write_page(assignment, student, _UNGRADED, reason)

    def _why_not_gradable(self, assignment, student):
        folder = self.folder / "submitted" / student / assignment
        reasons = (why_unreadable(folder, name) for name in self._notebook_names(assignment))
        reason = next(filter(None, reasons), None)
        return reason or self._autograde(assignment, student)

    def _autograde(self, assignment, student):
        converter = self._converter(_Autograde, assignment, student)
        try:
            with _logged_to(self._log_file):
                converter.start()
        except Exception as error:  # whatever it is, the other students must be graded
            return why_failed(converter.failure or error)
        return None

    def _write_feedback(self, assignment, student):
        try:
            self._run(_Feedback, assignment, student)
        except Exception as error:  # the points are safe in the gradebook; the run goes on
            self._write_page(assignment, student, _NO_PAGE, why_failed(error))

    def _run(self, kind, assignment, student="*"):
        with _logged_to(self._log_file):
            self._converter(kind, assignment, student).start()

    def _converter(self, kind, assignment, student):
        self._directory.assignment_id = assignment
        self._directory.student_id = student
        converter = kind(coursedir=self._directory, config=self._config)
        # A folder that an interrupted run left half-done must not be skipped.
        converter.force = True
        return converter

    def _notebook_names(self, assignment):
        with self.gradebook() as gradebook:
            return [notebook.name for notebook in gradebook.find_assignment(assignment).notebooks]

    def _remove_graded(self, assignment, student):
        """Takes away what an earlier, better submission left."""
        for step in ("autograded", "feedback"):
            if (folder := self.folder / step / student / assignment).exists():
                rmtree(folder)

    def _write_page(self, assignment, student, texts, reason):
        folder = self.folder / "feedback" / student / assignment
        folder.mkdir(parents=True, exist_ok=True)
        what, then = (text.format(reason=escape(reason)) for text in texts)
        page = _PAGE.format(title=escape(assignment), what=what, then=then)
        (folder / f"{assignment}.html").write_text(page, encoding="utf-8")


class _OneStudent:
    """Finds one student's notebooks by name; nbgrader takes `[` in a name for a pattern."""

    def init_notebooks(self):
        directory = self.coursedir
        folder = self._format_source(directory.assignment_id, directory.student_id)
        self.assignments = {folder: sorted(map(str, Path(folder).glob("*.ipynb")))}


class _Autograde(_OneStudent, Autograde):
    """nbgrader logs why a submission failed and then forgets it; this one remembers."""

    failure = None

    def convert_single_notebook(self, notebook_filename):
        try:
            super().convert_single_notebook(notebook_filename)
        except Exception as error:
            self.failure = error
            raise


class _Feedback(_OneStudent, GenerateFeedback):
    """nbgrader's feedback, for one student."""


@contextmanager
def _logged_to(path):
    """nbgrader is loud; its messages go to a file."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger("traitlets"), logging.getLogger("py.warnings")]
    before = [(logger, logger.propagate) for logger in loggers]
    logging.captureWarnings(True)
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in before:
            logger.removeHandler(handler)
            logger.propagate = propagate
        logging.captureWarnings(False)
        handler.close()
