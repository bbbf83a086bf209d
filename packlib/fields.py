"""What the four fields of a packed batch must be, said before torch reads past their end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from packlib.host import host


def check_fields(data: Any, batch_sizes: Any, sorted_indices: Any, unsorted_indices: Any) -> None:
    if not isinstance(data, Tensor):
        raise TypeError(f"data must be a Tensor, got {type(data).__name__}")
    _check_batch_sizes(data, batch_sizes)
    size = int(batch_sizes[0])
    if _with_empty(size, sorted_indices, unsorted_indices):
        check_permutation("unsorted_indices", unsorted_indices, len(unsorted_indices))
    else:
        for name, indices in (("sorted_indices", sorted_indices),
                              ("unsorted_indices", unsorted_indices)):
            if indices is not None:
                check_permutation(name, indices, size)
    if sorted_indices is None or unsorted_indices is None:
        return
    if sorted_indices.is_cpu and unsorted_indices.is_cpu and not np.array_equal(
            np.argsort(host(unsorted_indices))[:size], host(sorted_indices)):
        raise ValueError("unsorted_indices must be the inverse of sorted_indices, got "
                         f"{_some(unsorted_indices)} for {_some(sorted_indices)}")


def _with_empty(size: int, sorted_indices: Any, unsorted_indices: Any) -> bool:
    """Indices of more sequences than ``size``, the number of those that have steps.

    No slip makes them: who takes lengths for batch_sizes has too many of both.
    """
    return (isinstance(sorted_indices, Tensor) and isinstance(unsorted_indices, Tensor)
            and sorted_indices.dtype == torch.int64 and sorted_indices.shape == (size,)
            and unsorted_indices.dim() == 1 and len(unsorted_indices) > size)


def _check_batch_sizes(data: Tensor, batch_sizes: Any) -> None:
    hint = ("batch_sizes has one entry for each time step: how many sequences still run there; "
            "they are not the lengths")
    if not isinstance(batch_sizes, Tensor):
        raise TypeError(f"batch_sizes must be a Tensor, got {type(batch_sizes).__name__}; {hint}")
    if batch_sizes.device.type != "cpu":
        raise ValueError("batch_sizes should always be on CPU, got device "
                         f"{batch_sizes.device}; steps are counted on the host")
    if batch_sizes.dim() != 1 or batch_sizes.dtype != torch.int64:
        raise TypeError("batch_sizes must be a 1D tensor of torch.int64, got "
                        f"{batch_sizes.dim()}D {batch_sizes.dtype}; {hint}")
    sizes = host(batch_sizes)
    if len(sizes) == 0:
        raise RuntimeError("batch_sizes can not be empty")
    if (sizes < 1).any():
        raise ValueError(f"batch_sizes must be at least 1, got {_some(batch_sizes)}")
    if (np.diff(sizes) > 0).any():
        raise ValueError(f"batch_sizes must never grow, got {_some(batch_sizes)}: sequences go "
                         f"longest first; {hint}")
    if data.dim() == 0 or sizes.sum() != len(data):
        rows = len(data) if data.dim() else 0
        raise ValueError(f"batch_sizes add up to {sizes.sum()} steps, but data has {rows} rows: "
                         f"it has one for each real step, and {hint}")


def check_permutation(name: str, indices: Any, size: int) -> None:
    if not isinstance(indices, Tensor):
        raise TypeError(f"{name} must be a Tensor, got {type(indices).__name__}")
    if indices.dtype != torch.int64:
        raise RuntimeError(f"{name} must be torch.int64, got {indices.dtype}")
    if indices.dim() != 1:
        raise IndexError(f"{name} must be 1D, got {indices.dim()}D")
    if len(indices) != size:
        raise ValueError(f"{name} must have one entry for each of {size} sequences, "
                         f"got {len(indices)}")
    if torch.compiler.is_compiling():
        return
    if indices.device.type == "cpu" and not np.array_equal(np.sort(host(indices)),
                                                           np.arange(size)):
        raise RuntimeError(f"{name} must hold each of 0 to {size - 1} once, got {_some(indices)}")


def _some(values: Tensor) -> str:
    shown = values[:8].tolist()
    return str(shown) if len(values) <= 8 else f"{shown[:-1]} and {len(values) - 7} more"
