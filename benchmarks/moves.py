"""pack, unpack, list to packed and packed to list: torch's time over packlib's.

Two more figures say what a forward move is made of. ``bare``: the part of packlib's time that the
move takes by itself, its row numbers at hand; the rest is checks and the plan, on the host.
``clones``: packlib's time over that of ``clone()`` of the packed data, the least that a copy takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from race import THREADS, geometric_mean, in_fresh_processes, lengths, race, save
from torch.nn.utils import rnn as torch_rnn

import packlib
from packlib import ops

CASES = [(32, 100, 64), (64, 100, 256), (256, 512, 64), (512, 1000, 1), (64, 2000, 300)]
KINDS = ["uniform", "skewed"]
MOVES = ["pack", "unpack", "list to packed", "packed to list"]


def move(rnn, name: str, x: torch.Tensor, lens: torch.Tensor, grad: bool) -> Callable[[], object]:
    """One move as a call without arguments, with its backward if ``grad``; ``rnn`` is the rival."""
    packed = rnn.pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False)
    packed = (packed.with_data(packed.data.detach().requires_grad_(grad)) if rnn is packlib else
              packed._replace(data=packed.data.detach().requires_grad_(grad)))
    grid = x.detach().requires_grad_(grad)
    pieces = [row[:n].clone().requires_grad_(grad) for row, n in zip(x, lens.tolist(), strict=True)]

    def run() -> list[torch.Tensor]:
        if name == "pack":
            return [rnn.pack_padded_sequence(grid, lens, True, False).data]
        if name == "unpack":
            return [rnn.pad_packed_sequence(fresh(), batch_first=True)[0]]
        if name == "list to packed":
            return [rnn.pack_sequence(pieces, enforce_sorted=False).data]
        return rnn.unpack_sequence(fresh())

    def fresh():  # a packed batch as it comes out of a layer; no rows are kept from the last call
        if isinstance(packed, packlib.PackedSequence):
            packed.layout._kept.clear()
        return torch_rnn.PackedSequence(*packed)

    ones = [torch.ones_like(out) for out in run()]
    leaves = {"pack": [grid], "list to packed": pieces}.get(name, [packed.data])
    if not grad:
        return run
    return lambda: torch.autograd.grad(run(), leaves, ones)


def bare(name: str, x: torch.Tensor, lens: torch.Tensor) -> Callable[[], object]:
    """The move alone: nothing is checked or planned."""
    packed = packlib.pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False)
    layout, data, cells = packed.layout, packed.data, x.flatten(0, 1)
    pieces = packlib.unpack_sequence(packed)
    in_grid = layout.padded(x.shape[1], True, x.device)
    in_list = layout.listed(x.device)
    return {"pack": lambda: ops.take(cells, in_grid),
            "unpack": lambda: ops.put(data, in_grid, len(cells)),
            "list to packed": lambda: ops.take(ops.joined(pieces), in_list),
            "packed to list": lambda: ops.split(ops.put(data, in_list, len(data)),
                                                layout.lengths.tolist())}[name]


def measure(cases: list[tuple[int, int, int]], rounds: int) -> list[dict]:
    rows: list[dict] = []
    print("torch / packlib")
    print(f"{'case':>16} {'lengths':8} {'move':15} {'forward':>8} {'with backward':>14} "
          f"{'bare':>6} {'clones':>8}")
    for case in cases:
        for kind in KINDS:
            torch.manual_seed(0)
            size, longest, features = case
            x, lens = torch.randn(size, longest, features), lengths(kind, size, longest)
            for name in MOVES:
                row: dict = {"case": case, "lengths": kind, "move": name}
                data = torch.randn(int(lens.sum()), features)
                for grad, key in ((False, "forward"), (True, "forward_backward")):
                    slow = grad and size * longest * features > 2e7
                    beside = {} if grad else {"bare": bare(name, x, lens), "clone": data.clone}
                    times = race({"torch": move(torch_rnn, name, x, lens, grad),
                                  "packlib": move(packlib, name, x, lens, grad), **beside},
                                 rounds=3 if slow else rounds)
                    row[key] = round(times["torch"] / times["packlib"], 2)
                    if not grad:
                        row["bare"] = round(times["bare"] / times["packlib"], 2)
                        row["clones"] = round(times["packlib"] / times["clone"], 2)
                rows.append(row)
                print(f"{case!s:>16} {kind:8} {name:15} {row['forward']:8.2f} "
                      f"{row['forward_backward']:14.2f} {row['bare']:6.2f} {row['clones']:8.2f}",
                      flush=True)
    return rows


def summarise(rows: list[dict]) -> dict[str, float]:
    return {f"{stat}_{key}": of([row[key] for row in rows])
            for key in ("forward", "forward_backward")
            for stat, of in (("geometric_mean", geometric_mean), ("worst", min))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small cases, nothing written")
    quick = parser.parse_args().quick
    torch.set_num_threads(THREADS)
    rows = measure(CASES[:2], 3) if quick else in_fresh_processes(measure, CASES, 9)
    summary = summarise(rows)
    print(*(f"{name}: {value:.2f}" for name, value in summary.items()), sep="\n")
    if not quick:
        save("moves", rows, summary)
