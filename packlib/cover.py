"""The dense cover: an LSTM over a ragged batch as a few calls of the fused dense kernel.

``batch_sizes`` is a staircase. A few rectangles cover it, each a dense batch of some steps and
some sequences that runs through the kernel that padded input gets, its state carried on. Where they
have the shape of the stairs they are views of the packed rows. Where they reach over them, all
cells are laid out once, rectangle after rectangle, and one more input column is 1 on the padding.
Its weight, far below 0 on the input gate and far above on the forget gate, outweighs all others:
the sigmoids are 0 and 1 there, and the cell stands still.

One rectangle for each distinct length wastes no cell but pays for many calls; one for all pays for
the padding. The cheapest cover lies between, and a dynamic programme over the distinct lengths
finds it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from packlib import dense
from packlib.cells import lstm_layer
from packlib.dense import Run
from packlib.fused import by_steps, graph_is_kept, replayed
from packlib.layout import Layout
from packlib.ops import take

BRAKE = 1e30  # with it the sigmoid of a gate is 0 or 1 exactly


@dataclass(frozen=True)
class Cost:
    """Microseconds of a rectangle: ``call + steps * (step + sequences * cell)``.

    Once for all: ``layer``, and ``pad`` where anything is padded.
    """

    call: float
    step: float
    cell: float
    pad: float = 0.0
    layer: float = 0.0


EXACT = Cost(0, 0, 1)  # calls are free: a rectangle for each level, and nothing is padded


class Rectangle(NamedTuple):
    """Steps that run as one dense call, with the ``size`` sequences alive at its start.

    ``following``: how many of them go on after it.
    """

    steps: int
    size: int
    following: int

    @property
    def cells(self) -> int:
        return self.steps * self.size


class Cover(NamedTuple):
    """The steps at which rectangles begin, and these, first step first; microseconds of a layer."""

    cuts: tuple[int, ...]
    rectangles: list[Rectangle]
    padded: bool
    price: float

    @property
    def cells(self) -> list[int]:
        return [r.cells for r in self.rectangles]


def cover(layout: Layout, cost: Cost) -> Cover:
    """The cheapest cover; found once for each layout and cost."""
    return layout.kept(("cover", cost), lambda: _cover(layout, cost))


def _cover(layout: Layout, cost: Cost) -> Cover:
    """Either every level is a rectangle, or the best that padding can do."""
    sizes, steps, rows = layout.batch_sizes, layout.num_steps, layout.num_rows
    levels = [0, *((sizes[1:] != sizes[:-1]).nonzero()[0] + 1).tolist()]
    exact = len(levels) * cost.call + rows * cost.cell
    wasted = (steps * int(sizes[0]) - rows) * cost.cell
    if wasted <= cost.call:  # a second rectangle would cost more than it saves
        cuts, least = [0], cost.call + wasted + rows * cost.cell
    else:
        cuts, least = _cheapest([*levels, steps], sizes[levels].tolist(), cost)
    padded = len(cuts) < len(levels) and least + cost.pad < exact
    if not padded:
        cuts, least = levels, exact
    heights = sizes[cuts].tolist()
    rectangles = [Rectangle(stop - start, size, following) for start, stop, size, following in zip(
        cuts, [*cuts[1:], steps], heights, [*heights[1:], 0], strict=True)]
    price = cost.layer + cost.pad * padded + steps * cost.step + least
    return Cover(tuple(cuts), rectangles, padded, price)


def _cheapest(bounds: list[int], heights: list[int], cost: Cost) -> tuple[list[int], float]:
    """The steps to cut at, and the price of calls and cells.

    ``bounds``: where each level begins, and the last one ends. A rectangle from level k to step t
    costs ``offset + t * slope``, a line for each k. Levels fall, so slopes do: of two lines the
    later one is the better from some step on, and lines stand in a queue, the best one now first.
    """
    price, begin = 0.0, []  # of the levels so far, and where their last rectangle begins
    queue: list[tuple[float, float, int]] = []  # offset, slope, level
    first = 0
    for k, height in enumerate(heights):
        slope = height * cost.cell
        line = price + cost.call - bounds[k] * slope, slope, k
        while len(queue) > first + 1 and _sooner(line, queue[-1], queue[-2]):
            queue.pop()
        queue.append(line)
        end = bounds[k + 1]
        while len(queue) > first + 1 and _at(queue[first + 1], end) <= _at(queue[first], end):
            first += 1
        price = _at(queue[first], end)
        begin.append(queue[first][2])
    cuts = [begin[-1]]
    while cuts[-1]:
        cuts.append(begin[cuts[-1] - 1])
    return [bounds[i] for i in reversed(cuts)], price


def _at(line: tuple[float, float, int], step: int) -> float:
    return line[0] + step * line[1]


def _sooner(new: tuple[float, float, int], middle: tuple[float, float, int],
            old: tuple[float, float, int]) -> bool:
    """The newest line falls below the old one before the middle one does, which has no turn then.
    """
    return (new[0] - old[0]) * (old[1] - middle[1]) <= (middle[0] - old[0]) * (old[1] - new[1])


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
    """Output and last states; the cover, its runs, and the weights that they were given."""

    outputs: tuple[Tensor, Tensor, Tensor]
    cover: Cover
    runs: list[Run]
    weights: list[Tensor]


class _Covered(torch.autograd.Function):
    """The rectangles one after the other; backward from the last to the first."""

    @staticmethod
    def forward(ctx: Any, layout: Layout, cost: Cost,  # type: ignore[override]
                *tensors: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        done = _forward(layout, cost, any(ctx.needs_input_grad), tensors)
        ctx.set_materialize_grads(False)
        ctx.layout, ctx.cover = layout, done.cover
        ctx.graphs = [run.graph for run in done.runs]
        ctx.save_for_backward(*tensors, done.weights[0],
                              *(tensor for run in done.runs for tensor in run[:-1]))
        return done.outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        saved = ctx.saved_tensors  # once: checkpointing computes them anew each time
        inputs, w_ih, kept = saved[:7], saved[7], saved[8:]
        if all(grad is None for grad in grads):
            return None, None, *[None] * len(inputs)
        if by_steps(grads):
            return None, None, *replayed(
                functools.partial(lstm_layer, ctx.layout), inputs, grads)
        keep, each = graph_is_kept(), len(kept) // len(ctx.graphs)
        runs = [Run._make([*kept[i * each:(i + 1) * each], graph])
                for i, graph in enumerate(ctx.graphs)]
        weights = [w_ih, *(w.detach() for w in inputs[4:] if w is not None)]
        found = _backward(ctx.layout, ctx.cover, runs, weights, inputs[1], grads, keep,
                          need_data=ctx.needs_input_grad[2])
        if not keep:  # as autograd lets saved tensors go
            ctx.graphs = None
        return None, None, *found, *[None] * (len(inputs) - len(found))


def _forward(layout: Layout, cost: Cost, training: bool,
             tensors: Sequence[Tensor | None]) -> _Forward:
    data, h0, c0, *weights = (t.detach() for t in tensors if t is not None)
    covering = cover(layout, cost)
    cells = data
    if covering.padded:
        if _too_strong([*weights, c0]):
            return _forward(layout, EXACT, training, tensors)
        rows = torch.constant_pad_nd(data, (0, 1, 0, 1))  # one more column, and a row of padding
        rows.view(-1)[-1] = 1  # which is 1 in that column, and 0 as all else there
        cells = take(rows, layout.tiles(covering.cuts, data.device))
        weights[0] = torch.cat([weights[0], _brake(h0.shape[1], data.dtype, data.device)], 1)
    h, (c, c_none) = h0[:covering.rectangles[0].size], _cut(c0, covering.rectangles[0].size)
    c_n = [c_none]  # of sequences without more steps, the shortest first
    runs = []
    for r, x in zip(covering.rectangles, cells.split_with_sizes(covering.cells), strict=True):
        run = dense.forward(x.view(r.steps, r.size, -1), h, c, weights, training)
        h, (c, c_end) = run.h_n[:r.following], _cut(run.c_n, r.following)
        c_n.append(c_end)
        runs.append(run)
    outputs = [run.output.flatten(0, 1) for run in runs]
    output = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
    if covering.padded:
        output = take(output, layout.tiled(covering.cuts, data.device))
    elif training and len(outputs) == 1:
        output = output.clone()  # the caller may change it while the kernel still wants its own
    h_n = output.index_select(0, layout.ends(data.device))
    return _Forward((output, _joined([h_n, h0[h_n.shape[0]:]]), _joined(c_n[::-1])), covering, runs,
                    weights)


def _cut(state: Tensor, count: int) -> tuple[Tensor, ...]:
    """The first ``count`` rows, and the others."""
    return state.split_with_sizes([count, state.shape[0] - count])


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    """The pieces (n, *), of which some may have no rows, one after the other."""
    some = [piece for piece in pieces if piece.shape[0]]
    return torch.cat(some) if len(some) != 1 else some[0]


def _backward(layout: Layout, covering: Cover, runs: list[Run], weights: list[Tensor], h0: Tensor,
              grads: Sequence[Tensor | None], keep: bool, need_data: bool) -> list[Tensor | None]:
    """Gradients of data, h0, c0 and the weights from those of output, h_n and c_n."""
    d_output, d_h_n, d_c_n = grads
    zeros = torch.zeros_like(h0)
    started = covering.rectangles[0].size
    cells = h0.new_zeros(layout.num_rows, h0.shape[1]) if d_output is None else d_output
    if d_h_n is not None:  # h_n is the last rows of the output
        cells = cells.index_add(0, layout.ends(h0.device), d_h_n[:started])
    if covering.padded:
        cells = take(torch.constant_pad_nd(cells, (0, 0, 0, 1)),
                     layout.tiles(covering.cuts, h0.device))
    d_end = zeros if d_c_n is None else d_c_n
    d_h = d_c = zeros[:0]  # of the sequences that go on after a rectangle
    d_data: list[Tensor] = []
    d_weights: list[Tensor] = []
    parts = zip(covering.rectangles, runs, cells.split_with_sizes(covering.cells), strict=True)
    for r, run, d_cells in list(parts)[::-1]:
        ended = slice(r.following, r.size)
        d_x, d_h, d_c, *found = dense.backward(
            run, weights, d_cells.reshape(run.output.shape), _joined([d_h, zeros[ended]]),
            _joined([d_c, d_end[ended]]), keep)
        d_weights = _added(d_weights, found)
        d_data.append(d_x.flatten(0, 1))
    if covering.padded:
        d_weights[0] = d_weights[0][:, :-1].contiguous()  # not the brake
    d_first = _joined([d_h, (zeros if d_h_n is None else d_h_n)[started:]])
    return [_of_data(layout, covering, d_data[::-1]) if need_data else None, d_first,
            _joined([d_c, d_end[started:]]), *d_weights]


def _of_data(layout: Layout, covering: Cover, d_cells: list[Tensor]) -> Tensor:
    """The gradient of the packed rows (N, F) from those of each rectangle's cells."""
    joined = torch.cat(d_cells) if len(d_cells) > 1 else d_cells[0]
    if not covering.padded:
        return joined
    return take(joined[:, :-1], layout.tiled(covering.cuts, joined.device))


def _added(total: list[Tensor], more: list[Tensor]) -> list[Tensor]:
    """Both, which hold gradients of the same weights; in place but for the biases.

    The kernel gives both of these the same tensor.
    """
    if not total:
        return more
    for sum_, w in zip(total[:2], more[:2], strict=True):
        sum_.add_(w)
    return [*total[:2], *(a + b for a, b in zip(total[2:], more[2:], strict=True))]


def _too_strong(numbers: list[Tensor]) -> bool:
    """Could weights outweigh the brake? Infinite ones do, and a NaN goes to all units by padding.

    On padding the input is 0 and h lies in -1..1, so no gate is larger than the sum of all weights,
    nor this than the root of their number times that of the sum of their squares. First cells are
    among the numbers only to find one that is none. On a GPU the host would have to wait for that.
    """
    if not numbers[0].is_cpu:
        return False
    count, squares = 0, 0.0
    for n in numbers:
        flat = n.reshape(-1)
        count += flat.numel()
        squares += flat.dot(flat).item()
    return not 2 * math.sqrt(count * squares) < _pull(numbers[0].dtype)


@functools.cache
def _pull(dtype: torch.dtype) -> float:
    return min(BRAKE, torch.finfo(dtype).max / 4)  # infinity times 0 would be no number


@functools.lru_cache(maxsize=64)
def _brake(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One more column of the input's weights, (4H, 1): input gate shut, forget gate open."""
    with torch.inference_mode(False):  # it is kept, and may serve a training step later
        brake = torch.zeros(4 * size, 1, dtype=dtype, device=device)
        brake[:size], brake[size:2 * size] = -_pull(dtype), _pull(dtype)
    return brake
