"""The student's function is called in one place: copies in, plain tensors out, stopped in time."""

import signal
import sys
import threading
import time
import warnings
from contextlib import suppress

import pytest
import torch

from packlib.checks import boundary
from packlib.checks.boundary import Boundary, Fault
from packlib.checks.limit import TimeUp, time_limit
from packlib.checks.plain import same

ONE = torch.tensor([1, 2, 3])


class Liar:
    """Says yes to everything; each question is written down."""

    asked = []

    def __eq__(self, other):
        self.asked.append("eq")
        return True

    def __getattr__(self, name):
        self.asked.append(name)
        return self


class LyingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("a method of the answer ran")


def fault_of(function, *plain, outputs=("answer",), seconds=3.0):
    with pytest.raises(Fault) as caught:
        Boundary(function, outputs, seconds)(*plain)
    return caught.value


def test_gives_back_a_plain_copy():
    kept = []
    call = Boundary(lambda x: kept.append(x) or x, ("answer",))
    (answer,) = call(ONE)
    assert torch.equal(answer, torch.tensor([1, 2, 3]))
    assert kept[0] is not ONE
    assert answer.data_ptr() != kept[0].data_ptr()


def test_asks_each_question_once():
    asked = []
    call = Boundary(lambda x: asked.append(1) or x, ("answer",))
    call(ONE)
    call(ONE.clone())
    assert len(asked) == 1
    call(ONE.int())
    call(ONE[None])
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        (None, "not-plain", "return line"),
        ([1, 2], "list-for-tensor", "torch.tensor"),
        ([ONE, ONE], "list-for-tensor", "torch.stack"),
        (ONE.numpy(), "not-plain", "ndarray"),
        (3, "not-plain", "an int"),
        (torch.nn.Parameter(torch.zeros(2)), "not-plain", "Parameter"),
        (ONE.to_sparse(), "not-plain", "dense"),
        (torch.zeros(2, device="meta"), "not-plain", "CPU"),
        (torch.zeros(1).expand(10**9), "not-plain", "too many"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_what_is_no_plain_tensor(answer, kind, word):
    fault = fault_of(lambda: answer)
    assert fault.kind == kind
    assert word in fault.text


def test_an_object_that_lies_is_refused_before_it_is_asked():
    Liar.asked.clear()
    assert fault_of(Liar).kind == "not-plain"
    assert Liar.asked == []


def test_a_tensor_that_lies_is_refused_before_it_is_asked():
    fault = fault_of(lambda: torch.zeros(2).as_subclass(LyingTensor))
    assert fault.kind == "not-plain"
    assert "LyingTensor" not in fault.text  # a name of the student's may say anything


def test_wants_as_many_tensors_as_the_part_names():
    assert "3 tensors" in fault_of(lambda: ONE, outputs=("a", "b", "c")).text
    assert "2 things" in fault_of(lambda: (ONE, ONE), outputs=("a", "b", "c")).text
    lying_tuple = type("Pair", (tuple,), {})([ONE, ONE])
    assert fault_of(lambda: lying_tuple, outputs=("a", "b")).kind == "not-plain"
    assert len(Boundary(lambda: [ONE, ONE], ("a", "b"))()) == 2


@pytest.mark.parametrize("change", [lambda x: x.add_(1), lambda x: x.zero_(), lambda x: x.t_()])
def test_a_changed_input_is_a_fault(change):
    x = torch.arange(1.0, 7.0).reshape(2, 3)
    before = x.clone()
    fault = fault_of(lambda x: [change(x)] and ONE, x)
    assert fault.kind == "changes-inputs"
    assert torch.equal(x, before)


def test_nan_that_stays_is_no_change():
    x = torch.tensor([1.0, float("nan")])
    Boundary(lambda x: x, ("answer",))(x)


def test_an_exception_is_told_with_the_students_own_line():
    def reaches_too_far(x):
        return torch.stack([x[7]])

    fault = fault_of(reaches_too_far, ONE)
    assert (fault.kind, fault.text) == ("raises", "It stopped with IndexError.")
    assert "out of bounds" in fault.said
    assert str(fault.line).startswith("line ")
    assert "of reaches_too_far: return torch.stack([x[7]])" in str(fault.line)


def test_the_name_of_an_exception_of_the_students_is_not_repeated():
    def tells(x):
        raise type("secret_" + str(x.tolist()), (Exception,), {})

    assert "secret" not in fault_of(tells, ONE).text


def test_a_stub_is_not_written_yet():
    def stub(x):
        raise NotImplementedError

    assert fault_of(stub, ONE).kind == "not-written"


def test_leaving_the_program_is_a_fault():
    assert fault_of(lambda x: sys.exit(0), ONE).kind == "raises"


def test_what_is_no_function_is_a_fault():
    assert "found a Tensor" in fault_of(ONE, ONE).text


def test_prints_and_warnings_are_kept_off_the_screen(capfd):
    def noisy(x):
        print("printed", x)
        warnings.warn("warned", stacklevel=1)
        return x

    call = Boundary(noisy, ("answer",))
    call(ONE)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert "printed tensor([1, 2, 3])" in call.printed


def test_torch_is_as_it_was_afterwards():
    def careless(x):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        return x

    torch.manual_seed(7)
    Boundary(careless, ("answer",))(ONE)
    drawn = torch.rand(1)
    torch.manual_seed(7)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.equal(drawn, torch.rand(1))


def endless(x):
    while True:
        pass


def stubborn(x):
    while True:
        with suppress(Exception):
            endless(x)


@pytest.mark.parametrize("function", [endless, stubborn])
def test_an_endless_loop_is_stopped(function):
    began = time.monotonic()
    fault = fault_of(function, ONE, seconds=0.3)
    assert time.monotonic() - began < 3
    assert fault.kind == "endless"
    assert "never ends" in fault.text
    assert "of endless" in str(fault.line)


def test_many_slow_calls_are_stopped_together(monkeypatch):
    monkeypatch.setattr(boundary, "SECONDS_IN_ALL", 0.5)
    call = Boundary(lambda x: time.sleep(0.2) or x, ("answer",))
    with pytest.raises(Fault, match="Stopped after") as caught:
        for number in range(9):
            call(torch.tensor([number]))
    assert caught.value.kind == "endless"
    assert 0 < number < 5


def test_the_alarm_of_others_still_rings():
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    before = signal.setitimer(signal.ITIMER_REAL, 0.4)
    try:
        with pytest.raises(TimeUp), time_limit(0.1):
            endless(None)
        assert rung == []
        time.sleep(0.5)
        assert rung == [1]
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_works_in_another_thread_without_a_limit():
    answers = []
    call = Boundary(lambda x: x, ("answer",))
    thread = threading.Thread(target=lambda: answers.extend(call(ONE)))
    thread.start()
    thread.join()
    assert torch.equal(answers[0], ONE)


def test_same_knows_nan_and_shapes():
    nan = float("nan")
    assert same(torch.tensor([1.0, nan]), torch.tensor([1.0, nan]))
    assert not same(torch.tensor([1.0, nan]), torch.tensor([nan, 1.0]))
    assert not same(torch.zeros(2), torch.zeros(2, 1))
    assert same(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]))
