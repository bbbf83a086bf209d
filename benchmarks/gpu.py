"""packlib against torch on a GPU: moves, LSTM, a training step, each checked before it is timed.

A time is the wall time of one call with the GPU idle before and after: what a user waits. Lengths
are on the CPU. ``pack`` and ``list to packed`` make their plan in every call; ``unpack`` and
``packed to list`` go by the one that the batch brings along, as in a model. ``floor`` is the time
that copying the same bytes takes at the speed measured first.

    python benchmarks/gpu.py          takes less than 8 minutes, writes results/gpu.json
    python benchmarks/gpu.py --dry    the same code on the CPU with tiny sizes; writes nothing

(No file here may be called cuda.py: ``import torch`` would take it for NVIDIA's package.)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

import torch
from race import RESULTS, lengths, machine, race
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

import packlib
from packlib import kernels

BIG, MEDIUM, SMALL = (256, 512, 256), (64, 128, 64), (16, 64, 32)  # sequences, longest, features
LAYERS = [(256, 512, 64, 64), (256, 512, 128, 128), (64, 512, 256, 256), (128, 200, 512, 512)]
DRY_MOVES, DRY_LAYERS = [(4, 12, 6)], [(4, 9, 5, 16)]
KINDS = ["equal", "uniform", "skewed"]
# For the big shape with uniform lengths: at most so many microseconds, so many times torch's speed.
MOVE_GOALS = {"pack": (70, 12), "pack backward": (60, 35), "unpack": (65, 12),
              "unpack backward": (45, 300), "list to packed": (80, 20), "packed to list": (60, 60)}
SMALL_GOALS = {"forward": 1 / 1.2, "backward": 8}
KERNEL_GOAL = 0.8  # of the copy speed

Row = dict[str, object]
Task = Callable[[], object]


class Bench:
    def __init__(self, device: str) -> None:
        self.device, self.dry = device, device == "cpu"
        self.rows: list[Row] = []
        self.speed = self.copy_speed()

    def wait(self) -> None:
        if not self.dry:
            torch.cuda.synchronize()

    def seconds(self, rivals: dict[str, Task]) -> dict[str, float]:
        """Wall medians, each call from an idle GPU to an idle GPU."""
        def waited(run: Task) -> Task:
            return lambda: (run(), self.wait())

        options = {"rounds": 1, "least_ms": 0} if self.dry else {"rounds": 15, "least_ms": 2}
        return race({name: waited(run) for name, run in rivals.items()}, **options)

    def kernel_seconds(self, run: Task, calls: int = 20) -> float:
        """Of the GPU alone, by events around many calls, so that the host's work is hidden."""
        if self.dry:
            return self.seconds({"run": run})["run"]
        run()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(50_000_000)  # the host queues all calls meanwhile
        start.record()
        for _ in range(calls):
            run()
        end.record()
        self.wait()
        return start.elapsed_time(end) / calls / 1000

    def copy_speed(self) -> float:
        """Bytes a second, read and written."""
        source = torch.ones(1 << 12 if self.dry else 1 << 28, device=self.device)
        target = torch.empty_like(source)
        return 2 * source.nbytes / self.kernel_seconds(lambda: target.copy_(source))

    def measure(self, what: str, case: tuple[int, ...], kind: str, torch_run: Task, our_run: Task,
                right: bool, moved: int = 0, goal: tuple[float, float] | None = None) -> None:
        """Time both; ``goal``: most microseconds, and least times torch's speed."""
        times = self.seconds({"torch": torch_run, "packlib": our_run})
        theirs, ours = times["torch"] * 1e6, times["packlib"] * 1e6
        row: Row = {"what": what, "case": case, "lengths": kind, "right": right,
                    "torch_us": round(theirs, 1), "packlib_us": round(ours, 1),
                    "ratio": round(theirs / ours, 2)}
        if moved:
            row["floor_us"] = round(moved / self.speed * 1e6, 1)
        if goal and not self.dry:
            row["goal"] = goal
            row["met"] = ours <= goal[0] and theirs / ours >= goal[1]
        self.add(row)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def draw(kind: str, size: int, longest: int) -> Tensor:
    return torch.full((size,), longest) if kind == "equal" else lengths(kind, size, longest)


def goal_of(what: str, case: tuple[int, ...], kind: str) -> tuple[float, float] | None:
    if case == BIG and kind == "uniform":
        return MOVE_GOALS[what]
    if case == SMALL and what in ("pack", "unpack", "pack backward", "unpack backward"):
        return float("inf"), SMALL_GOALS["backward" if "backward" in what else "forward"]
    return None


def moves(bench: Bench, cases: list[tuple[int, int, int]]) -> None:
    for case in cases:
        for kind in KINDS:
            size, longest, features = case
            torch.manual_seed(0)
            lens = draw(kind, size, longest)
            x = torch.randn(size, longest, features, device=bench.device, requires_grad=True)
            padded, packed = x.nbytes, int(lens.sum()) * features * 4
            moved = {"pack": 2 * packed, "pack backward": packed + padded,
                     "unpack": packed + padded, "unpack backward": 2 * packed,
                     "list to packed": 2 * packed, "packed to list": 2 * packed}
            theirs, ours = (dict(tasks(rnn, x, lens)) for rnn in (torch_rnn, packlib))
            for what in moved:
                bench.measure(what, case, kind, theirs[what], ours[what],
                              equal(theirs[what](), ours[what]()), moved[what],
                              goal_of(what, case, kind))
            if case == cases[0]:
                copied(bench, case, kind, ours["unpack"], moved["unpack"])


def tasks(rnn, x: Tensor, lens: Tensor) -> Iterator[tuple[str, Task]]:
    """The moves of torch or packlib, as calls that give a list of tensors."""
    pieces = [row[:n].clone() for row, n in zip(x.detach(), lens.tolist(), strict=True)]
    packed = rnn.pack_padded_sequence(x.detach(), lens, True, False)
    leaf = packed.data.requires_grad_()
    yield "pack", lambda: [rnn.pack_padded_sequence(x.detach(), lens, True, False).data]
    yield "unpack", no_grad(lambda: [rnn.pad_packed_sequence(packed, True)[0]])
    yield "list to packed", lambda: [rnn.pack_sequence(pieces, enforce_sorted=False).data]
    yield "packed to list", no_grad(lambda: rnn.unpack_sequence(packed))
    yield "pack backward", backward(rnn.pack_padded_sequence(x, lens, True, False).data, x)
    yield "unpack backward", backward(rnn.pad_packed_sequence(packed, True)[0], leaf)


def no_grad(run: Task) -> Task:
    return torch.no_grad()(run)


def backward(output: Tensor, leaf: Tensor) -> Task:
    grad = torch.rand(output.shape, generator=torch.Generator().manual_seed(0)).to(output.device)
    return lambda: torch.autograd.grad(output, leaf, grad, retain_graph=True)


def equal(expected: list[Tensor], found: list[Tensor]) -> bool:
    return len(expected) == len(found) and all(map(torch.equal, expected, found))


def copied(bench: Bench, case: tuple[int, ...], kind: str, run: Task, moved: int) -> None:
    """How near to the speed of a plain copy the GPU works during a move."""
    share = moved / bench.kernel_seconds(run) / bench.speed
    row: Row = {"what": "unpack, share of copy speed", "case": case, "lengths": kind,
                "ratio": round(share, 2)}
    if not bench.dry:
        row |= {"goal": KERNEL_GOAL, "met": share >= KERNEL_GOAL}
    bench.add(row)


def lstms(bench: Bench, cases: list[tuple[int, int, int, int]]) -> None:
    for case in cases:
        for kind in KINDS:
            size, longest, features, hidden = case
            torch.manual_seed(0)
            lens = draw(kind, size, longest)
            x = torch.randn(size, longest, features, device=bench.device)
            layer = torch.nn.LSTM(features, hidden).to(bench.device)
            for route in ("auto", "cover", "torch"):  # what routes.CUDA_COSTS weighs
                ours = packlib.LSTM(features, hidden, route=route).to(bench.device)
                ours.load_state_dict(layer.state_dict())
                for name, run, goal in (("forward", forward, forward_goal(case, kind)),
                                        ("training step", training_step, step_goal(case, kind))):
                    rivals = run(torch_rnn, layer, x, lens), run(packlib, ours, x, lens)
                    bench.measure(f"LSTM {name}, route {route}", case, kind, *rivals,
                                  near(*(rival() for rival in rivals)),
                                  goal=goal if route == "auto" else None)


def forward_goal(case: tuple[int, ...], kind: str) -> tuple[float, float] | None:
    if case[-1] >= 256:
        return float("inf"), 0.97
    return {"equal": (float("inf"), 3), "uniform": (float("inf"), 2.5)}.get(kind)


def step_goal(case: tuple[int, ...], kind: str) -> tuple[float, float] | None:
    return (float("inf"), 3) if case == LAYERS[1] and kind == "uniform" else None


def forward(rnn, layer: torch.nn.Module, x: Tensor, lens: Tensor) -> Task:
    packed = rnn.pack_padded_sequence(x, lens, True, False)
    return no_grad(lambda: [layer(packed)[0].data])


def training_step(rnn, layer: torch.nn.Module, x: Tensor, lens: Tensor) -> Task:
    """Pack, layer, unpack and all of their backwards; gives the weights' gradients."""
    leaf = x.clone().requires_grad_()

    def step() -> list[Tensor]:
        packed = rnn.pack_padded_sequence(leaf, lens, True, False)
        grid, _ = rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
        return list(torch.autograd.grad(grid.square().mean(), [leaf, *layer.parameters()]))

    return step


def near(expected: list[Tensor], found: list[Tensor]) -> bool:
    """Of the largest value no more than 1 % off: the kernels may multiply in TF32."""
    return all((a - b).abs().max() <= 0.01 * a.abs().max()
               for a, b in zip(expected, found, strict=True))


def save(bench: Bench, name: str) -> None:
    about = {"gpu": name, "copy_TB_per_s": round(bench.speed / 1e12, 2),
             "cuda": torch.version.cuda, "triton": triton_version(),
             "moves by": "kernel" if kernels.usable("cuda") else "rows", **machine()}
    path = RESULTS / "gpu.json"
    path.write_text(json.dumps({"machine": about, "rows": finite(bench.rows)}, indent=1) + "\n")
    print(f"written: benchmarks/results/{path.name}")


def finite(rows: list[Row]) -> list[Row]:
    """JSON has no infinity: a goal without a limit of time keeps its ratio alone."""
    return [{**row, "goal": row["goal"][1]} if isinstance(row.get("goal"), tuple)
            and row["goal"][0] == float("inf") else row for row in rows]


def triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="on the CPU, tiny, times mean nothing")
    dry = parser.parse_args().dry
    if not dry and not torch.cuda.is_available():
        print("torch sees no GPU here, so nothing was measured and nothing written. "
              "To try the code itself: python benchmarks/gpu.py --dry")
        return 1
    if dry:
        torch.set_num_threads(1)
    bench = Bench("cpu" if dry else "cuda")
    print("dry run on the CPU: these times mean nothing" if dry else
          f"{torch.cuda.get_device_name()}, copies at {bench.speed / 1e12:.2f} TB/s")
    moves(bench, DRY_MOVES if dry else [BIG, MEDIUM, SMALL])
    lstms(bench, DRY_LAYERS if dry else LAYERS)
    wrong = [row for row in bench.rows if not row.get("right", True)]
    goals = [row["met"] for row in bench.rows if "met" in row]
    print(f"{len(bench.rows)} rows, {len(wrong)} wrong, {sum(goals)} of {len(goals)} goals met")
    if not dry:
        save(bench, torch.cuda.get_device_name())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
