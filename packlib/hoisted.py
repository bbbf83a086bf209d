"""RNN, GRU and LSTM over packed rows, with all that can wait moved out of the loop over steps.

A step depends on the step before through ``h`` alone. Forward, the input's GEMM runs once for all
rows. Backward, the gradient of each gate is ``dh`` or ``dc`` times a factor that needs neither: the
factors of all rows are made at once, and a step is left with a few products and one GEMM. The
weights' gradients are one GEMM each, after the loop. All of it is linear in ``T``; torch's packed
backward grows with its square.

Rows are in sorted order here: one direction of one layer, states longest sequence first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from packlib.cells import gru_layer, lstm_layer, rnn_layer
from packlib.layout import Layout
from packlib.ops import take

Grads = tuple[Tensor | None, ...]


def rnn(layout: Layout, relu: bool, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor,
        b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor]:
    """Elman's layer: data (N, F), h0 (B, H) -> output (N, H), h_n (B, H)."""
    return _RNN.apply(layout, relu, data, h0, w_ih, w_hh, b_ih, b_hh)


def gru(layout: Layout, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor,
        b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gated recurrent layer: data (N, F), h0 (B, H) -> output (N, H), h_n (B, H)."""
    return _GRU.apply(layout, data, h0, w_ih, w_hh, b_ih, b_hh)


def lstm(layout: Layout, data: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor,
         b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """LSTM layer: data (N, F), h0 and c0 (B, H) -> output (N, H), h_n and c_n (B, H)."""
    return _LSTM.apply(layout, data, h0, c0, w_ih, w_hh, b_ih, b_hh)


class _RNN(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layout: Layout, relu: bool, *inputs: Any) -> tuple[Tensor, Tensor]:
        data, h, w_ih, w_hh, b_ih, b_hh = inputs
        output = _project(data, w_ih, _added(b_ih, b_hh))
        activate, w = torch.relu_ if relu else torch.tanh_, w_hh.t()
        ended = []
        for out in output.split(layout.sizes):
            if len(out) < len(h):
                ended.append(h[len(out):])
                h = h[:len(out)]
            h = activate(out.addmm_(h, w))
        ctx.layout, ctx.relu = layout, relu
        ctx.save_for_backward(output, *inputs)
        return output, torch.cat([h, *ended[::-1]])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Grads:  # type: ignore[override]
        layout = ctx.layout
        output, *inputs = ctx.saved_tensors
        data, h0, w_ih, w_hh, b_ih, b_hh = inputs
        if torch.is_grad_enabled():
            return None, None, *_replay(
                lambda *given: rnn_layer(layout, ctx.relu, *given), inputs, grads)
        d_gates = (output > 0).to(output.dtype) if ctx.relu else _one_minus_square(output)
        d_output, dh = grads[0].split(layout.sizes), grads[1].clone()
        for gates, d_out in zip(reversed(d_gates.split(layout.sizes)), reversed(d_output),
                                strict=True):
            live = dh[:len(gates)]
            gates.mul_(live.add_(d_out))
            torch.mm(gates, w_hh, out=live)
        return None, None, *_inputs_grads(ctx, 2, data, dh, w_ih, d_gates, d_gates,
                                          _before(layout, h0, output))


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layout: Layout, *inputs: Any) -> tuple[Tensor, Tensor]:
        data, h, w_ih, w_hh, b_ih, b_hh = inputs
        size = w_hh.shape[1]
        gates = _project(data, w_ih, b_ih)
        hidden, output = torch.empty_like(gates), data.new_empty(len(data), size)
        r, z, n = gates.chunk(3, 1)
        rz, hidden_rz, hidden_n = gates[:, :2 * size], hidden[:, :2 * size], hidden[:, 2 * size:]
        w, ended = w_hh.t(), []
        for out, gh, grz, hrz, hn, r_, z_, n_ in _steps(
                layout, output, hidden, rz, hidden_rz, hidden_n, r, z, n):
            if len(out) < len(h):
                ended.append(h[len(out):])
                h = h[:len(out)]
            if b_hh is None:
                torch.mm(h, w, out=gh)
            else:
                torch.addmm(b_hh, h, w, out=gh)
            grz.add_(hrz).sigmoid_()
            n_.addcmul_(r_, hn).tanh_()
            h = torch.lerp(n_, h, z_, out=out)
        ctx.layout = layout
        ctx.save_for_backward(output, gates, hidden_n, *inputs)
        return output, torch.cat([h, *ended[::-1]])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Grads:  # type: ignore[override]
        layout = ctx.layout
        output, gates, hidden_n, *inputs = ctx.saved_tensors
        data, h0, w_ih, w_hh, b_ih, b_hh = inputs
        if torch.is_grad_enabled():
            return None, *_replay(lambda *given: gru_layer(layout, *given), inputs, grads)
        r, z, n = gates.chunk(3, 1)
        before = _before(layout, h0, output)
        # h = n + z (before - n); every gate's gradient is dh times a factor
        to_n = _one_minus_square(n).mul_(1 - z)
        d_hidden = torch.empty_like(gates)  # factors of r, z and the state's part of n, then grads
        d_r, d_z, d_n = d_hidden.chunk(3, 1)
        torch.sub(before, n, out=d_z).mul_(z).mul_(1 - z)
        torch.mul(to_n, r, out=d_n)
        torch.sub(1, r, out=d_r).mul_(d_n).mul_(hidden_n)
        total, dh = torch.empty_like(output), grads[1].clone()
        by_gate = d_hidden.unflatten(1, (3, -1))
        for tot, d_out, dg3, dg, z_ in reversed(_steps(
                layout, total, grads[0], by_gate, d_hidden, z)):
            live = dh[:len(tot)]
            torch.add(live, d_out, out=tot)
            dg3.mul_(tot.unsqueeze(1))
            torch.mul(tot, z_, out=live).addmm_(dg, w_hh)
        d_input = torch.cat([d_hidden[:, :d_r.shape[1] * 2], total.mul_(to_n)], 1)
        return None, *_inputs_grads(ctx, 1, data, dh, w_ih, d_input, d_hidden, before)


class _LSTM(torch.autograd.Function):
    # Gates are kept as i, f, o, g, so that one call takes all three sigmoids; torch has i, f, g, o.

    @staticmethod
    def forward(ctx: Any, layout: Layout, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        data, h, c, w_ih, w_hh, b_ih, b_hh = inputs
        size = w_hh.shape[1]
        bias = _added(b_ih, b_hh)
        gates = _project(data, _swap(w_ih), None if bias is None else _swap(bias))
        i, f, o, g = gates.chunk(4, 1)
        output, cell, cell_tanh = (data.new_empty(len(data), size) for _ in range(3))
        w, ended_h, ended_c = _swap(w_hh).t(), [], []
        for out, c_out, tc, gate, ifo, i_, f_, o_, g_ in _steps(
                layout, output, cell, cell_tanh, gates, gates[:, :3 * size], i, f, o, g):
            if len(out) < len(h):
                ended_h.append(h[len(out):])
                ended_c.append(c[len(out):])
                h, c = h[:len(out)], c[:len(out)]
            gate.addmm_(h, w)
            ifo.sigmoid_()
            g_.tanh_()
            c = torch.mul(f_, c, out=c_out).addcmul_(i_, g_)
            h = torch.mul(o_, torch.tanh(c, out=tc), out=out)
        ctx.layout = layout
        ctx.save_for_backward(output, gates, cell, cell_tanh, *inputs)
        return output, torch.cat([h, *ended_h[::-1]]), torch.cat([c, *ended_c[::-1]])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Grads:  # type: ignore[override]
        layout = ctx.layout
        output, gates, cell, cell_tanh, *inputs = ctx.saved_tensors
        data, h0, c0, w_ih, w_hh, b_ih, b_hh = inputs
        if torch.is_grad_enabled():
            return None, *_replay(lambda *given: lstm_layer(layout, *given), inputs, grads)
        i, f, o, g = gates.chunk(4, 1)
        size = o.shape[1]
        # h = o tanh(c), c = f before + i g; each gate's gradient is dh or dc times a factor
        to_c = _one_minus_square(cell_tanh).mul_(o)
        d_gates = torch.empty_like(gates)  # the factors, then the gradients
        d_i, d_f, d_o, d_g = d_gates.chunk(4, 1)
        torch.sub(1, i, out=d_i).mul_(i).mul_(g)
        torch.sub(1, f, out=d_f).mul_(f).mul_(_before(layout, c0, cell))
        torch.sub(1, o, out=d_o).mul_(o).mul_(cell_tanh)
        torch.mul(g, g, out=d_g).neg_().add_(1).mul_(i)
        d_if, w = d_gates[:, :2 * size].unflatten(1, (2, size)), _swap(w_hh)
        dh, dc = grads[1].clone(), grads[2].clone()
        for d_out, to_c_, f_, dg, dif, do_, dg_ in reversed(_steps(
                layout, grads[0], to_c, f, d_gates, d_if, d_o, d_g)):
            live, live_c = dh[:len(d_out)], dc[:len(d_out)]
            live.add_(d_out)
            live_c.addcmul_(live, to_c_)
            do_.mul_(live)
            dg_.mul_(live_c)
            dif.mul_(live_c.unsqueeze(1))
            live_c.mul_(f_)
            torch.mm(dg, w, out=live)
        d_data, _, *d_weights = _inputs_grads(ctx, 1, data, dh, _swap(w_ih), d_gates, d_gates,
                                              _before(layout, h0, output), states=2)
        return None, d_data, dh, dc, *(w if w is None else _swap(w) for w in d_weights)


def _steps(layout: Layout, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of each step, of all the tensors: views, made in one call a tensor."""
    return list(zip(*(tensor.split(layout.sizes) for tensor in tensors), strict=True))


def _before(layout: Layout, first: Tensor, rows: Tensor) -> Tensor:
    """For each row, the row of the step before; at step 0 the first state."""
    return torch.cat([first, take(rows, layout.before(rows.device))])


def _project(data: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return data @ weight.t() if bias is None else torch.addmm(bias, data, weight.t())


def _added(b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor | None:
    return None if b_ih is None or b_hh is None else b_ih + b_hh


def _one_minus_square(x: Tensor) -> Tensor:
    return torch.mul(x, x).neg_().add_(1)


def _swap(weight: Tensor) -> Tensor:
    """Gates i, f, g, o to i, f, o, g and back: rows (4H, *)."""
    i_f, g, o = weight.tensor_split((weight.shape[0] // 2, 3 * weight.shape[0] // 4))
    return torch.cat([i_f, o, g])


def _inputs_grads(ctx: Any, skip: int, data: Tensor, dh: Tensor, w_ih: Tensor, d_input: Tensor,
                  d_hidden: Tensor, before: Tensor, states: int = 1) -> Grads:
    """Gradients of data, h0 (given as ``dh``), w_ih, w_hh, b_ih, b_hh, where they are wanted."""
    need = ctx.needs_input_grad[skip:]
    w = need[1 + states:]
    return (
        d_input @ w_ih if need[0] else None,
        dh,
        d_input.t() @ data if w[0] else None,
        d_hidden.t() @ before if w[1] else None,
        d_input.sum(0) if w[2] else None,
        d_hidden.sum(0) if w[3] else None,
    )


def _replay(layer: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor | None],
            grads: tuple[Tensor, ...]) -> Grads:
    """The same gradients through the plain steps, so that they can be differentiated again."""
    with torch.enable_grad():
        outputs = layer(*inputs)
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True,
                                     allow_unused=True))
    return tuple(next(found) if t is not None and t.requires_grad else None for t in inputs)
