"""Losses of real steps only: torch's losses on packed outputs and packed targets.

On a padded grid one has to say at each place which steps count. In packed data all of them do, and
what is left to check is that outputs and targets are packed alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.loss import _Loss as Module
from torch.nn.utils import rnn as torch_rnn

from packlib.alike import check_same_layout
from packlib.layout import eager_only
from packlib.packing import unpack_sequence
from packlib.reduce import packed_mean, packed_sum
from packlib.sequence import PackedSequence

REDUCTIONS = ("mean", "sum", "none", "sequence_mean")
CLASS_LOSSES = (F.cross_entropy, F.nll_loss)  # torch divides by the weights of the targets


def packed_loss(loss: Callable[..., Tensor], outputs: torch_rnn.PackedSequence,
                targets: torch_rnn.PackedSequence, reduction: str = "mean",
                **options: Any) -> Any:
    """Any of torch's elementwise losses between packed outputs (N, *) and packed targets (N, *).

    Args:
        loss: a function with torch's arguments, ``loss(input, target, reduction=...)``:
            ``F.mse_loss``, ``F.nll_loss``, ``F.binary_cross_entropy_with_logits``, or one of
            your own. For "sequence_mean" with classes as targets, one of your own is called once
            for each sequence, since only it knows which steps it ignores.
        reduction: "mean" is over all real steps, so a long sequence weighs more; "sequence_mean"
            is over the means of the sequences, so that all weigh the same, but for empty ones,
            which have none and take no part; "sum"; "none" gives the loss of each step, packed
            (``packed_sum`` of it is the loss of each sequence).
        options: passed on to ``loss``.

    Law: "mean" and "sum" equal the loss of a padded grid's real steps; "sequence_mean" equals the
    mean over the loss of each sequence alone.

    Raises:
        ValueError: outputs and targets are packed differently, or the reduction is unknown.
        TypeError: the loss is one of torch's modules, which has its own reduction.

    >>> import torch
    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.zeros(1), torch.ones(3)], enforce_sorted=False)
    >>> packed_loss(F.mse_loss, p, p.map(torch.zeros_like))
    tensor(0.7500)
    >>> packed_loss(F.mse_loss, p, p.map(torch.zeros_like), "sequence_mean")
    tensor(0.5000)
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    _refuse_module(loss)
    check_same_layout(outputs, targets, ("outputs", "targets"))
    while isinstance(loss, functools.partial) and not loss.args:
        given: Any = loss.keywords
        loss, options = loss.func, {**given, **options}
    options.pop("reduction", None)
    if loss not in CLASS_LOSSES:  # which have outputs of one dimension more
        _check_columns(outputs.data.shape, targets.data.shape)
    if reduction in ("mean", "sum"):
        return loss(outputs.data, targets.data, reduction=reduction, **options)
    classes = reduction != "none" and not targets.data.is_floating_point()
    if classes and loss not in CLASS_LOSSES:
        return _one_by_one(functools.partial(loss, reduction="mean", **options), outputs, targets)
    losses = loss(outputs.data, targets.data, reduction="none", **options)
    each = PackedSequence.like(outputs, losses)
    if reduction == "none":
        return each
    each = each.without_empty()
    if classes:
        shares = each.with_data(_shares(losses, targets.data, **options))
        return _mean_of_weighted_means(each, shares)
    return packed_mean(each).mean()


def cross_entropy(logits: torch_rnn.PackedSequence, targets: torch_rnn.PackedSequence,
                  reduction: str = "mean", *, weight: Tensor | None = None,
                  ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """Cross entropy of packed logits (N, C) and packed targets, ids (N,) or probabilities (N, C).

    Args:
        reduction: "mean" over tokens, "sequence_mean" over sequences, "sum" or "none", as in
            ``packed_loss``. The two means differ when lengths do.
        weight, ignore_index, label_smoothing: as in torch; real steps may be ignored too. In
            "sequence_mean" a sequence that has no step left takes no part.

    Law: "mean" and "sum" equal ``F.cross_entropy`` on a padded grid whose padding has the target
    ``ignore_index``; "sequence_mean" equals the mean over ``F.cross_entropy`` of each sequence.

    Raises:
        ValueError: logits and targets are packed differently, or the reduction is unknown.

    >>> import torch
    >>> from packlib import pack_sequence
    >>> ids = pack_sequence([torch.tensor([2, 0]), torch.tensor([1, 0, 2])], enforce_sorted=False)
    >>> logits = ids.map(lambda i: 9.0 * F.one_hot(i, 3))
    >>> cross_entropy(logits, ids) < 0.001
    tensor(True)
    """
    return packed_loss(F.cross_entropy, logits, targets, reduction, weight=weight,
                       ignore_index=ignore_index, label_smoothing=label_smoothing)


def _refuse_module(loss: Any) -> None:
    made = isinstance(loss, Module)
    if made or isinstance(loss, type) and issubclass(loss, Module):
        found = f"module {loss}" if made else f"class of modules {loss.__name__}"
        raise TypeError(f"loss must be a function that takes reduction=, got the {found}: "
                        "give the function of torch.nn.functional, and its options after it")


def _check_columns(outputs: Sequence[int], targets: Sequence[int]) -> None:
    """A column against a row would be broadcast to each step against every other."""
    if len(outputs) != len(targets) and {*outputs[1:], *targets[1:]} == {1}:
        n = outputs[0]
        raise ValueError(f"outputs {tuple(outputs)} and targets {tuple(targets)} would be "
                         f"broadcast to {(n, n)}, each step against every other: give both one "
                         "shape, for instance by p.map(lambda data: data.squeeze(1))")


def _one_by_one(loss: Callable[..., Tensor], outputs: torch_rnn.PackedSequence,
                targets: torch_rnn.PackedSequence) -> Tensor:
    eager_only("packed_loss with 'sequence_mean' of a function of your own",
               "use F.cross_entropy or F.nll_loss")
    pairs = zip(unpack_sequence(outputs), unpack_sequence(targets), strict=True)
    return torch.stack([loss(o, t) for o, t in pairs if len(t)]).mean()


def _shares(losses: Tensor, ids: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
            **_: Any) -> Tensor:
    """What each step counts in the mean of a loss with classes: the weight of its target."""
    ids = ids.long()  # as bytes they would be a mask
    counted = ids != ignore_index
    shares = counted if weight is None else weight[ids.where(counted, 0)] * counted
    return shares.to(losses.dtype)


def _mean_of_weighted_means(each: PackedSequence, shares: PackedSequence) -> Tensor:
    # in float32 at least: in half precision a step in a long sequence may be too small to be
    wide = torch.promote_types(each.dtype, torch.float32)
    totals, counts = (packed_sum(p.map(lambda x: x.to(wide).flatten(1).sum(1) if x.dim() > 1
                                       else x.to(wide))) for p in (each, shares))
    counted = counts > 0
    means = totals / counts.where(counted, 1)  # 0 / 1, for 0 / 0 would put NaN into the gradients
    return (means.sum() / counted.sum()).to(each.dtype)
