"""Mistakes are recognised, so they must differ: from the right answer, and from each other."""

from itertools import combinations

import pytest
import torch

from packlib.checks import PARTS
from packlib.checks.mistakes import equal, recognised

each_part = pytest.mark.parametrize("part", PARTS.values(), ids=list(PARTS))


def answers_of(part, answer):
    return [answer(*part.arguments(batch)) for batch in part.diagnostic]


def alike(some, others):
    return all(equal(a, b) for a, b in zip(some, others, strict=True))


def right_answers(part):
    """From the batches themselves, which are tested against torch."""
    made = {
        "ps2.batch_sizes": lambda b: (torch.tensor(b.batch_sizes),),
        "ps2.lengths": lambda b: (torch.tensor(sorted(b.lengths, reverse=True)),),
        "ps2.pack": lambda b: (b.data(), torch.tensor(b.batch_sizes), torch.tensor(b.order)),
        "ps2.unpack": lambda b: (padded(b), torch.tensor(b.lengths)),
    }
    made["ps2.pack_without_loops"] = made["ps2.pack"]
    return [made[part.name](batch) for batch in part.diagnostic]


def padded(batch):
    shape = (len(batch.lengths), batch.total_length or batch.longest, *batch.features)
    x = torch.full(shape, batch.padding_value)
    for b, n in enumerate(batch.lengths):
        x[b, :n] = batch.x[b, :n]
    return x


@each_part
def test_every_mistake_differs_from_the_right_answer(part):
    right = right_answers(part)
    assert [m.id for m in part.mistakes if alike(answers_of(part, m.answer), right)] == []


@each_part
def test_every_mistake_differs_from_every_other(part):
    answers = {mistake.id: answers_of(part, mistake.answer) for mistake in part.mistakes}
    assert len(answers) == len(part.mistakes)
    pairs = combinations(answers, 2)
    assert [(a, b) for a, b in pairs if alike(answers[a], answers[b])] == []


@each_part
def test_every_mistake_is_recognised_as_itself(part):
    for mistake in part.mistakes:
        found = recognised(mistake.answer, part.mistakes, part.diagnostic, part.arguments)
        assert found is mistake


@each_part
def test_the_right_answer_is_no_mistake(part):
    answers = iter(right_answers(part))
    found = recognised(lambda *_: next(answers), part.mistakes, part.diagnostic, part.arguments)
    assert found is None


@each_part
def test_hints_speak_to_the_student_and_do_not_hold_the_answer(part):
    for mistake in part.mistakes:
        assert mistake.hint[0].isupper() or mistake.hint.split()[0] in part.outputs
        assert mistake.hint.endswith((".", "?", ")"))
        for code in ("torch.", "argsort", "sum(", "max(", "range(", "def ", " = "):
            assert code not in mistake.hint


def test_the_mistakes_that_the_notes_of_the_course_name_are_all_there():
    named = {
        "ps2.batch_sizes": {"sorted-lengths-returned", "counts-just-ended", "rises"},
        "ps2.pack": {
            "sequence-major",
            "no-sort",
            "short-to-long",
            "batch-sizes-are-lengths",
            "batch-sizes-are-unsorted-lengths",
            "counts-just-ended",
            "keeps-padding",
            "keeps-padding-sequence-major",
            "drops-zero-vectors",
            "rows-by-inverse",
            "last-row-lost",
            "runs-backwards",
        },
        "ps2.unpack": {"left-sorted", "sorts-again", "padding-value-ignored"},
    }
    for name, ids in named.items():
        assert ids <= {mistake.id for mistake in PARTS[name].mistakes}
