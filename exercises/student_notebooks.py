"""The notebooks of one assignment: the source, what students get, and one that holds an answer."""

import ast
import copy
import logging

import nbformat
from nbformat.v4 import new_code_cell
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions
from verdicts import is_test

from packlib.checks import PARTS

# nbgrader's preprocessors say what they do; here nobody listens
logging.getLogger("traitlets").setLevel(logging.WARNING)


def read_notebook(path):
    """The notebook in a file, as nbformat 4."""
    return nbformat.read(path, as_version=4)


def labels(cell):
    """nbgrader's metadata of a cell; empty for an ordinary one."""
    return cell.metadata.get("nbgrader", {})


def is_stub(cell):
    """Is this a cell in which students write code?"""
    return cell.cell_type == "code" and labels(cell).get("solution", False)


def part_of(cell):
    """The part of packlib.checks that a test cell names, or None."""
    named = [part for name, part in PARTS.items() if f'"{name}"' in cell.source]
    return named[0] if len(named) == 1 else None


def parts_of(source):
    """Part -> test cell, in the order of the notebook."""
    tests = [cell for cell in source.cells if is_test(cell)]
    return {part_of(cell): cell for cell in tests if part_of(cell)}


def released(source):
    """What students get, made by nbgrader's own steps: no solutions and no hidden tests."""
    notebook = copy.deepcopy(source)
    for step in (ClearSolutions, ClearHiddenTests):
        notebook, _ = step().preprocess(notebook, {})
    return notebook


def filled_in(source, answer):
    """The notebook that a student with this answer hands in."""
    notebook = released(source)
    own = {cell.metadata.nbgrader.grade_id: cell.source for cell in source.cells if is_stub(cell)}
    for cell in notebook.cells:
        if is_stub(cell):
            theirs = answer.functions.get(function_in(cell.source))
            cell.source = theirs or own[labels(cell)["grade_id"]]
    first = next(i for i, cell in enumerate(notebook.cells) if is_stub(cell))
    notebook.cells.insert(first, new_code_cell(answer.helpers, id="helpers"))
    return notebook


def with_tests_of(source, notebook):
    """The notebook with the tests of the source put back, hidden ones too, as autograde does."""
    notebook = copy.deepcopy(notebook)
    tests = {labels(cell)["grade_id"]: cell.source for cell in source.cells if is_test(cell)}
    for cell in notebook.cells:
        cell.source = tests.get(labels(cell).get("grade_id"), cell.source)
    return notebook


def function_in(text):
    """The name of the function that a cell defines, or None."""
    functions = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return functions[-1] if functions else None
