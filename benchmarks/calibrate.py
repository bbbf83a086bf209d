"""What a call, a step and a row of each LSTM route cost on this machine: the table of routes.py.

Each route is timed on batches without padding, of many shapes, and fitted by least squares of the
relative error: microseconds = call + steps * step + rows * row, each a base and a part that grows
with the number of weights.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import torch
from race import THREADS, race

import packlib

SIZES = [(32, 32), (64, 64), (64, 128), (128, 128), (256, 256), (512, 512)]  # features, hidden
SHAPES = [(2, 1), (2, 16), (2, 64), (10, 1), (10, 8), (10, 32), (40, 1), (40, 4), (40, 16),
          (40, 64), (100, 8), (100, 2)]  # steps, sequences


def microseconds(route: str, training: bool, steps: int, size: int, features: int,
                 hidden: int) -> float:
    layer = packlib.LSTM(features, hidden, route=route)
    packed = packlib.pack_sequence([torch.randn(steps, features)] * size)
    ones = torch.ones(steps * size, hidden)

    def run() -> None:
        with torch.set_grad_enabled(training):
            output, _ = layer(packed)
        if training:
            output.data.backward(ones)

    return 1e6 * race({route: run}, rounds=5, least_ms=2)[route]


def fit(route: str, training: bool) -> np.ndarray:
    """The six numbers, none below 0."""
    rows, times = [], []
    for (features, hidden), (steps, size) in itertools.product(SIZES, SHAPES):
        if steps * size * hidden * (features + hidden) > 4e8:
            continue
        weights = 4 * hidden * (features + hidden)
        counts = np.array([1, steps, steps * size])
        rows.append(np.concatenate([counts, counts * weights]))
        times.append(microseconds(route, training, steps, size, features, hidden))
    return nonnegative(np.array(rows, dtype=float) / np.array(times)[:, None])


def nonnegative(scaled: np.ndarray) -> np.ndarray:
    """Least squares of scaled @ x = 1 with x >= 0: drop the most negative column until none is."""
    kept = list(range(scaled.shape[1]))
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
    for route, training in itertools.product(("cover", "hoisted"), (True, False)):
        call, step, row, w_call, w_step, w_row = fit(route, training)
        print(f'("{route}", {training}): Costs(Rate({call:.0f}, {w_call:.2g}), '
              f"Rate({step:.2g}, {w_step:.2g}), Rate({row:.2g}, {w_row:.2g})),", flush=True)
