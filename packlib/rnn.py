"""``RNN``, ``GRU`` and ``LSTM``: torch's modules, with packed input run by ``packlib.cells``.

Arguments, weights and ``state_dict`` are torch's, since each is a subclass of torch's; so is the
path of a plain tensor. Packed input is checked, walked step by step, and comes back in the user's
order, states included.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import rnn as torch_rnn

from packlib.cells import gru_step, lstm_step, rnn_step, run_packed
from packlib.ops import take
from packlib.sequence import PackedSequence


class _Packed(torch.nn.RNNBase):
    """What the three layers share: checks, layers, directions, dropout between layers."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Run over ``input`` and return the outputs and the last states.

        Args:
            input: packed data (N, F), or a plain tensor as torch takes it.
            hx: first states (layers * directions, B, H), rows in the user's order; ``batch_first``
                does not touch them. Zeros if None. ``(h0, c0)`` for LSTM.

        Returns:
            Packed outputs (N, directions * H), and the states in the shape of ``hx``.

        Raises:
            RuntimeError: features, hidden sizes or devices do not fit.
            ValueError: dtypes differ.
        """
        if not isinstance(input, torch_rnn.PackedSequence):
            if not isinstance(input, Tensor):
                raise TypeError(f"input must be a Tensor or a PackedSequence, got "
                                f"{type(input).__name__}; a list of sequences must be packed: "
                                "pack_sequence(sequences, enforce_sorted=False)")
            return super().forward(input, hx)  # type: ignore[misc]
        packed = PackedSequence.like(input, input.data)
        self._check_data(packed.data)
        states = self._first_states(packed, hx)
        output, last = self._run_layers(packed, states)
        return output, last if self.mode == "LSTM" else last[0]

    def _run_layers(self, packed: PackedSequence,
                    states: tuple[Tensor, ...]) -> tuple[PackedSequence, tuple[Tensor, ...]]:
        directions = 2 if self.bidirectional else 1
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                packed = packed.map(lambda data: F.dropout(data, self.dropout))
            outputs = []
            for direction in range(directions):
                k = len(last)
                output, state = self._run_direction(packed, layer, direction == 1,
                                                    tuple(s[k] for s in states))
                outputs.append(output)
                last.append(state)
            packed = packed.with_data(outputs[0] if directions == 1 else torch.cat(outputs, 1))
        return packed, tuple(torch.stack(pieces) for pieces in zip(*last, strict=True))

    def _run_direction(self, packed: PackedSequence, layer: int, backward: bool,
                       state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        suffix = f"_l{layer}" + ("_reverse" if backward else "")
        w_ih, w_hh = (getattr(self, name + suffix) for name in ("weight_ih", "weight_hh"))
        b_ih, b_hh = (getattr(self, name + suffix) if self.bias else None
                      for name in ("bias_ih", "bias_hh"))
        turn = packed.layout.reversed(packed.device) if backward else None
        data = packed.data if turn is None else take(packed.data, turn)
        gates = packed.with_data(F.linear(data, w_ih, b_ih))
        if self.mode == "LSTM":
            w_hr = getattr(self, "weight_hr" + suffix) if self.proj_size else None
            output, last = run_packed(
                lambda gi, s: lstm_step(gi, s, w_hh, b_hh, w_hr), gates, state)
        elif self.mode == "GRU":
            output, h = run_packed(lambda gi, h: gru_step(gi, h, w_hh, b_hh), gates, state[0])
            last = (h,)
        else:
            activation = torch.tanh if self.mode == "RNN_TANH" else torch.relu
            output, h = run_packed(
                lambda gi, h: rnn_step(gi, h, w_hh, b_hh, activation), gates, state[0])
            last = (h,)
        return (output.data if turn is None else take(output.data, turn)), last

    def _check_data(self, data: Tensor) -> None:
        if data.dim() != 2:
            raise RuntimeError("input must have 2 dimensions, packed data (N, input_size), got "
                               f"shape {tuple(data.shape)}")
        if data.shape[1] != self.input_size:
            raise RuntimeError("input.size(-1) must be equal to input_size. Expected "
                               f"{self.input_size}, got {data.shape[1]}")
        self._check_kind("input", data)

    def _first_states(self, packed: PackedSequence, hx: Any) -> tuple[Tensor, ...]:
        size = self.num_layers * (2 if self.bidirectional else 1), packed.num_sequences
        sizes = [(*size, self.proj_size or self.hidden_size)]
        if self.mode == "LSTM":
            sizes.append((*size, self.hidden_size))
        if hx is None:
            return tuple(packed.data.new_zeros(s) for s in sizes)
        states = tuple(hx) if self.mode == "LSTM" and isinstance(hx, (tuple, list)) else (hx,)
        if len(states) != len(sizes):
            raise RuntimeError("hx must be the pair (h0, c0) for LSTM")
        for name, state, expected in zip(("h0", "c0"), states, sizes, strict=False):
            if not isinstance(state, Tensor):
                raise TypeError(f"{name} must be a Tensor, got {type(state).__name__}")
            if tuple(state.shape) != expected:
                what = "hidden" if name == "h0" else "cell"
                raise RuntimeError(
                    f"Expected {what} size {expected}, got {list(state.shape)}: {name} is always "
                    "(num_layers * directions, batch, size); batch_first does not touch it")
            self._check_kind(name, state)
        return states

    def _check_kind(self, name: str, tensor: Tensor) -> None:
        weight = self.weight_ih_l0
        if tensor.device != weight.device:
            raise RuntimeError(f"{name} is on {tensor.device}, but the weights are on "
                               f"{weight.device}: move one of them")
        if tensor.dtype != weight.dtype and not torch.is_autocast_enabled(tensor.device.type):
            raise ValueError(f"RNN {name} dtype ({tensor.dtype}) does not match weight dtype "
                             f"({weight.dtype}). Convert {name}: {name}.to({weight.dtype}), or "
                             "the layer"
                             + ("; ids need an embedding first: packed.map(embedding)"
                                if not tensor.is_floating_point() else ""))


class RNN(_Packed, torch.nn.RNN):
    """Elman network: torch.nn.RNN's arguments, weights and results, packed input included.

    >>> from packlib import pack_sequence
    >>> packed = pack_sequence([torch.zeros(2, 4), torch.zeros(5, 4)], enforce_sorted=False)
    >>> output, h_n = RNN(4, 3)(packed)
    >>> output.data.shape, h_n.shape
    (torch.Size([7, 3]), torch.Size([1, 2, 3]))
    """


class GRU(_Packed, torch.nn.GRU):
    """Gated recurrent unit (Cho et al., 2014): torch.nn.GRU's arguments, weights and results."""


class LSTM(_Packed, torch.nn.LSTM):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), torch.nn.LSTM's drop-in.

    >>> from packlib import pack_sequence
    >>> packed = pack_sequence([torch.zeros(2, 4), torch.zeros(5, 4)], enforce_sorted=False)
    >>> lstm = LSTM(4, 3, num_layers=2)
    >>> _ = lstm.load_state_dict(torch.nn.LSTM(4, 3, num_layers=2).state_dict())
    >>> output, (h_n, c_n) = lstm(packed)
    >>> h_n.shape
    torch.Size([2, 2, 3])
    """
