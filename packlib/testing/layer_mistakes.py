"""The classic mistakes of recurrent layers over packed input, made again with a right layer.

As in ``lookalikes``: a mistake is named only if it gives the very numbers that were found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from packlib.layout import Layout
from packlib.sequence import PackedSequence
from packlib.testing.differences import Close, plain


@dataclass(frozen=True)
class Run:
    """What a layer gave: outputs (N, *) end to end in the user's order, states (S, B, *)."""

    output: Tensor
    states: tuple[Tensor, ...]

    def with_states(self, fn: Callable[[Tensor], Tensor]) -> Run:
        return replace(self, states=tuple(fn(s) for s in self.states))


@dataclass(frozen=True)
class Case:
    """The right run, of data (N, *) and states (S, B, *), and how to run again.

    Rows of data lie end to end in the user's order.
    """

    right: Run
    again: Callable[[PackedSequence, tuple[Tensor, ...] | None], Run]
    data: Tensor
    hx: tuple[Tensor, ...] | None
    layout: Layout
    directions: int = 1
    names: tuple[str, ...] = ("output", "h_n", "c_n")
    mistakes: list[tuple[str, Callable[[Case], Run]]] = field(default_factory=lambda: MISTAKES)

    @property
    def order(self) -> Tensor:
        order = self.layout.order
        return torch.arange(self.layout.num_sequences) if order is None else torch.tensor(order)

    @property
    def inverse(self) -> Tensor:
        return self.order.argsort()

    def packed(self, data: Tensor) -> PackedSequence:
        return PackedSequence.from_layout(data[self.rows], self.layout)

    @property
    def rows(self) -> Tensor:
        return self.layout.listed(torch.device("cpu"))

    @property
    def last(self) -> Tensor:
        """Row of each sequence's last step (B,)."""
        return torch.from_numpy(self.layout.starts + self.layout.lengths - 1)

    def rerun(self, change: Callable[[Tensor], Tensor]) -> Run:
        """The right layer, with other first states."""
        if self.hx is None:
            return self.right
        return self.again(self.packed(self.data), tuple(change(s) for s in self.hx))


Mistake = Callable[[Case], Run]
MISTAKES: list[tuple[str, Mistake]] = []


def mistake(hint: str) -> Callable[[Mistake], Mistake]:
    def keep(make: Mistake) -> Mistake:
        MISTAKES.append((hint, make))
        return make

    return keep


@mistake("the last states are still sorted, longest sequence first. Index them with "
         "unsorted_indices, dimension 1.")
def states_left_sorted(case: Case) -> Run:
    return case.right.with_states(lambda s: s[:, case.order])


@mistake("the last states are put back with sorted_indices. That sorts them again: what undoes a "
         "sort is its inverse, unsorted_indices.")
def states_sorted_again(case: Case) -> Run:
    return case.right.with_states(lambda s: s[:, case.order[case.order]])


@mistake("hx is not sorted as the data are, so each sequence begins with another one's state. "
         "Index hx with sorted_indices, dimension 1.")
def first_states_unsorted(case: Case) -> Run:
    return case.rerun(lambda s: s[:, case.inverse])


@mistake("no states are sorted: hx is taken as it comes, and the last states go out longest "
         "sequence first. Sort hx with sorted_indices, undo it with unsorted_indices.")
def no_states_sorted(case: Case) -> Run:
    return first_states_unsorted(case).with_states(lambda s: s[:, case.order])


@mistake("hx is sorted with unsorted_indices. That is the inverse: sort with sorted_indices.")
def first_states_by_inverse(case: Case) -> Run:
    return case.rerun(lambda s: s[:, case.inverse[case.inverse]])


@mistake("hx is not used: the run begins with zeros.")
def first_states_ignored(case: Case) -> Run:
    return case.rerun(torch.zeros_like)


@mistake("the layer runs on through the padding: last states come from there, and a backward "
         "direction begins in it. Stop each sequence at its own end.")
def runs_through_padding(case: Case) -> Run:
    size, total = case.layout.num_sequences, case.layout.num_steps
    grid = case.data.new_zeros(size, total, *case.data.shape[1:])
    real = torch.arange(total) < torch.from_numpy(case.layout.lengths)[:, None]
    grid[real] = case.data
    packed = PackedSequence(grid.transpose(0, 1).flatten(0, 1), torch.full((total,), size))
    run = case.again(packed, case.hx)
    return replace(run, output=run.output.unflatten(0, (size, total))[real])


@mistake("the last states are read at the last step of the longest sequence. Those that have ended "
         "before have zeros there: take each at its own last step.")
def last_column(case: Case) -> Run:
    lasts = torch.from_numpy(case.layout.lengths == case.layout.num_steps)
    run = backward_states_at_last_step(case)
    return run.with_states(lambda s: s * lasts.view(1, -1, *[1] * (s.dim() - 2)))


@mistake("the backward direction's last state is read at each sequence's last step, where that "
         "direction begins. It ends at step 0.")
def backward_states_at_last_step(case: Case) -> Run:
    return _top(case, case.right.output[case.last])


@mistake("the last states are the last rows of data. Those are the steps at the end of the longest "
         "sequences, and not one for each.")
def last_rows_of_data(case: Case) -> Run:
    return _top(case, case.right.output[case.rows][-case.layout.num_sequences:])


@mistake("the backward direction's outputs are not turned round again: its step 0 belongs to the "
         "last step.")
def backward_not_turned_back(case: Case) -> Run:
    turned = case.right.output[_turn(case.layout)]
    keep, turn = (x.chunk(case.directions, 1) for x in (case.right.output, turned))
    return replace(case.right, output=torch.cat([keep[0], *turn[1:]], 1))


@mistake("forward and backward direction are swapped.")
def directions_swapped(case: Case) -> Run:
    output = torch.cat(case.right.output.chunk(case.directions, 1)[::-1], 1)
    return Run(output, tuple(_layers(case, s).flip(1).reshape(s.shape) for s in case.right.states))


@mistake("the states' layers come last first.")
def layers_turned(case: Case) -> Run:
    return case.right.with_states(lambda s: _layers(case, s).flip(0).reshape(s.shape))


@mistake("the states go direction by direction. They go layer by layer: the first layer forward, "
         "the first layer backward, and so on.")
def direction_major(case: Case) -> Run:
    return case.right.with_states(
        lambda s: _layers(case, s).transpose(0, 1).reshape(s.shape))


@mistake("h_n and c_n are swapped.")
def states_swapped(case: Case) -> Run:
    return replace(case.right, states=case.right.states[::-1])


@mistake("only the sequences that run to the last step have a last state. Set the states of the "
         "others aside when they end.")
def only_the_longest(case: Case) -> Run:
    return case.right.with_states(lambda s: s[:, case.order[: case.layout.sizes[-1]]])


@mistake("the states are batch first. They are (layers * directions, B, H) whatever batch_first "
         "says.")
def states_batch_first(case: Case) -> Run:
    return case.right.with_states(lambda s: s.transpose(0, 1))


@mistake("states are cut off at the wrong end: the sequences that end are the last rows of a step, "
         "so the first rows of the state go on.")
def wrong_states_go_on(case: Case) -> Run:
    if case.directions > 1:
        return case.right
    states, outputs = case.hx and tuple(s[:, case.order] for s in case.hx), []
    for rows in case.packed(case.data).data.split(case.layout.sizes):
        states = states and tuple(s[:, -len(rows):] for s in states)
        run = case.again(PackedSequence(rows, torch.tensor([len(rows)])), states)
        outputs.append(run.output)
        states = run.states
    data = torch.cat(outputs)
    return replace(case.right, output=torch.empty_like(data).index_copy(0, case.rows, data))


def _top(case: Case, rows: Tensor) -> Run:
    """With rows (B, D * H) of outputs as the top layer's states."""
    top, *others = (s.clone() for s in case.right.states)
    for d, part in enumerate(rows.chunk(case.directions, 1)):
        if part.shape == top.shape[1:]:
            top[len(top) - case.directions + d] = part
    return replace(case.right, states=(top, *others))


def _layers(case: Case, state: Tensor) -> Tensor:
    """(layers * directions, B, *) -> (layers, directions, B, *)."""
    return state.unflatten(0, (-1, case.directions))


def _turn(layout: Layout) -> Tensor:
    lengths = torch.from_numpy(layout.lengths)
    step = torch.arange(int(lengths.sum())) - torch.from_numpy(layout.starts).repeat_interleave(
        lengths)
    return (torch.from_numpy(layout.starts) + lengths - 1).repeat_interleave(lengths) - step


# --- which of them is it?


def parts(case: Case, run: Run) -> dict[str, Tensor]:
    """Each direction of the outputs (N, *), and each layer and direction of the states (B, *)."""
    name = case.names[0]
    output = run.output
    if case.directions == 2 and output.dim() > 1 and output.shape[1] % 2 == 0:
        made = dict(zip((f"{name}, forward", f"{name}, backward"), output.chunk(2, 1), strict=True))
    else:
        made = {name: output}
    for i, state in enumerate(run.states):
        for k, rows in enumerate(state):
            made[f"{state_name(case, i)}{_place(k, len(state), case.directions)}"] = rows
    return made


def state_name(case: Case, i: int) -> str:
    names = case.names[1:]
    return names[i] if i < len(names) else f"state {i}"


def _place(k: int, size: int, directions: int) -> str:
    layer, direction = divmod(k, directions)
    words = [f"layer {layer}"] if size > directions else []
    words += [("forward", "backward")[direction]] if directions == 2 else []
    return "".join(f", {w}" for w in words)


def looks_like(case: Case, wrong: dict[str, Tensor],
               close: Close) -> Iterator[tuple[str, list[str]]]:
    """Mistakes that give what was found in parts of a run, with the parts that they explain."""
    right, left = parts(case, case.right), dict(wrong)
    made = [(hint, parts(case, run)) for hint, run in _runs(case)]
    while left:
        explained = [(hint, [name for name, found in left.items() if name in made_parts
                             and close.all(found, made_parts[name])
                             and not close.all(right[name], made_parts[name])])
                     for hint, made_parts in made]
        hint, names = max(explained, key=lambda e: len(e[1]), default=("", []))
        if not names:
            return
        yield hint, names
        left = {name: found for name, found in left.items() if name not in names}


def shapes_like(case: Case, found: tuple[Tensor, ...], close: Close) -> str | None:
    """The mistake that gives states of another shape, if one does."""
    for hint, run in _runs(case):
        if len(found) == len(run.states) and all(map(close.all, found, run.states)):
            return hint
    return None


def _runs(case: Case) -> Iterator[tuple[str, Run]]:
    for hint, make in case.mistakes:
        try:
            with torch.no_grad():
                run = make(case)
        except (IndexError, RuntimeError, TypeError, ValueError):  # it cannot be made here
            continue
        yield hint, Run(plain(run.output), tuple(plain(s) for s in run.states))
