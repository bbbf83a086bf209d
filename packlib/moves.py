"""The moves of packed data, each by the way that suits its device.

On a GPU one kernel does any of them in one launch, told by a table of B and T numbers. Elsewhere,
and where somebody follows the operators, rows are gathered or scattered by N row numbers. Both give
the same, bit for bit, and gradients of any order: each move is the derivative of its opposite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from packlib import kernels
from packlib.kernels.storage import Storage, grid, listed, packed, size
from packlib.layout import Layout
from packlib.ops import joined, put, split, take, watched

PACKED, LISTED = (packed,), (listed,)


def cells(total: int, batch_first: bool, padding_side: str = "right") -> Storage:
    """A flat grid, (B, total) if ``batch_first``, else (total, B)."""
    return grid, total, batch_first, padding_side


def to_packed(source: Tensor, layout: Layout, came: Storage) -> Tensor:
    """From ``cells`` or ``LISTED`` rows (*, *) to packed data (N, *)."""
    if _by_kernel(source):
        return _Move.apply(source, layout, PACKED, came, 0)
    return take(source, _rows(layout, came, source.device))


def from_packed(data: Tensor, layout: Layout, to: Storage, value: Any = 0) -> Tensor:
    """Packed data (N, *) to ``cells``, padded by ``value``, or to ``LISTED`` rows."""
    if _by_kernel(data):
        return _Move.apply(data, layout, to, PACKED, value)
    return put(data, _rows(layout, to, data.device), size(layout, to)[1], value)


def turned(data: Tensor, layout: Layout) -> Tensor:
    """Packed data (N, *) with each sequence's steps from last to first."""
    if _by_kernel(data):
        return _Move.apply(data, layout, PACKED, PACKED, 0)
    return take(data, layout.reversed(data.device))


def from_list(sequences: Sequence[Tensor], layout: Layout) -> Tensor:
    """Sequences (L_i, *), in the user's order, to packed data (N, *)."""
    if _by_kernel(sequences[0]) and all(map(_whole, sequences)):
        return _FromList.apply(layout, *sequences)
    return to_packed(joined(sequences), layout, LISTED)


def to_list(data: Tensor, layout: Layout) -> list[Tensor]:
    """Packed data (N, *) to sequences (L_i, *), in the user's order."""
    if _by_kernel(data):
        return list(_ToList.apply(data, layout))
    return split(from_packed(data, layout, LISTED), layout.lengths.tolist())


def _rows(layout: Layout, storage: Storage, device: torch.device) -> Tensor:
    """The row of each packed row there (N,)."""
    if storage[0] is listed:
        return layout.listed(device)
    _, total, batch_first, padding_side = storage
    return layout.padded(total, batch_first, device, padding_side)


def _by_kernel(source: Tensor) -> bool:
    return ((source.is_cuda or kernels.INTERPRETED) and _plain(source) and not watched()
            and kernels.usable(source.device.type))


def _whole(piece: Tensor) -> bool:
    """Its rows lie one after the other: other pieces are cheaper to join than to copy one by one.
    """
    return (_plain(piece) and piece.is_contiguous() and not piece.is_conj()
            and not piece.is_neg())


def _plain(tensor: Tensor) -> bool:
    """No subclass, whose operators may do anything, and none that stands for many others."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and torch._C._has_storage(tensor)


class _Move(torch.autograd.Function):
    """There is one move from packed to packed: turning each sequence round."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, layout: Layout, to: Storage, came: Storage,
                value: Any) -> Tensor:
        ctx.layout, ctx.to, ctx.came = layout, to, came
        return kernels.load().move(source, layout, to, came, to == came, value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        if ctx.to == ctx.came:
            back = turned(grad, ctx.layout)
        elif ctx.to == PACKED:
            back = from_packed(grad, ctx.layout, ctx.came)
        else:
            back = to_packed(grad, ctx.layout, ctx.to)
        return back, None, None, None, None


class _FromList(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, layout: Layout, *sequences: Tensor) -> Tensor:
        ctx.layout = layout
        return kernels.load().from_list(sequences, layout)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return None, *to_list(grad, ctx.layout)


class _ToList(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, data: Tensor, layout: Layout) -> tuple[Tensor, ...]:
        ctx.layout, ctx.row = layout, data.shape[1:]
        ctx.set_materialize_grads(False)  # it would make zeros one by one
        return tuple(kernels.load().to_list(data, layout))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        given = next((grad for grad in grads if grad is not None), None)
        if given is None:
            return None, None
        if any(grad is None for grad in grads):
            zeros = given.new_zeros(ctx.layout.num_steps, *ctx.row)
            grads = tuple(zeros[:n] if grad is None else grad for grad, n in zip(
                grads, ctx.layout.lengths.tolist(), strict=True))
        return from_list(grads, ctx.layout), None  # type: ignore[arg-type]
