"""Integers between the host, where batches are planned, and the device that the data is on."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
CPU = torch.device("cpu")  # compared with sooner than a device's type, a new string each time


def host(integers: Tensor) -> Ints:
    """The values of an integer tensor, in numpy; one copy from the device if it is on one."""
    try:
        return (integers if integers.is_cpu else integers.cpu()).numpy()
    except RuntimeError:  # inside torch.func.grad tensors have no storage to look into
        return np.array(integers.tolist(), dtype=np.int64).reshape(integers.shape)


def near(device: torch.device, integers: Ints) -> Tensor:
    """Integers on the device; the host does not wait until they have come to a GPU.

    That takes pinned memory. It may be let go at once: torch's allocator of such memory knows of
    the copy, and gives it to nobody before the GPU is past it.
    """
    made = torch.from_numpy(integers)
    if device == CPU:
        return made
    if device.type == "cuda":
        return made.pin_memory().to(device, non_blocking=True)
    return made.to(device)


def pair_near(device: torch.device, one: Ints, other: Ints) -> tuple[Tensor, Tensor]:
    """Copies of two, which go to a GPU in one."""
    if device == CPU:
        return torch.from_numpy(one.copy()), torch.from_numpy(other.copy())
    both = near(device, np.concatenate([one, other]))
    return both[:len(one)], both[len(one):]


def stream(device: torch.device) -> int:
    """The GPU's queue of work, 0 on other devices.

    What ``near`` gives is there for work of the same queue. Another queue may come to it before the
    copy has, so what is kept is kept for one queue.
    """
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
