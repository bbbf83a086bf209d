"""A course with one small assignment without torch: a submission is graded in a second."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = ROOT / "exercises"
ASSIGNMENT = "warm_up"
SECRET = "seven_is_the_hidden_input"

SECONDS = 4
CONFIG = """
from pathlib import Path

load_subconfig("nbgrader_config.py", path={exercises!r})
c = get_config()
c.CourseDirectory.root = str(Path(__file__).resolve().parent)
c.Execute.timeout_func = lambda cell: {seconds}
c.Execute.iopub_timeout = {seconds}
c.Execute.error_on_timeout["evalue"] = "stopped after {seconds} s"
"""
DOUBLE_TESTS = f"""
found = double(3)
assert found == 6, f"Law: double gives twice its input\\nHint: for 3 you gave {{found}}, not twice"
### BEGIN HIDDEN TESTS
{SECRET} = 7
assert double({SECRET}) == 14, "secret message with 14"
### END HIDDEN TESTS
"""
TRIPLE_TESTS = """
assert triple(1) == 3, "Law: triple gives three times its input"
"""
RIGHT = {
    "double": "def double(x):\n    return 2 * x",
    "triple": "def triple(x):\n    return 3 * x",
}
SQUARES = {"double": "def double(x):\n    return x * x"}
VISIBLE_ONLY = {"double": "def double(x):\n    return 6"}
ENDLESS = {"double": "def double(x):\n    while True:\n        pass"}

# A student whose first function keeps the hidden input, 7, and shows it in every way there is.
LEAKED = "[3, 7]"
LEAKING = {
    "double": "from IPython.display import HTML, Markdown, display, update_display\n"
    "seen = []\ndisplay('shown early', display_id='early')\n"
    "def double(x):\n    seen.append(x)\n    return 2 * x\n",
    "triple": "print('kept:', seen)\n"
    "display(Markdown(f'**{seen}**'))\ndisplay(HTML(f'<b>{seen}</b>'))\n"
    "update_display(str(seen), display_id='early')\n"
    "def triple(x):\n    raise AssertionError(str(seen))\nseen",
}
LEAKING_CELLS = (
    "raise ValueError(str(seen))",
    "raise type('E' + str(seen), (Exception,), {})()",
    "import base64\nprint(base64.b64encode('\\n'.join(In).encode()).decode())",
    "import sys\nprint(seen, file=sys.stderr)\nprint(1 / 0)",
)


def _graded(cell, name, **kind):
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": name,
        "grade": False,
        "solution": False,
        "task": False,
        "locked": False,
        **kind,
    }
    return cell


def _solution(name, body):
    source = f"def {name}(x):\n    ### BEGIN SOLUTION\n    {body}\n    ### END SOLUTION"
    return _graded(new_code_cell(source), name, solution=True)


def _tests(name, points, source):
    return _graded(new_code_cell(source.strip()), name, grade=True, locked=True, points=points)


def source_notebook():
    """Two parts that nbgrader marks and one question for a person: 2 + 3 + 2 points."""
    question = new_markdown_cell("Your answer here.")
    cells = [
        new_markdown_cell("# Warm up"),
        _solution("double", "return 2 * x"),
        _tests("part_1_double_tests", 2, DOUBLE_TESTS),
        _solution("triple", "return 3 * x"),
        _tests("part_2_triple_tests", 3, TRIPLE_TESTS),
        _graded(question, "part_3_why", grade=True, solution=True, points=2),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def make_course(folder):
    """Writes the course, configured as the real one but for the time limit; returns its folder."""
    course = Path(folder) / "course"
    source = course / "source" / ASSIGNMENT
    source.mkdir(parents=True)
    nbformat.write(source_notebook(), source / f"{ASSIGNMENT}.ipynb")
    config = CONFIG.format(exercises=str(EXERCISES), seconds=SECONDS)
    (course / "nbgrader_config.py").write_text(config)
    return course


def submit(course, student, answers, question="Because.", extra=()):
    """Puts a submission into the course: the released notebook with `answers` filled in."""
    notebook = nbformat.read(course / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", as_version=4)
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in answers:
            cell.source = answers[name]
        if name == "part_3_why" and question:
            cell.source = question
    notebook.cells.extend(extra)
    return submit_text(course, student, nbformat.writes(notebook))


def submit_text(course, student, text):
    """Puts a submission into the course that is any text, a notebook or not."""
    folder = course / "submitted" / student / ASSIGNMENT
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{ASSIGNMENT}.ipynb"
    path.write_text(text)
    return path
