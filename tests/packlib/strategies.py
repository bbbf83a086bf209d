"""What the laws are tried on: drawn lengths, values, dtypes, layouts of memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = [torch.float32, torch.float64, torch.half, torch.bfloat16, torch.int64, torch.bool,
          torch.complex64]
# Neither is its own conjugate, and both orders are 3-cycles or longer.
UNSORTED = [[2, 4, 1, 4, 3], [4, 6, 8, 5, 4, 3, 7, 8], [2, 5, 1], [1, 3, 2, 6]]

lengths = st.one_of(
    st.sampled_from(UNSORTED),
    st.lists(st.integers(1, 8), min_size=1, max_size=7),
    st.lists(st.integers(1, 3), min_size=17, max_size=40),  # ties, where torch's sort is not stable
    st.integers(1, 8).map(lambda n: [n]),  # one sequence
    st.tuples(st.integers(1, 5), st.integers(2, 6)).map(lambda p: [p[0]] * p[1]),  # all equal
)
with_empty = st.one_of(
    st.sampled_from([[2, 0, 4, 1, 0, 3], [0, 5], [0, 2, 2, 0], [0, 0, 1]]),
    st.lists(st.integers(0, 8), min_size=1, max_size=7).filter(any),
    st.lists(st.integers(0, 2), min_size=17, max_size=40).filter(any),
)
features = st.lists(st.integers(1, 3), max_size=3).map(tuple)
memory = st.sampled_from(["plain", "transposed", "strided", "expanded"])


def values(shape, dtype, seed=0):
    """Whole numbers that every dtype holds exactly, so that equal can mean equal."""
    draw = torch.Generator().manual_seed(seed)

    def whole():
        return torch.randint(-99, 100, tuple(shape), generator=draw)

    if dtype.is_complex:
        return torch.complex(whole().float(), whole().float()).to(dtype)
    return whole() % 2 == 0 if dtype == torch.bool else whole().to(dtype)


def poison(dtype):
    """What stands in the padding: the value that does most harm if it gets out."""
    if dtype == torch.bool:
        return True
    return float("nan") if dtype.is_floating_point or dtype.is_complex else 12345


def in_memory(x, how):
    """The values of ``x`` in another layout (``expanded`` repeats its first feature)."""
    if how == "transposed":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if how == "strided":
        return torch.stack([x, x], dim=-1)[..., 0]
    if how == "expanded" and x.dim() > 2:
        return x[..., :1].expand_as(x)
    return x


@dataclass
class Batch:
    """One batch in every form: ``sequences`` is what the others are made from and judged by."""

    sequences: list[Tensor]
    lengths: list[int]
    padded: Tensor
    batch_first: bool
    total: int

    @property
    def sorted(self):
        return all(a >= b for a, b in zip(self.lengths, self.lengths[1:], strict=False))


@st.composite
def batches(draw, dtypes=tuple(DTYPES), lengths=lengths, features=features):
    counts = draw(lengths)
    dtype = draw(st.sampled_from(dtypes))
    total = max(counts) + draw(st.sampled_from([0, 0, 1, 3]))
    batch_first = draw(st.booleans())
    grid = values((len(counts), total, *draw(features)), dtype, draw(st.integers(0, 9)))
    for row, n in zip(grid, counts, strict=True):
        row[n:] = poison(dtype)
    grid = in_memory(grid if batch_first else grid.transpose(0, 1), draw(memory))
    rows = grid if batch_first else grid.transpose(0, 1)
    sequences = [row[:n].clone() for row, n in zip(rows, counts, strict=True)]
    return Batch(sequences, counts, grid, batch_first, total)
