"""What stays of an LSTM's cover when Python is taken out: two floors of packlib's time.

``kernels``: oneDNN's dense kernels alone, on the cover's rectangles. ``operators``: with them the
torch operators that lay out the cells, gather the results and carry gradients back, as one autograd
function. Its plan is made beforehand; no argument is checked, nothing is planned or chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from race import lengths
from torch import Tensor

import packlib
from packlib import cover, dense, routes


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
    inputs = [(torch.randn(r.steps, r.size, columns), *torch.randn(2, r.size, hidden), weights)
              for r in plan.covering.rectangles]

    def run() -> None:
        for given in inputs:
            done = dense.forward(*given, plan.training)
            if plan.training:
                dense.backward(done, given[3], done.output, done.h_n, done.c_n)

    return run


def operators(plan: Plan, data: Tensor, layer: torch.nn.LSTM) -> Callable[[], tuple[Tensor, ...]]:
    """The operators: output (N, H), h_n and c_n (B, H) in the user's order."""
    weights, shape = list(layer.parameters()), (len(plan.inverse), layer.hidden_size)
    apply: Any = _Operators.apply if plan.training else lambda *given: _forward(*given)[0]
    return lambda: apply(plan, data, torch.zeros(shape), torch.zeros(shape), *weights)


def _forward(plan: Plan, data: Tensor, h0: Tensor, c0: Tensor,
             *given: Tensor) -> tuple[tuple[Tensor, ...], list[dense.Run], list[Tensor]]:
    covering, weights, cells = plan.covering, [w.detach() for w in given], data
    if covering.padded:
        rows = torch.constant_pad_nd(data, (0, 1, 0, 1))
        rows.view(-1)[-1] = 1
        cells = rows.index_select(0, plan.cells)
        weights[0] = torch.cat([weights[0], plan.brake], 1)
    h, c, runs, ended = h0[:len(plan.ends)], c0[:len(plan.ends)], [], []
    for r, x in zip(covering.rectangles, cells.split_with_sizes(covering.cells), strict=True):
        run = dense.forward(x.view(r.steps, r.size, -1), h, c, weights, plan.training)
        h = run.h_n[:r.following]
        c, end = run.c_n.split_with_sizes([r.following, r.size - r.following])
        ended.append(end)
        runs.append(run)
    output = torch.cat([run.output.flatten(0, 1) for run in runs])
    if covering.padded:
        output = output.index_select(0, plan.rows)
    h_n, c_n = output.index_select(0, plan.ends), torch.cat(ended[::-1])
    last = (state.index_select(0, plan.inverse) for state in (h_n, c_n))
    return (output, *last), runs, weights


class _Operators(torch.autograd.Function):
    """Gradients of the weights from that of the output, which is all that the benchmark asks."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, *given: Tensor) -> Any:  # type: ignore[override]
        outputs, ctx.runs, ctx.weights = _forward(plan, *given)
        ctx.set_materialize_grads(False)
        ctx.plan = plan
        return outputs

    @staticmethod
    def backward(ctx: Any, d_output: Tensor, *_: Any) -> Any:  # type: ignore[override]
        covering, runs, cells = ctx.plan.covering, ctx.runs, d_output
        if covering.padded:
            cells = torch.constant_pad_nd(d_output, (0, 0, 0, 1)).index_select(0, ctx.plan.cells)
        zeros, total = torch.zeros_like(runs[0].h), []
        d_h = d_c = zeros[:0]
        parts = zip(covering.rectangles, runs, cells.split_with_sizes(covering.cells), strict=True)
        for r, run, d_cells in list(parts)[::-1]:
            ended = zeros[r.following:r.size]
            _, d_h, d_c, *found = dense.backward(
                run, ctx.weights, d_cells.reshape(run.output.shape), torch.cat([d_h, ended]),
                torch.cat([d_c, ended]))
            total = cover._added(total, found)
        if covering.padded:
            total[0] = total[0][:, :-1].contiguous()
        return None, None, None, None, *total
