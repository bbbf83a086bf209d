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
from typing import NamedTuple

import torch
from torch import _VF, Tensor

from packlib import fused
from packlib.cells import lstm_layer
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
         w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, ...]:
    """LSTM layer: data (N, F), h0 and c0 (B, H) -> output (N, H), h_n and c_n (B, H).

    Rows and states are longest sequence first; ``cost`` chooses the cover.
    """
    return fused.call(functools.partial(_run, layout, cost), functools.partial(lstm_layer, layout),
                      (data, h0, c0, w_ih, w_hh, b_ih, b_hh))


def _run(layout: Layout, cost: Cost, data: Tensor, h0: Tensor, c0: Tensor,
         *given: Tensor | None) -> tuple[Tensor, ...]:
    """Of torch's operators alone, whose derivatives torch knows: the rectangles one by one."""
    covering, weights = cover(layout, cost), [w for w in given if w is not None]
    cells, device = data, data.device
    if covering.padded:
        if _too_strong([*weights, c0]):
            return _run(layout, EXACT, data, h0, c0, *given)
        rows = torch.constant_pad_nd(data, (0, 1, 0, 1))  # one more column, and a row of padding
        rows.detach().view(-1)[-1] = 1  # which is 1 in that column, and 0 as all else there
        cells = _gathered(rows, layout.tiles(covering.cuts, device))
        weights[0] = torch.constant_pad_nd(weights[0], (0, 1))
        weights[0].detach()[:, -1] = _brake(h0.shape[1], data.dtype, device)
    weights = _placed(weights)
    started = covering.rectangles[0].size
    h, (c, c_none) = h0[None, :started], _cut(c0[None], started)
    outputs, c_n = [], [c_none]  # of sequences without more steps, the shortest first
    for r, x in zip(covering.rectangles, cells.split_with_sizes(covering.cells), strict=True):
        output, h, c = _VF.lstm(x.view(r.steps, r.size, -1), (h, c), weights, len(weights) == 4, 1,
                                0.0, torch.is_grad_enabled(), False, False)
        h, (c, c_end) = h[:, :r.following], _cut(c, r.following)
        outputs.append(output.flatten(0, 1))
        c_n.append(c_end)
    output = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
    if covering.padded:
        output = _gathered(output, layout.tiled(covering.cuts, device))
    h_n = output.index_select(0, layout.ends(device))
    return output, _joined([h_n, h0[started:]], 0), _joined(c_n[::-1], 1)[0]


def _cut(state: Tensor, count: int) -> tuple[Tensor, ...]:
    """The first ``count`` of the sequences in a state (1, B, H), and the others."""
    return state.split_with_sizes([count, state.shape[1] - count], 1)


def _joined(pieces: Sequence[Tensor], dim: int) -> Tensor:
    """The pieces, of which some may be empty, one after the other."""
    some = [piece for piece in pieces if piece.shape[dim]]
    return torch.cat(some, dim) if len(some) != 1 else some[0]


def _gathered(rows: Tensor, numbers: Tensor) -> Tensor:
    """``take``, but where a derivative is asked for: that of torch's own is made without Python."""
    return rows.index_select(0, numbers) if rows.requires_grad else take(rows, numbers)


def _placed(weights: list[Tensor]) -> list[Tensor]:
    """cuDNN wants them in one piece of memory, else it copies them and warns at every call."""
    if not weights[0].is_cuda:
        return weights
    whole = torch.cat([w.flatten() for w in weights])
    return [part.view_as(w) for part, w in zip(whole.split([w.numel() for w in weights]), weights,
                                               strict=True)]


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
        flat = n.detach().reshape(-1)
        count += flat.numel()
        squares += flat.dot(flat).item()
    return not 2 * math.sqrt(count * squares) < _pull(numbers[0].dtype)


@functools.cache
def _pull(dtype: torch.dtype) -> float:
    return min(BRAKE, torch.finfo(dtype).max / 4)  # infinity times 0 would be no number


@functools.lru_cache(maxsize=64)
def _brake(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One more column of the input's weights, (4H,): input gate shut, forget gate open."""
    with torch.inference_mode(False):  # it is kept, and may serve a training step later
        brake = torch.zeros(4 * size, dtype=dtype, device=device)
        brake[:size], brake[size:2 * size] = -_pull(dtype), _pull(dtype)
    return brake
