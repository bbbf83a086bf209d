"""A fused kernel of torch within autograd: first derivatives by itself, higher ones by plain steps.

cuDNN knows no second derivative. So its outputs are cut off, and a backward that is not itself
differentiated goes on inside, by the kernel's own; one that is runs the plain steps again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from packlib.ops import transformed, watched

Run = Callable[..., tuple[Tensor, ...]]


def call(run: Run, plain: Run, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """``run(*inputs)``, with derivatives of any order; ``plain`` gives the same, step by step."""
    data = inputs[0]
    if (data is not None and refuses(data) and torch.is_grad_enabled() and not watched()
            and any(t is not None and t.requires_grad for t in inputs)):
        return _Fused.apply(run, plain, *inputs)
    return run(*inputs)


def refuses(data: Tensor) -> bool:
    """The kernel for this tensor has no second derivative: cuDNN's. The CPU's have."""
    return data.is_cuda


def by_steps(grads: Sequence[Tensor | None]) -> bool:
    """A backward that is itself differentiated, or goes over many gradients at once.

    It takes the plain steps: no kernel and no operator of ours does either.
    """
    return torch.is_grad_enabled() or transformed(*(grad for grad in grads if grad is not None))


def replayed(plain: Run, inputs: Sequence[Tensor | None],
             grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of ``plain(*inputs)``, which can be differentiated again where that is wanted."""
    again, device = torch.is_grad_enabled(), next(t for t in inputs if t is not None).device.type
    with torch.enable_grad(), torch.autocast(device, enabled=False):
        # views: one input may be made of another, and that way is not this function's
        inputs = [None if t is None else t.view_as(t) for t in inputs]
        outputs = plain(*inputs)
    pairs = [(o.to(g.dtype), g) for o, g in zip(outputs, grads, strict=False) if g is not None]
    return _gradients(pairs, inputs, create_graph=again)


def _gradients(pairs: Sequence[tuple[Tensor, Tensor]], inputs: Sequence[Tensor | None],
               **options: Any) -> list[Tensor | None]:
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    outputs, grads = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, grads, allow_unused=True, **options))
    return [next(found) if t is not None and t.requires_grad else None for t in inputs]


def graph_is_kept() -> bool:
    """Whether the backward pass that runs now may be asked for again."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


class _Fused(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, run: Run, plain: Run, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        ctx.plain = plain
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        with torch.enable_grad():
            ctx.inside = [None if t is None else t.detach().requires_grad_(t.requires_grad)
                          for t in inputs]
            ctx.outputs = run(*ctx.inside)
        return tuple(output.detach() for output in ctx.outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        inputs = ctx.saved_tensors
        if all(grad is None for grad in grads):
            return None, None, *[None] * len(inputs)
        if by_steps(grads):
            return None, None, *replayed(ctx.plain, inputs, grads)
        pairs = [(o, g) for o, g in zip(ctx.outputs, grads, strict=True) if g is not None]
        keep = graph_is_kept()
        found = _gradients(pairs, ctx.inside, retain_graph=keep)
        if not keep:  # as autograd does it: what the kernel kept for this is let go
            ctx.inside = ctx.outputs = None
        return None, None, *found
