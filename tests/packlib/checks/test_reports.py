"""What is said: everything for visible inputs, in levels; law and hint for hidden ones."""

import re
import subprocess
import sys
import time

import pytest
import torch

import packlib
from packlib.checks import PARTS, LawBroken, check, guard, require, require_hidden

SEED = 424242


def sequence_major(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sizes = torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])
    return torch.cat([x[b, : lengths[b]] for b in order]), sizes, order


def right(lengths):
    return torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])


def reaches_too_far(lengths):
    return lengths[99]


def said_by(call, *arguments, **options):
    with pytest.raises(LawBroken) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_check_says_what_broke_on_a_drawn_small_input(capsys):
    assert check("ps2.pack", sequence_major) is False
    assert capsys.readouterr().out == (
        "ps2.pack: this law is broken: data runs time step by time step.\n"
        "\n"
        "The input: lengths [1, 2], x (2, 2, 1) of float32\n"
        "    a0 ·\n"
        "    b0 b1\n"
        "\n"
        "            expected  found\n"
        "    step 0  b0 a0     b0 [b1]\n"
        "    step 1  b1        [a0]\n"
        "\n"
        'More: packlib.check("ps2.pack", pack, hint=2) says which mistake it looks like.\n'
    )


def test_hints_come_in_levels(capsys):
    mistake = "sequence after sequence"
    section = 'Read: "The smallest code that shows it" in chapters/05_pack_by_hand'
    held = {}
    for level in (1, 2, 3):
        check("ps2.pack", sequence_major, hint=level)
        held[level] = capsys.readouterr().out
    assert mistake not in held[1]
    assert section not in held[1]
    assert mistake in held[2]
    assert section not in held[2]
    assert mistake in held[3]
    assert section in held[3]


def test_a_level_that_would_say_nothing_is_not_offered(capsys):
    check("ps2.batch_sizes", lambda lengths: [1])
    assert "hint=3" in capsys.readouterr().out


def test_a_stub_gets_a_nudge_and_no_wall_of_text(capsys):
    def batch_sizes(lengths):
        raise NotImplementedError

    assert check("ps2.batch_sizes", batch_sizes) is False
    out = capsys.readouterr().out
    assert out.startswith("ps2.batch_sizes: batch_sizes is not written yet.")
    assert "hint=2) gives a hint" in out
    check("ps2.batch_sizes", batch_sizes, hint=2)
    assert "count each column" in capsys.readouterr().out


def test_check_says_so_when_all_holds(capsys):
    assert packlib.check("ps2.batch_sizes", right) is True
    assert capsys.readouterr().out == "ps2.batch_sizes: all laws hold.\n"


def test_an_exception_is_shown_with_its_message_and_the_students_line(capsys):
    check("ps2.batch_sizes", reaches_too_far)
    out = capsys.readouterr().out
    assert "It stopped with IndexError.\n    line " in out
    assert "of reaches_too_far: return lengths[99]\n\nIt says: index 99 is out of bounds" in out
    assert "The input: lengths [1]" in out


def test_what_the_function_printed_is_shown(capsys):
    def chatty(lengths):
        print("I was given", lengths.tolist())
        return lengths

    check("ps2.batch_sizes", chatty)
    assert "Your function printed:\n    I was given [2]" in capsys.readouterr().out


@pytest.mark.parametrize("call", [check, require, lambda p, f: require_hidden(p, f, seed=1)])
def test_an_unknown_part_lists_the_parts(call):
    with pytest.raises(ValueError, match=r"no part 'ps2.pakc'.*ps2.batch_sizes, ps2.pack"):
        call("ps2.pakc", right)


def test_an_unknown_hint_is_an_error():
    with pytest.raises(ValueError, match="hint is 1"):
        check("ps2.pack", right, hint=4)


def test_require_tells_everything():
    said = said_by(require, "ps2.pack", sequence_major)
    for piece in ("data runs", "lengths [1, 2]", "[b1]", "sequence after sequence", "Read:"):
        assert piece in said


def test_require_hidden_tells_law_hint_and_section_alone():
    assert said_by(require_hidden, "ps2.pack", sequence_major, seed=SEED) == (
        "ps2.pack, on inputs that are not shown: this law is broken: data runs time step by time "
        "step.\n\n"
        "It looks like this: Your data holds the right vectors, sequence after sequence. A packed\n"
        "batch goes time step by time step: first step 0 of every sequence, then step 1 of those\n"
        "still running, and so on.\n\n"
        'Read: "The smallest code that shows it" in chapters/05_pack_by_hand'
    )


def tells_its_input(lengths):
    print(lengths)
    sys.stderr.write(str(lengths))
    raise ValueError(f"secret {lengths.tolist()}")


def tells_by_name(lengths):
    raise type(f"secret{lengths.tolist()}", (ValueError,), {})


def tells_by_type(lengths):
    return type(f"secret{lengths.tolist()}", (), {})()


@pytest.mark.parametrize("function", [tells_its_input, tells_by_name, tells_by_type])
def test_a_hidden_input_does_not_come_back_through_the_students_code(function, capfd):
    said = said_by(require_hidden, "ps2.batch_sizes", function, seed=SEED)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert not re.search(r"secret ?\[\d", said)


def test_hidden_reports_of_all_known_mistakes_hold_no_input_and_no_value(monkeypatch):
    # here the mistakes of packlib.checks play the student; a student may not call them
    monkeypatch.setattr(guard, "forbidden_module", lambda filename: "")
    monkeypatch.setattr(guard, "_harmless", set())
    for part in PARTS.values():
        for mistake in part.mistakes:
            answer = mistake.answer
            if len(part.outputs) == 1:
                single = answer
                answer = lambda *plain, f=single: f(*plain)[0]  # noqa: E731
            said = said_by(require_hidden, part.name, answer, seed=SEED)
            said = " ".join(said.split())
            assert mistake.hint in said
            said = said.replace(mistake.hint, "")
            assert not re.search(r"[\[(]\d|tensor\(|expected +found", said), said


def test_right_on_the_shown_inputs_alone_is_told():
    shown = {batch.lengths: batch for batch in PARTS["ps2.batch_sizes"].visible}

    def learned_by_heart(lengths):
        batch = shown.get(tuple(lengths.tolist()))
        return torch.tensor(batch.batch_sizes) if batch else lengths

    require("ps2.batch_sizes", learned_by_heart)
    said = said_by(require_hidden, "ps2.batch_sizes", learned_by_heart, seed=SEED)
    assert "right on the inputs that you can see" in " ".join(said.split())


def test_a_right_answer_is_required_silently(capsys):
    require("ps2.batch_sizes", right)
    require_hidden("ps2.batch_sizes", right, seed=SEED)
    assert capsys.readouterr().out == ""


def test_the_exception_carries_law_hint_and_which_test():
    with pytest.raises(LawBroken) as caught:
        require_hidden("ps2.pack", sequence_major, seed=SEED)
    error = caught.value
    assert (error.part, error.hint, error.hidden) == ("ps2.pack", "sequence-major", True)
    assert error.law == "data runs time step by time step"
    assert isinstance(error, AssertionError)
    assert error._render_traceback_() == str(error).splitlines()


def test_a_mistake_in_an_earlier_part_costs_its_points_once():
    space = {"torch": torch}
    exec(
        "def batch_sizes(lengths):\n    raise NotImplementedError\n"
        "def pack(x, lengths):\n"
        "    order = torch.argsort(lengths, descending=True)\n"
        "    sizes = batch_sizes(lengths)\n"
        "    rows = [x[order[:n], t] for t, n in enumerate(sizes.tolist())]\n"
        "    return torch.cat(rows), sizes, order\n",
        space,
    )
    own = space["batch_sizes"]
    require("ps2.pack", space["pack"])
    assert space["batch_sizes"] is own
    with pytest.raises(LawBroken):
        require("ps2.batch_sizes", own)


def test_what_stands_in_is_no_way_round_the_work():
    space = {"torch": torch}
    exec(
        "def batch_sizes(lengths):\n    return lengths\n"
        "def pack(x, lengths):\n"
        "    return x.flatten(0, 1), batch_sizes(lengths), torch.arange(len(x))\n",
        space,
    )
    with pytest.raises(LawBroken):
        require("ps2.pack", space["pack"])


def test_an_endless_function_is_told_once_and_soon():
    def batch_sizes(lengths):
        while True:
            pass

    began = time.monotonic()
    said = said_by(require, "ps2.batch_sizes", batch_sizes)
    assert time.monotonic() - began < 6
    assert "Stopped after 3 seconds" in said
    assert "of batch_sizes" in said


def test_a_self_learner_waits_less_than_a_second():
    check("ps2.pack", sequence_major)
    began = time.process_time()
    check("ps2.pack", sequence_major)
    assert time.process_time() - began < 1


def test_in_ipython_there_is_the_report_and_no_traceback():
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(colors='nocolor')\n"
        "shell.run_cell('import packlib.checks')\n"
        "shell.run_cell('secret = packlib.checks.require_hidden("
        '"ps2.batch_sizes", lambda n: n, seed=424242)\')\n'
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "this law is broken: batch_sizes count" in done.stdout
    for private in ("Traceback", "424242", "secret", ".py"):
        assert private not in done.stdout + done.stderr
