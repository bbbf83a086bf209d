"""What a recurrent layer is given, checked before any kernel is called: some read past the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from packlib import traced
from packlib.ops import autocast_dtype
from packlib.routes import ROUTES
from packlib.sequence import PackedSequence

GATES = {"LSTM": 4, "GRU": 3}
EMBED = "; ids need an embedding first: packed.map(embedding)"


class Checked(torch.nn.RNNBase):
    """torch's base of recurrent layers, with the checks of packed input."""

    route = "auto"

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", route={self.route!r}" if self.route != "auto" else "")

    def check_route(self) -> None:
        if self.route not in ROUTES:
            raise ValueError(f"route must be one of {', '.join(ROUTES)}, got {self.route!r}")
        if self.route == "cover" and self.mode != "LSTM":
            raise ValueError("route='cover' is for LSTM: the others have no fused kernel to use")
        if self.proj_size and self.route == "cover":
            raise ValueError("route='cover' cannot take proj_size, since the fused kernel does not")

    def checked_weights(self) -> dict[str, Tensor]:
        """All of them by name; of one that somebody replaced a kernel may read past the end."""
        found: dict[str, Tensor] = {}
        first: Any = self.weight_ih_l0
        for name, shape in zip(self._flat_weights_names, self._shapes(), strict=True):
            weight = found[name] = getattr(self, name)
            if not isinstance(weight, Tensor):
                raise TypeError(f"{name} must be a Tensor, got {type(weight).__name__}"
                                + ("; make the layer with bias=False to have no biases"
                                   if name.startswith("bias") else ""))
            if weight.shape != shape:
                turned = weight.dim() == 2 and weight.shape[::-1] == shape
                raise RuntimeError(
                    f"{name} must have shape {shape}, got {tuple(weight.shape)}"
                    + (": it is the other way round, give its .t()" if turned else ""))
            if weight.device != first.device:
                raise RuntimeError(f"{name} must be on {first.device} as weight_ih_l0 is, got "
                                   f"{weight.device}")
            if weight.dtype != first.dtype and autocast_dtype(weight, first) is None:
                raise RuntimeError(f"{name} must be {first.dtype} as weight_ih_l0 is, got "
                                   f"{weight.dtype}")
        return found

    def _shapes(self) -> Iterator[tuple[int, ...]]:
        """In the order of ``_flat_weights_names``, which is that of torch's kernels."""
        gates = GATES.get(self.mode, 1) * self.hidden_size
        state, directions = self.proj_size or self.hidden_size, 1 + self.bidirectional
        for layer in range(self.num_layers):
            shapes = [(gates, state * directions if layer else self.input_size), (gates, state),
                      *[(gates,)] * (2 * self.bias),
                      *[(state, self.hidden_size)] * (self.proj_size > 0)]
            yield from shapes * directions

    def check_data(self, data: Tensor) -> None:
        if data.dim() != 2:
            raise RuntimeError("input must have 2 dimensions, packed data (N, input_size), got "
                               f"shape {tuple(data.shape)}" + _missing_features(data))
        if data.shape[1] != self.input_size:
            raise RuntimeError("input.size(-1) must be equal to input_size. Expected "
                               f"{self.input_size}, got {data.shape[1]}; the layer was made with "
                               f"input_size={self.input_size}, and the last dimension of what is "
                               "packed must have that size")
        self._check_kind("input", data)

    def first_states(self, packed: PackedSequence, hx: Any) -> tuple[Tensor, ...]:
        size = self.num_layers * (2 if self.bidirectional else 1), packed.num_sequences
        sizes = [(*size, self.proj_size or self.hidden_size)]
        if self.mode == "LSTM":
            sizes.append((*size, self.hidden_size))
        if hx is None:
            zeros = packed.data.new_zeros(sizes[0])  # for both states: nobody writes to it
            return tuple(packed.data.new_zeros(s) if self.proj_size else zeros for s in sizes)
        states = tuple(hx) if self.mode == "LSTM" and isinstance(hx, (tuple, list)) else (hx,)
        if len(states) != len(sizes):
            raise RuntimeError("hx must be the pair (h0, c0) for LSTM, got "
                               + ("a Tensor; zeros_like(h0) is a c0 to begin with"
                                  if isinstance(hx, Tensor) else f"{len(states)} of them"
                                  if isinstance(hx, (tuple, list)) else type(hx).__name__))
        for name, state, expected in zip(("h0", "c0"), states, sizes, strict=False):
            if not isinstance(state, Tensor):
                raise TypeError(f"{name} must be a Tensor, got {type(state).__name__}")
            if not traced.same_shape(state.shape, expected):
                what = "hidden" if name == "h0" else "cell"
                raise RuntimeError(
                    f"Expected {what} size {expected}, got {list(state.shape)}: {name} is always "
                    "(num_layers * directions, batch, size); batch_first does not touch it")
            self._check_kind(name, state)
        return states

    def _check_kind(self, name: str, tensor: Tensor) -> None:
        weight: Any = self.weight_ih_l0
        if tensor.device != weight.device:
            raise RuntimeError(f"{name} is on {tensor.device}, but the weights are on "
                               f"{weight.device}: move one of them")
        if tensor.dtype != weight.dtype and autocast_dtype(tensor, weight) is None:
            raise ValueError(f"RNN {name} dtype ({tensor.dtype}) does not match weight dtype "
                             f"({weight.dtype}). Convert {name}: {name}.to({weight.dtype}), or "
                             "the layer"
                             + (EMBED if not tensor.is_floating_point() else ""))


def _missing_features(data: Tensor) -> str:
    if data.dim() != 1:
        return ""
    return ("; for steps of one number: packed.map(lambda data: data[:, None])"
            if data.is_floating_point() else EMBED)


def refuse_lengths(hx: Any) -> None:
    """First states are never integers, but lengths are, and they come last in other functions."""
    integers = (not (hx.is_floating_point() or hx.is_complex()) if isinstance(hx, Tensor) else
                isinstance(hx, (list, tuple)) and any(isinstance(n, int) for n in hx))
    if integers:
        raise TypeError("hx must be first states, got integers: lengths are given by their name, "
                        "layer(x, lengths=lengths)")


def refuse_projection(kwargs: dict[str, Any]) -> None:
    if "proj_size" in kwargs:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
