"""One dense batch through an LSTM's fused kernel, forward and backward as two plain calls.

A cover calls them itself, since autograd's bookkeeping around each rectangle costs as much as the
kernel of a small one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import _VF, Tensor

Grads = tuple[Tensor, ...]


class Run(NamedTuple):
    """What went in and what came out: x (T, B, F), h and c (B, H); output (T, B, H).

    Then what the kernel wants to see again: a workspace, or a graph of torch's.
    """

    x: Tensor
    h: Tensor
    c: Tensor
    output: Tensor
    h_n: Tensor
    c_n: Tensor
    workspace: Tensor | None
    graph: Any = None


def fused(x: Tensor) -> bool:
    """Whether oneDNN has the kernel; torch takes it on the CPU for float32."""
    return x.is_cpu and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def forward(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor], training: bool) -> Run:
    """Run over x (T, B, F) from h and c (B, H); weights w_ih, w_hh, and both biases or none.

    None of them may require a gradient.
    """
    if not fused(x):
        return _by_torch(x, h, c, weights, training)
    x, h, c = x.contiguous(), h.contiguous(), c.contiguous()  # the kernel looks at no stride
    with torch.set_grad_enabled(training):  # otherwise it keeps nothing for a backward
        return Run(x, h, c, *torch.ops.aten.mkldnn_rnn_layer(
            x, *_four(weights), h, c, False, [], _LSTM, h.shape[1], 1, len(weights) == 4, False,
            False, training))


def backward(run: Run, weights: list[Tensor], d_output: Tensor, d_h: Tensor, d_c: Tensor,
             keep: bool = True) -> Grads:
    """Gradients of x, h, c and each of the weights, from those of the output and last states.

    Once only, if what a graph needs is not to be kept.
    """
    if not fused(run.x):
        outputs, leaves = run.graph
        return torch.autograd.grad(outputs, leaves, [d_output, d_h, d_c], retain_graph=keep)
    d_x, *d_weights, d_h, d_c = torch.ops.aten.mkldnn_rnn_layer_backward(
        run.x, *_four(weights), run.h, run.c, run.output, run.h_n, run.c_n, d_output, d_h, d_c,
        False, _LSTM, run.h.shape[1], 1, len(weights) == 4, True, False, [], False, run.workspace)
    return d_x, d_h, d_c, *d_weights[:len(weights)]


_LSTM = 2  # torch's number of the cell


def _four(weights: list[Tensor]) -> list[Tensor]:
    return weights if len(weights) == 4 else [*weights, *map(torch.zeros_like, weights)]


def _by_torch(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor], training: bool) -> Run:
    """Any other device or dtype: whatever torch's own LSTM does there, on a graph of its own."""
    with torch.set_grad_enabled(training):
        leaves = [t.detach().requires_grad_(training) for t in (x, h, c, *_placed(weights))]
        output, h_n, c_n = _VF.lstm(leaves[0], (leaves[1][None], leaves[2][None]), leaves[3:],
                                    len(weights) == 4, 1, 0.0, training, False, False)
        outputs = output, h_n[0], c_n[0]
    return Run(x, h, c, output.detach(), h_n[0].detach(), c_n[0].detach(), None,
               (outputs, leaves))


def _placed(weights: list[Tensor]) -> list[Tensor]:
    """cuDNN wants them in one piece of memory, else it copies them and warns at every call."""
    if not weights[0].is_cuda:
        return weights
    whole = torch.cat([w.flatten() for w in weights])
    return [part.view_as(w) for part, w in zip(whole.split([w.numel() for w in weights]), weights,
                                               strict=True)]
