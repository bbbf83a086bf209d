"""The two moves behind all packing: rows out of a grid, and rows back into one.

Each is one gather, whatever the number of steps or of distinct lengths, and each is the other's
derivative, so gradients of any order cost the same again and never grow with the square of ``T``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packlib.layout import Index


def take(grid: Tensor, index: Index) -> Tensor:
    """Packed rows ``(N, *)`` out of a flat grid ``(cells, *)``."""
    return _Take.apply(grid, index) if _tracked(grid) else _take(grid, index)


def put(data: Tensor, index: Index, value: float | complex | bool = 0.0) -> Tensor:
    """A flat grid ``(cells, *)`` that holds the packed rows ``(N, *)``, and ``value`` elsewhere."""
    return _Put.apply(data, index, value) if _tracked(data) else _put(data, index, value)


def split(data: Tensor, lengths: list[int]) -> list[Tensor]:
    """Consecutive pieces of ``data`` (N, *), one of each length; their gradients join in one cat.

    ``Tensor.split`` gives views that may not be changed in place, and slices have a backward that
    is quadratic in the number of pieces.
    """
    return list(_Split.apply(data, lengths))


def _tracked(tensor: Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()


def _take(grid: Tensor, index: Index) -> Tensor:
    return grid.index_select(0, index.rows)


def _put(data: Tensor, index: Index, value: float | complex | bool) -> Tensor:
    if len(data) == 0:
        return data.new_full((index.cells, *data.shape[1:]), value)
    grid = data.index_select(0, index.slots)
    return grid.index_fill_(0, index.pads, value) if index.cells > len(data) else grid


class _Take(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grid: Tensor, index: Index) -> Tensor:
        return _take(grid, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.index = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return put(grad, ctx.index), None


class _Put(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(data: Tensor, index: Index, value: float | complex | bool) -> Tensor:
        return _put(data, index, value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.index = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return take(grad, ctx.index), None, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(data: Tensor, lengths: list[int]) -> tuple[Tensor, ...]:
        return tuple(piece.data for piece in data.split(lengths))  # .data: no longer a view

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return torch.cat(grads), None
