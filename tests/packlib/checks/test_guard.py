"""Forbidden calls are found by any spelling, told with the student's line, and leave no trace."""

import functools
import inspect
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
import torch
from torch.nn.utils import rnn

import packlib
from packlib.checks import LawBroken, mistakes_packing, require, require_hidden
from packlib.checks.guard import ForbiddenCall, forbidden_calls
from packlib.checks.ragged import Ragged
from packlib.checks.right import conjugate

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
    "the checks' right answer": lambda: conjugate(LENGTHS),
    "the checks' right pack": lambda: mistakes_packing._right(X, LENGTHS),
    "the checks' mistakes": lambda: mistakes_packing.PACK[0].answer(X, LENGTHS),
    "the checks' batch_sizes": lambda: Ragged((5, 3, 2)).batch_sizes,
    "the checks' order": lambda: Ragged((5, 3, 2)).order,
    "the checks' rows": lambda: Ragged((5, 3, 2)).rows(),
}
SEEN_BY_NO_TRACE = {
    "watch off": lambda: sys.setprofile(None),
    "watch off in threads": lambda: threading.setprofile(None),
    "counting off": lambda: sys.settrace(None),
    "frames": lambda: sys._getframe(),
    "frames by inspect": lambda: inspect.currentframe(),
    "unwatched thread": lambda: __import__("_thread").start_new_thread(print, ()),
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


@pytest.mark.parametrize("call", SEEN_BY_NO_TRACE.values(), ids=list(SEEN_BY_NO_TRACE))
def test_ways_round_the_guard_are_refused(call):
    with forbidden_calls() as seen, pytest.raises(ForbiddenCall):
        call()
    assert seen


def test_a_watch_that_was_switched_off_unseen_is_told():
    before = sys.getprofile()
    with forbidden_calls() as seen:
        list(map(sys.setprofile, [None]))  # called by C, so no hook sees it
        packlib.lengths_to_mask(LENGTHS)
    assert [what for what, _ in seen] == ["sys.setprofile"]
    assert sys.getprofile() is before


@pytest.mark.parametrize("name", ["packlib", "operator", "vf", "the checks' right pack"])
def test_another_thread_is_watched_too(name):
    def in_thread():
        with suppress(ForbiddenCall):
            SPELLINGS[name]()

    before = threading.getprofile()
    with forbidden_calls() as seen:
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
    assert len(seen) == 1
    assert threading.getprofile() is before


@pytest.mark.parametrize(
    "pack",
    [
        lambda x, lengths: mistakes_packing._right(x, lengths),
        lambda x, lengths: (sys.setprofile(None), mistakes_packing._right(x, lengths))[1],
    ],
    ids=["right answer", "watch off"],
)
def test_visible_and_hidden_checks_refuse_it(pack):
    with pytest.raises(LawBroken, match="you write it yourself") as visible:
        require("ps2.pack", pack)
    with pytest.raises(LawBroken, match="you write it yourself") as hidden:
        require_hidden("ps2.pack", pack, seed=11)
    assert visible.value.hint == hidden.value.hint == "forbidden"


def test_endless_recursion_is_no_forbidden_call():
    def batch_sizes(lengths):
        return batch_sizes(lengths)  # the error may strike inside the hook

    with pytest.raises(LawBroken, match="It stopped with RecursionError"):
        require("ps2.batch_sizes", batch_sizes)


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
        "with forbidden_calls(), forbidden_calls(): pass"  # torch warns of what is replaced twice
    )
    done = subprocess.run(  # a process of its own, for torch warns once in each
        [sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
