"""Which way a recurrent layer goes over its packed rows, and what each way costs.

``plain``: the loop that the book teaches; every option, any order of derivatives.
``hoisted``: the same loop with the GEMMs and the weights' gradients moved out of it.
``cover``: LSTM only; a few dense rectangles through the fused kernel.
``torch``: torch's own kernel over all layers at once; on CUDA that is cuDNN's. On the CPU it is
chosen where it is the faster one: for equal lengths, or where no backward follows.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from packlib.cover import Cost, cover
from packlib.layout import Layout

ROUTES = ("auto", "plain", "hoisted", "cover", "torch")  # auto: see choose


class Rate(NamedTuple):
    """Microseconds = base + weights * per_weight, for a layer with so many weights."""

    base: float
    per_weight: float

    def at(self, weights: int) -> float:
        return self.base + weights * self.per_weight


NOTHING = Rate(0, 0)


class Costs(NamedTuple):
    """A layer; in it a step and a cell; for a cover a rectangle, and padding if there is any."""

    layer: Rate
    step: Rate
    cell: Rate
    call: Rate = NOTHING
    pad: Rate = NOTHING

    def at(self, weights: int) -> Cost:
        return Cost(**{name: rate.at(weights) for name, rate in self._asdict().items()})


# An LSTM's, fitted by benchmarks/calibrate.py on two threads, float32; only their proportions
# matter. Of torch's packed kernel only the forward pass: its backward grows with the square of T.
CPU_COSTS = {
    ("cover", True): Costs(layer=Rate(296, 0.00027), call=Rate(313, 0.0015),
                           pad=Rate(280, 0.00026), step=Rate(4.05, 1.7e-05),
                           cell=Rate(0.35, 3.3e-05)),
    ("cover", False): Costs(layer=Rate(140, 0.00018), call=Rate(131, 0.00021), pad=Rate(207, 0),
                            step=Rate(1.84, 8e-06), cell=Rate(0.0853, 1e-05)),
    ("hoisted", True): Costs(layer=Rate(649, 0.00077), step=Rate(29.9, 0.00011),
                             cell=Rate(0.628, 3.8e-05)),
    ("hoisted", False): Costs(layer=Rate(206, 0.00019), step=Rate(14, 5.5e-05),
                              cell=Rate(0.284, 1.6e-05)),
    ("torch", False): Costs(layer=Rate(94, 0.00013), step=Rate(14.5, 8.8e-05),
                            cell=Rate(0.424, 1.5e-05)),
}


# An RNN of so many steps or fewer is over before the hoisted loop has begun.
SHORT = 20


def choose(mode: str, layout: Layout, data: Tensor, w_hh: Tensor, projected: bool) -> str:
    """The fastest way for a layer of these weights; but on CUDA, see ``choose_on_cuda``.

    The LSTM's dense kernel is fused on the CPU for float32 alone, without a projection. It is what
    ``torch`` calls for equal lengths. GRU and RNN have none: without it torch's loop is the faster
    one forward, since it is in C++, and the hoisted one backward.
    """
    training = torch.is_grad_enabled()
    if mode != "LSTM" or projected or not _fused(data):
        late = training or not data.is_cpu or mode.startswith("RNN") and layout.num_steps > SHORT
        return "hoisted" if late else "torch"
    if layout.batch_sizes[0] == layout.batch_sizes[-1]:
        return "torch"
    prices = {way: _looped(layout, _cost(way, data, w_hh))
              for way in (["hoisted"] if training else ["hoisted", "torch"])}
    prices["cover"] = cover(layout, cover_cost(data, w_hh)).price
    return min(prices, key=prices.__getitem__)


def _fused(data: Tensor) -> bool:
    """Whether oneDNN has the LSTM's dense kernel; torch takes it on the CPU for float32."""
    return data.is_cpu and data.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def _looped(layout: Layout, cost: Cost) -> float:
    return cost.layer + layout.num_steps * cost.step + layout.num_rows * cost.cell


def cover_cost(data: Tensor, w_hh: Tensor) -> Cost:
    """What the rectangles of a cover cost for this layer."""
    return _cost("cover", data, w_hh)


# On a GPU, microseconds of a layer with the given ``cover`` or ``torch`` (cuDNN's packed kernel),
# training or not. No GPU was at hand: they are a model of T = 512, B = 256 made of what others have
# measured (a small launch is some 6 microseconds, a call of cuDNN 60 to 100 on the host).
# benchmarks/gpu.py measures both routes side by side.
CUDA_COSTS = {
    ("cover", True): Cost(900, 4.5, 0.004),
    ("cover", False): Cost(300, 1.2, 0.0014),
    ("torch", True): Cost(300, 18, 0.0006),
    ("torch", False): Cost(100, 6, 0.0002),
}
# The largest hidden size for which torch lets dense input have cuDNN's persistent kernel, training
# or not; packed input never gets it. Without it a dense call is no faster than a packed one.
CUDA_LARGEST = {True: 128, False: 192}
CUDA_DTYPES = (torch.float32, torch.half)  # the persistent kernel's


def choose_on_cuda(mode: str, layout: Layout, hidden: int, dtype: torch.dtype, training: bool,
                   projected: bool) -> str:
    """``cover`` where the dense kernel is faster by ``CUDA_COSTS``, else ``torch``.

    For equal lengths ``torch`` is a dense call as well, of all layers at once.
    """
    dense = mode == "LSTM" and not projected and dtype in CUDA_DTYPES
    equal = layout.batch_sizes[0] == layout.batch_sizes[-1]
    if equal or not dense or hidden > CUDA_LARGEST[training]:
        return "torch"
    packed = CUDA_COSTS["torch", training]
    stepwise = packed.call + layout.num_steps * packed.step + layout.num_rows * packed.cell
    return "cover" if cover(layout, CUDA_COSTS["cover", training]).price < stepwise else "torch"


def _cost(route: str, data: Tensor, w_hh: Tensor) -> Cost:
    if data.is_cuda:
        return CUDA_COSTS[route, torch.is_grad_enabled()]
    weights = w_hh.shape[0] * (w_hh.shape[1] + data.shape[1])
    return _cpu_cost(route, torch.is_grad_enabled(), weights)


@functools.lru_cache(maxsize=256)
def _cpu_cost(route: str, training: bool, weights: int) -> Cost:
    return CPU_COSTS[route, training].at(weights)
