"""Truncated backpropagation through time (Williams and Peng, 1990): a few steps at a time.

The rows of consecutive steps lie together in packed data, so a piece is a view of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.host import Ints
from packlib.layout import Layout, eager_only
from packlib.padding import check_int
from packlib.sequence import PackedSequence, layout_of


def chunks(packed: torch_rnn.PackedSequence, steps: int) -> Iterator[PackedSequence]:
    """Cut a packed batch along time: pieces of at most ``steps`` steps, data (n, *), first to last.

    A piece holds the sequences that are still running, in the user's order; those that have ended
    are not in it.

    Law: the pieces' data, joined, are the data of the batch.

    Raises:
        ValueError: ``steps`` is below 1.
        TypeError: ``steps`` is not an integer.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5, 6, 7])],
    ...                   enforce_sorted=False)
    >>> [piece.lengths.tolist() for piece in chunks(p, 2)]
    [[2, 2], [2], [1]]
    """
    return (piece for piece, _ in _pieces(packed, steps))


def run_chunks(layer: Callable[[PackedSequence, Any], tuple[Any, Any]],
               packed: torch_rnn.PackedSequence, steps: int, state: Any = None, *,
               batch_dim: int = 1) -> Iterator[tuple[Any, Any]]:
    """Run a recurrent layer over the pieces of ``chunks``, its states carried from one to the next.

    The layer runs when the next piece is asked for, so an optimiser's step in the loop counts. What
    goes on to the next piece is cut off from the graph. Training is three lines::

        for (output, _), target in zip(run_chunks(lstm, inputs, 35), chunks(targets, 35)):
            cross_entropy(output.map(head), target).backward()
            optimiser.step(); optimiser.zero_grad()

    Each piece is a graph of its own only if ``packed`` has none: embed inside of the layer,
    ``lambda piece, state: lstm(piece.map(embedding), state)``.

    Args:
        layer: ``layer(piece, state) -> (output, state)``: ``nn.LSTM``, ``packlib.GRU``, or
            ``functools.partial(run_packed, cell)`` with ``batch_dim=0``.
        state: the first states, a tensor or a tuple of them; None leaves them to the layer. They
            must be given if a sequence is empty, since such a one is in no piece.
        batch_dim: the dimension of the states that counts the sequences, B long.

    Yields:
        The output of each piece, and the states of all B sequences in the user's order: those that
        have ended keep their last. The last ones are those of the whole run.

    Raises:
        ValueError: ``steps`` is below 1, a state is not B long in ``batch_dim``, there is none for
            an empty sequence, or the layer, or a module in it, has a backward direction, which
            would begin at the end of each piece (nothing sees into a function).
        TypeError: ``steps`` is not an integer, or a state is not a tensor or a tuple of them.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.ones(2, 4), torch.ones(5, 4)], enforce_sorted=False)
    >>> for output, h in run_chunks(torch.nn.GRU(4, 3), p, 3):
    ...     output.data.shape, h.shape
    (torch.Size([5, 3]), torch.Size([1, 2, 3]))
    (torch.Size([2, 3]), torch.Size([1, 2, 3]))
    """
    modules = layer.modules() if isinstance(layer, torch.nn.Module) else [layer]
    if any(getattr(module, "bidirectional", False) for module in modules):
        raise ValueError("a bidirectional layer cannot run in chunks: its backward direction "
                         "begins at the end of each sequence")
    pieces, layout = _pieces(packed, steps), layout_of(packed)
    size = layout.num_sequences
    if layout.num_empty and state is None:
        raise ValueError(f"state must be given, since sequence {layout.lengths.argmin()} is empty: "
                         "its first state is its last, and the layer does not see it")
    if state is not None:
        _check_states(state, size, batch_dim)
    return _run(layer, pieces, size, state, batch_dim)


def _run(layer: Callable[[PackedSequence, Any], tuple[Any, Any]],
         pieces: Iterator[tuple[PackedSequence, Tensor | None]], size: int, state: Any,
         dim: int) -> Iterator[tuple[Any, Any]]:
    for piece, running in pieces:
        if running is None:
            output, state = layer(piece, state)
        else:
            output, last = layer(piece, _select(state, dim, running))
            state = _overwrite(state, dim, running, last)
        _check_states(state, size, dim)
        if isinstance(output, torch_rnn.PackedSequence):  # torch's layers give torch's
            output = PackedSequence.like(output, output.data)
        yield output, state
        state = _each(Tensor.detach, state)


def _select(state: Any, dim: int, rows: Tensor) -> Any:
    return _each(lambda s: s.index_select(dim, rows), state)


def _overwrite(state: Any, dim: int, rows: Tensor, new: Any) -> Any:
    return _each(lambda s, n: s.index_copy(dim, rows, n), state, new)


def _each(fn: Callable[..., Tensor], *states: Any) -> Any:
    """``fn`` of the states, which are tensors or tuples of them."""
    if isinstance(states[0], Tensor):
        return fn(*states)
    return tuple(fn(*parts) for parts in zip(*states, strict=True))


def _check_states(state: Any, size: int, dim: int) -> None:
    for s in state if isinstance(state, (tuple, list)) else (state,):
        if not isinstance(s, Tensor):
            raise TypeError(f"state must be a Tensor or a tuple of them, got {type(s).__name__}")
        if not -s.dim() <= dim < s.dim() or s.shape[dim] != size:
            raise ValueError(f"state must be {size} long, one for each sequence, in dimension "
                             f"batch_dim={dim}, got shape {tuple(s.shape)}")


def _pieces(packed: torch_rnn.PackedSequence,
            steps: int) -> Iterator[tuple[PackedSequence, Tensor | None]]:
    """Each piece, and the user's numbers of the sequences in it, or None if it has all."""
    eager_only("chunks", "compile the layer alone, and cut outside of it")
    layout, steps = layout_of(packed), check_int("steps", steps)
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    steps = min(steps, layout.num_steps)
    first = np.arange(0, layout.num_steps, steps)
    rows = np.add.reduceat(layout.batch_sizes, first).tolist()
    return (_piece(layout, *layout.part(t, t + steps), data)
            for t, data in zip(first.tolist(), packed.data.split(rows), strict=True))


def _piece(whole: Layout, layout: Layout, running: Ints,
           data: Tensor) -> tuple[PackedSequence, Tensor | None]:
    everyone = len(running) == whole.num_sequences
    return (PackedSequence.from_layout(data, layout),
            None if everyone else torch.from_numpy(running).to(data.device))
