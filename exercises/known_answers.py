"""Answers whose marks are known: `answers/<assignment>/right_*.py` and `wrong_*.py`.

An answer is a Python file with the functions that a student would write; a part that it leaves out
is taken from the source. It may say what must happen to it:

- `LOSES = {"ps2.pack": "sequence-major"}`: the parts that lose their points, and the hint of each;
- `PASSES_VISIBLE = {"ps2.pack"}`: parts that only the hidden test finds wrong.
"""

import ast
from dataclasses import dataclass, field
from pathlib import Path

CLAIMS = ("LOSES", "PASSES_VISIBLE")


@dataclass(frozen=True)
class Answer:
    """One known answer, as text: a student's notebook is made from it."""

    name: str
    functions: dict  # name -> source of the function
    helpers: str  # imports and all else at the top level
    loses: dict = field(default_factory=dict)
    passes_visible: frozenset = frozenset()


def read_answer(path, parts):
    """Takes a file apart; `parts` are the names of the functions that the assignment asks for."""
    text = Path(path).read_text(encoding="utf-8")
    functions, helpers, claims = {}, [], {}
    for node in ast.parse(text).body:
        source = ast.get_source_segment(text, node)
        if isinstance(node, ast.FunctionDef) and node.name in parts:
            functions[node.name] = source
        elif isinstance(node, ast.Assign) and node.targets[0].id in CLAIMS:
            claims[node.targets[0].id] = ast.literal_eval(node.value)
        elif not _is_docstring(node):
            helpers.append(source)
    return Answer(
        name=Path(path).stem,
        functions=functions,
        helpers="\n\n".join(helpers),
        loses=claims.get("LOSES", {}),
        passes_visible=frozenset(claims.get("PASSES_VISIBLE", ())),
    )


def read_answers(folder, parts):
    """All answers of one assignment, the right ones first."""
    return [
        read_answer(path, parts)
        for kind in ("right", "wrong")
        for path in sorted(Path(folder).glob(f"{kind}_*.py"))
    ]


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
