"""The floor that the LSTM's benchmark shows is the floor of the same numbers."""

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def floor(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import floor

    yield floor
    for name in ("floor", "race"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("kind", ["uniform", "skewed"])
@pytest.mark.parametrize("task", ["training step", "inference"])
def test_operators_give_torchs_numbers(floor, task, kind):
    torch.manual_seed(0)
    case = 16, 50, 32, 32
    plan, data, layer = floor.planned(task, case, kind)
    lengths = floor.lengths(kind, *case[:2])
    grid = torch.nn.utils.rnn.pad_packed_sequence(torch.nn.utils.rnn.PackedSequence(
        data, torch.tensor([int((lengths > t).sum()) for t in range(50)])))[0]
    longest_first = lengths.sort(descending=True, stable=True)[0]
    packed = torch.nn.utils.rnn.pack_padded_sequence(grid, longest_first)
    with torch.set_grad_enabled(task == "training step"):
        found, expected = floor.operators(plan, data, layer)(), layer(packed)
    torch.testing.assert_close(found[0], expected[0].data)
    for state, theirs in zip(found[1:], expected[1], strict=True):
        torch.testing.assert_close(state, theirs[0].index_select(0, plan.inverse))
    if task == "training step":
        grads = (torch.autograd.grad(output.square().sum(), list(layer.parameters()))
                 for output in (found[0], expected[0].data))
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs)
