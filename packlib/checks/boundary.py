"""The one place where the student's function is called: plain values in, plain tensors out.

It gets copies, it may print and warn without effect on the marks, it is stopped after a few
seconds, and it may not call what the part forbids. What goes wrong here is a Fault.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import torch
from torch import Tensor

from .effort import Effort, effort_of
from .guard import UNWATCHED, forbidden_calls
from .limit import TimeUp, time_limit
from .own_lines import OwnLine, own_line_of
from .plain import NotPlain, known_name, same, taken_apart
from .ragged import Plain

SECONDS_A_CALL = 3.0
SECONDS_IN_ALL = 6.0  # so that a test cell, with its second chance, ends within 20


class Fault(Exception):
    """A call that gave no plain answer: which law it breaks, of which kind, and where.

    ``said``, an exception's message, may repeat an input: it is shown for visible inputs only.
    """

    def __init__(self, kind: str, law: str, text: str, said: str = "", line: OwnLine | None = None):
        super().__init__(text)
        self.kind, self.law, self.text, self.said, self.line = kind, law, text, said, line


class Boundary:
    """``call(*plain) -> plain`` around one function of the student.

    The same question is asked once: laws share the answers.
    """

    def __init__(self, function: object, outputs: tuple[str, ...], seconds: float = SECONDS_A_CALL):
        self.function, self.outputs, self.seconds = function, outputs, seconds
        self.printed = ""
        self._until = time.monotonic() + SECONDS_IN_ALL
        self._answers: dict[object, tuple[Tensor, ...] | Fault] = {}

    def __call__(self, *plain: Plain) -> tuple[Tensor, ...]:
        question = tuple(_content(value) for value in plain)
        if question not in self._answers:
            try:
                self._answers[question] = self._ask(plain)
            except Fault as fault:
                self._answers[question] = fault
        answer = self._answers[question]
        if isinstance(answer, Fault):
            raise answer
        return answer

    def effort(self, *plain: Plain) -> Effort:
        """How much Python the function runs to answer; see ``effort_of``."""
        self(*plain)  # a Fault is raised here, by the plain call
        efforts: list[Effort] = []

        def measured(*copies: Plain) -> None:
            efforts.append(effort_of(lambda: self.function(*copies)))  # type: ignore[operator]

        self._quietly(measured, _copied(plain))
        return efforts[0]

    def _ask(self, plain: tuple[Plain, ...]) -> tuple[Tensor, ...]:
        if not callable(self.function):
            kind = type(self.function).__name__
            raise Fault("not-plain", "it is a function", f"Expected a function, found a {kind}.")
        copies = _copied(plain)
        answer = self._quietly(self.function, copies)
        _unchanged(plain, copies)
        try:
            return taken_apart(answer, self.outputs)
        except NotPlain as refused:
            law = "the answer is plain tensors"
            raise Fault(refused.kind, law, str(refused)) from None

    def _quietly(self, function: Callable[..., object], copies: list[Plain]) -> object:
        paper = io.StringIO()
        try:
            with redirect_stdout(paper), redirect_stderr(paper), _torch_left_as_it_was():
                return self._guarded(function, copies)
        finally:
            self.printed = paper.getvalue()

    def _guarded(self, function: Callable[..., object], copies: list[Plain]) -> object:
        seconds = min(self.seconds, max(0.1, self._until - time.monotonic()))
        answer: object = None
        failed: BaseException | None = None
        with forbidden_calls() as seen:
            try:
                with time_limit(seconds):
                    answer = function(*copies)
            except KeyboardInterrupt:
                raise
            except BaseException as exception:
                failed = exception
        # An alarm or a RecursionError may strike inside the hook, which also ends the watch.
        if seen and not (failed is not None and seen == [UNWATCHED]):
            raise _forbidden(*seen[0])
        if failed is not None:
            slow = seconds < self.seconds  # many calls, each in time, have used it all up
            raise _raised(failed, SECONDS_IN_ALL if slow else seconds)
        return answer


def _copied(plain: tuple[Plain, ...]) -> list[Plain]:
    return [value.clone() if isinstance(value, Tensor) else value for value in plain]


def _content(value: Plain) -> object:
    """What makes two questions the same: type, shape and every byte."""
    if not isinstance(value, Tensor):
        return type(value), str(value)
    raw = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return value.dtype, tuple(value.shape), raw


def _unchanged(plain: tuple[Plain, ...], copies: list[Plain]) -> None:
    for before, after in zip(plain, copies, strict=True):
        if isinstance(before, Tensor) and not same(before, after):  # type: ignore[arg-type]
            raise Fault(
                "changes-inputs",
                "your inputs are left as they were",
                "The function changed a tensor that it was given. The caller still needs it: "
                "make a new one, or work on x.clone().",
            )


def _forbidden(what: str, line: OwnLine | None) -> Fault:
    return Fault(
        "forbidden",
        "you write it yourself",
        f"Your code calls {what}. This part asks you to write it yourself: nothing from "
        "torch.nn.utils.rnn, its operators, or packlib.",
        line=line,
    )


def _raised(failed: BaseException, seconds: float) -> Fault:
    line = own_line_of(failed.__traceback__)
    if isinstance(failed, TimeUp):
        text = f"Stopped after {seconds:.0f} seconds. Is there a loop that never ends?"
        return Fault("endless", "the function comes to an end", text, line=line)
    if isinstance(failed, NotImplementedError):
        return Fault("not-written", "the function is written", "It is not written yet.", line=line)
    text = f"It stopped with {known_name(type(failed)) or 'an exception'}."
    return Fault("raises", "the function gives an answer", text, _message(failed), line)


def _message(failed: BaseException) -> str:
    try:
        return str(failed)[:300]
    except Exception:  # the student's own exception class may fail here too
        return ""


@contextmanager
def _torch_left_as_it_was() -> Iterator[None]:
    """Undoes what honest code leaves behind: dtype, grad mode, random state, warning filters."""
    dtype, grad, random = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_rng_state(random)
