"""Packed sequences to and from the other forms of ragged batches: masks, offsets, nested tensors.

The offsets form (``cu_seqlens``) and the jagged nested tensor lay sequences end to end; packed data
lay steps end to end. Between them is one permutation of the rows: one gather, gradients included.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib import moves, traced
from packlib.host import Ints, near
from packlib.layout import Layout, check_lengths, eager_only
from packlib.ops import take
from packlib.packing import pack_padded_sequence
from packlib.padding import check_bool, lengths_to_mask, mask_to_lengths
from packlib.planning import plan
from packlib.sequence import PackedSequence, layout_of


def packed_from_mask(x: Tensor, mask: Tensor, *, padding_side: str = "right",
                     allow_empty: bool = False) -> PackedSequence:
    """Pack a grid x (B, T, *) by its mask (B, T), bool, True on the real steps.

    Law: sequence ``i`` is ``x[i][mask[i]]``. (Attention's ``key_padding_mask`` is True on the
    padding: give ``~key_padding_mask``.)

    Raises:
        TypeError: the mask is not bool, or ``x`` is not a tensor.
        ValueError: the shapes do not fit, or real steps stand on the padding's side.
        RuntimeError: a row has no real step, unless ``allow_empty``; or no row has one.

    >>> x = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 6], [7, 0, 0, 0]])
    >>> packed_from_mask(x, x > 0).data
    tensor([3, 1, 7, 4, 2, 5, 6])
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a Tensor, got {type(x).__name__}")
    lengths = mask_to_lengths(mask, padding_side=padding_side)
    if x.shape[:2] != mask.shape:
        raise ValueError(f"mask {tuple(mask.shape)} must have the first two dimensions of x, "
                         f"(B, T), got {tuple(x.shape)}"
                         + ("; x.transpose(0, 1) has them" if x.shape[:2] == mask.T.shape else ""))
    return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False,
                                padding_side=padding_side, allow_empty=allow_empty)


def mask_from_packed(packed: torch_rnn.PackedSequence, total_length: int | None = None) -> Tensor:
    """The mask (B, T) of the padded grid: bool, True on real steps, on the data's device.

    T is ``total_length`` or the longest length, as in ``pad_packed_sequence``.

    Law: ``packed_from_mask(pad_packed_sequence(p, batch_first=True)[0], mask_from_packed(p))`` is
    ``p``.

    Raises:
        ValueError: ``total_length`` is below the longest length.

    >>> p = packed_from_mask(torch.ones(2, 3), torch.tensor([[True, True, False], [True] * 3]))
    >>> mask_from_packed(p)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    if torch.compiler.is_compiling():
        lengths = traced.rows_of(packed).lengths
        total_length = packed.batch_sizes.shape[0] if total_length is None else total_length
    else:
        lengths = torch.from_numpy(layout_of(packed).lengths)
    return lengths_to_mask(lengths, total_length).to(packed.data.device)


def to_cu_seqlens(packed: torch_rnn.PackedSequence) -> tuple[Tensor, Tensor, int]:
    """Sequences end to end, as attention kernels for variable lengths take them.

    Returns:
        The rows (N, *), sequence after sequence in the user's order; ``cu_seqlens`` (B + 1,) int32
        on the data's device, where each begins and ends; and the longest length.

    Law: sequence ``i`` is ``rows[cu_seqlens[i]:cu_seqlens[i + 1]]``.

    >>> p = from_cu_seqlens(torch.tensor([1, 2, 3, 4, 5, 6, 7]), [0, 2, 7])
    >>> to_cu_seqlens(p)
    (tensor([1, 2, 3, 4, 5, 6, 7]), tensor([0, 2, 7], dtype=torch.int32), 5)
    """
    if torch.compiler.is_compiling():
        return traced.to_cu_seqlens(packed)
    layout, data = layout_of(packed), packed.data
    rows = moves.from_packed(data, layout, moves.LISTED)
    return rows, _offsets(layout, data.device).int(), layout.num_steps


def from_cu_seqlens(data: Tensor, cu_seqlens: Tensor | list[int], *,
                    allow_empty: bool = False) -> PackedSequence:
    """Pack sequences that lie end to end: data (N, *), ``cu_seqlens`` (B + 1,) from 0 to N.

    Law: undoes ``to_cu_seqlens``. Offsets on a GPU are copied to the host once.

    Raises:
        TypeError: ``data`` is not a tensor, or the offsets are not integers.
        ValueError: the offsets do not run from 0 to N.
        RuntimeError: a sequence is empty, unless ``allow_empty``; or all are.

    >>> from_cu_seqlens(torch.tensor([1, 2, 3, 4, 5, 6, 7]), [0, 2, 7]).data
    tensor([3, 1, 4, 2, 5, 6, 7])
    """
    if not isinstance(data, Tensor):
        raise TypeError(f"data must be a Tensor, got {type(data).__name__}")
    if data.dim() == 0:
        raise ValueError("data must be (N, *), got a single number")
    rows = data.shape[0]
    if torch.compiler.is_compiling():
        given = (cu_seqlens if isinstance(cu_seqlens, Tensor) else
                 torch.as_tensor(cu_seqlens, device="cpu"))
        return traced.pack_listed(data, diff_op(given, rows), False, allow_empty)
    offsets = _check_offsets(cu_seqlens, rows)
    return _pack(data, offsets[:-1], np.diff(offsets), allow_empty)


def _check_offsets(cu_seqlens: Tensor | list[int], rows: int) -> Ints:
    offsets = check_lengths(cu_seqlens, "cu_seqlens")
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 0).any():
        hint = ("; these are lengths, the offsets are [0, *cumsum]" if offsets.sum() == rows
                else "")
        raise ValueError(f"cu_seqlens must run from 0 up to {rows}, the rows of data, got "
                         f"{offsets[:8].tolist()}{hint}")
    return offsets


@torch.library.custom_op("packlib::diff", mutates_args=(),
                         schema="(Tensor cu_seqlens, SymInt rows) -> Tensor")
def diff_op(cu_seqlens: Tensor, rows: int) -> Tensor:
    """The lengths (B,) between offsets, on the CPU: for the compiler, which sees no values."""
    return torch.from_numpy(np.diff(_check_offsets(cu_seqlens, rows)))


@diff_op.register_fake
def _(cu_seqlens: Tensor, rows: int) -> Tensor:
    return torch.empty(cu_seqlens.shape[0] - 1, dtype=torch.int64, device="cpu")


def to_nested(packed: torch_rnn.PackedSequence) -> Tensor:
    """The batch as a nested tensor (B, j, *) of jagged layout, j being each sequence's length.

    Law: ``to_nested(p).unbind()`` are the sequences. Batches that share a layout (``p.map``) give
    nested tensors that may be added, multiplied and attended to each other. Gradients are of first
    order only: torch gives nested tensors no second.

    >>> p = from_cu_seqlens(torch.tensor([1, 2, 3, 4, 5, 6, 7]), [0, 2, 7])
    >>> to_nested(p).unbind()
    (tensor([1, 2]), tensor([3, 4, 5, 6, 7]))
    """
    eager_only("to_nested", "to_cu_seqlens gives the same rows and offsets")
    layout, data = layout_of(packed), packed.data
    rows = moves.from_packed(data, layout, moves.LISTED)
    return torch.nested.nested_tensor_from_jagged(
        rows, _offsets(layout, data.device), min_seqlen=int(layout.lengths.min()),
        max_seqlen=layout.num_steps)


def from_nested(nested: Tensor, *, allow_empty: bool = False) -> PackedSequence:
    """Pack a nested tensor (B, j, *) of jagged layout; one with holes (``narrow``) too.

    Law: undoes ``to_nested``. Offsets on a GPU are copied to the host once.

    Raises:
        TypeError: it is not a nested tensor of jagged layout.
        ValueError: its jagged dimension is not the second.
        RuntimeError: a sequence is empty, unless ``allow_empty``; or all are.

    >>> nested = torch.nested.as_nested_tensor([torch.tensor([1, 2]), torch.tensor([3, 4, 5])],
    ...                                        layout=torch.jagged)
    >>> from_nested(nested).data
    tensor([3, 1, 4, 2, 5])
    """
    if not isinstance(nested, Tensor) or nested.layout != torch.jagged:
        hint = ("; torch.nested.as_nested_tensor(x.unbind(), layout=torch.jagged) makes one"
                if isinstance(nested, Tensor) and nested.is_nested else "")
        raise TypeError(f"nested must be a nested tensor of layout torch.jagged{hint}")
    if not isinstance(nested.shape[1], torch.SymInt):
        raise ValueError("the jagged dimension must be the second, (B, j, *), got "
                         f"{tuple(nested.shape)}: transpose it first")
    eager_only("from_nested", "from_cu_seqlens(nested.values(), nested.offsets()) takes its parts")
    offsets = check_lengths(nested.offsets(), "offsets")
    lengths = nested.lengths()
    counts = np.diff(offsets) if lengths is None else check_lengths(lengths)
    return _pack(nested.values(), offsets[:-1], counts, allow_empty)


def _pack(data: Tensor, starts: Ints, lengths: Ints, allow_empty: bool) -> PackedSequence:
    """Pack the sequences that begin at these rows of data (N or more, *)."""
    check_bool("allow_empty", allow_empty)
    if not allow_empty and (lengths == 0).any():
        i = int(lengths.argmin())
        raise RuntimeError(f"sequence {i} is empty, it begins and ends at row {starts[i]}; to keep "
                           "empty sequences, give allow_empty=True")
    layout = plan(lengths, enforce_sorted=False, allow_empty=allow_empty)
    if len(data) == layout.num_rows and np.array_equal(starts, layout.starts):
        return PackedSequence.from_layout(moves.to_packed(data, layout, moves.LISTED), layout)
    rows = near(data.device, starts[layout.sequence] + layout.step)  # a nested one, with holes
    return PackedSequence.from_layout(take(data, rows), layout)


def _offsets(layout: Layout, device: torch.device) -> Tensor:
    """Where each sequence begins and ends, (B + 1,); one tensor for each layout, since nested
    tensors are of one shape only if they share their offsets."""
    return layout.rows(("offsets", device),
                       lambda: np.append(layout.starts, layout.lengths.sum()))
