"""Packing: a grid or a list to a ``PackedSequence``, and back. Names and arguments are torch's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.layout import Ints, Layout, check_lengths, host
from packlib.ops import put, split, take
from packlib.padding import (
    check_bool,
    check_fit,
    check_grid,
    check_int,
    check_padding_side,
    check_padding_value,
    check_sequences,
    flat_grid,
    other_layout,
)
from packlib.sequence import PackedSequence, layout_of


def pack_padded_sequence(input: Tensor, lengths: Tensor | list[int], batch_first: bool = False,
                         enforce_sorted: bool = True, *,
                         padding_side: str = "right") -> PackedSequence:
    """Pack a padded grid (T, B, *), or (B, T, *) if ``batch_first``: the real steps only.

    Law: ``data`` runs time step by time step, longest sequence first; what stands in the padding
    never matters. Steps beyond ``lengths`` are left out.

    Args:
        lengths: (B,) integers, a list or a tensor on any device (from a GPU they are copied once).
        enforce_sorted: True demands lengths that never grow; False sorts, and results come back in
            your order.
        padding_side: the side that the padding is on; torch knows "right" only.

    Raises:
        RuntimeError: lengths that are not 1D, not one a sequence, below 1, or not sorted.
        TypeError: lengths that are not integers, ``input`` not a tensor.
        ValueError: a length beyond the input's steps.

    >>> x = torch.tensor([[1, 2, 0, 0, 0], [3, 4, 5, 6, 7]])
    >>> p = pack_padded_sequence(x, [2, 5], batch_first=True, enforce_sorted=False)
    >>> p.data, p.batch_sizes
    (tensor([3, 1, 4, 2, 5, 6, 7]), tensor([2, 2, 1, 1, 1]))
    """
    check_bool("batch_first", batch_first)
    check_padding_side(padding_side)
    counts = check_lengths(lengths)
    size, total = check_grid("input", input, batch_first)
    if input.numel() == 0:
        raise RuntimeError(f"Cannot pack empty tensors. Got input of shape {tuple(input.shape)}")
    if len(counts) != size:
        raise RuntimeError("Expected `len(lengths)` to be equal to batch_size, but got "
                           f"{len(counts)} (batch_size={size})"
                           + other_layout(input, len(counts), batch_first))
    check_fit(counts, total, input, batch_first)  # first, since a plan takes memory for T steps
    layout = _plan(counts, enforce_sorted)
    flat, batch_first = flat_grid(input, batch_first)
    index = layout.padded(total, batch_first, flat.device, padding_side)
    return PackedSequence.from_layout(take(flat, index), layout)


def pad_packed_sequence(sequence: torch_rnn.PackedSequence, batch_first: bool = False,
                        padding_value: float = 0.0, total_length: int | None = None, *,
                        padding_side: str = "right") -> tuple[Tensor, Tensor]:
    """Unpack to a padded grid (T, B, *), or (B, T, *), and the lengths (B,) int64 on the CPU.

    Law: undoes ``pack_padded_sequence``; rows come back in your order. The batch sizes are in the
    sequence already: the second argument is ``batch_first``.

    Args:
        total_length: the T to pad to, for instance ``x.size(1)``; the longest length if None.

    Raises:
        ValueError: ``total_length`` is below the longest length.
        TypeError: an argument has the wrong type.

    >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    >>> pad_packed_sequence(p, batch_first=True, total_length=4)
    (tensor([[1, 2, 0, 0],
            [3, 4, 5, 0]]), tensor([2, 3]))
    """
    check_bool("batch_first", batch_first)
    check_padding_side(padding_side)
    layout = layout_of(sequence)
    data = sequence.data
    padding_value = check_padding_value(padding_value, data.dtype)
    total = _total_length(total_length, layout.num_steps)
    size = layout.num_sequences
    rows = layout.padded(total, batch_first, data.device, padding_side)
    grid = put(data, rows, size * total, padding_value)
    shape = (size, total) if batch_first else (total, size)
    return grid.view(*shape, *data.shape[1:]), torch.from_numpy(layout.lengths.copy())


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences (L_i, *), without building a padded grid.

    Law: equals ``pack_padded_sequence(pad_sequence(sequences), lengths)``; memory follows the sum
    of lengths. There is no ``batch_first``: a list has no batch dimension.

    Raises: as ``pad_sequence`` and ``pack_padded_sequence``.

    >>> pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([7])]).data
    tensor([1, 7, 2, 3])
    """
    made = check_sequences(sequences, "pack_sequence")
    layout = _plan(np.array([len(s) for s in made], dtype=np.int64), enforce_sorted)
    flat = torch.cat(made)
    return PackedSequence.from_layout(take(flat, layout.listed(flat.device)), layout)


def unpack_sequence(packed_sequences: torch_rnn.PackedSequence) -> list[Tensor]:
    """Unpack to a list of sequences (L_i, *) in your order, without building a padded grid.

    Law: undoes ``pack_sequence``.

    >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    >>> unpack_sequence(p)
    [tensor([1, 2]), tensor([3, 4, 5])]
    """
    layout = layout_of(packed_sequences)
    data = packed_sequences.data
    return split(put(data, layout.listed(data.device), len(data)), layout.lengths.tolist())


def _plan(lengths: Ints, enforce_sorted: bool) -> Layout:
    if not isinstance(enforce_sorted, int):  # torch takes 0 and 1 as well
        check_bool("enforce_sorted", enforce_sorted)
    if (lengths < 1).any():
        i = int(lengths.argmin())
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element "
                           f"in 'lengths' that is <= 0: lengths[{i}]={lengths[i]}")
    if not enforce_sorted:
        # torch's own call: its order of ties changes at 17 sequences, and results must be equal
        order = host(torch.sort(torch.from_numpy(lengths), descending=True).indices)
        return Layout.from_lengths(lengths, order)
    if (np.diff(lengths) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability. Do not sort lengths "
            "alone: the input would keep its old order")
    return Layout.from_lengths(lengths)


def _total_length(total_length: int | None, longest: int) -> int:
    if total_length is None:
        return longest
    total = check_int("total_length", total_length)
    if total < longest:
        raise ValueError("Expected total_length to be at least the length of the longest sequence "
                         f"in input, but got total_length={total} and max sequence length "
                         f"being {longest}")
    return total
