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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from packlib import dense, moves
from packlib.cells import lstm_layer
from packlib.dense import Run
from packlib.fused import replayed
from packlib.layout import Layout

BRAKE = 1e30  # with it the sigmoid of a gate is 0 or 1 exactly


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


EXACT = Cost(0, 0, 1)  # calls are free: a rectangle for each level, and nothing is padded


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
    ends = np.append(np.flatnonzero(sizes[1:] != sizes[:-1]) + 1, len(sizes))
    wasted = (len(sizes) * sizes[0] - sizes.sum()) * cost.cell
    # a second rectangle saves less than it costs, and so does one for each level, without padding
    if wasted <= cost.call and wasted + cost.pad <= (len(ends) - 1) * cost.call:
        return [_rectangle(layout, 0, len(sizes))]
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
    """The levels of each rectangle, from and to. A padded one pays ``pad``, one level does not."""
    count, by_step = len(starts), cost.step + heights * cost.cell
    best, begin = 0.0, np.zeros(count + 1, dtype=np.int64)
    to_here = cost.call + cost.pad - starts * by_step  # of the last rectangle, less its end
    for k in range(count):  # best: the first k levels
        to_here[k] += best - cost.pad
        totals = to_here[:k + 1] + ends[k] * by_step[:k + 1]
        begin[k + 1] = i = totals.argmin()
        best = totals[i]
        to_here[k] += cost.pad
    cuts, k = [], count
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
    tensors = data, h0, c0, w_ih, w_hh, b_ih, b_hh
    if torch.is_grad_enabled():
        return _Covered.apply(layout, cost, *tensors)
    return _forward(layout, cost, False, tensors).outputs


class _Forward(NamedTuple):
    """Output and last states; the rectangles, and each one's run; the input's weights, braked."""

    outputs: tuple[Tensor, Tensor, Tensor]
    rectangles: list[Rectangle]
    runs: list[Run]
    braked: Tensor


class _Covered(torch.autograd.Function):
    """The rectangles one after the other; backward from the last to the first."""

    @staticmethod
    def forward(ctx: Any, layout: Layout, cost: Cost,  # type: ignore[override]
                *tensors: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        done = _forward(layout, cost, any(ctx.needs_input_grad), tensors)
        ctx.layout, ctx.rectangles = layout, done.rectangles
        ctx.graphs = [run.graph for run in done.runs]
        ctx.save_for_backward(*tensors, done.braked,
                              *(tensor for run in done.runs for tensor in run[:-1]))
        return done.outputs

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


def _forward(layout: Layout, cost: Cost, training: bool,
             tensors: Sequence[Tensor | None]) -> _Forward:
    data, h0, c0, *weights = (t.detach() for t in tensors if t is not None)
    rectangles, braked = cover(layout, cost), weights[0]
    if any(r.inner for r in rectangles):
        if _too_strong(weights):
            return _forward(layout, EXACT, training, tensors)
        braked = torch.cat([weights[0], _brake(h0.shape[1], data.dtype, data.device)], 1)
    h_n, c_n = h0.clone(), c0.clone()  # row by row the last states; empty sequences keep these
    h, c = h0[:rectangles[0].size], c0[:rectangles[0].size]
    outputs, runs = [], []
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
    return _Forward((output, h_n, c_n), rectangles, runs, braked)


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


def _too_strong(weights: list[Tensor]) -> bool:
    """Could they outweigh the brake? Infinite ones do, and so does a NaN.

    On padding the input is 1 and h lies in -1..1, so no gate is larger than the sum of all weights.
    On a GPU the host would have to wait for that; there a NaN may reach every unit of a sequence.
    """
    if not weights[0].is_cpu:
        return False
    return not 2 * float(sum(w.abs().sum() for w in weights)) < _pull(weights[0].dtype)


def _pull(dtype: torch.dtype) -> float:
    return min(BRAKE, torch.finfo(dtype).max / 4)  # infinity times 0 would be no number


@functools.lru_cache(maxsize=64)
def _brake(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One more column of the input's weights, (4H, 1): input gate shut, forget gate open."""
    with torch.inference_mode(False):  # it is kept, and may serve a training step later
        brake = torch.zeros(4 * size, 1, dtype=dtype, device=device)
        brake[:size], brake[size:2 * size] = -_pull(dtype), _pull(dtype)
    return brake
