"""The README's claims: its example runs, and its figures are those of the committed results."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs():
    example = next(block for block in re.findall(r"```python\n(.*?)```", README, re.S)
                   if "lstm" in block)
    names: dict = {}
    exec(example, names)
    assert names["output"].shape == (3, 6, 16)
    assert names["lengths"].tolist() == [2, 5, 4]
    assert names["h_n"].shape == (1, 3, 16)


def results(name, part="summary"):
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())[part]


def test_ratios_of_the_moves_are_those_of_the_committed_results():
    summary = results("moves")
    said = re.search(r"torch takes \*\*([\d.]+)\*\* times .* forward and \*\*([\d.]+)\*\* times",
                     README)
    worst = re.search(r"the worst case is ([\d.]+) forward", README)
    assert [said[1], said[2], worst[1]] == [
        f"{summary['geometric_mean_forward']:.1f}",
        f"{summary['geometric_mean_forward_backward']:.1f}", str(summary["worst_forward"])]


def test_ratios_of_the_layers_are_those_of_the_committed_results():
    summary = results("layers")
    sentence = README.split("A training step of")[1].split("says what the time goes into")[0]
    means = [f"{summary[f'{layer} training step {key} geometric_mean']:.1f}"
             for key in ("over_packed", "over_better") for layer in ("LSTM", "GRU", "RNN")]
    inference = [f"{summary[f'{layer} inference over_packed geometric_mean']:.2f}"
                 for layer in ("GRU", "RNN")]
    worst = [str(summary[f"LSTM {task} over_better worst"])
             for task in ("training step", "inference")]
    smaller = min(row["over_better"] for row in results("layers", "rows") if row["case"][0] < 16)
    assert re.findall(r"\d+\.\d+", sentence) == [*means, *inference, *worst, str(smaller)]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(link):
    assert link.startswith("https://") or (ROOT / link).exists()
