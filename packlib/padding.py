"""Padding: a list of sequences to a grid and back, and the mask of a grid."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from numbers import Integral, Number, Real
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.host import CPU, Ints
from packlib.layout import Layout, check_lengths, eager_only, refuse_tracing
from packlib.ops import joined, put, split, take


def pad_sequence(sequences: Tensor | list[Tensor], batch_first: bool = False,
                 padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Stack sequences (L_i, *) into one grid: (T, B, *), or (B, T, *) if ``batch_first``.

    Law: row ``b`` is sequence ``b``, then ``padding_value`` up to the longest length ``T`` (before
    it, with ``padding_side="left"``; a packed batch wants right padding).

    Raises:
        RuntimeError: no sequences, or trailing dimensions or devices that differ (torch broadcasts
            some of them in silence).
        TypeError: an element is not a tensor, or dtypes differ (torch casts to the first's).

    >>> pad_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5, 6, 7])], batch_first=True)
    tensor([[1, 2, 0, 0, 0],
            [3, 4, 5, 6, 7]])
    """
    check_bool("batch_first", batch_first)
    check_padding_side(padding_side)
    sequences = check_sequences(sequences, "pad_sequence")
    padding_value = check_padding_value(padding_value, sequences[0].dtype)
    size, flat = len(sequences), joined(sequences)
    if torch.compiler.is_compiling():
        total, rows = _filled(sequences, batch_first, padding_side)
        rows = rows.to(flat.device)
    else:
        layout = Layout.from_lengths(lengths_of(sequences))
        total = layout.num_steps
        rows = layout.filled(total, batch_first, flat.device, padding_side)
    grid = put(flat, rows, size * total, padding_value)
    shape = (size, total) if batch_first else (total, size)
    return grid.view(*shape, *flat.shape[1:])


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor | list[int],
                   batch_first: bool = False, *, padding_side: str = "right") -> list[Tensor]:
    """Cut a padded grid into its sequences (lengths[b], *). The grid is left as it is.

    Law: undoes ``pad_sequence``. (torch's own transposes its argument in place.)

    Raises:
        ValueError: the number of lengths is not the batch size, or a length is negative or longer
            than the grid (torch cuts it to fit, in silence).

    >>> unpad_sequence(torch.tensor([[1, 2, 0], [3, 4, 5]]), [2, 3], batch_first=True)
    [tensor([1, 2]), tensor([3, 4, 5])]
    """
    check_bool("batch_first", batch_first)
    check_padding_side(padding_side)
    eager_only("unpad_sequence", "lengths_to_mask(lengths, T) tells which steps are real")
    counts = check_lengths(lengths)
    size, total = check_grid("padded_sequences", padded_sequences, batch_first)
    if len(counts) != size:
        raise ValueError(f"lengths has {len(counts)} entries for {size} sequences"
                         + other_layout(padded_sequences.shape, len(counts), batch_first))
    if len(counts) and counts.min() < 0:
        raise ValueError(f"lengths must be at least 0, got {counts.min()}")
    check_fit(counts, total, padded_sequences.shape, batch_first)
    flat, batch_first = flat_grid(padded_sequences, batch_first)
    rows = Layout.from_lengths(counts).filled(total, batch_first, flat.device, padding_side)
    return split(take(flat, rows), counts.tolist())


def lengths_to_mask(lengths: Tensor | list[int], max_len: int | None = None) -> Tensor:
    """True where a step is real: (B, T) bool on the lengths' device, T = ``max_len`` or longest.

    Law: its row sums are the lengths; its column sums, without zeros, are ``batch_sizes``.

    Raises:
        ValueError: a length is negative or above ``max_len``.

    >>> lengths_to_mask([2, 3])
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    if torch.compiler.is_compiling():
        given = lengths if isinstance(lengths, Tensor) else torch.as_tensor(lengths, device=CPU)
        return mask_op(given, None if max_len is None else check_int("max_len", max_len))
    counts = check_lengths(lengths)
    longest = int(counts.max(initial=0))
    total = longest if max_len is None else check_int("max_len", max_len)
    if len(counts) and counts.min() < 0:
        raise ValueError(f"lengths must be at least 0, got {counts.min()}")
    if longest > total:
        raise ValueError(f"max_len={total} is shorter than the longest of lengths, {longest}")
    device = lengths.device if isinstance(lengths, Tensor) else CPU
    return torch.from_numpy(np.arange(total) < counts[:, None]).to(device)


def mask_to_lengths(mask: Tensor, *, padding_side: str = "right") -> Tensor:
    """Lengths (B,) int64 of a mask (B, T) that is True on real steps.

    Raises:
        TypeError: the mask is not bool.
        ValueError: a row has a real step on the padding's side of padding: no length describes it.

    >>> mask_to_lengths(torch.tensor([[True, True, False], [True, True, True]]))
    tensor([2, 3])
    """
    check_padding_side(padding_side)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a bool Tensor, got {found}"
                        + ("; of 1 and 0, as tokenizers give, mask.bool() makes one"
                           if isinstance(mask, Tensor) else ""))
    if mask.dim() != 2:
        raise ValueError(f"mask must be (B, T), got {tuple(mask.shape)}")
    if torch.compiler.is_compiling():
        return lengths_op(mask, padding_side=padding_side)
    right = padding_side == "right"
    if (mask[:, 1:] & ~mask[:, :-1] if right else mask[:, :-1] & ~mask[:, 1:]).any():
        order, other = ("real steps after padding", "left") if right else (
            "padding after real steps", "right")
        raise ValueError(f"mask has {order}; is it padded on the {other} (then give "
                         f"padding_side={other!r}), or True on the padding (then use ~mask)?")
    return mask.sum(1)


# Under the compiler, which sees no values, the functions above run as operators.
mask_op = torch.library.custom_op("packlib::mask", lengths_to_mask, mutates_args=(),
                                  schema="(Tensor lengths, SymInt? max_len) -> Tensor")
lengths_op = torch.library.custom_op("packlib::lengths", mask_to_lengths, mutates_args=(),
                                     schema="(Tensor mask, *, str padding_side='right') -> Tensor")


@mask_op.register_fake
def _(lengths: Tensor, max_len: int | None) -> Tensor:
    total = torch.library.get_ctx().new_dynamic_size() if max_len is None else max_len
    return lengths.new_empty(lengths.shape[0], total, dtype=torch.bool)


@lengths_op.register_fake
def _(mask: Tensor, *, padding_side: str = "right") -> Tensor:
    return mask.new_empty(mask.shape[0], dtype=torch.int64)


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        hint = ". Lengths or batch_sizes are not needed here: a PackedSequence knows them" if (
            isinstance(value, (Tensor, list, tuple))) else ""
        raise TypeError(f"argument '{name}' must be bool, not {type(value).__name__}{hint}")


def check_int(name: str, value: Any) -> int:
    """The value as an int; numpy's integers and tensors such as ``lengths.max()`` are ints too."""
    if type(value) is int:  # one that the compiler leaves open as well
        return value
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"argument '{name}' must be int, not {type(value).__name__}") from None


def check_padding_side(side: str) -> None:
    if side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {side}.")


def check_padding_value(value: Any, dtype: torch.dtype) -> Any:
    """The padding value as a number that ``dtype`` can hold."""
    if isinstance(value, Tensor) and value.dim() == 0:
        value = value.item()
    if not isinstance(value, Number):
        raise TypeError(f"argument 'padding_value' must be Number, not {type(value).__name__}")
    if dtype.is_floating_point or dtype.is_complex:
        return value
    if dtype == torch.bool:
        return bool(value)
    if isinstance(value, Integral):
        around = dtype == torch.uint64 and value < 0  # as when torch fills a tensor
        return int(value) + 2**64 * around
    if isinstance(value, Real) and float(value).is_integer():
        return int(float(value))
    raise RuntimeError(f"padding_value={value} cannot be converted to {dtype}")


def check_sequences(sequences: Any, function: str) -> list[Tensor]:
    """The sequences as a list of tensors that agree in dtype, device and trailing dimensions."""
    refuse_tracing()
    if isinstance(sequences, torch_rnn.PackedSequence):
        raise TypeError(f"{function}: sequences must be a list of Tensors, got a PackedSequence, "
                        "which is packed already")
    if isinstance(sequences, Mapping):
        raise TypeError(f"{function}: sequences must be a list of Tensors, got "
                        f"{type(sequences).__name__}; its values are one: list(d.values())")
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"{function}: Expected iterable for input sequences, but got arg of "
                           f"type: {type(sequences)}")
    made = list(sequences)
    if not made:
        raise RuntimeError("received an empty list of sequences")
    first = made[0]
    kind = (first.dtype, first.device, first.shape[1:]) if isinstance(first, Tensor) else ()
    for i, s in enumerate(made):
        if not isinstance(s, Tensor) or s.dim() == 0 or (s.dtype, s.device, s.shape[1:]) != kind:
            _refuse_sequence(i, s, first)
    return made


def lengths_of(sequences: list[Tensor]) -> Ints:
    """The number of steps of each (B,)."""
    return np.array([s.shape[0] for s in sequences], dtype=np.int64)


def _filled(sequences: list[Tensor], batch_first: bool, padding_side: str) -> tuple[int, Tensor]:
    """T and ``Layout.filled``, for the compiler: here lengths are shapes, so torch can count."""
    sizes = [s.shape[0] for s in sequences]
    total, counts = reduce(torch.sym_max, sizes), torch.tensor(sizes, device="cpu")
    number = torch.repeat_interleave(counts, output_size=sum(sizes))
    first = counts - counts.cumsum(0) + (total - counts if padding_side == "left" else 0)
    step = torch.arange(sum(sizes), device="cpu") + first[number]
    return total, number * total + step if batch_first else step * len(sizes) + number


def _refuse_sequence(i: int, s: Any, first: Tensor) -> NoReturn:
    if not isinstance(s, Tensor):
        raise TypeError(f"expected Tensor as element {i} in sequences, but got "
                        f"{type(s).__name__}: torch.as_tensor makes one of numbers")
    if s.dim() == 0:
        raise RuntimeError(f"sequences[{i}] is a single number; a sequence has at least one "
                           "dimension, its steps")
    if s.dtype != first.dtype:
        raise TypeError(f"sequences[{i}] is {s.dtype}, but sequences[0] is {first.dtype}: "
                        "give all one dtype")
    if s.device != first.device:
        raise RuntimeError(f"sequences[{i}] is on {s.device}, but sequences[0] is on "
                           f"{first.device}: move all to one device")
    raise RuntimeError(
        f"sequences[{i}] has steps of shape {tuple(s.shape[1:])}, but sequences[0] of "
        f"{tuple(first.shape[1:])}: only the first dimension, the length, may differ")


def check_grid(name: str, grid: Any, batch_first: bool) -> tuple[int, int]:
    """Batch size and number of steps of a padded grid."""
    if not isinstance(grid, Tensor):
        raise TypeError(f"argument '{name}' must be Tensor, not {type(grid).__name__}"
                        + ("; a list of sequences goes to pack_sequence, or to pad_sequence first"
                           if isinstance(grid, (list, tuple)) else ""))
    if grid.dim() < 2:
        raise IndexError(f"{name} must have at least 2 dimensions, (B, T) or (T, B), got shape "
                         f"{tuple(grid.shape)}")
    return (grid.shape[0], grid.shape[1]) if batch_first else (grid.shape[1], grid.shape[0])


def flat_grid(grid: Tensor, batch_first: bool) -> tuple[Tensor, bool]:
    """The cells in a row (cells, *), without a copy where that can be, and its own batch_first."""
    if not grid.is_contiguous() and grid.transpose(0, 1).is_contiguous():
        grid, batch_first = grid.transpose(0, 1), not batch_first
    return grid.flatten(0, 1), batch_first


def check_fit(lengths: Ints, total: int, shape: Sequence[int], batch_first: bool) -> None:
    if not len(lengths):
        return
    i = lengths.argmax()
    if lengths[i] > total:
        raise ValueError(f"lengths[{i}]={lengths[i]}, but the input has only T={total} steps "
                         f"(shape {tuple(shape)}, batch_first={batch_first}: the input is read as "
                         f"{'(B, T)' if batch_first else '(T, B)'})")


def other_layout(shape: Sequence[int], size: int, batch_first: bool) -> str:
    other = shape[1] if batch_first else shape[0]
    read = "(B, T)" if batch_first else "(T, B)"
    hint = f"; the input is read as {read} = {tuple(shape[:2])}"
    return hint + (f". Did you mean batch_first={not batch_first}?" if other == size else "")
