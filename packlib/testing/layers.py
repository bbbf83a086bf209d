"""Is a recurrent layer right over packed input? Outputs, states and gradients, against another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.sequence import PackedSequence, layout_of
from packlib.testing.differences import (
    Close,
    end_to_end,
    fail,
    kind_difference,
    length_difference,
    listed_place,
    plain,
    row_difference,
    what,
)
from packlib.testing.layer_mistakes import Case, Run, looks_like, parts, shapes_like, state_name
from packlib.testing.lookalikes import Truth, most, of_rows

States = Tensor | tuple[Tensor, ...] | None
Gradients = tuple[Tensor | None, tuple[Tensor | None, ...], dict[str, Tensor | None]]
MOST_PARTS = 2  # that are told of in full


def assert_layer_equal(layer: Callable[..., Any], reference: Callable[..., Any],
                       packed: torch_rnn.PackedSequence, hx: States = None, *,
                       batch_dim: int = 1, gradients: bool = True, rtol: float | None = None,
                       atol: float | None = None) -> None:
    """Assert that a layer gives what a reference gives, for packed data (N, F) and states ``hx``.

    Compared are the outputs, step by step; the last states, in the user's order; and, if these are
    right, the gradients of the data, of ``hx``, and of the parameters, paired by name. Both are
    called as ``layer(packed)`` or ``layer(packed, hx)`` and return ``(output, states)``. Run them
    without dropout. Gradients gather rounding: float64 is the dtype to test in.

    Args:
        reference: ``torch.nn.LSTM`` and its like, or ``one_by_one(layer)``. Mistakes are made again
            with it, so it has to be right. Parameters are compared if both have some.
        hx: the first states, a tensor or a tuple of them. Zeros would hide mistakes.
        batch_dim: the dimension of the states that counts the sequences. With 1 they are
            (layers * directions, B, H); two directions if ``bidirectional`` of either says so.
        gradients: False leaves the gradients out.
        rtol, atol: as in ``assert_packed_equal``.

    Raises:
        AssertionError: something differs. The message says what is right as well.
        TypeError: ``packed`` is no PackedSequence.
        ValueError: weights or their names differ, or only one of ``rtol`` and ``atol`` is given.

    >>> from packlib import pack_sequence
    >>> from packlib.testing import one_by_one
    >>> xs = [torch.ones(2, 4), torch.ones(1, 4), torch.ones(5, 4)]
    >>> packed = pack_sequence(xs, enforce_sorted=False).double()
    >>> gru, h0 = torch.nn.GRU(4, 6).double(), torch.randn(1, 3, 6).double()
    >>> assert_layer_equal(gru, one_by_one(gru), packed, h0)
    >>> def left_sorted(packed, h0):
    ...     output, h_n = gru(packed, h0)
    ...     return output, h_n[:, packed.sorted_indices]
    >>> assert_layer_equal(left_sorted, gru, packed, h0)
    Traceback (most recent call last):
        ...
    AssertionError: the layer is wrong in h_n; right: output
    h_n: 3 of 3 sequences differ
    first: sequence 0: ...
    It looks like this mistake: the last states are still sorted, longest sequence first. ...
    """
    layout = layout_of(packed)
    ours, theirs = _parameters(layer, reference)
    expected = _Trial(reference, packed, hx, batch_dim, "the reference", theirs)
    actual = _Trial(layer, packed, hx, batch_dim, "the layer", ours)
    close = Close.of(expected.run.output.dtype, rtol, atol)
    directions = 2 if batch_dim == 1 and any(
        getattr(f, "bidirectional", False) for f in (layer, reference)) else 1
    case = Case(expected.plain, expected.again, plain(end_to_end(packed)),
                None if hx is None else tuple(plain(s) for s in expected.first), layout, directions)
    _compare_kinds(case, actual.run, expected.run, close)
    _compare(case, actual.run, close)
    if gradients:
        _compare_gradients(case, actual, expected, close)


class _Trial:
    """One layer, run once on inputs of its own, whose gradients can be asked for."""

    def __init__(self, layer: Callable[..., Any], packed: torch_rnn.PackedSequence, hx: States,
                 batch_dim: int, name: str, parameters: dict[str, Tensor]) -> None:
        self.layer, self.name, self.batch_dim = layer, name, batch_dim
        self.many, self.like = isinstance(hx, (tuple, list)), packed
        self.parameters = parameters
        self.data = _leaf(packed.data)
        states = () if hx is None else tuple(hx) if self.many else (hx,)
        self.leaves = tuple(_leaf(s) for s in states)
        self.first = tuple(self.inside(s) for s in self.leaves)
        given = self.leaves if self.many else self.leaves[0] if self.leaves else None
        with torch.enable_grad():
            self.run = self._run(_with_data(packed, self.data), given)

    @property
    def plain(self) -> Run:
        return Run(plain(self.run.output), tuple(plain(s) for s in self.run.states))

    def again(self, packed: PackedSequence, states: tuple[Tensor, ...] | None) -> Run:
        """Another run, with states (S, B, *)."""
        device = self.data.device
        given = None if states is None else tuple(self._outside(s.to(device)) for s in states)
        return self._run(packed.to(device), given if given is None or self.many or len(given) > 1
                         else given[0])

    def _run(self, packed: torch_rnn.PackedSequence, hx: Any) -> Run:
        result = self.layer(packed) if hx is None else self.layer(packed, hx)
        if (not isinstance(result, tuple) or len(result) != 2
                or not isinstance(result[0], torch_rnn.PackedSequence)):
            fail(f"{self.name} must return (output, states) with a PackedSequence as output, "
                 f"got {what(result)}")
        output, states = result
        states = tuple(states) if isinstance(states, (tuple, list)) else (states,)
        for s in states:
            if not isinstance(s, Tensor) or s.dim() <= self.batch_dim:
                fail(f"{self.name} must return states that are tensors with dimension "
                     f"{self.batch_dim}, got {what(s)}")
        difference = length_difference(layout_of(output), layout_of(packed))
        if difference:
            fail(f"the output of {self.name} has other lengths than its input: {difference}")
        return Run(end_to_end(output), tuple(self.inside(s) for s in states))

    def inside(self, state: Tensor) -> Tensor:
        return state if self.batch_dim == 1 else state.movedim(self.batch_dim, 0)[None]

    def _outside(self, state: Tensor) -> Tensor:
        return state if self.batch_dim == 1 else state[0].movedim(0, self.batch_dim)

    def gradients(self) -> Gradients:
        """Of data, states and parameters, for one fixed weighing of all results."""
        results = (self.run.output, *self.run.states)
        loss = sum((r * _weights(r)).sum() for r in results)
        inputs = [self.data, *self.leaves, *self.parameters.values()]
        wanted = [t for t in inputs if t.requires_grad]
        asked: list[Tensor | None] = [None] * len(wanted)
        if isinstance(loss, Tensor) and loss.requires_grad and wanted:
            asked = list(torch.autograd.grad(loss, wanted, allow_unused=True))
        found = iter(asked)
        data, *rest = (next(found) if t.requires_grad else None for t in inputs)
        many = len(self.leaves)
        return data, tuple(rest[:many]), dict(zip(self.parameters, rest[many:], strict=True))


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.is_floating_point())


def _weights(like: Tensor) -> Tensor:
    draw = torch.Generator().manual_seed(like.numel())
    return torch.randn(like.shape, generator=draw, dtype=torch.float64).to(like)


def _with_data(packed: torch_rnn.PackedSequence, data: Tensor) -> torch_rnn.PackedSequence:
    """Of the same class: a layer may take torch's only."""
    return packed.with_data(data) if isinstance(packed, PackedSequence) else packed._replace(
        data=data)


def _parameters(layer: Any, reference: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of both by name, if both have some; equal, or results could not be."""
    ours, theirs = (dict(f.named_parameters()) if hasattr(f, "named_parameters") else {}
                    for f in (layer, reference))
    if not ours or not theirs:
        return {}, {}
    alone = sorted(ours.keys() ^ theirs.keys())
    if alone:
        raise ValueError(f"only one of layer and reference has the parameters {', '.join(alone)}: "
                         "give them the same names, or give the layer as a plain function")
    for name, ours_now in ours.items():
        if not torch.equal(plain(ours_now), plain(theirs[name])):
            raise ValueError(f"{name} of layer and reference differ: give them the same weights, "
                             "layer.load_state_dict(reference.state_dict())")
    return ours, theirs


# --- comparing


def _compare(case: Case, found: Run, close: Close) -> None:
    found = Run(plain(found.output), tuple(plain(s) for s in found.states))
    wanted = parts(case, case.right)
    place, said, wrong = listed_place(case.layout), {}, {}
    for name, rows in parts(case, found).items():
        of_steps = name.startswith(case.names[0])
        difference = row_difference(rows, wanted[name], close, *(
            (place, "steps") if of_steps else (lambda b: f"sequence {b}", "sequences")))
        if difference:
            said[name], wrong[name] = difference, rows
    if not wrong:
        return
    right = [name for name in wanted if name not in wrong]
    lines = [f"the layer is wrong in {_grouped(wrong, wanted)}"
             + (f"; right: {_grouped(right, wanted)}" if right else "")]
    lines += [f"{name}: {difference}" for name, difference in list(said.items())[:MOST_PARTS]]
    if len(said) > MOST_PARTS:
        lines.append(f"and {len(said) - MOST_PARTS} more")
    hints = list(looks_like(case, wrong, close))
    if not hints and not close.all(found.output, case.right.output):
        truth = Truth.of(case.right.output, case.layout.lengths, close)
        hint = most(of_rows(found.output, truth))
        hints = [(hint, [])] if hint else []
    for hint, names in hints:
        of = f" ({_grouped(names, wanted)})" if names and len(names) < len(wrong) else ""
        lines.append(f"It looks like this mistake{of}: {hint}")
    fail("\n".join(lines))


def _grouped(names: Collection[str], all_names: Collection[str]) -> str:
    """Names of parts; of a result that is there with all of its parts, the name alone."""
    said: dict[str, None] = {}
    for name in names:
        whole = name.split(", ")[0]
        there = all(other in names for other in all_names if other.split(", ")[0] == whole)
        said[whole if there else name] = None
    return "; ".join(said)


def _compare_kinds(case: Case, found: Run, right: Run, close: Close) -> None:
    difference = kind_difference(found.output, right.output)
    if difference:
        fail(f"{case.names[0]}: {difference}")
    if len(found.states) != len(case.right.states):
        fail(f"{len(found.states)} states, expected {len(right.states)}")
    for i, (state, wanted) in enumerate(zip(found.states, right.states, strict=True)):
        name = state_name(case, i)
        if state.shape != wanted.shape:
            hint = shapes_like(case, tuple(plain(s) for s in found.states), close)
            fail(f"{name} has shape {tuple(state.shape)}, expected {tuple(wanted.shape)}", hint)
        difference = kind_difference(state, wanted)
        if difference:
            fail(f"{name}: {difference}")


def _compare_gradients(case: Case, actual: _Trial, expected: _Trial, close: Close) -> None:
    names = ("data", "h0", "c0")
    found, wanted = actual.gradients(), expected.gradients()
    for name, one, other in _pairs(names, found, wanted):
        if one is None and other is not None and other.any():
            fail(f"outputs and states are right, but no gradient reaches {name}: it was detached, "
                 "or computed outside of the graph")
    right, given = (_as_run(g, trial) for g, trial in ((wanted, expected), (found, actual)))
    titles = tuple(f"gradient of {name}" for name in names)
    _compare(replace(case, right=right, names=titles, mistakes=[]), given, close)
    for name, gradient in wanted[2].items():
        one, other = (torch.zeros_like(expected.parameters[name]) if g is None else g
                      for g in (found[2][name], gradient))
        difference = row_difference(one.reshape(-1), other.reshape(-1), close,
                                    partial(_index, tuple(one.shape)), "numbers")
        if difference:
            fail(f"outputs, states and the gradients of data and hx are right, but the gradient of "
                 f"{name} is not: {difference}")


def _pairs(names: tuple[str, ...], found: Gradients,
           wanted: Gradients) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
    first, *rest = names
    yield first, found[0], wanted[0]
    for i, pair in enumerate(zip(found[1], wanted[1], strict=True)):
        yield rest[i] if i < len(rest) else f"first state {i}", *pair
    for name, gradient in found[2].items():
        yield name, gradient, wanted[2][name]


def _as_run(gradients: Gradients, trial: _Trial) -> Run:
    """Gradients of data and first states, laid out as results are; zeros where there is none."""
    data, states, _ = gradients
    inputs = zip((data, *states), (trial.data, *trial.leaves), strict=True)
    rows, *rest = (torch.zeros_like(t) if g is None else g for g, t in inputs)
    return Run(plain(end_to_end(_with_data(trial.like, rows))),
               tuple(plain(trial.inside(s)) for s in rest))


def _index(shape: tuple[int, ...], i: int) -> str:
    return f"[{', '.join(str(int(k)) for k in np.unravel_index(i, shape))}]"
