"""Packing: a grid or a list to a ``PackedSequence``, and back. Names and arguments are torch's."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib import moves, traced
from packlib.layout import check_lengths, eager_only
from packlib.ops import joined
from packlib.padding import (
    check_bool,
    check_grid,
    check_int,
    check_padding_side,
    check_padding_value,
    check_sequences,
    flat_grid,
    lengths_of,
)
from packlib.planning import check_total, plan, plan_grid
from packlib.sequence import PackedSequence, layout_of


def pack_padded_sequence(input: Tensor, lengths: Tensor | list[int], batch_first: bool = False,
                         enforce_sorted: bool = True, *, padding_side: str = "right",
                         allow_empty: bool = False) -> PackedSequence:
    """Pack a padded grid (T, B, *), or (B, T, *) if ``batch_first``: the real steps only.

    Law: ``data`` runs time step by time step, longest sequence first; what stands in the padding
    never matters. Steps beyond ``lengths`` are left out.

    Args:
        lengths: (B,) integers, a list or a tensor on any device (from a GPU they are copied once).
        enforce_sorted: True demands lengths that never grow; False sorts, and results come back in
            your order.
        padding_side: the side that the padding is on; torch knows "right" only.
        allow_empty: True takes lengths of 0 too, as torch does not. Such a sequence is in no row of
            the data; it keeps its number, and layers of packlib give its first state as its last.

    Raises:
        RuntimeError: lengths that are not 1D, not one a sequence, below 1 (with ``allow_empty``
            below 0, or all of them 0), or not sorted.
        TypeError: lengths that are not integers, ``input`` not a tensor.
        ValueError: a length beyond the input's steps.

    >>> x = torch.tensor([[1, 2, 0, 0, 0], [3, 4, 5, 6, 7]])
    >>> p = pack_padded_sequence(x, [2, 5], batch_first=True, enforce_sorted=False)
    >>> p.data, p.batch_sizes
    (tensor([3, 1, 4, 2, 5, 6, 7]), tensor([2, 2, 1, 1, 1]))
    """
    check_bool("batch_first", batch_first)
    check_padding_side(padding_side)
    check_bool("allow_empty", allow_empty)
    size, total = check_grid("input", input, batch_first)
    if torch.compiler.is_compiling():
        return traced.pack(input, lengths, batch_first, enforce_sorted, padding_side, allow_empty)
    counts = check_lengths(lengths)
    if input.numel() == 0:
        raise RuntimeError(f"Cannot pack empty tensors. Got input of shape {tuple(input.shape)}")
    layout = plan_grid(counts, input.shape, batch_first, enforce_sorted, allow_empty)
    flat, batch_first = flat_grid(input, batch_first)
    data = moves.to_packed(flat, layout, moves.cells(total, batch_first, padding_side))
    return PackedSequence.from_layout(data, layout)


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
    if torch.compiler.is_compiling():
        return traced.pad(sequence, batch_first, padding_value, total_length, padding_side)
    layout = layout_of(sequence)
    data = sequence.data
    padding_value = check_padding_value(padding_value, data.dtype)
    longest = layout.num_steps
    total = longest if total_length is None else check_int("total_length", total_length)
    check_total(total, longest)
    size = layout.num_sequences
    grid = moves.from_packed(data, layout, moves.cells(total, batch_first, padding_side),
                             padding_value)
    shape = (size, total) if batch_first else (total, size)
    return grid.view(*shape, *data.shape[1:]), torch.from_numpy(layout.lengths.copy())


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True, *,
                  allow_empty: bool = False) -> PackedSequence:
    """Pack a list of sequences (L_i, *), without building a padded grid.

    Law: equals ``pack_padded_sequence(pad_sequence(sequences), lengths)``; memory follows the sum
    of lengths. There is no ``batch_first``: a list has no batch dimension.

    ``allow_empty`` takes sequences of shape (0, *) too; ``unpack_sequence`` gives them back.

    Raises: as ``pad_sequence`` and ``pack_padded_sequence``.

    >>> pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([7])]).data
    tensor([1, 7, 2, 3])
    """
    check_bool("allow_empty", allow_empty)
    made = check_sequences(sequences, "pack_sequence")
    if made[0].shape[1:].numel() == 0:
        raise RuntimeError("Cannot pack empty tensors. Got steps of shape "
                           f"{tuple(made[0].shape[1:])}")
    if torch.compiler.is_compiling():
        counts = torch.tensor([s.shape[0] for s in made], device="cpu")
        return traced.pack_listed(joined(made), counts, enforce_sorted, allow_empty)
    layout = plan(lengths_of(made), enforce_sorted, allow_empty)
    return PackedSequence.from_layout(moves.from_list(made, layout), layout)


def unpack_sequence(packed_sequences: torch_rnn.PackedSequence) -> list[Tensor]:
    """Unpack to a list of sequences (L_i, *) in your order, without building a padded grid.

    Law: undoes ``pack_sequence``.

    >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    >>> unpack_sequence(p)
    [tensor([1, 2]), tensor([3, 4, 5])]
    """
    eager_only("unpack_sequence", "use pad_packed_sequence")
    layout = layout_of(packed_sequences)
    return moves.to_list(packed_sequences.data, layout)
