"""The dense cover: an LSTM over a ragged batch as a few calls of the fused dense kernel.

``batch_sizes`` is a staircase. A few rectangles cover it, each a dense batch of some steps and
some sequences that runs through the kernel that padded input gets, its state carried on. Where all
sequences of a rectangle live to its end it is a view of the packed rows. Where some end early they
are padded, and one more input column is 1 on the padding. Its weight, far below 0 on the input gate
and far above on the forget gate, outweighs all others: the sigmoids are 0 and 1 there, and the cell
stands still.

One rectangle for each distinct length wastes no cell but pays for many calls; one for all pays for
the padding. The cheapest cover lies between, and a dynamic programme over the distinct lengths
finds it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from packlib import dense, moves
from packlib.cells import lstm_layer
from packlib.dense import Run
from packlib.fused import replayed
from packlib.layout import Layout

BRAKE = 100.0  # sigmoid(-100) is 4e-44, sigmoid(100) is 1


@dataclass(frozen=True)
class Cost:
    """Microseconds of a rectangle: ``call + steps * (step + sequences * cell)``.

    ``pad`` more where something is padded in it, and ``layer`` once for all.
    """

    call: float
    step: float
    cell: float
    pad: float = 0.0
    layer: float = 0.0


@dataclass(frozen=True)
class Rectangle:
    """Steps that run as one dense call, with the ``size`` sequences alive at its start.

    ``count``: its packed rows. ``inner``: the layout of those rows, None if nothing is padded.
    ``following``: how many of its sequences go on after it.
    """

    count: int
    steps: int
    size: int
    following: int
    inner: Layout | None


def cover(layout: Layout, cost: Cost) -> list[Rectangle]:
    """The cheapest rectangles, first step first; found once for each layout and cost."""
    return layout.kept(("cover", cost), lambda: _cover(layout, cost))


def _cover(layout: Layout, cost: Cost) -> list[Rectangle]:
    sizes = layout.batch_sizes
    wasted = len(sizes) * sizes[0] - sizes.sum()
    if wasted * cost.cell + cost.pad <= cost.call:  # no second call is worth it
        return [_rectangle(layout, 0, len(sizes))]
    ends = np.append(np.flatnonzero(sizes[1:] != sizes[:-1]) + 1, len(sizes))
    starts = np.append(0, ends[:-1])  # where batch_sizes falls
    cuts = _cheapest(starts, ends, sizes[starts], cost)
    return [_rectangle(layout, int(starts[a]), int(ends[b - 1])) for a, b in cuts]


def price(layout: Layout, cost: Cost) -> float:
    """Microseconds that the cheapest cover takes, by ``cost``."""
    return cost.layer + sum(
        cost.call + r.steps * (cost.step + r.size * cost.cell) + cost.pad * (r.inner is not None)
        for r in cover(layout, cost))


def _cheapest(starts: np.ndarray, ends: np.ndarray, heights: np.ndarray,
              cost: Cost) -> list[tuple[int, int]]:
    best, begin = np.zeros(len(starts) + 1), np.zeros(len(starts) + 1, dtype=np.int64)
    by_step = cost.step + heights * cost.cell
    for k in range(1, len(starts) + 1):  # best[k]: the first k levels; the last rectangle from i
        totals = best[:k] + cost.call + (ends[k - 1] - starts[:k]) * by_step[:k]
        totals[:-1] += cost.pad  # more than one level
        begin[k] = totals.argmin()
        best[k] = totals[begin[k]]
    cuts, k = [], len(starts)
    while k:
        cuts.append((int(begin[k]), k))
        k = int(begin[k])
    return cuts[::-1]


def _rectangle(layout: Layout, start: int, stop: int) -> Rectangle:
    sizes = layout.batch_sizes
    following = int(sizes[stop]) if stop < len(sizes) else 0
    dense = sizes[start] == sizes[stop - 1]
    inner = None if dense else Layout.from_batch_sizes(sizes[start:stop])
    count = int(sizes[start:stop].sum())
    return Rectangle(count, stop - start, int(sizes[start]), following, inner)


def lstm(layout: Layout, cost: Cost, data: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor,
         w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """LSTM layer: data (N, F), h0 and c0 (B, H) -> output (N, H), h_n and c_n (B, H).

    Rows and states are longest sequence first; ``cost`` chooses the cover.
    """
    rectangles, tensors = cover(layout, cost), (data, h0, c0, w_ih, w_hh, b_ih, b_hh)
    if torch.is_grad_enabled():
        return _Covered.apply(layout, rectangles, *tensors)
    return _forward(rectangles, False, tensors)[0]


class _Covered(torch.autograd.Function):
    """The rectangles one after the other; backward from the last to the first."""

    @staticmethod
    def forward(ctx: Any, layout: Layout, rectangles: list[Rectangle],  # type: ignore[override]
                *tensors: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        outputs, runs, braked = _forward(rectangles, any(ctx.needs_input_grad), tensors)
        ctx.layout, ctx.rectangles, ctx.graphs = layout, rectangles, [run.graph for run in runs]
        ctx.save_for_backward(*tensors, braked, *(tensor for run in runs for tensor in run[:-1]))
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        saved = ctx.saved_tensors  # once: checkpointing computes them anew each time
        inputs, braked, kept = saved[:7], saved[7], saved[8:]
        if torch.is_grad_enabled():
            return None, None, *replayed(
                functools.partial(lstm_layer, ctx.layout), inputs, grads)
        each = len(kept) // len(ctx.graphs)
        runs = [Run._make([*kept[i * each:(i + 1) * each], graph])
                for i, graph in enumerate(ctx.graphs)]
        weights = [w.detach() for w in inputs[3:] if w is not None]
        found = _backward(ctx.rectangles, runs, weights, braked, grads,
                          need_data=ctx.needs_input_grad[2])
        return None, None, *found, *[None] * (len(inputs) - len(found))


def _forward(rectangles: list[Rectangle], training: bool,
             tensors: Sequence[Tensor | None]
             ) -> tuple[tuple[Tensor, Tensor, Tensor], list[Run], Tensor]:
    """Output and last states; each rectangle's run; the input's weights, with a brake if used."""
    data, h0, c0, *weights = (t.detach() for t in tensors if t is not None)
    braked = _braked(weights) if any(r.inner for r in rectangles) else weights[0]
    h_n, c_n = h0.clone(), c0.clone()  # row by row the last states; empty sequences keep these
    outputs, runs, h, c = [], [], h0[:rectangles[0].size], c0[:rectangles[0].size]
    for r, rows in zip(rectangles, data.split([r.count for r in rectangles]), strict=True):
        if r.inner is None:
            run = dense.forward(rows.view(r.steps, r.size, -1), h, c, weights, training)
            h, output = run.h_n, run.output.flatten(0, 1)
        else:
            cells = moves.cells(r.steps, False)
            # one more column: 0 on real steps, 1 on padding like all of it
            x = moves.from_packed(F.pad(rows, (0, 1)), r.inner, cells, 1)
            run = dense.forward(x.view(r.steps, r.size, -1), h, c, [braked, *weights[1:]],
                                training)
            grid = run.output.flatten(0, 1)
            h = grid.index_select(0, r.inner.last(data.device))
            output = moves.to_packed(grid, r.inner, cells)
        h_n[:r.size], c_n[:r.size] = h, run.c_n
        h, c = h[:r.following], run.c_n[:r.following]
        outputs.append(output)
        runs.append(run)
    # a copy even of one, which the caller may change while the kernel still wants its own
    output = torch.cat(outputs) if training or len(outputs) > 1 else outputs[0]
    return (output, h_n, c_n), runs, braked


def _backward(rectangles: list[Rectangle], runs: list[Run], weights: list[Tensor],
              braked: Tensor, grads: Sequence[Tensor],
              need_data: bool) -> list[Tensor | None]:
    """Gradients of data, h0, c0 and the weights from those of output, h_n and c_n."""
    d_output, dh, dc = grads[0], grads[1].clone(), grads[2].clone()
    d_data: list[Tensor] = []
    d_weights: list[Tensor] = []
    pieces = d_output.split([r.count for r in rectangles])
    for r, run, d_rows in list(zip(rectangles, runs, pieces, strict=True))[::-1]:
        live, live_c = dh[:r.size], dc[:r.size]
        if r.inner is None:
            d_x, d_h, d_c, *found = dense.backward(
                run, weights, d_rows.reshape(run.output.shape), live, live_c)
        else:
            cells = moves.cells(r.steps, False)
            grid = moves.from_packed(d_rows, r.inner, cells)
            grid.index_add_(0, r.inner.last(dh.device), live)
            d_x, d_h, d_c, *found = dense.backward(
                run, [braked, *weights[1:]], grid.view(run.output.shape), torch.zeros_like(live),
                live_c)
            found[0] = found[0][:, :-1]  # not the brake
        live.copy_(d_h)
        live_c.copy_(d_c)
        d_weights = found if not d_weights else [a + b for a, b in zip(d_weights, found,
                                                                       strict=True)]
        if need_data:
            d_rows = d_x.flatten(0, 1)
            d_data.append(d_rows if r.inner is None else
                          moves.to_packed(d_rows, r.inner, cells)[:, :-1])
    return [torch.cat(d_data[::-1]) if need_data else None, dh, dc, *d_weights]


def _braked(weights: list[Tensor]) -> Tensor:
    """The input's weights with one more column, (4H, F + 1), for the one that marks padding.

    There the input is 1 and h lies in -1..1, so no gate is larger than the sum of all weights.
    """
    size = len(weights[0]) // 4
    pull = BRAKE + sum(torch.linalg.vector_norm(w, 1) for w in weights)
    pull = pull.clamp(max=torch.finfo(pull.dtype).max / 4)  # infinity times 0 would be no number
    braked = F.pad(weights[0], (0, 1))
    braked[:size, -1] = -pull
    braked[size:2 * size, -1] = pull
    return braked
