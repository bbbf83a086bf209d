"""Forbidden calls are found by any spelling, told with the student's line, and leave no trace."""

import functools
import subprocess
import sys
from contextlib import suppress

import pytest
import torch
from torch.nn.utils import rnn

import packlib
from packlib.checks.guard import ForbiddenCall, forbidden_calls

X = torch.arange(30.0).reshape(3, 5, 2)
LENGTHS = torch.tensor([5, 3, 2])
SIZES = torch.tensor([3, 3, 2, 1, 1])
DATA = torch.arange(20.0).reshape(10, 2)
renamed = rnn.pack_padded_sequence

SPELLINGS = {
    "torch": lambda: torch.nn.utils.rnn.pack_padded_sequence(X, LENGTHS, True),
    "alias": lambda: renamed(X, LENGTHS, True),
    "getattr": lambda: getattr(rnn, "pack_" + "padded_sequence")(X, LENGTHS, True),
    "partial": lambda: functools.partial(renamed, batch_first=True)(X, LENGTHS),
    "vf": lambda: torch._VF._pack_padded_sequence(X, LENGTHS, True),
    "variable functions": lambda: torch._C._VariableFunctions._pack_padded_sequence(
        X, LENGTHS, True
    ),
    "operator": lambda: torch.ops.aten._pack_padded_sequence(X, LENGTHS, True),
    "overload": lambda: torch.ops.aten._pack_padded_sequence.default(X, LENGTHS, True),
    "with gradient": lambda: torch._VF._pack_padded_sequence(
        X.clone().requires_grad_(), LENGTHS, True
    ),
    "unpack by vf": lambda: torch._VF._pad_packed_sequence(DATA, SIZES, True, 0.0, 5),
    "unpack by operator": lambda: torch.ops.aten._pad_packed_sequence(DATA, SIZES, True, 0.0, 5),
    "packed object": lambda: rnn.PackedSequence(DATA, SIZES),
    "pack_sequence": lambda: rnn.pack_sequence([X[0], X[1, :3]]),
    "pad_sequence": lambda: rnn.pad_sequence([X[0], X[1, :3]]),
    "pad by operator": lambda: torch._C._nn.pad_sequence([X[0], X[1, :3]], True, 0.0),
    "unpad_sequence": lambda: rnn.unpad_sequence(X, LENGTHS, True),
    "invert_permutation": lambda: rnn.invert_permutation(torch.tensor([1, 2, 0])),
    "packlib": lambda: packlib.pack_padded_sequence(X, LENGTHS, True),
    "packlib pad": lambda: packlib.pad_sequence([X[0], X[1, :3]]),
    "packlib mask": lambda: packlib.lengths_to_mask(LENGTHS),
    "packlib counting": lambda: sys.modules["packlib.layout"].conjugate(LENGTHS.numpy()),
}


def inference():
    with torch.inference_mode():
        return torch._VF._pack_padded_sequence(X, LENGTHS, True)


SPELLINGS["inference mode"] = inference
each_spelling = pytest.mark.parametrize("call", SPELLINGS.values(), ids=list(SPELLINGS))


@each_spelling
def test_found_by_any_spelling(call):
    with forbidden_calls() as seen, pytest.raises(ForbiddenCall):
        call()
    assert len(seen) == 1


@each_spelling
def test_allowed_before_and_after(call):
    call()
    with forbidden_calls(), pytest.raises(ForbiddenCall):
        call()
    call()


@each_spelling
def test_swallowed_is_still_seen(call):
    with forbidden_calls() as seen, suppress(BaseException):
        call()
    assert seen


def test_the_message_names_the_function_and_the_students_line():
    with forbidden_calls() as seen, pytest.raises(ForbiddenCall, match="not allowed"):
        SPELLINGS["alias"]()
    ((what, line),) = seen
    assert what == "torch.nn.utils.rnn.pack_padded_sequence"
    assert "renamed(X, LENGTHS, True)" in line.text
    with forbidden_calls() as seen, pytest.raises(ForbiddenCall):
        SPELLINGS["vf"]()
    ((what, line),) = seen
    assert what == "aten::_pack_padded_sequence"
    assert "torch._VF" in line.text


def test_ordinary_torch_is_allowed():
    with forbidden_calls() as seen:
        order = torch.argsort(LENGTHS, descending=True)
        mask = torch.arange(5)[:, None] < LENGTHS[order]
        torch.nn.functional.pad(X[order].transpose(0, 1)[mask], (0, 0, 0, 3))
        torch.nn.LSTM(2, 3, batch_first=True)(X)
    assert seen == []


def test_nested_guards_leave_no_trace():
    with forbidden_calls():
        with forbidden_calls() as inner, pytest.raises(ForbiddenCall):
            SPELLINGS["vf"]()
        assert inner
        with pytest.raises(ForbiddenCall):
            SPELLINGS["vf"]()
    SPELLINGS["vf"]()
    SPELLINGS["torch"]()


def test_an_exception_leaves_no_trace():
    with pytest.raises(ZeroDivisionError), forbidden_calls():
        raise ZeroDivisionError
    SPELLINGS["operator"]()
    SPELLINGS["unpack by vf"]()


def test_gradients_of_torchs_own_pack_are_right_afterwards():
    with forbidden_calls():
        pass
    x = X.clone().requires_grad_()
    rnn.pack_padded_sequence(x, LENGTHS, True).data.sum().backward()
    mask = torch.arange(5) < LENGTHS[:, None]
    assert torch.equal(x.grad, mask[:, :, None].expand_as(x).float())


def test_the_profile_hook_of_others_comes_back():
    def theirs(*_):
        return None

    before = sys.getprofile()
    sys.setprofile(theirs)
    try:
        with forbidden_calls():
            pass
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(before)


def test_no_warning_is_left_on_stderr():
    program = (
        "from packlib.checks.guard import forbidden_calls\n"
        "with forbidden_calls(), forbidden_calls(): pass"  # torch warns when a guard is nested
    )
    done = subprocess.run(  # a process of its own, for torch warns once in each
        [sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
