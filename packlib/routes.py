"""Which way a recurrent layer goes over its packed rows, and what each way costs.

``plain``: the loop that the book teaches; every option, any order of derivatives.
``hoisted``: the same loop with the GEMMs and the weights' gradients moved out of it.
``cover``: LSTM only; a few dense rectangles through the fused kernel.
``torch``: torch's own layer; on CUDA that is cuDNN's packed kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from packlib.cover import Cost, price
from packlib.dense import fused
from packlib.layout import Layout

ROUTES = ("auto", "plain", "hoisted", "cover", "torch")  # auto: see choose


class Rate(NamedTuple):
    """Microseconds = base + weights * per_weight, for a layer with so many weights."""

    base: float
    per_weight: float

    def at(self, weights: int) -> float:
        return self.base + weights * self.per_weight


class Costs(NamedTuple):
    """A call, a step and a row (one sequence at one step) of a route."""

    call: Rate
    step: Rate
    row: Rate

    def at(self, weights: int) -> Cost:
        return Cost(*(rate.at(weights) for rate in self))


# Fitted by benchmarks/calibrate.py on two threads, float32; only their proportions matter.
CPU_COSTS = {
    ("cover", True): Costs(Rate(484, 0.0029), Rate(9, 2e-05), Rate(0.96, 3.3e-05)),
    ("cover", False): Costs(Rate(217, 0.00019), Rate(4.7, 3.9e-06), Rate(0.2, 1.1e-05)),
    ("hoisted", True): Costs(Rate(627, 0.001), Rate(32, 0.00012), Rate(0.55, 4.3e-05)),
    ("hoisted", False): Costs(Rate(189, 0.00094), Rate(16, 5.8e-05), Rate(0.72, 2.2e-05)),
}


def choose(mode: str, layout: Layout, data: Tensor, w_hh: Tensor, projected: bool) -> str:
    """The faster of ``hoisted`` and ``cover`` that can take this layer.

    The LSTM's dense kernel is fused on the CPU for float32 alone, without a projection; GRU and RNN
    have none.
    """
    if mode != "LSTM" or projected or not fused(data):
        return "hoisted"
    dense, loop = cover_cost(data, w_hh), _cost("hoisted", data, w_hh)
    covered = price(layout, dense)
    looped = loop.call + layout.num_steps * loop.step + len(data) * loop.cell
    return "cover" if covered < looped else "hoisted"


def cover_cost(data: Tensor, w_hh: Tensor) -> Cost:
    """What the rectangles of a cover cost for this layer."""
    return _cost("cover", data, w_hh)


def _cost(route: str, data: Tensor, w_hh: Tensor) -> Cost:
    weights = w_hh.shape[0] * (w_hh.shape[1] + data.shape[1])
    return CPU_COSTS[route, torch.is_grad_enabled()].at(weights)
