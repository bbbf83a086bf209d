"""What stays of an LSTM's cover when Python is taken out: two floors of packlib's time.

``kernels``: oneDNN's dense kernels alone, on the cover's rectangles. ``operators``: with them the
torch operators that lay out the cells and gather the results, and their derivatives. The plan is
made beforehand; no argument is checked, nothing is planned or chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from race import lengths
from torch import Tensor

import packlib
from packlib import cover, routes


class Plan(NamedTuple):
    """The cover and its row numbers; ``inverse`` leads back to the user's order."""

    covering: cover.Cover
    cells: Tensor
    rows: Tensor
    ends: Tensor
    inverse: Tensor
    brake: Tensor
    training: bool


def planned(task: str, case: tuple[int, int, int, int], kind: str
            ) -> tuple[Plan, Tensor, torch.nn.LSTM] | None:
    """Plan, packed data and a layer of torch's; None if the hoisted loop is chosen."""
    size, longest, features, hidden = case
    packed = packlib.pack_padded_sequence(torch.randn(size, longest, features),
                                          lengths(kind, size, longest), True, False)
    layout, data, layer = packed.layout, packed.data, torch.nn.LSTM(features, hidden)
    w_hh = layer.weight_hh_l0.detach()
    with torch.set_grad_enabled(task == "training step"):
        if routes.choose("LSTM", layout, data, w_hh, False) != "cover":
            return None
        covering = cover.cover(layout, routes.cover_cost(data, w_hh))
    cuts, device = covering.cuts, data.device
    plan = Plan(covering, layout.tiles(cuts, device), layout.tiled(cuts, device),
                layout.ends(device), packed.unsorted_indices,
                cover._brake(hidden, data.dtype, device), task == "training step")
    return plan, data, layer


def kernels(plan: Plan, data: Tensor, layer: torch.nn.LSTM) -> Callable[[], None]:
    """The dense kernels, forward and, in training, backward."""
    hidden, columns = layer.hidden_size, data.shape[1] + plan.covering.padded
    weights = [torch.randn(4 * hidden, columns), *(p.detach() for p in layer.parameters())]
    del weights[1]  # w_ih, which has a column more where there is padding
    inputs = [(torch.randn(r.steps, r.size, columns), *weights, *torch.randn(2, r.size, hidden))
              for r in plan.covering.rectangles]
    lstm, step = torch.ops.aten, (2, hidden, 1, True)  # torch's number of the cell, and its shape

    def run() -> None:
        for given in inputs:
            *done, space = lstm.mkldnn_rnn_layer(*given, False, [], *step, False, False,
                                                 plan.training)
            if plan.training:
                lstm.mkldnn_rnn_layer_backward(*given, *done, *done, False, *step, True, False, [],
                                               False, space)

    return run


def operators(plan: Plan, data: Tensor, layer: torch.nn.LSTM) -> Callable[[], tuple[Tensor, ...]]:
    """The operators: output (N, H), h_n and c_n (B, H) in the user's order."""
    covering, shape = plan.covering, (len(plan.inverse), layer.hidden_size)

    def run() -> tuple[Tensor, ...]:
        weights, cells = list(layer.parameters()), data
        if covering.padded:
            rows = torch.constant_pad_nd(data, (0, 1, 0, 1))
            rows.view(-1)[-1] = 1
            cells = rows.index_select(0, plan.cells)
            weights[0] = torch.constant_pad_nd(weights[0], (0, 1))
            weights[0].detach()[:, -1] = plan.brake
        h = c = torch.zeros(1, *shape)
        outputs, ended = [], []
        for r, x in zip(covering.rectangles, cells.split_with_sizes(covering.cells), strict=True):
            output, h, c = torch._VF.lstm(x.view(r.steps, r.size, -1), (h, c), weights, True, 1,
                                          0.0, plan.training, False, False)
            h = h[:, :r.following]
            c, end = c.split_with_sizes([r.following, r.size - r.following], 1)
            outputs.append(output.flatten(0, 1))
            ended.append(end[0])
        rows = torch.cat(outputs)
        if covering.padded:
            rows = rows.index_select(0, plan.rows)
        last = rows.index_select(0, plan.ends), torch.cat(ended[::-1])
        return rows, *(state.index_select(0, plan.inverse) for state in last)

    return run
