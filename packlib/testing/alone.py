"""Any layer, each sequence alone: slow, and right whatever packing does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.sequence import PackedSequence, layout_of
from packlib.testing.differences import end_to_end

States = Tensor | tuple[Tensor, ...] | None


def one_by_one(layer: Callable[..., Any], *, batch_dim: int = 1) -> Callable[..., Any]:
    """Make of a layer one that runs each sequence alone, in a batch of one: a slow reference.

    Where nothing is beside a sequence, nothing can be sorted wrongly or padded. Called as the layer
    is, with packed data (N, F) and states that count sequences in dimension ``batch_dim``; returns
    the outputs, packed alike, and the states in the user's order. An empty sequence keeps its first
    state, zeros if there is none.

    Law: a layer that is right equals its own ``one_by_one``.

    >>> from packlib import pack_sequence
    >>> xs = [torch.zeros(2, 4), torch.zeros(1, 4), torch.zeros(5, 4)]
    >>> packed = pack_sequence(xs, enforce_sorted=False)
    >>> output, h_n = one_by_one(torch.nn.GRU(4, 6))(packed)
    >>> output.data.shape, h_n.shape
    (torch.Size([8, 6]), torch.Size([1, 3, 6]))
    """
    return _OneByOne(layer, batch_dim)


class _OneByOne:
    def __init__(self, layer: Callable[..., Any], batch_dim: int) -> None:
        self.layer, self.batch_dim = layer, batch_dim

    def __getattr__(self, name: str) -> Any:  # parameters, bidirectional: the layer's own
        return getattr(self.__dict__["layer"], name)

    def __call__(self, packed: torch_rnn.PackedSequence, hx: States = None) -> tuple[Any, States]:
        layout, rows = layout_of(packed), end_to_end(packed)
        firsts = [None if hx is None else self._of(hx, b) for b in range(layout.num_sequences)]
        outputs, states = [], []
        for first, sequence in zip(firsts, rows.split(layout.lengths.tolist()), strict=True):
            if len(sequence) == 0:
                states.append(first)
                continue
            alone = PackedSequence(sequence, torch.ones(len(sequence), dtype=torch.int64))
            output, state = self.layer(alone) if first is None else self.layer(alone, first)
            outputs.append(output.data)
            states.append(state)
        made = PackedSequence.like(packed, torch.cat(outputs)[layout.listed(rows.device)])
        return made, self._joined(states)

    def _joined(self, states: list[Any]) -> Any:
        """All states side by side; zeros, as layers begin, where there is none."""
        like = next(state for state in states if state is not None)
        if isinstance(like, Tensor):
            whole = [torch.zeros_like(like) if s is None else s for s in states]
            return torch.cat(whole, self.batch_dim)
        each = zip(*[[None] * len(like) if s is None else s for s in states], strict=True)
        return tuple(self._joined(list(parts)) for parts in each)

    def _of(self, hx: Any, b: int) -> Any:
        """The first states of sequence ``b``."""
        if isinstance(hx, Tensor):
            return hx.narrow(self.batch_dim, b, 1)
        return tuple(s.narrow(self.batch_dim, b, 1) for s in hx)
