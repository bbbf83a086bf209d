"""The moves behind all packing, as operators of torch: rows out of a grid, and back into one.

Each is one gather or one scatter, whatever the number of steps or of distinct lengths, and each is
the other's derivative, so gradients of any order cost the same again and never grow with the square
of ``T``. Being operators they compile and export: torch need not look inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.types import Number


def take(grid: Tensor, rows: Tensor) -> Tensor:
    """Rows of a flat grid: grid (cells, *), rows (N,) -> data (N, *). No row is asked for twice."""
    return _gather(grid, rows) if _transformed() else take_op(grid, rows)


def put(data: Tensor, rows: Tensor, cells: int, value: Any = 0) -> Tensor:
    """A flat grid that holds data (N, *) in rows (N,), and ``value`` elsewhere: (cells, *)."""
    move = _scatter if _transformed() else put_op
    return move(data, rows, cells, value)


def _transformed() -> bool:
    """Inside torch.func's transforms, which know torch's own operators better than new ones."""
    return torch._C._are_functorch_transforms_active()


def _gather(grid: Tensor, rows: Tensor) -> Tensor:
    return grid.index_select(0, rows)


def _scatter(data: Tensor, rows: Tensor, cells: int, value: Number = 0) -> Tensor:
    shape = (cells, *data.shape[1:])
    grid = data.new_empty(shape) if cells == len(rows) else data.new_full(shape, value)
    return grid.index_put_((rows,), data)


take_op = torch.library.custom_op("packlib::take", _gather, mutates_args=())
put_op = torch.library.custom_op(
    "packlib::put", _scatter, mutates_args=(),
    schema="(Tensor data, Tensor rows, SymInt cells, Scalar value=0) -> Tensor")


@take_op.register_fake
def _(grid: Tensor, rows: Tensor) -> Tensor:
    return grid.new_empty(rows.shape[0], *grid.shape[1:])


@put_op.register_fake
def _(data: Tensor, rows: Tensor, cells: int, value: Number = 0) -> Tensor:
    return data.new_empty(cells, *data.shape[1:])


def _keep_for_take(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grid, rows = inputs
    ctx.save_for_backward(rows)
    ctx.cells = grid.shape[0]


def _take_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return put(grad, ctx.saved_tensors[0], ctx.cells), None


def _keep_for_put(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _put_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    return take(grad, ctx.saved_tensors[0]), None, None, None


take_op.register_autograd(_take_backward, setup_context=_keep_for_take)
put_op.register_autograd(_put_backward, setup_context=_keep_for_put)


def split(data: Tensor, lengths: list[int]) -> list[Tensor]:
    """Consecutive pieces of ``data`` (N, *), one of each length; their gradients join in one cat.

    ``Tensor.split`` gives views that may not be changed in place, and slices have a backward that
    is quadratic in the number of pieces.
    """
    return list(_Split.apply(data, lengths))


class _Split(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(data: Tensor, lengths: list[int]) -> tuple[Tensor, ...]:
        return tuple(piece.data for piece in data.split(lengths))  # .data: no longer a view

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return torch.cat(grads), None
