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


def test_ratios_are_those_of_the_committed_results():
    summary = json.loads((ROOT / "benchmarks/results/moves.json").read_text())["summary"]
    said = re.search(r"torch takes \*\*([\d.]+)\*\* times .* forward and \*\*([\d.]+)\*\* times",
                     README)
    worst = re.search(r"the worst case is ([\d.]+) forward", README)
    assert [float(said[1]), float(said[2]), float(worst[1])] == [
        round(summary["geometric_mean_forward"], 1),
        round(summary["geometric_mean_forward_backward"], 1), summary["worst_forward"]]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(link):
    assert link.startswith("https://") or (ROOT / link).exists()
