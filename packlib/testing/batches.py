"""Assertions on packed batches, lists of sequences and padded grids."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.alike import same_layout
from packlib.layout import Layout, check_lengths
from packlib.padding import check_bool, check_fit, check_grid, other_layout
from packlib.sequence import layout_of
from packlib.testing import lookalikes
from packlib.testing.differences import (
    Close,
    end_to_end,
    fail,
    kind_difference,
    length_difference,
    listed_place,
    row_difference,
    what,
)
from packlib.testing.lookalikes import Truth


def assert_packed_equal(actual: Any, expected: torch_rnn.PackedSequence, *,
                        rtol: float | None = None, atol: float | None = None,
                        equal_nan: bool = False, check_order: bool = False) -> None:
    """Assert that two packed batches, torch's or packlib's, hold the same sequences: data (N, *).

    Compared are kind, dtype, device, lengths in the user's order (and with them ``batch_sizes``),
    then the data, step by step.

    Args:
        rtol, atol: as in ``torch.testing.assert_close``: both or neither; torch's for the dtype if
            None.
        equal_nan: True lets NaN equal NaN.
        check_order: sequences of one length may be sorted in several ways, and torch does not
            promise one. False takes these for equal. True asks for ``same_layout`` as well: row
            ``i`` of both data is the same step.

    Raises:
        AssertionError: the batches differ, or ``actual`` is no valid packed batch.
        TypeError: ``expected`` is no PackedSequence.
        ValueError: only one of ``rtol`` and ``atol`` is given.

    >>> from packlib import pack_sequence
    >>> xs = [torch.tensor([1, 2]), torch.tensor([3]), torch.tensor([4, 5, 6, 7, 8])]
    >>> expected = pack_sequence(xs, enforce_sorted=False)
    >>> assert_packed_equal(expected.with_data(torch.cat(xs)), expected)
    Traceback (most recent call last):
        ...
    AssertionError: packed batches differ: 4 of 8 steps differ
    first: sequence 2, step 0 of 5 (row 0 of data): 1, expected 4
    greatest difference: 3, sequence 2, step 0 of 5 (row 0 of data) (none is allowed)
    It looks like this mistake: Your data holds the right vectors, sequence after sequence ...
    """
    wanted = layout_of(expected)
    close = Close.of(expected.data.dtype, rtol, atol, equal_nan)
    if not isinstance(actual, torch_rnn.PackedSequence):
        fail(f"expected a PackedSequence, got {what(actual)}{_to_packed(actual)}")
    difference = _packed_difference(actual, expected, wanted, close)
    if difference:
        fail(f"packed batches differ: {difference}", _packed_hint(actual, expected, wanted, close))
    if check_order and not same_layout(actual, expected):
        fail("packed batches hold the same sequences, but those of one length are sorted in "
             "another way (sorted_indices), so row i of both is not the same step")


def assert_sequences_equal(actual: Any, expected: list[Tensor] | tuple[Tensor, ...], *,
                           rtol: float | None = None, atol: float | None = None,
                           equal_nan: bool = False) -> None:
    """Assert that two lists of sequences (L_i, *) are equal: lengths, dtype, device and values.

    Args:
        rtol, atol, equal_nan: as in ``assert_packed_equal``.

    Raises:
        AssertionError: they differ, or ``actual`` is no list or tuple of sequences.
        TypeError: ``expected`` is none, or its sequences differ in dtype, device or features.
        ValueError: only one of ``rtol`` and ``atol`` is given.

    >>> expected = [torch.tensor([1, 2]), torch.tensor([3]), torch.tensor([4, 5, 6, 7, 8])]
    >>> assert_sequences_equal([expected[2], expected[0], expected[1]], expected)
    Traceback (most recent call last):
        ...
    AssertionError: lists of sequences differ: sequence 0 has length 5, expected 2
    It looks like this mistake: Everything is right, and still long to short. Put the rows ...
    """
    if not _is_list(expected):
        raise TypeError(f"expected must be a list of sequences, got {what(expected)}")
    for b, s in enumerate(expected):
        kind = kind_difference(s, expected[0])
        if kind:
            raise TypeError(f"expected[{b}] is not like expected[0]: {kind}")
    if not _is_list(actual):
        fail(f"expected a list of sequences, got {what(actual)}")
    if not (actual and expected):
        if len(actual) != len(expected):
            fail(f"lists of sequences differ: {len(actual)} sequences, expected {len(expected)}")
        return
    for b, s in enumerate(actual):
        kind = kind_difference(s, expected[0])
        if kind:
            fail(f"lists of sequences differ: sequence {b}: {kind}")
    found, wanted = (Layout.from_lengths(np.array([len(s) for s in xs])) for xs in
                     (actual, expected))
    close = Close.of(expected[0].dtype, rtol, atol, equal_nan)
    difference = length_difference(found, wanted) or row_difference(
        torch.cat(list(actual)), torch.cat(list(expected)), close, listed_place(wanted))
    if difference:
        truth = Truth.of(torch.cat(list(expected)), wanted.lengths, close)
        fail(f"lists of sequences differ: {difference}",
             lookalikes.most(lookalikes.of_sequences(list(actual), truth)))


def assert_padded_equal(actual: Any, expected: Tensor, lengths: Tensor | list[int], *,
                        batch_first: bool = False, padding_value: float | None = None,
                        rtol: float | None = None, atol: float | None = None,
                        equal_nan: bool = False) -> None:
    """Assert that two grids (T, B, *), or (B, T, *) if ``batch_first``, have equal real steps.

    Padding is on the right; what stands in it does not matter, and neither does how much there is.

    Args:
        lengths: (B,) in the order of the rows.
        padding_value: if given, the padding of ``actual`` must hold it, and shapes must agree. The
            message says so if only the padding is wrong.
        rtol, atol, equal_nan: as in ``assert_packed_equal``.

    Raises:
        AssertionError: they differ, or ``actual`` is no tensor.
        TypeError, IndexError: ``expected`` is no grid.
        ValueError: ``lengths`` do not fit ``expected``, or only one of ``rtol`` and ``atol`` is
            given.

    >>> expected = torch.tensor([[1, 2, 0], [3, 4, 5]])
    >>> actual = torch.tensor([[1, 2, 9], [3, 4, 5]])
    >>> assert_padded_equal(actual, expected, [2, 3], batch_first=True)
    >>> assert_padded_equal(actual, expected, [2, 3], batch_first=True, padding_value=0)
    Traceback (most recent call last):
        ...
    AssertionError: all real steps are equal, only the padding differs: 1 of 1 cells differ
    first: sequence 0, step 2 (its length is 2): 9, expected 0
    greatest difference: 9, sequence 0, step 2 (its length is 2) (none is allowed)
    """
    check_bool("batch_first", batch_first)
    counts = check_lengths(lengths)
    size, total = check_grid("expected", expected, batch_first)
    if len(counts) != size:
        raise ValueError(f"lengths has {len(counts)} entries for {size} sequences"
                         + other_layout(expected.shape, len(counts), batch_first))
    if counts.min(initial=0) < 0:
        raise ValueError(f"lengths must be at least 0, got {counts.min()}")
    check_fit(counts, total, expected.shape, batch_first)
    close = Close.of(expected.dtype, rtol, atol, equal_nan)
    if not isinstance(actual, Tensor):
        fail(f"expected a padded grid, got {what(actual)}")
    if not batch_first:
        expected = expected.transpose(0, 1)
        actual = actual.transpose(0, 1) if actual.dim() > 1 else actual
    truth = Truth.of(expected[_real(counts, total)], counts, close, padding_value)
    difference = _padded_difference(actual, expected, counts, truth)
    if difference:
        fits = actual.dtype == expected.dtype and actual.dim() == expected.dim()
        found = lookalikes.of_padded(actual, truth, total) if fits else iter(())
        fail(difference, lookalikes.most(found))


def _packed_difference(actual: torch_rnn.PackedSequence, expected: torch_rnn.PackedSequence,
                       wanted: Layout, close: Close) -> str | None:
    kind = isinstance(actual.data, Tensor) and kind_difference(actual.data, expected.data)
    if kind:
        return kind
    try:
        found = layout_of(actual)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        return f"it breaks the law of packed data: {error}"
    difference = length_difference(found, wanted)
    if difference:
        return difference
    listed, rows = listed_place(wanted), found.listed(actual.data.device)
    return row_difference(actual.data, end_to_end(expected)[rows], close,
                          lambda i: f"{listed(int(rows[i]))} (row {i} of data)")


def _packed_hint(actual: torch_rnn.PackedSequence, expected: torch_rnn.PackedSequence,
                 wanted: Layout, close: Close) -> str | None:
    if not isinstance(actual.data, Tensor) or kind_difference(actual.data, expected.data):
        return None
    truth = Truth.of(end_to_end(expected), wanted.lengths, close)
    ranks = np.arange(wanted.num_sequences)
    order = torch.from_numpy(ranks if wanted.order is None else wanted.order)
    found = [lookalikes.of_packed(actual, truth, order)]
    if _same_lengths(actual, wanted):
        found.append(lookalikes.of_rows(end_to_end(actual), truth))
    return lookalikes.most(*found)


def _same_lengths(actual: torch_rnn.PackedSequence, wanted: Layout) -> bool:
    try:
        return length_difference(layout_of(actual), wanted) is None
    except (TypeError, ValueError, RuntimeError, IndexError):
        return False


def _to_packed(actual: Any) -> str:
    if isinstance(actual, Tensor):
        return ": a grid is packed by pack_padded_sequence"
    if not isinstance(actual, (tuple, list)) or not actual:
        return ""
    if isinstance(actual[0], torch_rnn.PackedSequence):
        return ": a layer returns (output, states), and the output comes first"
    if isinstance(actual, list):
        return ": a list of sequences is packed by pack_sequence"
    return ": if these are its fields, make PackedSequence(data, batch_sizes, sorted_indices)"


def _is_list(value: Any) -> bool:
    """A list or tuple of tensors that have steps; a PackedSequence is a tuple too."""
    return (isinstance(value, (list, tuple)) and not isinstance(value, torch_rnn.PackedSequence)
            and all(isinstance(s, Tensor) and s.dim() for s in value))


def _real(counts: np.ndarray, total: int) -> Tensor:
    return torch.from_numpy(np.arange(total) < counts[:, None])


def _padded_difference(actual: Tensor, expected: Tensor, counts: np.ndarray,
                       truth: Truth) -> str | None:
    """Where two grids (B, T, *) differ."""
    longest, value = int(counts.max(initial=0)), truth.padding
    fits = (actual.shape[:1] == expected.shape[:1] and actual.shape[2:] == expected.shape[2:]
            and actual.dim() > 1 and actual.shape[1] >= longest)
    if not fits or (value is not None and actual.shape != expected.shape):
        shape, wanted = tuple(actual.shape), tuple(expected.shape)
        return f"padded grids differ: shape is {shape}, expected {wanted}, read as (B, T, *)"
    real = _real(counts, actual.shape[1])
    found = actual[real]
    difference = kind_difference(found, expected.flatten(0, 1)) or row_difference(
        found, truth.rows, truth.close, listed_place(Layout.from_lengths(counts)))
    if difference:
        return f"padded grids differ: {difference}"
    if value is None:
        return None
    padding = actual[~real]
    cells = (~real).nonzero().tolist()

    def place(i: int) -> str:
        b, t = cells[i]
        return f"sequence {b}, step {t} (its length is {counts[b]})"

    difference = row_difference(padding, value.expand(padding.shape), truth.close, place,
                                "cells")
    return difference and f"all real steps are equal, only the padding differs: {difference}"
