"""RNN, GRU and LSTM over packed rows, with all that can wait moved out of the loop over steps.

A step depends on the step before through ``h`` alone. Forward, the input's GEMM runs once for all
rows. Backward, the gradient of each gate is ``dh`` or ``dc`` times a factor that needs neither: the
factors of all rows are made at once, and a step is left with a few products and one GEMM. The
weights' gradients are one GEMM each, after the loop. All of it is linear in ``T``; torch's packed
backward grows with its square.

Rows are in sorted order here: one direction of one layer, states longest sequence first. A state
whose sequence has ended is set aside, and one that has no step is set aside at once. These are the
loops; ``packlib.layer_ops`` makes operators of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from packlib.layout import Layout
from packlib.ops import take

Tensors = tuple[Tensor, ...]


def rnn(layout: Layout, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
        b_hh: Tensor | None, relu: bool) -> tuple[Tensor, Tensor]:
    """data (N, F), h0 (B, H) -> output (N, H), h_n (B, H)."""
    output = _project(data, w_ih, _added(b_ih, b_hh))
    activate, w, h = torch.relu_ if relu else torch.tanh_, w_hh.t(), h0
    ended = []
    for out in output.split(layout.sizes):
        if len(out) < len(h):
            ended.append(h[len(out):])
            h = h[:len(out)]
        h = activate(out.addmm_(h, w))
    return output, torch.cat([h, *ended[::-1]])


def rnn_backward(layout: Layout, d_output: Tensor, d_h: Tensor, output: Tensor, h0: Tensor,
                 w_hh: Tensor, relu: bool) -> Tensors:
    """Gradients of the gates (N, H), twice since input and state share them, and of h0 (B, H)."""
    d_gates = (output > 0).to(output.dtype) if relu else _one_minus_square(output)
    dh = _own(d_h)
    for gates, d_out in reversed(_steps(layout, d_gates, d_output)):
        live = dh[:len(gates)]
        gates.mul_(live.add_(d_out))
        torch.mm(gates, w_hh, out=live)
    return d_gates, d_gates, dh


def gru(layout: Layout, data: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
        b_hh: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """data (N, F), h0 (B, H) -> output (N, H), h_n (B, H); kept: gates r, z, n, the state's n."""
    gates, size, h = _project(data, w_ih, b_ih), w_hh.shape[1], h0
    hidden, output = torch.empty_like(gates), data.new_empty(len(data), size)
    w, ended = w_hh.t(), []
    for out, gh, rz, hidden_rz, hidden_n, r, z, n in _steps(
            layout, output, hidden, gates[:, :2 * size], hidden[:, :2 * size],
            hidden[:, 2 * size:], *gates.chunk(3, 1)):
        if len(out) < len(h):
            ended.append(h[len(out):])
            h = h[:len(out)]
        if b_hh is None:
            torch.mm(h, w, out=gh)
        else:
            torch.addmm(b_hh, h, w, out=gh)
        rz.add_(hidden_rz).sigmoid_()
        n.addcmul_(r, hidden_n).tanh_()
        h = torch.lerp(n, h, z, out=out)
    return output, torch.cat([h, *ended[::-1]]), gates, hidden[:, 2 * size:].contiguous()


def gru_backward(layout: Layout, d_output: Tensor, d_h: Tensor, output: Tensor, gates: Tensor,
                 hidden_n: Tensor, h0: Tensor, w_hh: Tensor) -> Tensors:
    """Gradients of the input's and the state's part of the gates (N, 3H), and of h0 (B, H)."""
    r, z, n = gates.chunk(3, 1)
    # h = n + z (before - n); every gate's gradient is dh times a factor
    to_n = _one_minus_square(n).mul_(1 - z)
    d_hidden = torch.empty_like(gates)  # the factors, then the gradients
    d_r, d_z, d_n = d_hidden.chunk(3, 1)
    torch.sub(before(layout, h0, output), n, out=d_z).mul_(z).mul_(1 - z)
    torch.mul(to_n, r, out=d_n)
    torch.sub(1, r, out=d_r).mul_(d_n).mul_(hidden_n)
    total, dh = torch.empty_like(output), _own(d_h)
    by_gate = d_hidden.unflatten(1, (3, -1))
    for tot, d_out, gates_, gate, z_ in reversed(_steps(
            layout, total, d_output, by_gate, d_hidden, z)):
        live = dh[:len(tot)]
        torch.add(live, d_out, out=tot)
        gates_.mul_(tot.unsqueeze(1))
        torch.mul(tot, z_, out=live).addmm_(gate, w_hh)
    return torch.cat([d_hidden[:, :2 * total.shape[1]], total.mul_(to_n)], 1), d_hidden, dh


def lstm(layout: Layout, data: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor,
         b_ih: Tensor | None, b_hh: Tensor | None, w_hr: Tensor | None = None
         ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """data (N, F), h0, c0 (B, H) -> output (N, H), h_n, c_n (B, H); kept: gates, c, tanh(c).

    With ``w_hr`` (P, H) h0, output and h_n have P columns.
    """
    size, h, c = w_hh.shape[0] // 4, h0, c0
    gates = _project(data, w_ih, _added(b_ih, b_hh))
    output, cell, cell_tanh = (data.new_empty(len(data), n) for n in (w_hh.shape[1], size, size))
    w, ended_h, ended_c = w_hh.t(), [], []
    for out, c_out, tc, gate, i_f, i, f, g, o in _steps(
            layout, output, cell, cell_tanh, gates, gates[:, :2 * size], *gates.chunk(4, 1)):
        if len(out) < len(h):
            ended_h.append(h[len(out):])
            ended_c.append(c[len(out):])
            h, c = h[:len(out)], c[:len(out)]
        gate.addmm_(h, w)
        i_f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        c = torch.mul(f, c, out=c_out).addcmul_(i, g)
        torch.tanh(c, out=tc)
        h = torch.mul(o, tc, out=out) if w_hr is None else torch.mm(o * tc, w_hr.t(), out=out)
    return (output, torch.cat([h, *ended_h[::-1]]), torch.cat([c, *ended_c[::-1]]), gates, cell,
            cell_tanh)


def lstm_backward(layout: Layout, d_output: Tensor, d_h: Tensor, d_c: Tensor, gates: Tensor,
                  cell: Tensor, cell_tanh: Tensor, c0: Tensor, w_hh: Tensor,
                  w_hr: Tensor | None = None) -> Tensors:
    """Gradients of the gates (N, 4H), of h0 and c0 (B, H), and with ``w_hr`` of it (P, H)."""
    i, f, g, o = gates.chunk(4, 1)
    size = o.shape[1]
    # h = o tanh(c), c = f before + i g; each gate's gradient is dh or dc times a factor
    to_c = _one_minus_square(cell_tanh).mul_(o)
    d_gates = torch.empty_like(gates)  # the factors, then the gradients
    d_i, d_f, d_g, d_o = d_gates.chunk(4, 1)
    torch.sub(1, i, out=d_i).mul_(i).mul_(g)
    torch.sub(1, f, out=d_f).mul_(f).mul_(before(layout, c0, cell))
    torch.mul(g, g, out=d_g).neg_().add_(1).mul_(i)
    torch.sub(1, o, out=d_o).mul_(o).mul_(cell_tanh)
    by_cell = d_gates[:, :3 * size].unflatten(1, (3, size))  # all but o
    dh, dc = _own(d_h), _own(d_c)
    if w_hr is not None:
        d_output = d_output.clone()  # and then all of the gradient of each row
    for d_out, to_c_, f_, gate, ifg_, o_ in reversed(_steps(
            layout, d_output, to_c, f, d_gates, by_cell, d_o)):
        live, live_c = dh[:len(d_out)], dc[:len(d_out)]
        d_hidden = live.add_(d_out) if w_hr is None else d_out.add_(live) @ w_hr
        live_c.addcmul_(d_hidden, to_c_)
        o_.mul_(d_hidden)
        ifg_.mul_(live_c.unsqueeze(1))
        live_c.mul_(f_)
        torch.mm(gate, w_hh, out=live)
    return (d_gates, dh, dc, *(() if w_hr is None else (d_output.t() @ (o * cell_tanh),)))


def before(layout: Layout, first: Tensor, rows: Tensor) -> Tensor:
    """For each row, the row of the step before; at step 0 the first state."""
    return torch.cat([first[:layout.sizes[0]], take(rows, layout.before(rows.device))])


def _steps(layout: Layout, *tensors: Tensor) -> list[Tensors]:
    """The rows of each step, of all the tensors: views, made in one call a tensor."""
    return list(zip(*(tensor.split(layout.sizes) for tensor in tensors), strict=True))


def _project(data: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return data @ weight.t() if bias is None else torch.addmm(bias, data, weight.t())


def _added(b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor | None:
    return None if b_ih is None or b_hh is None else b_ih + b_hh


def _one_minus_square(x: Tensor) -> Tensor:
    return torch.mul(x, x).neg_().add_(1)


def _own(grad: Tensor) -> Tensor:
    """A copy to write to, row after row."""
    return grad.clone(memory_format=torch.contiguous_format)
