"""Run the chapters, and check what they store.

python tools/notebooks.py run  [paths]   run each notebook from top to bottom, store its outputs
python tools/notebooks.py gate [paths]   check what strict nbval does not; exit 1 on any fault
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from time import perf_counter

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbformat import NotebookNode

CHAPTERS = Path(__file__).parents[1] / "chapters"
SECONDS_PER_CELL = 600
MAX_BYTES = 200_000
MAX_CODE_CELLS = 12

CELL_METADATA = {"tags", "mystnb", "jupyter"}  # the rest is what an editor left behind
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    # no version of Python: outputs must not depend on it
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
HIDDEN = {"hide-cell", "remove-cell"}  # solutions and set-up: not what a reader works through
MACHINE = re.compile(
    r"0x[0-9a-fA-F]{6,}|site-packages|ipykernel_\d+|/home/|/root/|/tmp/|/Users/|\b[A-Za-z]:\\\w"
)
NO_ALT = re.compile(r'!\[\s*\]\(|<img\b(?![^>]*\balt=["\'][^"\'])')
DIRECTIVE = re.compile(r"^(:{3,}|`{3,})\{(?:figure|image)\}.*?^\1", re.MULTILINE | re.DOTALL)


class NotebookError(Exception):
    """A notebook that does not run: which one, which cell and why."""


def where(index: int, cell: NotebookNode) -> str:
    """How a message names a cell: its place, counted from 1 over all cells, and its first line."""
    return f"cell {index + 1} `{cell.source.strip().partition(chr(10))[0][:60]}`"


def tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def code_cells(notebook: NotebookNode) -> list[tuple[int, NotebookNode]]:
    return [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def pictures(cell: NotebookNode) -> list[str]:
    """The alternative text of each picture that a code cell shows, "" where there is none."""
    return [
        output.metadata.get(kind, {}).get("alt", "").strip()
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
        if kind.startswith("image/")
    ]


# --- run ------------------------------------------------------------------------------------------


def run(path: Path) -> bool:
    """Execute one notebook in place; True if the file has changed.

    Raises NotebookError for a cell that fails and is not tagged raises-exception.
    """
    notebook = nbformat.read(path, as_version=4)
    execute(notebook, path)
    text = nbformat.writes(normalise(notebook)) + "\n"
    if text == path.read_text(encoding="utf-8"):
        return False
    path.write_text(text, encoding="utf-8")
    return True


def execute(notebook: NotebookNode, path: Path) -> None:
    """Run every cell in a fresh kernel that works in the notebook's folder."""
    place = "before the first cell"

    def remember(cell: NotebookNode, cell_index: int) -> None:
        nonlocal place
        place = where(cell_index, cell)

    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        coalesce_streams=True,
        on_cell_start=remember,
        extra_arguments=["--log-level=ERROR"],  # not a word about how the kernel is connected
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute()
    except (CellControlSignal, DeadKernelError) as error:
        name = getattr(error, "ename", type(error).__name__)
        reason = getattr(error, "evalue", "") or str(error).partition("\n")[0]
        raise NotebookError(f"{path.name}: {place} fails with {name}: {reason}") from None


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Keep what the author wrote, drop what a machine or an editor added; changes its argument."""
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {key: value for key, value in cell.metadata.items() if key in CELL_METADATA}
        )
        for alt in filter(None, pictures(cell)):
            # JupyterLab reads the output's text, the book the cell's: one source, two places
            shown = cell.metadata.setdefault("mystnb", NotebookNode())
            shown.setdefault("image", NotebookNode()).alt = alt
    return notebook


# --- gate -----------------------------------------------------------------------------------------
# Each rule yields one message for each fault. What an output says is nbval's to compare.


def counts_are_1_to_n(notebook: NotebookNode) -> Iterator[str]:
    for number, (i, cell) in enumerate(code_cells(notebook), start=1):
        if cell.execution_count != number:
            yield f"{where(i, cell)} has count {cell.execution_count} instead of {number}: run it"


def nothing_on_stderr(notebook: NotebookNode) -> Iterator[str]:
    for i, cell in code_cells(notebook):
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"{where(i, cell)} writes to stderr: mend what warns"


def errors_are_announced(notebook: NotebookNode) -> Iterator[str]:
    for i, cell in code_cells(notebook):
        fails = any(output.output_type == "error" for output in cell.outputs)
        announced = "raises-exception" in tags(cell)
        if fails and not announced:
            yield f"{where(i, cell)} fails without the tag raises-exception"
        if announced and not fails:
            yield f"{where(i, cell)} has the tag raises-exception and does not fail"


def pictures_have_words(notebook: NotebookNode) -> Iterator[str]:
    for i, cell in code_cells(notebook):
        for alt in pictures(cell):
            if not alt:
                yield f"{where(i, cell)} shows a picture without alt: use packlib.viz.figure"
            elif alt != cell.metadata.get("mystnb", {}).get("image", {}).get("alt"):
                yield f"{where(i, cell)}: mystnb.image.alt is not the picture's alt: run it"
        if any(
            NO_ALT.search(output.get("data", {}).get("text/html", "")) for output in cell.outputs
        ):
            yield f"{where(i, cell)} shows HTML with a picture without alt"


def markdown_pictures_have_words(notebook: NotebookNode) -> Iterator[str]:
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown":
            continue
        directives = (match[0] for match in DIRECTIVE.finditer(cell.source))
        if NO_ALT.search(cell.source) or any(not re.search(r":alt: *\S", d) for d in directives):
            yield f"{where(i, cell)} has a picture without alt"


def no_trace_of_a_machine(notebook: NotebookNode) -> Iterator[str]:
    for i, cell in code_cells(notebook):
        for output in cell.outputs:
            found = MACHINE.search(text_of(output))
            if found:
                yield f"{where(i, cell)} shows a path or an address: {found[0]}"


def text_of(output: NotebookNode) -> str:
    """All text of an output; pictures in base64 are left out, since they may spell anything."""
    data = output.get("data", {})
    texts = [str(value) for kind, value in data.items() if kind not in ("image/png", "image/jpeg")]
    return "\n".join([*texts, output.get("text", ""), *output.get("traceback", [])])


def ids_are_there_and_differ(notebook: NotebookNode) -> Iterator[str]:
    ids = Counter(cell.get("id", "") for cell in notebook.cells)
    for i, cell in enumerate(notebook.cells):
        if not cell.get("id"):
            yield f"{where(i, cell)} has no id"
        elif ids[cell.id] > 1:
            yield f"{where(i, cell)} shares its id {cell.id} with another cell"


def metadata_is_normal(notebook: NotebookNode) -> Iterator[str]:
    normal = normalise(deepcopy(notebook))
    if notebook.metadata != normal.metadata:
        yield "the notebook's metadata names a machine or a version: run it"
    for (i, cell), wanted in zip(enumerate(notebook.cells), normal.cells, strict=True):
        left_over = sorted(set(cell.metadata) - set(wanted.metadata))
        if left_over:
            yield f"{where(i, cell)} has metadata that nobody reads ({left_over[0]}): run it"


def no_cell_is_empty(notebook: NotebookNode) -> Iterator[str]:
    for i, cell in enumerate(notebook.cells):
        if not cell.source.strip():
            yield f"{where(i, cell)} is empty"


def few_code_cells(notebook: NotebookNode) -> Iterator[str]:
    count = sum(not tags(cell) & HIDDEN for _, cell in code_cells(notebook))
    if count > MAX_CODE_CELLS:
        yield f"{count} code cells outside solutions and set-up, at most {MAX_CODE_CELLS}"


RULES: list[Callable[[NotebookNode], Iterator[str]]] = [
    counts_are_1_to_n,
    nothing_on_stderr,
    errors_are_announced,
    pictures_have_words,
    markdown_pictures_have_words,
    no_trace_of_a_machine,
    ids_are_there_and_differ,
    metadata_is_normal,
    no_cell_is_empty,
    few_code_cells,
]


def gate(path: Path) -> list[str]:
    """Every fault of one notebook, as messages."""
    text = path.read_text(encoding="utf-8")
    # as it is: nbformat.read would give missing ids and so hide that they are missing
    notebook = nbformat.from_dict(nbformat.reader.parse_json(text))
    faults = [fault for rule in RULES for fault in rule(joined(notebook))]
    size = len(text.encode())
    if size > MAX_BYTES:
        faults.append(f"{size:,} bytes, at most {MAX_BYTES:,}")
    return [f"{path.name}: {fault}" for fault in faults]


def joined(notebook: NotebookNode) -> NotebookNode:
    """The notebook with its lists of lines as text, as nbformat.read would give it."""
    return nbformat.v4.rwbase.rejoin_lines(notebook)


# --- command line ---------------------------------------------------------------------------------


def run_all(paths: list[Path]) -> int:
    for path in paths:
        start = perf_counter()
        try:
            changed = run(path)
        except NotebookError as error:
            print(error, file=sys.stderr)
            return 1
        news = "written" if changed else "unchanged"
        print(f"{path.name}: ran in {perf_counter() - start:.1f} s, {news}", flush=True)
    return 0


def gate_all(paths: list[Path]) -> int:
    faults = [fault for path in paths for fault in gate(path)]
    print("\n".join(faults) or f"{len(paths)} notebooks pass")
    return bool(faults)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "gate"])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks (default: all chapters)")
    options = parser.parse_args(arguments)
    paths = options.paths or sorted(CHAPTERS.glob("*.ipynb"))
    return {"run": run_all, "gate": gate_all}[options.command](paths)


if __name__ == "__main__":
    sys.exit(main())
