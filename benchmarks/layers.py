"""RNN, GRU and LSTM on packed input: the time of torch, and of the better of its two ways, over
ours.

torch has two ways to treat a ragged batch: packed, and padded with the last states gathered
afterwards. The second is the faster one for small LSTMs on a CPU. Each side gets the batch as its
own pack_padded_sequence gives it; what packlib plans for a layer is planned anew in each call.

Three more figures say where a floor is, each a part of packlib's time and measured in the same run.
``gemm``: what its matrix products would take at the speed of one large product. ``kernels``: what
the dense kernels take that an LSTM's cover calls. ``operators``: these, and the least number of
torch's operators around them, with nothing checked or planned (floor.py). A ratio "of the kernels"
or "of the operators alone" is what would be reached if all else took no time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import floor
import torch
from race import THREADS, geometric_mean, in_fresh_processes, lengths, race, save

import packlib

CASES = [(16, 50, 32, 32), (32, 100, 64, 64), (32, 100, 64, 128), (64, 100, 256, 256),
         (16, 400, 128, 128), (128, 50, 512, 512)]  # sequences, longest, features, hidden
SMALLER = [(4, 20, 32, 32), (1, 10, 32, 32)]  # in the rows, not in the summary
KINDS = ["uniform", "skewed"]
TASKS = [("LSTM", "training step"), ("GRU", "training step"), ("RNN", "training step"),
         ("LSTM", "inference"), ("GRU", "inference"), ("RNN", "inference")]


def rivals(name: str, task: str, case: tuple[int, int, int, int], kind: str,
           routes: list[str]) -> dict[str, Callable[[], object]]:
    size, longest, features, hidden = case
    torch.manual_seed(0)
    x, lens = torch.randn(size, longest, features), lengths(kind, size, longest)
    theirs = getattr(torch.nn, name)(features, hidden, batch_first=True)
    ours = {route: getattr(packlib, name)(features, hidden, route=route) for route in routes}
    for layer in ours.values():
        layer.load_state_dict(theirs.state_dict())
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lens, True, False)
    mine = packlib.pack_padded_sequence(x, lens, True, False)
    ends = torch.arange(size), lens - 1

    def padded() -> torch.Tensor:
        output, _ = theirs(x)
        output[ends]  # the true last states
        return output

    runs = {"packed": lambda: theirs(packed)[0].data, "padded": padded}
    def fresh() -> packlib.PackedSequence:
        mine.layout._kept.clear()  # as after packing: no cover, no rows
        return mine

    for route, layer in ours.items():
        runs[route] = lambda layer=layer: layer(fresh())[0].data
    step = training_step if task == "training step" else inference
    return {key: step(run, ours.get(key, theirs)) for key, run in runs.items()}


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def products(name: str, task: str, case: tuple[int, int, int, int], rows: int) -> float:
    """Floating point operations of the matrix products; the input asks for no gradient."""
    _, _, features, hidden = case
    forward = 2 * rows * GATES[name] * hidden * (features + hidden)
    again = 2 * rows * GATES[name] * hidden * hidden  # from each step to the one before
    return forward if task == "inference" else 2 * forward + again


def large_product() -> tuple[Callable[[], object], float]:
    a, b = torch.randn(2048, 512), torch.randn(512, 2048)
    return lambda: a @ b, 2.0 * 2048 * 512 * 2048


def floors(task: str, case: tuple[int, int, int, int],
           kind: str) -> dict[str, Callable[[], object]]:
    """The kernels of an LSTM's cover, and its operators; none if the hoisted loop is chosen."""
    found = floor.planned(task, case, kind)
    if found is None:
        return {}
    run, layer = floor.operators(*found), found[2]
    step = training_step if task == "training step" else inference
    return {"kernels": floor.kernels(*found), "operators": step(lambda: run()[0], layer)}


def training_step(run: Callable[[], torch.Tensor], layer: torch.nn.Module) -> Callable[[], None]:
    def step() -> None:
        layer.zero_grad()
        run().sum().backward()

    return step


def inference(run: Callable[[], torch.Tensor], layer: torch.nn.Module) -> Callable[[], object]:
    return torch.no_grad()(run)


def measure(tasks: list[tuple[str, str]], cases: list[tuple[int, int, int, int]], rounds: int,
            ways: list[str]) -> list[dict]:
    rows: list[dict] = []
    for name, task in tasks:
        for case in cases:
            for kind in KINDS:
                product, operations = large_product()
                alone = floors(task, case, kind) if name == "LSTM" else {}
                times = race({**rivals(name, task, case, kind, ways), "product": product,
                              **alone}, rounds, least_ms=20)
                better = min(times["packed"], times["padded"])
                row = {"layer": name, "task": task, "case": case, "lengths": kind,
                       "over_packed": round(times["packed"] / times["auto"], 2),
                       "over_better": round(better / times["auto"], 2)}
                needed = products(name, task, case, int(lengths(kind, case[0], case[1]).sum()))
                row["gemm"] = round(needed / operations * times["product"] / times["auto"], 2)
                for part in alone:
                    row[part] = round(times[part] / times["auto"], 2)
                rows.append(row)
                others = "  ".join(f"{route} {better / times[route]:.2f}" for route in ways[1:])
                print(f"{name:4} {task:13} {case!s:>20} {kind:8} torch packed / packlib "
                      f"{row['over_packed']:6.2f}   better of torch / packlib "
                      f"{row['over_better']:5.2f}   gemm {row['gemm']:.2f}   kernels "
                      f"{row.get('kernels', '-')}   operators {row.get('operators', '-')}   "
                      f"{others}", flush=True)
    return rows


def summarise(rows: list[dict]) -> dict[str, float]:
    summary = {}
    for layer, task in dict.fromkeys((row["layer"], row["task"]) for row in rows):
        mine = [row for row in rows if (row["layer"], row["task"]) == (layer, task)]
        for key in ("over_packed", "over_better"):
            ratios = [row[key] for row in mine]
            label = f"{layer} {task} {key}"
            summary[f"{label} geometric_mean"] = geometric_mean(ratios)
            summary[f"{label} worst"] = min(ratios)
            for part in ("kernels", "operators") if layer == "LSTM" else ():
                alone = [row[key] / row.get(part, row["gemm"]) for row in mine]
                summary[f"{label} of the {part} alone"] = geometric_mean(alone)
                summary[f"{label} of the {part} alone worst"] = min(alone)
    return summary


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small cases, nothing written")
    parser.add_argument("--routes", nargs="*", default=[], help="show these routes as well")
    parser.add_argument("--layers", nargs="*", default=["LSTM", "GRU", "RNN"])
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    chosen = [task for task in TASKS if task[0] in options.layers]
    ways = ["auto", *options.routes]
    rows = (measure(chosen, CASES[:2], 3, ways) if options.quick else
            in_fresh_processes(measure, chosen, [*CASES, *SMALLER], 5, ways))
    summary = summarise([row for row in rows if row["case"] in CASES])
    print(*(f"{name}: {value:.2f}" for name, value in summary.items()), sep="\n")
    if not options.quick and chosen == TASKS:
        save("layers", rows, summary)
