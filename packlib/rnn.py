"""``RNN``, ``GRU`` and ``LSTM``: torch's modules, with packed input run by packlib's own routes.

Arguments, weights and ``state_dict`` are torch's, since they share its base class, and so is the
path of a plain tensor. Packed input is checked, goes over its steps by the fastest route that can
take it, and comes back in the user's order, states included. They are no subclasses of
``torch.nn.LSTM`` and its like, which torch.compile refuses to look into.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import _VF, Tensor
from torch.nn import functional as F
from torch.nn.utils import rnn as torch_rnn

from packlib import cover, fused, layer_ops, moves, traced
from packlib.cells import gru_layer, lstm_layer, rnn_layer
from packlib.layer_input import Checked, refuse_lengths, refuse_projection
from packlib.layout import eager_only
from packlib.ops import autocast_dtype, take, transformed
from packlib.packing import pack_padded_sequence, pad_packed_sequence
from packlib.routes import choose, choose_on_cuda, cover_cost
from packlib.sequence import PackedSequence, whole_inverse, whole_order


class _Packed(Checked):
    """What the three layers share: layers, directions, dropout between layers."""

    _torch_forward: Callable[..., Any]

    def __init__(self, *args: Any, route: str = "auto", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.route = route
        self.check_route()

    def forward(self, input: Any, hx: Any = None, *, lengths: Any = None) -> Any:
        """Run over ``input`` and return the outputs and the last states.

        Args:
            input: packed data (N, F), or a plain tensor as torch takes it.
            hx: first states (layers * directions, B, H), rows in the user's order; ``batch_first``
                does not touch them. Zeros if None. ``(h0, c0)`` for LSTM.
            lengths: (B,) of a padded input (T, B, F), or (B, T, F) if ``batch_first``, in any
                order: it is packed, run and padded again.

        Returns:
            Outputs in the form of the input, packed (N, directions * H) or padded with 0 to the
            input's T, and the states in the shape of ``hx``. Under autocast they are computed, and
            given, in autocast's dtype, unless the input is double (by the route ``"torch"`` in the
            dtypes of torch's layer). The last states of an empty sequence are its first ones.

        Raises:
            RuntimeError: features, hidden sizes or devices do not fit.
            ValueError: dtypes differ, or a length is beyond the input's T.
            TypeError: the input is of another kind, or has no use for ``lengths``.
        """
        refuse_lengths(hx)
        if lengths is not None:
            return self._run_padded(input, hx, lengths)
        if not isinstance(input, torch_rnn.PackedSequence):
            if not isinstance(input, Tensor):
                raise TypeError(f"input must be a Tensor or a PackedSequence, got "
                                f"{type(input).__name__}; a list of sequences must be packed: "
                                "pack_sequence(sequences, enforce_sorted=False)")
            return self._torch_forward(input, hx)
        packed = input if isinstance(input, PackedSequence) else PackedSequence.like(
            input, input.data)
        weights = self.checked_weights()
        self.check_data(packed.data)
        states = self.first_states(packed, hx)
        self.check_route()  # it may have been set since
        route, given = self._chosen(packed, weights["weight_hh_l0"]), hx is not None
        dtype = autocast_dtype(packed.data)
        if dtype is not None and route != "torch":  # which knows of it
            with torch.autocast(packed.device.type, enabled=False):
                return self._run(packed.map(lambda data: data.to(dtype)),
                                 tuple(s.to(dtype) for s in states), weights, given, route)
        return self._run(packed, states, weights, given, route)

    def _chosen(self, packed: PackedSequence, w_hh: Tensor) -> str:
        """The route of all layers and directions."""
        numbers = packed.data.is_complex() and self.route != "torch"
        if numbers:
            eager_only("a layer of complex numbers", "no operator has their derivatives")
        if torch.compiler.is_compiling():
            return "hoisted"  # the operators; what fits best depends on values
        if numbers or transformed():
            return "plain"  # of operators that torch can differentiate forwards, batch, and so on
        if self.route != "auto":
            return self.route
        dtype, projected = autocast_dtype(packed.data), self.proj_size > 0
        if packed.data.is_cuda:
            return choose_on_cuda(self.mode, packed.layout, self.hidden_size, dtype or packed.dtype,
                                  torch.is_grad_enabled(), projected)
        if dtype is not None:
            return "hoisted"  # torch's kernel would give other dtypes, and the dense one has none
        return choose(self.mode, packed.layout, packed.data, w_hh, projected)

    def _run_padded(self, input: Any, hx: Any, lengths: Any) -> tuple[Any, Any]:
        if not isinstance(input, Tensor) or input.dim() != 3:
            found = (f"shape {tuple(input.shape)}" if isinstance(input, Tensor) else
                     type(input).__name__)
            raise TypeError("lengths are for a padded input of 3 dimensions, "
                            f"{'(B, T, F)' if self.batch_first else '(T, B, F)'}, got {found}"
                            + ("; a PackedSequence knows its lengths"
                               if isinstance(input, torch_rnn.PackedSequence) else ""))
        packed = pack_padded_sequence(input, lengths, self.batch_first, enforce_sorted=False)
        output, last = self.forward(packed, hx)  # not self(...): hooks run once
        total = input.shape[1] if self.batch_first else input.shape[0]
        return pad_packed_sequence(output, self.batch_first, total_length=total)[0], last

    def _as_hx(self, states: tuple[Tensor, ...]) -> Any:
        return states if self.mode == "LSTM" else states[0]

    def _run(self, packed: PackedSequence, states: tuple[Tensor, ...],
             weights: dict[str, Tensor], given: bool, route: str) -> tuple[Any, Any]:
        order, inverse = whole_order(packed), whole_inverse(packed)
        if given and order is not None:
            states = tuple(s.index_select(1, order) for s in states)
        dropout = self.dropout if self.training else 0.0
        run = self._run_torch if route == "torch" else functools.partial(
            self._run_layers, route=route)
        data, last = run(packed, states, weights, dropout)
        if inverse is not None:
            last = tuple(s.index_select(1, inverse) for s in last)
        return packed.with_data(data), self._as_hx(last)

    def _run_torch(self, packed: PackedSequence, states: tuple[Tensor, ...],
                   weights: dict[str, Tensor], dropout: float
                   ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """torch's kernel over all layers; it knows no empty sequences, so their states stay aside.
        """
        sizes = packed.batch_sizes.contiguous()  # the kernel looks at no stride
        started = int(sizes[0])
        begun = [s[:, :started].contiguous() for s in states]

        def run(data: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            return self._torch_kernel(sizes, data, given[:len(states)],
                                      list(given[len(states):]), dropout)

        def plain(data: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            first = tuple(s.to(data.dtype) for s in given[:len(states)])
            again = dict(zip(weights, given[len(states):], strict=True))
            with_steps = packed.with_data(data).without_empty()
            output, last = self._run_layers(with_steps, first, again, 0.0, "plain")
            return output, *last

        given = packed.data, *begun, *weights.values()
        drops = dropout > 0 and self.num_layers > 1  # and nobody could drop the same again
        output, *last = run(*given) if drops else fused.call(run, plain, given)
        if started < states[0].shape[1]:
            last = [torch.cat([e, s[:, started:].to(e.dtype)], 1)
                    for e, s in zip(last, states, strict=True)]
        return output, tuple(last)

    def _torch_kernel(self, batch_sizes: Tensor, data: Tensor, states: tuple[Tensor, ...],
                      weights: list[Tensor], dropout: float) -> tuple[Tensor, ...]:
        """Dense where all lengths are equal: cuDNN is faster then."""
        kernel = getattr(_VF, self.mode.lower())
        # in eval mode too what a backward needs must be kept, if there may be one
        training = dropout > 0 or torch.is_grad_enabled()
        options = self.bias, self.num_layers, dropout, training, self.bidirectional
        steps, size = len(batch_sizes), int(batch_sizes[0])
        if steps * size > len(data) or self.proj_size and data.is_cpu:  # oneDNN has no projection
            return kernel(data, batch_sizes, self._as_hx(states), weights, *options)
        grid = data.reshape(steps, size, -1)
        output, *last = kernel(grid, self._as_hx(states), weights, *options, False)
        return output.flatten(0, 1), *last

    def _run_layers(self, packed: PackedSequence, states: tuple[Tensor, ...],
                    weights: dict[str, Tensor], dropout: float, route: str
                    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        data = packed.data
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer:
                data = F.dropout(data, dropout, dropout > 0)
            outputs = []
            for suffix in ("", "_reverse") if self.bidirectional else ("",):
                state = tuple(s[len(last)] for s in states)
                turn = _turn(packed) if suffix else _as_it_is
                mine = self._direction_weights(weights, f"_l{layer}{suffix}", data.dtype)
                output, *state_n = self._run_direction(packed, turn(data), state, mine, route)
                outputs.append(turn(output))
                last.append(tuple(state_n))
            data = torch.cat(outputs, 1) if self.bidirectional else outputs[0]
        if data.requires_grad and not self.bidirectional and route != "cover":
            # its own memory, as torch's: the loop's backward sees its outputs again, and the caller
            # may change these in place
            data = data.clone()
        return data, tuple(torch.stack(pieces) for pieces in zip(*last, strict=True))

    def _direction_weights(self, weights: dict[str, Tensor], suffix: str,
                           dtype: torch.dtype) -> list[Any]:
        """In the order of torch's kernels: w_ih, w_hh, both biases, and LSTM's w_hr."""
        names = [name + suffix for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        if self.mode == "LSTM":
            names.append("weight_hr" + suffix)
        found = [weights.get(name) for name in names]
        return [w if w is None or w.dtype == dtype else w.to(dtype) for w in found]

    def _run_direction(self, packed: PackedSequence, data: Tensor, state: tuple[Tensor, ...],
                       weights: list[Any], route: str) -> tuple[Tensor, ...]:
        """One direction of one layer: rows and states longest sequence first."""
        if route == "cover":
            return cover.lstm(packed.layout, cover_cost(data, weights[1]), data, *state,
                              *weights[:4])
        given: Any = data, *state, *weights
        relu = self.mode == "RNN_RELU"
        if route == "hoisted":
            if self.mode == "LSTM":
                return layer_ops.lstm(packed.batch_sizes, *given)[:3]
            if self.mode == "GRU":
                return layer_ops.gru(packed.batch_sizes, *given)[:2]
            return layer_ops.rnn(packed.batch_sizes, *given, relu)
        layout = packed.layout
        if self.mode == "LSTM":
            return lstm_layer(layout, *given)
        return gru_layer(layout, *given) if self.mode == "GRU" else rnn_layer(layout, relu, *given)


def _turn(packed: PackedSequence) -> Callable[[Tensor], Tensor]:
    """What turns each sequence round."""
    if torch.compiler.is_compiling():
        return functools.partial(take, rows=traced.turn(packed))
    return functools.partial(moves.turned, layout=packed.layout)


def _as_it_is(data: Tensor) -> Tensor:
    return data


class RNN(_Packed):
    """Elman network: torch.nn.RNN's arguments, weights and results, packed input included.

    ``route=`` as for LSTM; there is no ``"cover"``.

    >>> from packlib import pack_sequence
    >>> packed = pack_sequence([torch.zeros(2, 4), torch.zeros(5, 4)], enforce_sorted=False)
    >>> output, h_n = RNN(4, 3)(packed)
    >>> output.data.shape, h_n.shape
    (torch.Size([7, 3]), torch.Size([1, 2, 3]))
    """

    _torch_forward = torch.nn.RNN.forward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 3:  # after input_size, hidden_size, num_layers
            args, kwargs = (*args[:3], *args[4:]), {"nonlinearity": args[3], **kwargs}
        self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or "
                             "'relu'.")
        refuse_projection(kwargs)
        super().__init__(f"RNN_{self.nonlinearity.upper()}", *args, **kwargs)


class GRU(_Packed):
    """Gated recurrent unit (Cho et al., 2014): torch.nn.GRU's arguments, weights and results.

    ``route=`` as for LSTM; there is no ``"cover"``.
    """

    _torch_forward = torch.nn.GRU.forward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)


class LSTM(_Packed):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), torch.nn.LSTM's drop-in.

    Args:
        route: one keyword more than torch: how packed input is run. ``"auto"`` chooses by price
            (packlib.routes.choose); ``"plain"``, ``"hoisted"``, ``"cover"`` and ``"torch"`` force
            a way. Results agree to rounding. Inside of torch.compile and torch.export all of them
            are the hoisted loop, inside of torch.func and forward mode the plain one. On a GPU
            ``"torch"`` with dropout between layers has no second derivative; ``"hoisted"`` has.

    >>> from packlib import pack_sequence
    >>> packed = pack_sequence([torch.zeros(2, 4), torch.zeros(5, 4)], enforce_sorted=False)
    >>> lstm = LSTM(4, 3, num_layers=2)
    >>> _ = lstm.load_state_dict(torch.nn.LSTM(4, 3, num_layers=2).state_dict())
    >>> output, (h_n, c_n) = lstm(packed)
    >>> h_n.shape
    torch.Size([2, 2, 3])
    """

    _torch_forward = torch.nn.LSTM.forward
    # what torch's forward asks of the layer
    check_forward_args = torch.nn.LSTM.check_forward_args  # type: ignore[assignment]
    get_expected_cell_size = torch.nn.LSTM.get_expected_cell_size
    permute_hidden = torch.nn.LSTM.permute_hidden  # type: ignore[assignment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)
