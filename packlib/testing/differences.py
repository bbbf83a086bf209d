"""Where two tensors of rows differ, and by how much, in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib.layout import Layout
from packlib.ops import put
from packlib.sequence import layout_of

# torch.testing.assert_close's, as its documentation gives them: (rtol, atol); others are exact.
TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
MOST_NUMBERS = 6  # of a row that is shown in full


@dataclass(frozen=True)
class Close:
    """When two numbers count as equal: ``|actual - expected| <= atol + rtol * |expected|``."""

    rtol: float
    atol: float
    equal_nan: bool = False

    @classmethod
    def of(cls, dtype: torch.dtype, rtol: float | None, atol: float | None,
           equal_nan: bool = False) -> Close:
        """What was asked for, or torch's for the dtype."""
        if rtol is None and atol is None:
            return cls(*TOLERANCES.get(dtype, (0.0, 0.0)), equal_nan)
        if rtol is None or atol is None:
            missing = "rtol" if rtol is None else "atol"
            raise ValueError("Both 'rtol' and 'atol' must be either specified or omitted, but got "
                             f"no {missing}.")
        return cls(rtol, atol, equal_nan)

    def numbers(self, actual: Tensor, expected: Tensor) -> Tensor:
        """True where two numbers are close; shapes agree."""
        if actual.dtype == torch.bool:
            return actual == expected
        return torch.isclose(actual, expected, self.rtol, self.atol, self.equal_nan)

    def rows(self, actual: Tensor, expected: Tensor) -> Tensor:
        """True where all of a row is close: (N, *) -> (N,)."""
        return self.numbers(flat(actual), flat(expected)).all(1)

    def all(self, actual: Tensor, expected: Tensor) -> bool:
        """True if shapes and all numbers agree."""
        return actual.shape == expected.shape and bool(self.numbers(actual, expected).all())

    def __str__(self) -> str:
        if self.rtol == self.atol == 0:
            return "none is allowed"
        return f"allowed is {self.atol:g} + {self.rtol:g} * |expected|"


def plain(tensor: Tensor) -> Tensor:
    """The values alone, on the CPU."""
    return tensor.detach().cpu()


def flat(rows: Tensor) -> Tensor:
    """(N, *) -> (N, numbers in a row)."""
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def end_to_end(packed: torch_rnn.PackedSequence) -> Tensor:
    """The rows (N, *) of all sequences, one sequence after another in the user's order."""
    rows = layout_of(packed).listed(packed.data.device)
    return put(packed.data, rows, len(packed.data))


def listed_place(layout: Layout) -> Callable[[int], str]:
    """Says where a row is, of rows laid end to end."""
    sequence = layout.lengths.cumsum()

    def place(i: int) -> str:
        b = int(sequence.searchsorted(i, side="right"))
        return f"sequence {b}, step {i - layout.starts[b]} of {layout.lengths[b]}"

    return place


def length_difference(found: Layout, wanted: Layout) -> str | None:
    """A number of sequences or a length that is not the expected one."""
    if found.num_sequences != wanted.num_sequences:
        return f"{found.num_sequences} sequences, expected {wanted.num_sequences}"
    for b, (n, m) in enumerate(zip(found.lengths, wanted.lengths, strict=True)):
        if n != m:
            return f"sequence {b} has length {n}, expected {m}"
    return None


def kind_difference(actual: Tensor, expected: Tensor) -> str | None:
    """A dtype, a device or a shape of one row that is not the expected one."""
    for name in ("dtype", "device"):
        found, wanted = getattr(actual, name), getattr(expected, name)
        if found != wanted:
            return f"{name} is {found}, expected {wanted}"
    row, wanted_row = tuple(actual.shape[1:]), tuple(expected.shape[1:])
    return None if row == wanted_row else f"a step has shape {row}, expected {wanted_row}"


def row_difference(actual: Tensor, expected: Tensor, close: Close, place: Callable[[int], str],
                   many: str = "steps") -> str | None:
    """Which rows of (N, *) differ, the first of them, and the greatest difference; None if none.

    ``place`` says where row ``i`` is.
    """
    actual, expected = plain(actual), plain(expected)
    right = close.rows(actual, expected)
    if right.all():
        return None
    wrong = (~right).nonzero()[:, 0].tolist()
    lines = [f"{len(wrong)} of {len(right)} {many} differ",
             f"first: {place(wrong[0])}: "
             + _both(flat(actual)[wrong[0]], flat(expected)[wrong[0]], close)]
    if actual.dtype != torch.bool:
        row, most = _greatest(flat(actual)[wrong], flat(expected)[wrong])
        lines.append(f"greatest difference: {most:.3g}, {place(wrong[row])} ({close})")
        if replace(close, equal_nan=True).rows(actual, expected).all():
            lines.append("only NaN differs, and it stands in both: equal_nan=True lets it be equal")
    return "\n".join(lines)


def fail(difference: str, hint: str | None = None) -> NoReturn:
    """Raise the AssertionError, with the mistake that it looks like."""
    raise AssertionError(difference + (f"\nIt looks like this mistake: {hint}" if hint else ""))


def what(value: Any) -> str:
    """What was given in place of what was wanted."""
    if isinstance(value, Tensor):
        return f"a Tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)) and not isinstance(value, torch_rnn.PackedSequence):
        kinds = ", ".join(type(v).__name__ for v in value[:3]) + (", ..." if value[3:] else "")
        return f"a {type(value).__name__} of {len(value)}: ({kinds})"
    return type(value).__name__


def _greatest(actual: Tensor, expected: Tensor) -> tuple[int, float]:
    wide = torch.complex128 if actual.is_complex() else torch.float64
    apart = (actual.to(wide) - expected.to(wide)).abs().amax(1)
    row = int(apart.argmax())  # NaN counts as the greatest
    return row, float(apart[row])


def _both(found: Tensor, wanted: Tensor, close: Close) -> str:
    """Two rows that differ; of long ones the first number that does."""
    if len(found) > MOST_NUMBERS:
        i = int((~close.numbers(found, wanted)).nonzero()[0, 0])
        return f"number {i} of {len(found)} is {_pair(found[i], wanted[i])}"
    return _pair(found, wanted)


def _pair(found: Tensor, wanted: Tensor) -> str:
    """Both with few digits, or with all of them where few look alike."""
    few, few_wanted = (_shown(t, lambda v: f"{v:.6g}") for t in (found, wanted))
    if few == few_wanted:
        few, few_wanted = (_shown(t, repr) for t in (found, wanted))
    return f"{few}, expected {few_wanted}"


def _shown(values: Tensor, number: Callable[[Any], str]) -> str:
    shown = [number(v) if isinstance(v, (float, complex)) else str(v)
             for v in values.reshape(-1).tolist()]
    return shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
