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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import _VF, Tensor
from torch.nn import functional as F

from packlib import moves
from packlib.layout import Layout

BRAKE = 100.0  # sigmoid(-100) is 4e-44, sigmoid(100) is 1


@dataclass(frozen=True)
class Cost:
    """Microseconds of a dense call: ``call + steps * (step + sequences * cell)``."""

    call: float
    step: float
    cell: float


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
    if wasted * cost.cell <= cost.call:  # a second call costs more than all the padding
        return [_rectangle(layout, 0, len(sizes))]
    starts = np.flatnonzero(np.diff(sizes, prepend=sizes[0] + 1))  # where batch_sizes falls
    ends = np.append(starts[1:], len(sizes))
    cuts = _cheapest(starts, ends, sizes[starts], cost)
    return [_rectangle(layout, int(starts[a]), int(ends[b - 1])) for a, b in cuts]


def price(layout: Layout, cost: Cost) -> float:
    """Microseconds that the cheapest cover takes, by ``cost``."""
    return sum(cost.call + r.steps * (cost.step + r.size * cost.cell) for r in cover(layout, cost))


def _cheapest(starts: np.ndarray, ends: np.ndarray, heights: np.ndarray,
              cost: Cost) -> list[tuple[int, int]]:
    best, begin = np.zeros(len(starts) + 1), np.zeros(len(starts) + 1, dtype=np.int64)
    by_step = cost.step + heights * cost.cell
    for k in range(1, len(starts) + 1):  # best[k]: the first k levels; the last rectangle from i
        totals = best[:k] + cost.call + (ends[k - 1] - starts[:k]) * by_step[:k]
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
    rectangles = cover(layout, cost)
    rest = [w for w in (w_hh, b_ih, b_hh) if w is not None]
    if any(r.inner for r in rectangles):
        braked = _placed([torch.cat([w_ih, _brake([w_ih, *rest])], 1), *rest])
    if not all(r.inner for r in rectangles):
        whole = _placed([w_ih, *rest])
    outputs, ended, h, c = [], [], h0, c0
    if rectangles[0].size < len(h0):  # the sequences without a step
        (h, *h_ended), (c, *c_ended) = (s.tensor_split([rectangles[0].size]) for s in (h0, c0))
        ended.append((*h_ended, *c_ended))
    for r, rows in zip(rectangles, data.split([r.count for r in rectangles]), strict=True):
        if r.inner is None:
            x = rows.view(r.steps, r.size, -1)
            output, h, c = _dense(x, h, c, whole)
            outputs.append(output.flatten(0, 1))
        else:
            cells = moves.cells(r.steps, False)
            # one more column: 0 on real steps, 1 on padding like all of it
            x = moves.from_packed(F.pad(rows, (0, 1)), r.inner, cells, 1)
            output, _, c = _dense(x.view(r.steps, r.size, -1), h, c, braked)
            grid = output.flatten(0, 1)
            outputs.append(moves.to_packed(grid, r.inner, cells))
            h = grid.index_select(0, r.inner.last(data.device))
        if r.following < r.size:
            cut = [r.following, r.size - r.following]
            (h, h_ended), (c, c_ended) = h.split(cut), c.split(cut)
            ended.append((h_ended, c_ended))
    h_n, c_n = (_joined(pieces[::-1]) for pieces in zip(*ended, strict=True))
    return _joined(outputs), h_n, c_n


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(tuple(pieces))


def _placed(weights: list[Tensor]) -> list[Tensor]:
    """The weights as the kernel wants them: cuDNN in one piece of memory, else it copies them and
    warns at every call."""
    if not weights[0].is_cuda:
        return weights
    whole = torch.cat([w.flatten() for w in weights])
    return [part.view_as(w) for part, w in zip(whole.split([w.numel() for w in weights]), weights,
                                               strict=True)]


def _brake(weights: list[Tensor]) -> Tensor:
    """The weights (4H, 1) of the column that marks padding.

    There the input is 1 and h lies in -1..1, so no gate is larger than its weights' sum.
    """
    size = len(weights[0]) // 4
    with torch.no_grad():
        most = torch.stack([w[:2 * size].abs().view(2 * size, -1).sum(1) for w in weights]).sum(0)
        pull = (BRAKE + most.max()).expand(size)
        return torch.cat([-pull, pull, pull.new_zeros(2 * size)])[:, None]


def _dense(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    state = (h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous())
    output, h_n, c_n = _VF.lstm(x, state, weights, len(weights) == 4, 1, 0.0,
                                torch.is_grad_enabled(), False, False)
    return output, h_n[0], c_n[0]
