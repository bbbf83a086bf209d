"""From a data set to batches: collate functions, for ``DataLoader(collate_fn=...)``.

The samplers, for ``DataLoader(batch_sampler=...)``, are in ``packlib.samplers``; both are used from
here. Functions and classes are at the top level, so that they reach worker processes however these
are started; options are set with ``functools.partial``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from packlib.packing import pack_sequence
from packlib.padding import lengths_to_mask, pad_sequence
from packlib.samplers import BucketBatchSampler, TokenBatchSampler
from packlib.sequence import PackedSequence

__all__ = ["BucketBatchSampler", "Padded", "TokenBatchSampler", "collate_packed", "collate_padded"]

Name = str | int
Names = Name | Collection[Name]


class Padded(NamedTuple):
    """A padded batch that knows what is real.

    ``grid`` is (B, T, *), ``lengths`` (B,) int64, ``mask`` (B, T) bool, True on real steps. Give a
    layer ``batch_first=True`` for it.
    """

    grid: Tensor
    lengths: Tensor
    mask: Tensor


def collate_packed(batch: Sequence[Any], *, fixed: Names = (), own_lengths: Names = (),
                   allow_empty: bool = False) -> Any:
    """Make a batch of items that hold sequences (L_i, *), and pack the sequences.

    An item is one sequence, or a tuple or a dict of fields; the batch has the same form. A field of
    tensors with at least one dimension becomes a ``PackedSequence``; numbers and tensors without
    dimensions, such as labels, are stacked to (B,); strings are listed. numpy's arrays are taken as
    tensors. All stays in your order.

    Law: the sequences of an item have one length, and their packed fields one layout: row n of one
    belongs to row n of the other.

    Args:
        fixed: names (or places in the tuple) of fields whose tensors all have the same shape, and
            are stacked to (B, *) instead of packed.
        own_lengths: names of fields whose sequences have lengths of their own, for instance the
            target of a translation. They share the layout only where all their lengths are equal.
        allow_empty: True packs sequences without steps too, as ``pack_sequence`` does.

    Raises:
        TypeError: a value is not a tensor, array, number or string, or is of another dtype than the
            first.
        ValueError: shapes, devices, fields or lengths do not fit, or a sequence has no steps.
        RuntimeError: all sequences of a field have no steps.

    >>> batch = [(torch.tensor([1, 2]), 0), (torch.tensor([3, 4, 5, 6, 7]), 1)]
    >>> packed, labels = collate_packed(batch)
    >>> packed.data, packed.lengths, labels
    (tensor([3, 1, 4, 2, 5, 6, 7]), tensor([2, 5]), tensor([0, 1]))
    """
    return _collate(batch, fixed, own_lengths, partial(_pack, {}, allow_empty))


def collate_padded(batch: Sequence[Any], *, padding_value: float | Mapping[Name, float] = 0.0,
                   fixed: Names = (), own_lengths: Names = ()) -> Any:
    """Make a batch of items that hold sequences (L_i, *), and pad the sequences.

    As ``collate_packed``, but each field of sequences becomes ``Padded``: (B, T, *) with its
    lengths and mask. A sequence may have no steps.

    Args:
        padding_value: one number, or one for some of the fields, for instance
            ``{"tags": -100}``, the ``ignore_index`` of torch's cross entropy; 0 for the others.

    Raises: as ``collate_packed``.

    >>> batch = [(torch.tensor([1, 2]), 0), (torch.tensor([3, 4, 5, 6, 7]), 1)]
    >>> padded, labels = collate_padded(batch)
    >>> padded.grid, padded.lengths
    (tensor([[1, 2, 0, 0, 0],
            [3, 4, 5, 6, 7]]), tensor([2, 5]))
    """
    given = padding_value if isinstance(padding_value, Mapping) else ()
    return _collate(batch, fixed, own_lengths, partial(_pad, padding_value), given)


def _pack(packed: dict[Any, PackedSequence], allow_empty: bool, column: Column,
          sequences: list[Tensor]) -> PackedSequence:
    """Pack a field; ``packed`` holds the first field of each layout, for the others to share it."""
    lengths = [len(s) for s in sequences]
    if 0 in lengths and not allow_empty:
        raise ValueError(f"{column.at(lengths.index(0))} has no steps: leave such items out, set "
                         "allow_empty=True, or use collate_padded")
    made = pack_sequence(sequences, enforce_sorted=False, allow_empty=allow_empty)
    return packed.setdefault(tuple(lengths), made).with_data(made.data)


def _pad(value: float | Mapping[Name, float], column: Column, sequences: list[Tensor]) -> Padded:
    if isinstance(value, Mapping):
        value = value.get(column.name, 0.0)
    lengths = torch.tensor([len(s) for s in sequences], device="cpu")
    grid = pad_sequence(sequences, batch_first=True, padding_value=value)
    return Padded(grid, lengths, lengths_to_mask(lengths))


class Column(NamedTuple):
    """One field of all items; ``name`` is None where an item is not a tuple or a dict."""

    name: Any
    values: list[Any]

    def at(self, i: int) -> str:
        """Where a value stands, in words that are code."""
        return f"batch[{i}]" if self.name is None else f"batch[{i}][{self.name!r}]"


def _collate(batch: Sequence[Any], fixed: Names, own_lengths: Names,
             join: Callable[[Column, list[Tensor]], Any], others: Collection[Name] = ()) -> Any:
    """``join`` makes a batch of the sequences of one field; ``others``: more names to check."""
    columns = _columns(batch)
    names = {column.name for column in columns}
    fixed, own_lengths = _known(fixed, names), _known(own_lengths, names)
    _known(others, names)
    made: dict[Any, Any] = {}
    first = None
    for column in columns:
        if isinstance(column.values[0], str):
            made[column.name] = _strings(column)
            continue
        tensors = [_tensor(value, column.at(i)) for i, value in enumerate(column.values)]
        ragged = tensors[0].dim() > 0 and column.name not in fixed
        _check_alike(column, tensors, ragged)
        if ragged and column.name not in own_lengths:
            first = first or (column, tensors)
            _check_lengths(column, tensors, *first)
        made[column.name] = join(column, tensors) if ragged else torch.stack(tensors)
    return _in_form(batch[0], made)


def _columns(batch: Sequence[Any]) -> list[Column]:
    if not batch:
        raise ValueError("batch is empty")
    items = [_fields(item) for item in batch]
    for i, item in enumerate(items):
        if item.keys() != items[0].keys():
            raise ValueError(f"batch[{i}] has {_listed(item)}, but batch[0] has "
                             f"{_listed(items[0])}: all items need the same fields")
    return [Column(name, [item[name] for item in items]) for name in items[0]]


def _fields(item: Any) -> dict[Any, Any]:
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, tuple):
        return item._asdict() if hasattr(item, "_asdict") else dict(enumerate(item))
    return {None: item}


def _in_form(item: Any, made: dict[Any, Any]) -> Any:
    """The fields of a batch in the form of an item."""
    if isinstance(item, tuple):
        return getattr(type(item), "_make", tuple)(made.values())
    return made if isinstance(item, Mapping) else made[None]


def _listed(item: dict[Any, Any]) -> str:
    return "no fields" if None in item else f"the fields {list(item)}"


def _known(given: Names, names: set[Any]) -> tuple[Name, ...]:
    """The names as a tuple; one that no field has is a slip of the pen."""
    given = (given,) if isinstance(given, (str, int)) else tuple(given)
    for name in given:
        if name not in names:
            raise ValueError(f"no field is named {name!r}, there are {sorted(names, key=str)}")
    return given


def _strings(column: Column) -> list[str]:
    for i, value in enumerate(column.values):
        if not isinstance(value, str):
            raise TypeError(f"{column.at(i)} is of type {type(value).__name__}, but "
                            f"{column.at(0)} is a str")
    return column.values


def _tensor(value: Any, where: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        return _from_numpy(value, where)
    if isinstance(value, (bool, int, float, complex)):
        return torch.as_tensor(value)
    raise TypeError(f"{where} is of type {type(value).__name__}, and neither a Tensor nor an array "
                    "nor a number nor a str: torch.as_tensor makes a tensor of a list; fields are "
                    "in a tuple or a dict")


def _from_numpy(value: Any, where: str) -> Tensor:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{where} is a masked array, whose mask a tensor does not have: value."
                        "filled(number) leaves it behind")
    try:  # in the order of bytes, and of rows, that torch knows
        return torch.as_tensor(np.require(value, value.dtype.newbyteorder("="), ["C", "W"]))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{where} is an array of dtype {value.dtype}, which no tensor has"
                        ) from error


def _check_alike(column: Column, tensors: list[Tensor], ragged: bool) -> None:
    """All as the first in dtype, device and shape; if ``ragged``, their lengths may differ."""
    first = tensors[0]
    for i, t in enumerate(tensors):
        if t.dtype != first.dtype:
            raise TypeError(f"{column.at(i)} is {t.dtype}, but {column.at(0)} is {first.dtype}: "
                            "give all one dtype")
        if t.device != first.device:
            raise ValueError(f"{column.at(i)} is on {t.device}, but {column.at(0)} on "
                             f"{first.device}: move the batch, not the items")
        if t.dim() != first.dim() or t.shape[ragged:] != first.shape[ragged:]:
            hint = "only the first dimension, the length, may differ" if ragged else (
                "this field is stacked, so all need one shape")
            raise ValueError(f"{column.at(i)} has shape {tuple(t.shape)}, but {column.at(0)} "
                             f"{tuple(first.shape)}: {hint}")


def _check_lengths(column: Column, tensors: list[Tensor], other: Column,
                   others: list[Tensor]) -> None:
    for i, (t, o) in enumerate(zip(tensors, others, strict=True)):
        if len(t) != len(o):
            raise ValueError(
                f"{column.at(i)} has {len(t)} steps, but {other.at(i)} has {len(o)}: if these "
                f"fields need not agree, name one in own_lengths; if {column.name!r} is no "
                "sequence, in fixed")
