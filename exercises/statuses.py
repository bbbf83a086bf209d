"""What happened to one submission, in one line for the teacher."""

import json

import nbformat
from verdicts import is_test, readable, verdict_of

NOT_GRADED = "not graded: "
NEEDS_A_PERSON = "; needs a person"
_WORTH_SAYING = ("stopped", "not run")  # a failed test shows in the points


def why_unreadable(folder, notebook_name):
    """Why the submitted notebook cannot be read, or None if it can."""
    path = folder / f"{notebook_name}.ipynb"
    if not path.is_file():
        others = ", ".join(sorted(other.name for other in folder.glob("*.ipynb"))) or "none"
        return f"there is no notebook called {path.name} (notebooks found: {others})"
    if path.is_symlink():
        return "the notebook is a link to another file"
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        return f"the notebook is not UTF-8 text (byte {error.start})"
    except json.JSONDecodeError as error:
        return f"the notebook is not valid JSON (line {error.lineno}, column {error.colno})"
    except OSError as error:
        return f"the notebook cannot be read ({error.strerror})"
    except RecursionError:
        return "the notebook is nested too deeply to be read"
    if not isinstance(content, dict) or not ({"cells", "worksheets"} & content.keys()):
        return "the file is JSON, but not a notebook: it has no cells"
    return None


def why_failed(error):
    """In plain words, why nbgrader gave up on a submission that could be read."""
    damaged = "the labels that nbgrader puts on cells are damaged (a copied cell?)"
    known = {
        "CellTimeoutError": "a cell could not be stopped (a loop that catches every exception?)",
        "DeadKernelError": "the program ended Python itself (out of memory, or exit?)",
        "SchemaTooOldError": damaged,
        "SchemaTooNewError": "the labels that nbgrader puts on cells come from a newer nbgrader",
        "ValidationError": damaged,
    }
    name = type(error).__name__
    first_line = str(error).strip().split("\n")[0][:200]
    return known.get(name, f"{name}: {first_line}")


def record_ungraded(gradebook, assignment, student, reason):
    """Zeros that wait for a person, and the reason; nbgrader would leave empty scores."""
    gradebook.update_or_create_student(student)
    submission = gradebook.update_or_create_submission(assignment, student)
    for notebook in submission.notebooks:
        for grade in notebook.grades:
            grade.auto_score, grade.needs_manual_grade = 0, True
        for comment in notebook.comments:
            comment.auto_comment = NOT_GRADED + reason + NEEDS_A_PERSON
    gradebook.db.commit()


def status_of(course, assignment, submission):
    """One line about a submission from the gradebook's comments and the files of the course."""
    reason = _recorded_reason(submission)
    if reason:
        return reason
    folder = course / "autograded" / submission.student.id / assignment
    graded, stopped = True, []
    for notebook in submission.assignment.notebooks:
        path = folder / f"{notebook.name}.ipynb"
        graded = graded and path.is_file()
        stopped += _stopped_tests(path) if path.is_file() else []
    if not graded:
        return NOT_GRADED + _reason_from_files(course, assignment, submission) + NEEDS_A_PERSON
    if stopped:
        return "; ".join(["graded", *stopped])
    return "graded: nothing was answered" if _unanswered(submission) else "graded"


def _comments(submission):
    return [comment for notebook in submission.notebooks for comment in notebook.comments]


def _recorded_reason(submission):
    texts = (comment.auto_comment or "" for comment in _comments(submission))
    return next((text for text in texts if text.startswith(NOT_GRADED)), None)


def _unanswered(submission):
    comments = _comments(submission)
    return bool(comments) and all(comment.auto_comment == "No response." for comment in comments)


def _stopped_tests(path):
    tests = [cell for cell in nbformat.read(path, as_version=4).cells if is_test(cell)]
    verdicts = [
        (readable(cell.metadata.nbgrader["grade_id"]), verdict_of(cell, {})) for cell in tests
    ]
    return [
        f"{name}: {verdict.in_short}"
        for name, verdict in verdicts
        if verdict.ended in _WORTH_SAYING
    ]


def _reason_from_files(course, assignment, submission):
    folder = course / "submitted" / submission.student.id / assignment
    if not folder.is_dir():
        return "nothing was handed in"
    reasons = (
        why_unreadable(folder, notebook.name) for notebook in submission.assignment.notebooks
    )
    return next(filter(None, reasons), "not autograded yet, or the run was interrupted")
