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
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

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
    falls = np.flatnonzero(sizes[1:] != sizes[:-1]) + 1
    wasted = (len(sizes) * sizes[0] - sizes.sum()) * cost.cell
    # a second rectangle saves less than it costs, and so does one for each level, without padding
    if wasted <= cost.call and wasted + cost.pad <= len(falls) * cost.call:
        return [_rectangle(layout, 0, len(sizes))]
    starts = [0, *falls.tolist()]
    cuts = _cheapest([*starts, len(sizes)], sizes[starts].tolist(), cost)
    return [_rectangle(layout, start, stop) for start, stop in itertools.pairwise(cuts)]


def price(layout: Layout, cost: Cost) -> float:
    """Microseconds that the cheapest cover takes, by ``cost``."""
    return cost.layer + sum(
        cost.call + r.steps * (cost.step + r.size * cost.cell) + cost.pad * (r.inner is not None)
        for r in cover(layout, cost))


def _cheapest(bounds: list[int], heights: list[int], cost: Cost) -> list[int]:
    """The steps to cut at, given where each level begins and the last one ends, and its height.

    A rectangle from level k to step t costs ``offset + t * slope``, a line for each k, and ``pad``
    in it if it has more levels than one. Levels fall, so slopes do: of two lines the later one is
    the better from some step on, and lines stand in a queue, the best one now first.
    """
    best, begin = 0.0, []  # of the levels so far: their price, and where the last rectangle begins
    queue: list[tuple[float, float, int]] = []  # offset, slope, level
    first = 0
    for k, height in enumerate(heights):
        end, slope = bounds[k + 1], cost.step + height * cost.cell
        alone = best + cost.call - bounds[k] * slope
        while first + 1 < len(queue) and _at(queue[first + 1], end) <= _at(queue[first], end):
            first += 1
        best, since = alone + end * slope, k
        if queue and _at(queue[first], end) < best:
            best, since = _at(queue[first], end), queue[first][2]
        begin.append(since)
        line = alone + cost.pad, slope, k
        while first + 1 < len(queue) and _sooner(line, queue[-1], queue[-2]):
            queue.pop()
        queue.append(line)
    cuts = [len(heights)]
    while cuts[-1]:
        cuts.append(begin[cuts[-1] - 1])
    return [bounds[i] for i in reversed(cuts)]


def _at(line: tuple[float, float, int], step: int) -> float:
    return line[0] + step * line[1]


def _sooner(new: tuple[float, float, int], middle: tuple[float, float, int],
            old: tuple[float, float, int]) -> bool:
    """The newest line falls below the old one before the middle one does, which has no turn then.
    """
    return (new[0] - old[0]) * (old[1] - middle[1]) <= (middle[0] - old[0]) * (old[1] - new[1])


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
        ctx.set_materialize_grads(False)
        ctx.layout, ctx.rectangles = layout, done.rectangles
        ctx.graphs = [run.graph for run in done.runs]
        ctx.save_for_backward(*tensors, done.braked,
                              *(tensor for run in done.runs for tensor in run[:-1]))
        return done.outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        saved = ctx.saved_tensors  # once: checkpointing computes them anew each time
        inputs, braked, kept = saved[:7], saved[7], saved[8:]
        if all(grad is None for grad in grads):
            return None, None, *[None] * len(inputs)
        if torch.is_grad_enabled():
            return None, None, *replayed(
                functools.partial(lstm_layer, ctx.layout), inputs, grads)
        each = len(kept) // len(ctx.graphs)
        runs = [Run._make([*kept[i * each:(i + 1) * each], graph])
                for i, graph in enumerate(ctx.graphs)]
        weights = [w.detach() for w in inputs[3:] if w is not None]
        found = _backward(ctx.rectangles, runs, weights, braked, inputs[1], grads,
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
    (h, h_none), (c, c_none) = (_cut(s, rectangles[0].size) for s in (h0, c0))
    h_n, c_n = [h_none], [c_none]  # states of sequences without more steps, the shortest first
    outputs, runs = [], []
    for r, rows in zip(rectangles, data.split_with_sizes([r.count for r in rectangles]),
                       strict=True):
        if r.inner is None:
            run = dense.forward(rows.view(r.steps, r.size, -1), h, c, weights, training)
            h, output = run.h_n, run.output.flatten(0, 1)
        else:
            cells = moves.cells(r.steps, False)
            # one more column: 0 on real steps, 1 on padding like all of it
            x = moves.from_packed(torch.constant_pad_nd(rows, (0, 1)), r.inner, cells, 1)
            run = dense.forward(x.view(r.steps, r.size, -1), h, c, [braked, *weights[1:]],
                                training)
            grid = run.output.flatten(0, 1)
            h = grid.index_select(0, r.inner.last(data.device))
            output = moves.to_packed(grid, r.inner, cells)
        (h, h_end), (c, c_end) = (_cut(s, r.following) for s in (h, run.c_n))
        h_n.append(h_end)
        c_n.append(c_end)
        outputs.append(output)
        runs.append(run)
    # a copy even of one, which the caller may change while the kernel still wants its own
    copied = len(outputs) > 1 or training and rectangles[0].inner is None
    output = torch.cat(outputs) if copied else outputs[0]
    return _Forward((output, _joined(h_n[::-1]), _joined(c_n[::-1])), rectangles, runs, braked)


def _cut(state: Tensor, count: int) -> tuple[Tensor, ...]:
    """The first ``count`` rows, and the others."""
    return state.split_with_sizes([count, state.shape[0] - count])


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    """The pieces (n, *), of which some may have no rows, one after the other."""
    some = [piece for piece in pieces if piece.shape[0]]
    return torch.cat(some) if len(some) != 1 else some[0]


def _backward(rectangles: list[Rectangle], runs: list[Run], weights: list[Tensor], braked: Tensor,
              h0: Tensor, grads: Sequence[Tensor | None],
              need_data: bool) -> list[Tensor | None]:
    """Gradients of data, h0, c0 and the weights from those of output, h_n and c_n."""
    counts = [r.count for r in rectangles]
    d_output = grads[0] if grads[0] is not None else h0.new_zeros(sum(counts), h0.shape[1])
    dh, dc = (torch.zeros_like(h0) if grad is None else grad for grad in grads[1:])
    d_h, d_c = dh[:0], dc[:0]  # of the sequences that go on after a rectangle
    d_data: list[Tensor] = []
    d_weights: list[Tensor] = []
    parts = zip(rectangles, runs, d_output.split_with_sizes(counts), strict=True)
    for r, run, d_rows in list(parts)[::-1]:
        live, live_c = (_joined([carried, ended[r.following:r.size]])
                        for carried, ended in ((d_h, dh), (d_c, dc)))
        if r.inner is None:
            d_x, d_h, d_c, *found = dense.backward(
                run, weights, d_rows.reshape(run.output.shape), live, live_c)
        else:
            cells = moves.cells(r.steps, False)
            grid = moves.from_packed(d_rows, r.inner, cells)
            if r.following or grads[1] is not None:
                grid.index_add_(0, r.inner.last(dh.device), live)
            d_x, d_h, d_c, *found = dense.backward(
                run, [braked, *weights[1:]], grid.view(run.output.shape), torch.zeros_like(live),
                live_c)
            found[0] = found[0][:, :-1]  # not the brake
        # not in place: the kernel gives both biases the same tensor
        d_weights = found if not d_weights else [a + b for a, b in zip(d_weights, found,
                                                                       strict=True)]
        if need_data:
            d_rows = d_x.flatten(0, 1)
            d_data.append(d_rows if r.inner is None else
                          moves.to_packed(d_rows, r.inner, cells)[:, :-1])
    started = rectangles[0].size
    return [torch.cat(d_data[::-1]) if need_data else None, _joined([d_h, dh[started:]]),
            _joined([d_c, dc[started:]]), *d_weights]


def _too_strong(weights: list[Tensor]) -> bool:
    """Could they outweigh the brake? Infinite ones do, and so does a NaN.

    On padding the input is 1 and h lies in -1..1, so no gate is larger than the sum of all weights,
    nor this than the root of their number times that of the sum of their squares. On a GPU the
    host would have to wait for that; there a NaN may reach every unit of a sequence.
    """
    if not weights[0].is_cpu:
        return False
    flat = [w.reshape(-1) for w in weights]
    squares = sum(float(w.dot(w)) for w in flat)
    count = sum(len(w) for w in flat)
    return not 2 * math.sqrt(count * squares) < _pull(weights[0].dtype)


def _pull(dtype: torch.dtype) -> float:
    return min(BRAKE, torch.finfo(dtype).max / 4)  # infinity times 0 would be no number


@functools.lru_cache(maxsize=64)
def _brake(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One more column of the input's weights, (4H, 1): input gate shut, forget gate open."""
    with torch.inference_mode(False):  # it is kept, and may serve a training step later
        brake = torch.zeros(4 * size, 1, dtype=dtype, device=device)
        brake[:size], brake[size:2 * size] = -_pull(dtype), _pull(dtype)
    return brake
