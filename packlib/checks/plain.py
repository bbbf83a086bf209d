"""What a student's function returns, taken apart into plain tensors; nothing else gets through.

An object that answers for itself (``__eq__``, a Tensor subclass, a lazy proxy) is refused by its
type before any of its methods can run.
"""

from __future__ import annotations

import builtins

import numpy
import torch
import torch.nn.utils.rnn
from torch import Tensor

MOST_NUMBERS = 1_000_000


class NotPlain(Exception):
    """The answer is not what the part asks for; ``kind`` names the way."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def taken_apart(answer: object, names: tuple[str, ...]) -> tuple[Tensor, ...]:
    """One plain tensor for each name, copied; raises NotPlain otherwise."""
    if len(names) == 1:
        return (_plain_tensor(answer, names[0]),)
    wanted = ", ".join(names)
    if type(answer) not in (tuple, list):
        raise NotPlain(
            "not-plain",
            f"You returned {_kind_of(answer)}. This part wants {len(names)} tensors: {wanted}.",
        )
    if len(answer) != len(names):  # type: ignore[arg-type]
        raise NotPlain(
            "not-plain",
            f"You returned {len(answer)} things. "  # type: ignore[arg-type]
            f"This part wants {len(names)} tensors: {wanted}.",
        )
    pairs = zip(answer, names, strict=True)  # type: ignore[call-overload]
    return tuple(_plain_tensor(value, name) for value, name in pairs)


def _plain_tensor(value: object, name: str) -> Tensor:
    if type(value) in (list, tuple):
        inner = "torch.stack" if any(type(v) is Tensor for v in value) else "torch.tensor"  # type: ignore[attr-defined]
        raise NotPlain(
            "list-for-tensor",
            f"{name} is {_kind_of(value)}. Make it a tensor as the last step, with {inner}(...).",
        )
    if type(value) is not Tensor:
        raise NotPlain("not-plain", f"{name} is {_kind_of(value)}. It must be a torch.Tensor.")
    if value.layout != torch.strided or value.is_nested or value.device.type != "cpu":
        raise NotPlain(
            "not-plain", f"{name} must be an ordinary dense tensor on the CPU, like the input."
        )
    if value.numel() > MOST_NUMBERS:
        raise NotPlain("not-plain", f"{name} holds {value.numel():,} numbers: far too many.")
    return value.detach().resolve_conj().resolve_neg().clone()


def _kind_of(value: object) -> str:
    if value is None:
        return "None (is the return line missing?)"
    name = known_name(type(value)) or "object of another class"
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return f"{article} {name}"


def known_name(kind: type) -> str:
    """The name of a class of Python, torch or numpy; "" for others, whose name may say anything."""
    homes = (builtins, torch, torch.nn, torch.nn.utils.rnn, numpy)
    name = kind.__name__
    return name if any(vars(home).get(name) is kind for home in homes) else ""


def same(a: Tensor, b: Tensor) -> bool:
    """Same shape and same values; NaN equals NaN, and a dtype is another law's matter."""
    if a.shape != b.shape:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
