"""RNN, GRU and LSTM as the book writes them: one step, then a walk over ``batch_sizes``.

A step takes the input's part of the gates, ``gi = x @ w_ih.T + b_ih``, which needs no past and is
computed for all rows at once; the state's part has to wait for the step before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from packlib.layout import Layout, eager_only
from packlib.sequence import PackedSequence, layout_of, whole_inverse, whole_order

State = Tensor | tuple[Tensor, ...]


def rnn_step(gi: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor | None,
             activation: Callable[[Tensor], Tensor] = torch.tanh) -> Tensor:
    """Elman's step: gi (b, H), h (b, H) -> h (b, H)."""
    return activation(gi + F.linear(h, w_hh, b_hh))


def gru_step(gi: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor | None) -> Tensor:
    """Gated recurrent step, gates r, z, n as torch stacks them: gi (b, 3H), h (b, H) -> (b, H).

    As in torch, the reset gate multiplies ``W_hn h + b_hn``, after the product.
    """
    ir, iz, in_ = gi.chunk(3, dim=1)
    hr, hz, hn = F.linear(h, w_hh, b_hh).chunk(3, dim=1)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    n = torch.tanh(in_ + r * hn)
    return n + z * (h - n)


def lstm_step(gi: Tensor, state: tuple[Tensor, Tensor], w_hh: Tensor, b_hh: Tensor | None,
              w_hr: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """LSTM step, gates i, f, g, o as torch stacks them: gi (b, 4H), (h, c) -> (h, c).

    With ``w_hr`` (P, H) the hidden state is projected to (b, P), torch's ``proj_size``.
    """
    h, c = state
    i, f, g, o = (gi + F.linear(h, w_hh, b_hh)).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if w_hr is None else F.linear(h, w_hr)), c


def walk(cell: Callable[[Tensor, Any], Any], layout: Layout, data: Tensor,
         states: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The loop over ``batch_sizes``: data (N, *), states (B, *) longest sequence first.

    Returns the outputs (N, *) and the last states, in the same order. A cell that is given no
    states makes its own.
    """
    outputs, ended = [], []
    for x in data.split(layout.sizes):
        if states is not None and len(x) < len(states[0]):  # the shortest sequences have ended:
            cut = [len(x), len(states[0]) - len(x)]         # set their states aside
            states, gone = zip(*(s.split(cut) for s in states), strict=True)
            ended.append(gone)
        states = cell(x, states)
        outputs.append(states[0])
    assert states is not None  # there is at least one step
    ended.append(states)
    return torch.cat(outputs), tuple(torch.cat(s[::-1]) for s in zip(*ended, strict=True))


def rnn_layer(layout: Layout, relu: bool, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor,
              b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor]:
    """Elman's layer: data (N, F), h0 (B, H) longest sequence first -> output (N, H), h_n (B, H)."""
    activation = torch.relu if relu else torch.tanh
    output, (h,) = walk(lambda gi, s: (rnn_step(gi, s[0], w_hh, b_hh, activation),), layout,
                        F.linear(data, w_ih, b_ih), (h0,))
    return output, h


def gru_layer(layout: Layout, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor,
              b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gated recurrent layer: data (N, F), h0 (B, H) -> output (N, H), h_n (B, H)."""
    output, (h,) = walk(lambda gi, s: (gru_step(gi, s[0], w_hh, b_hh),), layout,
                        F.linear(data, w_ih, b_ih), (h0,))
    return output, h


def lstm_layer(layout: Layout, data: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor,
               b_ih: Tensor | None, b_hh: Tensor | None,
               w_hr: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """LSTM layer: data (N, F), h0 (B, P), c0 (B, H) -> output (N, P), h_n (B, P), c_n (B, H)."""
    output, (h, c) = walk(lambda gi, s: lstm_step(gi, s, w_hh, b_hh, w_hr), layout,
                          F.linear(data, w_ih, b_ih), (h0, c0))
    return output, h, c


def run_packed(cell: Callable[[Tensor, Any], Any], packed: PackedSequence,
               state: State | None = None) -> tuple[PackedSequence, Any]:
    """Run any cell over a packed batch; at each step it sees only the sequences still running.

    Args:
        cell: ``cell(x, state) -> state`` with x (b, *) and the state a tensor (b, *) or a tuple
            of them, the first being the output: ``torch.nn.LSTMCell`` is one.
        packed: data (N, *).
        state: the first state (B, *), rows in the user's order. None leaves it to the cell: the
            first call is ``cell(x, None)``.

    Returns:
        The outputs, packed alike, and each sequence's last state (B, *) in the user's order.

    Law: equals running each sequence alone.

    Raises:
        TypeError: the state is neither a tensor nor a tuple of tensors.
        ValueError: the state does not have B rows, or is None where a sequence is empty: then it
            is its last state too.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.tensor([1., 2.]), torch.tensor([3., 4., 5.])],
    ...                   enforce_sorted=False)
    >>> total = run_packed(lambda x, s: s + x, p, torch.zeros(2))[1]
    >>> total
    tensor([ 3., 12.])
    """
    eager_only("run_packed", "use packlib.RNN, GRU or LSTM")
    layout = layout_of(packed)
    many = isinstance(state, (tuple, list))
    states = () if state is None else tuple(state) if many else (state,)
    _check_states(states, layout.num_sequences)
    if layout.num_empty and not states:
        i = layout.lengths.argmin()
        raise ValueError(f"state must be given, since sequence {i} is empty: its first state is "
                         "its last, and the cell will not be asked for it")
    order, inverse = whole_order(packed), whole_inverse(packed)
    if order is not None:
        states = tuple(s.index_select(0, order) for s in states)

    def step(x: Tensor, states: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        nonlocal many
        new = cell(x, states if many or states is None else states[0])
        many = isinstance(new, tuple)
        return new if many else (new,)

    output, last = walk(step, layout, packed.data, states or None)
    if inverse is not None:
        last = tuple(s.index_select(0, inverse) for s in last)
    return PackedSequence.like(packed, output), last if many else last[0]


def _check_states(states: tuple[Any, ...], size: int) -> None:
    for s in states:
        if not isinstance(s, Tensor):
            raise TypeError(f"state must be a Tensor or a tuple of them, got {type(s).__name__}")
        if s.dim() == 0 or len(s) != size:
            raise ValueError(f"state must have one row for each of {size} sequences, got shape "
                             f"{tuple(s.shape)}")
