"""One Triton kernel for every move of ragged rows: pack, unpack, lists, time reversal.

Wherever sequences are stored, the place of a step is a sum: something for the step, and something
for the sequence. In a padded grid these are its two strides; in packed rows the first row of the
step, and the rank; in a list the step, and where the sequence begins. So one kernel copies from any
such storage to any other, and a table of B and T numbers tells it how, never one of N. It copies
bits, which makes it one kernel for all dtypes too.

Where a step lies is said by ``packlib.kernels.storage``; sequences are counted longest first. Each
move undoes another; none knows about gradients: ``packlib.moves`` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import triton  # type: ignore
import triton.language as tl  # type: ignore
from torch import Tensor

from packlib.host import near, stream
from packlib.kernels.storage import (
    Side,
    Storage,
    grid,
    listed,
    longest_first,
    packed,
    size,
)
from packlib.layout import Layout
from packlib.ops import split

WORDS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


@triton.jit(do_not_specialize=["pad", "odd_pad", "B", "T", "F", "unit", "sign"])
def _copy(target, source, table, pad: tl.int64, odd_pad: tl.int64, B, T, F, unit,  # type: ignore
          sign, ALIGN: tl.constexpr, FILL: tl.constexpr,
          BT: tl.constexpr, BJ: tl.constexpr, BF: tl.constexpr):
    """Step ``t`` of the target is the source's step ``first[j] + sign * t``, if that is a real one.

    A program takes BT steps of BJ sequences, BF words of each row. A row has F * ALIGN words; the
    source's sequences begin at multiples of ``unit`` words.
    """
    blocks = (B + BJ - 1) // BJ
    t0 = tl.program_id(0) // blocks * BT
    j0 = tl.program_id(0) % blocks * BJ
    if not FILL and t0 >= tl.load(table + B + j0) - tl.load(table + j0):
        return  # the block's first sequence is its longest
    t, j = t0 + tl.arange(0, BT), j0 + tl.arange(0, BJ)
    in_steps, in_sequences = t < T, j < B
    low = tl.load(table + j, mask=in_sequences, other=0)
    high = tl.load(table + B + j, mask=in_sequences, other=0)
    first = tl.load(table + 2 * B + j, mask=in_sequences, other=0)
    to_sequence = tl.load(table + 3 * B + j, mask=in_sequences, other=0)
    from_sequence = tl.load(table + 4 * B + j, mask=in_sequences, other=0)
    to_step = tl.load(table + 5 * B + t, mask=in_steps, other=0)
    inside = in_steps[:, None] & in_sequences[None, :]
    s = first[None, :] + (sign * t)[:, None]
    real = inside & (s >= low[None, :]) & (s < high[None, :])
    from_step = tl.load(table + 5 * B + T + s, mask=real, other=0)

    width = F * ALIGN  # so that the compiler knows what divides it, and moves 16 bytes at a time
    f = (tl.program_id(1) * BF + tl.arange(0, BF))[None, None, :]
    here = tl.multiple_of((from_sequence * unit)[None, :] + from_step * width, [ALIGN, ALIGN])
    there = (to_sequence[None, :] + to_step[:, None]) * width
    words, places = source + here[:, :, None] + f, target + there[:, :, None] + f
    mask = real[:, :, None] & (f < width)
    if FILL:
        pads = tl.where(f % 2 == 0, pad, odd_pad).to(target.dtype.element_ty)
        values = tl.load(words, mask=mask, other=pads)
        tl.store(places, values, mask=inside[:, :, None] & (f < width))
    else:
        tl.store(places, tl.load(words, mask=mask), mask=mask)


def table(layout: Layout, to: Storage, came: Storage, device: torch.device,
          reverse: bool = False) -> Tensor:
    """All that the kernel must know of a move; made once for this layout."""
    key = "table", to, came, reverse, device, stream(device)
    return layout.kept(key, lambda: _table(
        layout, to[0](layout, *to[1:]), came[0](layout, *came[1:]), device, reverse))


def _table(layout: Layout, to: Side, source: Side, device: torch.device,
           reverse: bool = False) -> Tensor:
    lengths = longest_first(layout, layout.lengths)
    first = source.skip + (lengths - 1 + to.skip if reverse else -to.skip)
    return near(device, np.concatenate([  # 5B + T + S integers in one copy
        source.skip, source.skip + lengths, first, to.sequences, source.sequences,
        to.steps, source.steps]))


def move(source: Tensor, layout: Layout, to: Storage, came: Storage, reverse: bool = False,
         value: float | complex | bool = 0.0) -> Tensor:
    """Rows in storage ``came`` (*, *) to a new tensor in storage ``to``; ``value`` is its padding.

    ``move`` with ``to`` and ``came`` exchanged goes back: it is the inverse, and the gradient.
    """
    source = _in_memory(source)
    steps, rows = size(layout, to)
    target = source.new_empty(rows, *source.shape[1:])
    moves = table(layout, to, came, source.device, reverse)
    _launch(target, source, moves, layout.num_sequences, steps, _common(target, source), reverse,
            value if to[0] is grid else None)
    return target


def from_list(sequences: Sequence[Tensor], layout: Layout) -> Tensor:
    """Sequences (L_i, *), in the user's order, to packed data (N, *); they are not joined first."""
    pieces = [_in_memory(s) for s in sequences]
    steps, rows = size(layout, (packed,))
    data = pieces[0].new_empty(rows, *pieces[0].shape[1:])
    addresses = np.array([piece.data_ptr() for piece in pieces])
    common = math.gcd(_common(data), int(np.gcd.reduce(addresses)))
    here = listed(layout, (addresses - addresses[0]) // math.gcd(common, 8))
    moves = _table(layout, packed(layout), here, data.device)  # not kept: addresses change
    _launch(data, pieces[0], moves, layout.num_sequences, steps, common, apart=True)
    return data


def to_list(data: Tensor, layout: Layout) -> list[Tensor]:
    """Packed data (N, *) to sequences (L_i, *), in the user's order: parts of one storage."""
    return split(move(data, layout, (listed,), (packed,)), layout.lengths.tolist())


def _in_memory(source: Tensor) -> Tensor:
    """The same numbers as they are read, row after row: bits are copied, so no sign may be due."""
    return source.resolve_conj().resolve_neg().contiguous()


def _launch(target: Tensor, source: Tensor, table: Tensor, sequences: int, steps: int,
            common: int, reverse: bool = False, value: float | complex | bool | None = None,
            apart: bool = False) -> None:
    """``common`` divides all places and a row, in bytes; ``apart``: the source is a list."""
    if target.numel() == 0:
        return
    word, align = math.gcd(common, 8), 2 if common % 16 == 0 else 1
    width = _row_bytes(target) // word
    BT, BJ, BF = tile(width)
    pads = (0, 0) if value is None else _pad_words(value, target.dtype, word)
    blocks = -(-steps // BT) * -(-sequences // BJ), -(-width // BF)
    with torch.cuda.device_of(target):  # triton launches on the current device
        _copy[blocks](triton.reinterpret(target, WORDS[word]),
                      triton.reinterpret(source, WORDS[word]), table, *pads, sequences, steps,
                      width // align, 1 if apart else width, -1 if reverse else 1,
                      ALIGN=align, FILL=value is not None, BT=BT, BJ=BJ, BF=BF,
                      enable_fp_fusion=False)  # nothing to fuse; triton 3.9 warns if it is not said


def works(device: torch.device) -> bool:
    """Whether a move arrives on this device; raises what triton raises where it cannot run."""
    layout, rows = Layout.from_lengths(np.array([2, 1])), torch.arange(3.0)
    found = move(rows.to(device), layout, (listed,), (packed,))
    return found.tolist() == [0.0, 2.0, 1.0]


def tile(width: int) -> tuple[int, int, int]:
    """Steps, sequences and words of a program, from the words of a row alone.

    Were they to follow B or T, the kernel would be compiled again for every new batch.
    """
    words = min(triton.next_power_of_2(width), 1024)
    rows = min(2048 // words, 512)
    sequences = 1 << rows.bit_length() // 2
    return rows // sequences, sequences, words


def _pad_words(value: float | complex | bool, dtype: torch.dtype, word: int) -> tuple[int, int]:
    """The bits of ``value`` in words: two, since one complex128 is two of the largest."""
    one = torch.full((1,), value, dtype=dtype, device="cpu")
    parts = torch.view_as_real(one) if dtype.is_complex else one
    bits = parts.view(torch.uint8).numpy().tobytes() * 16
    first, second = np.frombuffer(bits, f"i{word}", count=2).tolist()
    return first, second


def _common(*storages: Tensor) -> int:
    return math.gcd(_row_bytes(storages[0]), *(storage.data_ptr() for storage in storages))


def _row_bytes(storage: Tensor) -> int:
    return storage[:1].numel() * storage.element_size()
