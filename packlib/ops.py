"""The moves behind all packing, as operators of torch: rows out of a grid, and back into one.

Each is one gather or one scatter, whatever the number of steps or of distinct lengths, and each is
the other's derivative, so gradients of any order cost the same again and never grow with the square
of ``T``. Being operators they compile and export: torch need not look inside.

An operator written in Python costs some 20 microseconds more than one of torch. Where no derivative
is asked for and no compiler looks on, its body is called directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.types import Number

# Bytes from which on numpy asks for large pages. Results of that size often lie in fresh memory,
# which the operating system has to fill in page by page; that takes longer than the move itself.
LARGE = 2**22

_is_batch = torch._C._functorch.is_legacy_batchedtensor


def take(grid: Tensor, rows: Tensor) -> Tensor:
    """Rows of a flat grid: grid (cells, *), rows (N,) -> data (N, *). No row is asked for twice."""
    if _untracked(grid):
        return _gather(grid, rows)
    return grid.index_select(0, rows) if transformed(grid) else take_op(grid, rows)


def put(data: Tensor, rows: Tensor, cells: int, value: Any = 0) -> Tensor:
    """A flat grid that holds data (N, *) in rows (N,), and ``value`` elsewhere: (cells, *)."""
    if _untracked(data):
        return _scatter(data, rows, cells, value)
    if transformed(data):
        return data.new_full((cells, *data.shape[1:]), value).index_put_((rows,), data)
    return put_op(data, rows, cells, value)


def autocast_dtype(*tensors: Tensor) -> torch.dtype | None:
    """What autocast computes in on the device of these; None where it is off, or not known.

    It leaves doubles alone.
    """
    kind = tensors[0].device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return None if torch.float64 in [t.dtype for t in tensors] else torch.get_autocast_dtype(kind)


def transformed(*tensors: Tensor) -> bool:
    """Inside torch.func's transforms and forward mode, which know torch's own operators only.

    So does a batch of gradients, ``torch.autograd.grad(..., is_grads_batched=True)``: each of
    ``tensors`` may be one.
    """
    return bool(torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
                or tensors and not torch.compiler.is_compiling()
                and any(map(_is_batch, tensors)))


def _untracked(tensor: Tensor) -> bool:
    """Nobody asks for a derivative, and nobody watches the operators."""
    return (type(tensor) is Tensor and not (tensor.requires_grad and torch.is_grad_enabled())
            and not watched() and not _is_batch(tensor))


def watched() -> bool:
    """A compiler, a transform or a mode follows the operators: what is none, it would not see."""
    return bool(torch.compiler.is_compiling()  # before what the compiler cannot look into
                or torch._C._len_torch_dispatch_stack() or transformed())


# torch moves rows of these by their bits alone
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _gather(grid: Tensor, rows: Tensor) -> Tensor:
    if grid.dtype in SIGNED:
        return _gather(grid.view(SIGNED[grid.dtype]), rows).view(grid.dtype)
    if grid.nbytes < LARGE or not _large(grid, shape := (rows.shape[0], *grid.shape[1:])):
        return grid.index_select(0, rows)
    return torch.index_select(grid, 0, rows, out=_fresh(grid, shape, np.empty))


def _scatter(data: Tensor, rows: Tensor, cells: int, value: Number = 0) -> Tensor:
    if data.dtype in SIGNED:
        bits = torch.tensor(value, dtype=data.dtype, device="cpu").view(SIGNED[data.dtype]).item()
        return _scatter(data.view(SIGNED[data.dtype]), rows, cells, bits).view(data.dtype)
    shape = (cells, *data.shape[1:])
    if _large(data, shape):
        zero = _all_bits_zero(value)
        grid = _fresh(data, shape, np.zeros if zero and cells > len(rows) else np.empty)
        if not zero:
            grid.fill_(value)
    else:
        grid = data.new_empty(shape) if cells == len(rows) else data.new_full(shape, value)
    to, source = _wide(grid, data)
    to.index_put_((rows,), source)
    return grid


def _all_bits_zero(value: Any) -> bool:
    """-0.0 is a zero with a bit."""
    return not value and not np.signbit([value.real, value.imag]).any()


def joined(pieces: Sequence[Tensor]) -> Tensor:
    """The pieces (n, *) one after the other."""
    if torch.compiler.is_compiling():
        return torch.cat(tuple(pieces))
    shape = (sum(len(piece) for piece in pieces), *pieces[0].shape[1:])
    if _large(pieces[0], shape) and all(map(_untracked, pieces)):
        return torch.cat(tuple(pieces), out=_fresh(pieces[0], shape, np.empty))
    return torch.cat(tuple(pieces))


def _wide(grid: Tensor, data: Tensor) -> tuple[Tensor, Tensor]:
    """Both with rows of 16-byte words if they can be: torch's scatter copies word by word."""
    if not (_in_words(data) and _in_words(grid)):
        return grid, data
    grid, data = (t.view(-1).view(torch.complex128).view(t.shape[0], -1) for t in (grid, data))
    return grid, data


def _in_words(tensor: Tensor) -> bool:
    size = tensor.element_size()
    row = math.prod(tensor.shape[1:]) * size
    return (tensor.numel() > 0 and row % 16 == 0 and tensor.is_contiguous()
            and tensor.data_ptr() % 16 == 0 and tensor.storage_offset() * size % 16 == 0
            and tensor.dtype != torch.complex128 and not tensor.is_conj() and not tensor.is_neg())


def _large(like: Tensor, shape: tuple[int, ...]) -> bool:
    return like.is_cpu and math.prod(shape) * like.element_size() >= LARGE


def _fresh(like: Tensor, shape: tuple[int, ...], make: Callable[..., Any]) -> Tensor:
    """A tensor on the CPU in numpy's memory; of ``np.zeros``, what is never written costs nothing.
    """
    size = math.prod(shape) * like.element_size()
    try:
        raw = make(size + 64, dtype=np.uint8)
    except (MemoryError, ValueError) as error:
        raise RuntimeError(f"can't allocate memory: {size} bytes for {shape} of {like.dtype}"
                           ) from error
    aligned = raw[-raw.ctypes.data % 64:][:size]  # to whole cache lines, as torch's memory is
    return torch.empty(0, dtype=like.dtype, device="cpu").set_(  # type: ignore[call-overload]
        torch.from_numpy(aligned).untyped_storage(), 0, shape)


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
    is quadratic in the number of pieces. ``data`` must be nobody else's.
    """
    if transformed():
        return list(data.split(lengths))
    return list(data.unsafe_split_with_sizes(lengths))
