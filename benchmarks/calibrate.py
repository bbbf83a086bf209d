"""What each LSTM route costs on this machine: the table of routes.py.

Each route is timed on batches of many shapes. Some are staircases of a few levels, which the cover
takes as so many dense rectangles, or as one that is padded. A fit by least squares of the relative
error gives microseconds = layer + pad, if anything is padded, + rectangles * call + steps * step
+ cells * cell, each a base and a part that grows with the number of weights.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import torch
from race import THREADS, race

import packlib
import packlib.rnn
from packlib.cover import Cost

SIZES = [(32, 32), (64, 64), (64, 128), (128, 128), (256, 256), (512, 512)]  # features, hidden
SHAPES = [(2, 1), (2, 16), (2, 64), (10, 1), (10, 8), (10, 32), (40, 1), (40, 4), (40, 16),
          (40, 64), (100, 8), (100, 2)]  # steps, sequences
STAIRS = [(40, 16, 2), (40, 16, 4), (40, 32, 8), (16, 8, 4)]  # and levels
SPLIT, ONE = Cost(0, 0, 1), Cost(1e9, 0, 1)  # a rectangle for each level; one for all
NAMES = ("layer", "call", "pad", "step", "cell")


def staircase(steps: int, size: int, levels: int) -> list[int]:
    """Lengths such that batch_sizes has so many levels of equally many steps."""
    sizes = np.repeat(np.arange(size, size - levels, -1), steps // levels)
    return [int((sizes > j).sum()) for j in range(size)]


def microseconds(route: str, training: bool, lengths: list[int], features: int,
                 hidden: int, cost: Cost) -> float:
    layer = packlib.LSTM(features, hidden, route=route)
    packed = packlib.pack_sequence([torch.randn(n, features) for n in lengths])
    ones = torch.ones(len(packed.data), hidden)
    packlib.rnn.cover_cost = lambda *_: cost

    def run() -> None:
        packed.layout._kept.clear()  # what is planned for a layer is planned anew
        with torch.set_grad_enabled(training):
            output, _ = layer(packed)
        if training:
            output.data.backward(ones)

    return 1e6 * race({route: run}, rounds=5, least_ms=2)[route]


def samples(route: str) -> list[tuple[list[int], Cost, tuple[int, ...]]]:
    """Lengths, how they are covered, and how many layers, rectangles, pads, steps and cells."""
    made = [([steps] * size, ONE, (1, 1, 0, steps, steps * size)) for steps, size in SHAPES]
    if route == "torch":  # of equal lengths it makes one dense call: let one differ
        return [([*lengths[1:], lengths[0] - 1], cost, (1, 0, 0, *counts[3:-1], counts[-1] - 1))
                for lengths, cost, counts in made if len(lengths) > 1]
    if route == "cover":
        for steps, size, levels in STAIRS:
            lengths = staircase(steps, size, levels)
            made += [(lengths, SPLIT, (1, levels, 0, steps, sum(lengths))),
                     (lengths, ONE, (1, 1, 1, steps, steps * size))]
    return made


def fit(route: str, training: bool) -> np.ndarray:
    """The base of each cost and its part by weight (2, 5), none below 0."""
    rows, times = [], []
    for (features, hidden), (lengths, cost, counts) in itertools.product(SIZES, samples(route)):
        if counts[-1] * hidden * (features + hidden) > 4e8:
            continue
        if route == "hoisted":
            counts = (1, 0, 0, *counts[3:])
        weights = 4 * hidden * (features + hidden)
        rows.append(np.concatenate([counts, np.array(counts) * weights]))
        times.append(microseconds(route, training, lengths, features, hidden, cost))
    return nonnegative(np.array(rows, dtype=float) / np.array(times)[:, None]).reshape(2, -1)


def nonnegative(scaled: np.ndarray) -> np.ndarray:
    """Least squares of scaled @ x = 1 with x >= 0: drop the most negative column until none is."""
    kept = [i for i in range(scaled.shape[1]) if scaled[:, i].any()]
    while True:
        found = np.linalg.lstsq(scaled[:, kept], np.ones(len(scaled)), rcond=None)[0]
        if (found >= 0).all():
            break
        kept.pop(int(found.argmin()))
    result = np.zeros(scaled.shape[1])
    result[kept] = found
    print("relative error of the fit, median and worst: "
          f"{np.median(abs(scaled @ result - 1)):.2f} {abs(scaled @ result - 1).max():.2f}")
    return result


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(THREADS)
    for route, training in (*itertools.product(("cover", "hoisted"), (True, False)),
                            ("torch", False)):
        base, by_weight = fit(route, training)
        rates = ", ".join(f"{name}=Rate({b:.3g}, {w:.2g})" for name, b, w in
                          zip(NAMES, base, by_weight, strict=True) if b or w)
        print(f'("{route}", {training}): Costs({rates}),', flush=True)
