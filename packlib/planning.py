"""From lengths to a layout, with every reason to refuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from packlib.host import Ints, host
from packlib.layout import Layout
from packlib.padding import check_bool, check_fit, other_layout


def plan(lengths: Ints, enforce_sorted: bool, allow_empty: bool = False) -> Layout:
    """The layout of sequences of these lengths (B,), each at least 1, or 0 if ``allow_empty``."""
    if not isinstance(enforce_sorted, int):  # torch takes 0 and 1 as well
        check_bool("enforce_sorted", enforce_sorted)
    order = None
    if len(lengths) and lengths[lengths.argmin()] < 1:
        _check_empty(lengths, allow_empty)
        order = np.arange(len(lengths))  # batch_sizes do not say how many are empty; this does
    if not enforce_sorted:
        # torch's own call: its order of ties changes at 17 sequences, and results must be equal
        order = host(torch.sort(torch.from_numpy(lengths), descending=True).indices)
        return Layout.from_lengths(lengths, order)
    if (np.diff(lengths) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability. If you sort by "
            "hand, sort the sequences, not their lengths alone")
    return Layout.from_lengths(lengths, order)


def _check_empty(lengths: Ints, allow_empty: bool) -> None:
    i = int(lengths.argmin())
    if not allow_empty:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element "
                           f"in 'lengths' that is <= 0: lengths[{i}]={lengths[i]}"
                           + ("; to keep empty sequences, pack them with allow_empty=True"
                              if lengths[i] == 0 else ""))
    if lengths[i] < 0:
        raise RuntimeError(f"lengths must be at least 0, got lengths[{i}]={lengths[i]}")
    if not lengths.any():
        raise RuntimeError(f"all {len(lengths)} sequences are empty, so there is no step to pack: "
                           "leave such a batch out")


def plan_grid(lengths: Ints, shape: Sequence[int], batch_first: bool, enforce_sorted: bool,
              allow_empty: bool = False) -> Layout:
    """The layout of sequences that lie in a padded grid of this shape."""
    size, total = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
    if len(lengths) != size:
        hint = other_layout(shape, len(lengths), batch_first)
        if not hint.endswith("?") and _like_batch_sizes(lengths, size):
            hint += ". Are they batch_sizes? lengths has one number for each sequence"
        raise RuntimeError("Expected `len(lengths)` to be equal to batch_size, but got "
                           f"{len(lengths)} (batch_size={size}){hint}")
    check_fit(lengths, total, shape, batch_first)  # first, since a plan takes memory for T steps
    return plan(lengths, enforce_sorted, allow_empty)


def _like_batch_sizes(lengths: Ints, size: int) -> bool:
    """They begin with the number of sequences and never grow."""
    return len(lengths) > 0 and lengths[0] == size and not bool((np.diff(lengths) > 0).any())


def refuse_empty(layout: Layout, what: str) -> None:
    """Say which sequence is empty and so has no ``what``, if one is."""
    if layout.num_empty:
        i = layout.lengths.argmin()
        raise ValueError(f"sequence {i} is empty, so it has no {what}: leave out such sequences "
                         "with packed.without_empty(), which keeps those of packed.lengths > 0")


def check_total(total: int, longest: int) -> None:
    """A padded length must hold the longest sequence."""
    if total < longest:
        raise ValueError("Expected total_length to be at least the length of the longest sequence "
                         f"in input, but got total_length={total} and max sequence length "
                         f"being {longest}; to shorten sequences, pack them with smaller lengths")
