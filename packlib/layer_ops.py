"""The hoisted loops of ``packlib.hoisted`` as operators of torch, with their derivatives.

An operator takes tensors only, so the steps come as ``batch_sizes`` (T,). Its backward is one
operator for each cell; a backward that is itself differentiated goes through the plain steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from packlib import fused, hoisted
from packlib.cells import gru_layer, lstm_layer, rnn_layer
from packlib.sequence import layout_of_sizes

_op = torch.library.custom_op
# schemas are written out where torch 2.6 cannot read the types
_WEIGHTS = "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh"


@_op("packlib::rnn", mutates_args=(),
     schema=f"(Tensor batch_sizes, Tensor data, Tensor h0, {_WEIGHTS}, bool relu) -> "
            "(Tensor, Tensor)")
def rnn(batch_sizes: Tensor, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor,
        b_ih: Tensor | None, b_hh: Tensor | None, relu: bool) -> tuple[Tensor, Tensor]:
    """Elman's layer: data (N, F), h0 (B, H) -> output (N, H), h_n (B, H)."""
    return hoisted.rnn(layout_of_sizes(batch_sizes), data, h0, w_ih, w_hh, b_ih, b_hh, relu)


@_op("packlib::rnn_backward", mutates_args=(),
     schema="(Tensor d_output, Tensor d_h, Tensor batch_sizes, Tensor output, Tensor data, "
            "Tensor h0, Tensor w_ih, Tensor w_hh, bool relu, bool need_data) -> Tensor[]")
def rnn_backward(d_output: Tensor, d_h: Tensor, batch_sizes: Tensor, output: Tensor, data: Tensor,
                 h0: Tensor, w_ih: Tensor, w_hh: Tensor, relu: bool,
                 need_data: bool) -> list[Tensor]:
    layout = layout_of_sizes(batch_sizes)
    d_input, d_hidden, dh = hoisted.rnn_backward(layout, d_output, d_h, output, h0, w_hh, relu)
    return [dh, *_weights(d_input, d_hidden, data, hoisted.before(layout, h0, output),
                          w_ih if need_data else None)]


@_op("packlib::gru", mutates_args=(),
     schema=f"(Tensor batch_sizes, Tensor data, Tensor h0, {_WEIGHTS}) -> "
            "(Tensor, Tensor, Tensor, Tensor)")
def gru(batch_sizes: Tensor, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor,
        b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gated recurrent layer: data (N, F), h0 (B, H) -> output (N, H), h_n (B, H), and kept ones."""
    return hoisted.gru(layout_of_sizes(batch_sizes), data, h0, w_ih, w_hh, b_ih, b_hh)


@_op("packlib::gru_backward", mutates_args=(),
     schema="(Tensor d_output, Tensor d_h, Tensor batch_sizes, Tensor output, Tensor gates, "
            "Tensor hidden_n, Tensor data, Tensor h0, Tensor w_ih, Tensor w_hh, bool need_data) "
            "-> Tensor[]")
def gru_backward(d_output: Tensor, d_h: Tensor, batch_sizes: Tensor, output: Tensor, gates: Tensor,
                 hidden_n: Tensor, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor,
                 need_data: bool) -> list[Tensor]:
    layout = layout_of_sizes(batch_sizes)
    d_input, d_hidden, dh = hoisted.gru_backward(layout, d_output, d_h, output, gates, hidden_n,
                                                 h0, w_hh)
    return [dh, *_weights(d_input, d_hidden, data, hoisted.before(layout, h0, output),
                          w_ih if need_data else None)]


@_op("packlib::lstm", mutates_args=(),
     schema=f"(Tensor batch_sizes, Tensor data, Tensor h0, Tensor c0, {_WEIGHTS}, "
            "Tensor? w_hr=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
def lstm(batch_sizes: Tensor, data: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor,
         b_ih: Tensor | None, b_hh: Tensor | None, w_hr: Tensor | None = None
         ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """LSTM layer: data (N, F), h0, c0 (B, H) -> output (N, H), h_n, c_n (B, H), and kept ones."""
    return hoisted.lstm(layout_of_sizes(batch_sizes), data, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr)


@_op("packlib::lstm_backward", mutates_args=(),
     schema="(Tensor d_output, Tensor d_h, Tensor d_c, Tensor batch_sizes, Tensor output, "
            "Tensor gates, Tensor cell, Tensor cell_tanh, Tensor data, Tensor h0, Tensor c0, "
            "Tensor w_ih, Tensor w_hh, Tensor? w_hr, bool need_data) -> Tensor[]")
def lstm_backward(d_output: Tensor, d_h: Tensor, d_c: Tensor, batch_sizes: Tensor, output: Tensor,
                  gates: Tensor, cell: Tensor, cell_tanh: Tensor, data: Tensor, h0: Tensor,
                  c0: Tensor, w_ih: Tensor, w_hh: Tensor, w_hr: Tensor | None,
                  need_data: bool) -> list[Tensor]:
    layout = layout_of_sizes(batch_sizes)
    d_gates, dh, dc, *d_hr = hoisted.lstm_backward(layout, d_output, d_h, d_c, gates, cell,
                                                   cell_tanh, c0, w_hh, w_hr)
    return [dh, dc, *_weights(d_gates, d_gates, data, hoisted.before(layout, h0, output),
                              w_ih if need_data else None), *d_hr]


def _weights(d_input: Tensor, d_hidden: Tensor, data: Tensor, before: Tensor,
             w_ih: Tensor | None) -> list[Tensor]:
    """Gradients of data (empty without ``w_ih``), w_ih, w_hh, b_ih, b_hh from those of the gates.
    """
    d_bias = d_input.sum(0)
    d_data = data.new_empty(0) if w_ih is None else d_input @ w_ih
    return [d_data, d_input.t() @ data, d_hidden.t() @ before, d_bias,
            d_bias.clone() if d_hidden is d_input else d_hidden.sum(0)]


def _like_output(data: Tensor, w_hh: Tensor, columns: int = 1) -> Tensor:
    return data.new_empty(data.shape[0], columns * w_hh.shape[1])


def _whole_like(tensor: Tensor) -> Tensor:
    """Of its shape, row after row whatever its own strides: so the loops make their results."""
    return tensor.new_empty(tensor.shape)


@rnn.register_fake
def _(*given: Any) -> Any:
    _, data, h0, _, w_hh, *_ = given
    return _like_output(data, w_hh), _whole_like(h0)


@gru.register_fake
def _(*given: Any) -> Any:
    _, data, h0, _, w_hh, *_ = given
    return (_like_output(data, w_hh), _whole_like(h0), _like_output(data, w_hh, 3),
            _like_output(data, w_hh))


@lstm.register_fake
def _(*given: Any) -> Any:
    _, data, h0, c0, _, w_hh, *_ = given
    gates = data.new_empty(data.shape[0], w_hh.shape[0])
    cell, cell_tanh = (data.new_empty(data.shape[0], w_hh.shape[0] // 4) for _ in range(2))
    return _like_output(data, w_hh), _whole_like(h0), _whole_like(c0), gates, cell, cell_tanh


def _fake_grads(states: Sequence[Tensor], data: Tensor, w_ih: Tensor, w_hh: Tensor,
                need_data: bool) -> list[Tensor]:
    gates = w_hh.shape[0]
    d_data = _whole_like(data) if need_data else data.new_empty(0)
    return [*map(_whole_like, states), d_data, *map(_whole_like, (w_ih, w_hh)),
            w_hh.new_empty(gates), w_hh.new_empty(gates)]


@rnn_backward.register_fake
def _(*given: Any) -> Any:
    *_, data, h0, w_ih, w_hh, relu, need_data = given
    return _fake_grads([h0], data, w_ih, w_hh, need_data)


@gru_backward.register_fake
def _(*given: Any) -> Any:
    *_, data, h0, w_ih, w_hh, need_data = given
    return _fake_grads([h0], data, w_ih, w_hh, need_data)


@lstm_backward.register_fake
def _(*given: Any) -> Any:
    *_, data, h0, c0, w_ih, w_hh, w_hr, need_data = given
    return [*_fake_grads([h0, c0], data, w_ih, w_hh, need_data),
            *([] if w_hr is None else [_whole_like(w_hr)])]


def _keep_rnn(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.relu = inputs
    ctx.save_for_backward(output[0], *tensors)


def _rnn_grads(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    output, batch_sizes, *inputs = ctx.saved_tensors
    data, h0, w_ih, w_hh, b_ih, b_hh = inputs
    if fused.by_steps(grads):
        return (None, *_replay(lambda layout, *given: rnn_layer(layout, ctx.relu, *given),
                               batch_sizes, inputs, grads), None)
    dh, d_data, *weights = rnn_backward(*_whole(grads, output, h0), batch_sizes, output, data, h0,
                                        w_ih, w_hh, ctx.relu, ctx.needs_input_grad[1])
    return None, _if_any(d_data), dh, *_given(weights, b_ih), None


def _keep_gru(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    rows, _, gates, hidden_n = output
    ctx.save_for_backward(rows, gates, hidden_n, *inputs)


def _gru_grads(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    output, gates, hidden_n, batch_sizes, *inputs = ctx.saved_tensors
    data, h0, w_ih, w_hh, b_ih, b_hh = inputs
    if fused.by_steps(grads):
        return None, *_replay(gru_layer, batch_sizes, inputs, grads)
    dh, d_data, *weights = gru_backward(*_whole(grads, output, h0), batch_sizes, output, gates,
                                        hidden_n, data, h0, w_ih, w_hh, ctx.needs_input_grad[1])
    return None, _if_any(d_data), dh, *_given(weights, b_ih)


def _keep_lstm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    rows, _, _, gates, cell, cell_tanh = output
    ctx.save_for_backward(rows, gates, cell, cell_tanh, *inputs)


def _lstm_grads(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    output, gates, cell, cell_tanh, batch_sizes, *inputs = ctx.saved_tensors
    data, h0, c0, w_ih, w_hh, b_ih, _, w_hr = inputs
    if fused.by_steps(grads):
        return None, *_replay(lstm_layer, batch_sizes, inputs, grads)
    dh, dc, d_data, *weights = lstm_backward(*_whole(grads, output, h0, c0), batch_sizes, output,
                                             gates, cell, cell_tanh, data, h0, c0, w_ih, w_hh, w_hr,
                                             ctx.needs_input_grad[1])
    d_hr = None if w_hr is None else weights.pop()
    return None, _if_any(d_data), dh, dc, *_given(weights, b_ih), d_hr


def _whole(grads: Sequence[Tensor | None], *like: Tensor) -> list[Tensor]:
    """The gradients of the output and the states; 0 for what nobody asked about."""
    return [torch.zeros_like(t) if grad is None else grad
            for t, grad in zip(like, grads, strict=True)]


def _if_any(grad: Tensor) -> Tensor | None:
    return None if grad.dim() == 1 else grad


def _given(weights: list[Tensor], bias: Tensor | None) -> list[Tensor | None]:
    w_ih, w_hh, b_ih, b_hh = weights
    return [w_ih, w_hh, None, None] if bias is None else [w_ih, w_hh, b_ih, b_hh]


def _replay(layer: Callable[..., tuple[Tensor, ...]], batch_sizes: Tensor,
            inputs: Sequence[Tensor | None], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    plain = functools.partial(layer, layout_of_sizes(batch_sizes))
    return fused.replayed(plain, inputs, grads)


def _differentiable(op: Any, results: int, backward: Callable[..., tuple[Any, ...]],
                    keep: Callable[..., None]) -> None:
    """``results``: how many outputs are; the others are only kept, and nobody asks about them."""
    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)  # zeros as large as all that is kept
        keep(ctx, inputs, output)

    def grads_of(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        asked = grads[:results]
        if all(grad is None for grad in asked):
            return (None,) * len(ctx.needs_input_grad)
        return backward(ctx, *asked)

    op.register_autograd(grads_of, setup_context=setup)


_differentiable(rnn, 2, _rnn_grads, _keep_rnn)
_differentiable(gru, 2, _gru_grads, _keep_gru)
_differentiable(lstm, 3, _lstm_grads, _keep_lstm)
