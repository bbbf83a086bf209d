"""Losses on packed data: torch's losses on a padded grid with its padding ignored, no more."""

import functools
import math

import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.utils import rnn

import packlib
from packlib.losses import cross_entropy, packed_loss

LENGTHS, CLASSES = [2, 4, 1, 4, 3], 7
packs = st.sampled_from([packlib.pack_sequence, rnn.pack_sequence])


def packed(sequences, pack=packlib.pack_sequence):
    return pack(sequences, enforce_sorted=False)


def batch(lengths, ignored=False):
    """Logits (L, C) and ids (L,), 0 among them, of each sequence; some ids ignored if asked."""
    logits = [torch.randn(n, CLASSES, dtype=torch.float64) for n in lengths]
    ids = [torch.randint(0, CLASSES, (n,)) for n in lengths]
    if ignored:
        ids = [i.masked_fill(torch.rand(len(i)) < 0.3, -100) for i in ids]
    return logits, ids


def padded(logits, ids):
    """As F.cross_entropy takes a grid: (B, C, T) with NaN-free padding, and (B, T) of -100."""
    return (rnn.pad_sequence(logits, batch_first=True, padding_value=5.0).transpose(1, 2),
            rnn.pad_sequence(ids, batch_first=True, padding_value=-100))


options = st.fixed_dictionaries({
    "weight": st.sampled_from([None, torch.linspace(0.5, 2, CLASSES, dtype=torch.float64)]),
    "label_smoothing": st.sampled_from([0.0, 0.2])})


# --- cross entropy ------------------------------------------------------------------------------

@given(strategies.lengths, options, st.booleans(), packs)
def test_mean_and_sum_are_those_of_a_grid(lengths, options, ignored, pack):
    logits, ids = batch(lengths, ignored)
    for reduction in ("mean", "sum"):
        found = cross_entropy(packed(logits, pack), packed(ids, pack), reduction, **options)
        expected = F.cross_entropy(*padded(logits, ids), reduction=reduction, **options)
        torch.testing.assert_close(found, expected, equal_nan=True)


@given(strategies.lengths, options, packs)
def test_none_gives_the_loss_of_each_step(lengths, options, pack):
    logits, ids = batch(lengths)
    each = cross_entropy(packed(logits, pack), packed(ids, pack), "none", **options)
    for found, x, y in zip(packlib.unpack_sequence(each), logits, ids, strict=True):
        torch.testing.assert_close(found, F.cross_entropy(x, y, reduction="none", **options))


@given(strategies.lengths, options, st.booleans(), packs)
def test_sequence_mean_is_the_mean_of_each_sequence_alone(lengths, options, ignored, pack):
    logits, ids = batch(lengths, ignored)
    found = cross_entropy(packed(logits, pack), packed(ids, pack), "sequence_mean", **options)
    alone = [F.cross_entropy(x, y, **options) for x, y in zip(logits, ids, strict=True)
             if (y != -100).any()]
    expected = torch.stack(alone).mean() if alone else torch.tensor(math.nan).double()
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_the_two_means_differ():
    """Losses 0, 0, 0, 0 and 1: a fifth over the tokens, a half over the sequences."""
    p = packed([torch.zeros(4), torch.ones(1)])
    zeros = p.map(torch.zeros_like)
    assert packed_loss(F.l1_loss, p, zeros).item() == pytest.approx(0.2)
    assert packed_loss(F.l1_loss, p, zeros, "sequence_mean").item() == 0.5


@pytest.mark.parametrize("reduction", ["mean", "sum", "sequence_mean"])
def test_gradients_are_those_of_each_sequence_alone(reduction):
    torch.manual_seed(3)
    logits, ids = batch(LENGTHS, ignored=True)
    ids[1][:] = -100  # a sequence with nothing to learn: no gradient, and no NaN
    for x in logits:
        x.requires_grad_()
    found = torch.autograd.grad(cross_entropy(packed(logits), packed(ids), reduction), logits)
    if reduction == "sequence_mean":
        alone = [F.cross_entropy(x, y) for x, y in zip(logits, ids, strict=True)
                 if (y != -100).any()]
        assert len(alone) < len(ids)
        loss = sum(alone) / len(alone)
    else:
        loss = F.cross_entropy(*padded(logits, ids), reduction=reduction)
    expected = torch.autograd.grad(loss, logits, materialize_grads=True, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("reduction", ["mean", "sum", "sequence_mean"])
def test_gradients_against_finite_differences(reduction):
    logits, ids = map(packed, batch(LENGTHS))

    def loss(data):
        return cross_entropy(logits.with_data(data), ids, reduction, label_smoothing=0.1)

    leaf = logits.data.clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (leaf,), fast_mode=True)
    assert torch.autograd.gradgradcheck(loss, (leaf,), fast_mode=True)


def test_another_ignored_id():
    """Ignoring id 0 drops real steps that have it, as torch does."""
    logits, ids = batch(LENGTHS)
    ids[1][2] = 0
    grid = rnn.pad_sequence(logits, batch_first=True).transpose(1, 2)
    targets = rnn.pad_sequence(ids, batch_first=True, padding_value=0)
    torch.testing.assert_close(cross_entropy(packed(logits), packed(ids), ignore_index=0),
                               F.cross_entropy(grid, targets, ignore_index=0))
    alone = [F.cross_entropy(x, y, ignore_index=0) for x, y in zip(logits, ids, strict=True)
             if y.any()]
    torch.testing.assert_close(
        cross_entropy(packed(logits), packed(ids), "sequence_mean", ignore_index=0),
        torch.stack(alone).mean())


def test_probabilities_as_targets():
    logits, _ = batch(LENGTHS)
    wanted = [torch.rand(n, CLASSES, dtype=torch.float64).softmax(1) for n in LENGTHS]
    alone = [F.cross_entropy(x, y) for x, y in zip(logits, wanted, strict=True)]
    for reduction, expected in (("mean", F.cross_entropy(torch.cat(logits), torch.cat(wanted))),
                                ("sequence_mean", torch.stack(alone).mean())):
        torch.testing.assert_close(cross_entropy(packed(logits), packed(wanted), reduction),
                                   expected)


def test_more_targets_at_each_step():
    """Logits (N, C, 2) and ids (N, 2), two labels a step, some of them ignored."""
    logits = [torch.randn(n, CLASSES, 2, dtype=torch.float64) for n in LENGTHS]
    ids = [torch.randint(0, CLASSES, (n, 2)) for n in LENGTHS]
    ids[1][0, 1] = ids[3][2, 0] = -100
    alone = [F.cross_entropy(x, y) for x, y in zip(logits, ids, strict=True)]
    torch.testing.assert_close(cross_entropy(packed(logits), packed(ids), "sequence_mean"),
                               torch.stack(alone).mean())


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_half_precision_counts_long_sequences(dtype):
    """5,000 steps with a loss of log(2) sum to more than half precision counts in ones."""
    lengths = [5000, 2]
    logits = packed([torch.zeros(n, 2, dtype=dtype) for n in lengths])
    ids = packed([torch.ones(n, dtype=torch.int64) for n in lengths])
    found = cross_entropy(logits, ids, "sequence_mean")
    torch.testing.assert_close(found, torch.tensor(math.log(2)).to(dtype))


def test_half_precision_with_weights_forgets_no_sequence():
    """One step of 10,000 counts: its share, divided by the length, is below what float16 holds."""
    weight = torch.tensor([1e-3, 1.0], dtype=torch.half)
    ids = [torch.full((10_000,), -100), torch.ones(2, dtype=torch.int64)]
    ids[0][7] = 0
    logits = [torch.zeros(len(i), 2, dtype=torch.half) for i in ids]
    logits[0][7, 1] = 3.0
    found = cross_entropy(packed(logits), packed(ids), "sequence_mean", weight=weight)
    expected = (math.log(1 + math.exp(3)) + math.log(2)) / 2
    assert found.dtype == torch.half
    assert found.item() == pytest.approx(expected, rel=1e-3)


# --- any loss -----------------------------------------------------------------------------------

@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss,
                                  F.binary_cross_entropy_with_logits])
@given(lengths=strategies.lengths, features=strategies.features, pack=packs)
@settings(max_examples=10)
def test_elementwise_losses(loss, lengths, features, pack):
    xs, ys = ([torch.rand(n, *features, dtype=torch.float64) for n in lengths] for _ in range(2))
    p, q = packed(xs, pack), packed(ys, pack)
    flat = torch.cat(xs), torch.cat(ys)
    for reduction in ("mean", "sum"):
        torch.testing.assert_close(packed_loss(loss, p, q, reduction),
                                   loss(*flat, reduction=reduction))
    alone = [loss(x, y) for x, y in zip(xs, ys, strict=True)]
    torch.testing.assert_close(packed_loss(loss, p, q, "sequence_mean"), torch.stack(alone).mean())
    each = packlib.unpack_sequence(packed_loss(loss, p, q, "none"))
    for found, x, y in zip(each, xs, ys, strict=True):
        torch.testing.assert_close(found, loss(x, y, reduction="none"))


def test_class_losses_by_name_know_their_weights():
    logits, ids = batch(LENGTHS)
    weight = torch.linspace(0.5, 2, CLASSES, dtype=torch.float64)
    log_p = [x.log_softmax(1) for x in logits]
    found = packed_loss(F.nll_loss, packed(log_p), packed(ids), "sequence_mean", weight=weight)
    alone = [F.nll_loss(x, y, weight=weight) for x, y in zip(log_p, ids, strict=True)]
    torch.testing.assert_close(found, torch.stack(alone).mean())


@pytest.mark.parametrize("wrap", [
    lambda **options: functools.partial(F.cross_entropy, **options),
    lambda **options: lambda x, y, reduction: F.cross_entropy(x, y, reduction=reduction, **options),
], ids=["partial", "lambda"])
def test_class_losses_in_a_wrapping_know_them_too(wrap):
    logits, ids = batch(LENGTHS)
    ids[1][:2] = -100
    weight = torch.linspace(0.5, 2, CLASSES, dtype=torch.float64)
    loss = wrap(weight=weight, label_smoothing=0.1)
    for x in logits:
        x.requires_grad_()
    found = packed_loss(loss, packed(logits), packed(ids), "sequence_mean")
    alone = torch.stack([loss(x, y, reduction="mean") for x, y in zip(logits, ids, strict=True)])
    torch.testing.assert_close(found, alone.mean())
    for one, other in zip(torch.autograd.grad(found, logits),
                          torch.autograd.grad(alone.mean(), logits), strict=True):
        torch.testing.assert_close(one, other)


# --- what is refused ----------------------------------------------------------------------------

def test_labels_in_another_order_are_refused():
    """Shapes agree, and torch would give a loss."""
    logits, ids = batch([2, 5, 1])
    shuffled = [ids[1], ids[2], ids[0]]
    assert packed(logits).data.shape[:1] == packed(shuffled).data.shape
    with pytest.raises(ValueError, match="outputs and targets are packed differently: sequence 0 "
                                         "has 2 steps and 5.*in one order"):
        cross_entropy(packed(logits), packed(shuffled))


def test_other_lengths_of_the_same_sum_are_refused():
    logits, _ = batch([3, 2])
    _, ids = batch([2, 3])
    for reduction in ("mean", "sequence_mean"):
        with pytest.raises(ValueError, match="sequence 0 has 3 steps and 2"):
            cross_entropy(packed(logits), packed(ids), reduction)


@pytest.mark.parametrize("reduction", ["batchmean", None, "token_mean"])
def test_other_reductions_are_refused(reduction):
    p, q = map(packed, batch(LENGTHS))
    with pytest.raises(ValueError, match="one of mean, sum, none, sequence_mean, got"):
        cross_entropy(p, q, reduction)


def test_bytes_are_classes_and_no_mask():
    logits, ids = batch([3, 1])
    logits, ids = [x.repeat(1, 23) for x in logits], [i + 150 for i in ids]  # -100 is 156 in bytes
    weight = torch.linspace(0.5, 2, 23 * CLASSES, dtype=torch.float64)
    found = packed_loss(F.cross_entropy, packed(logits), packed([i.byte() for i in ids]),
                        "sequence_mean", weight=weight)
    alone = [F.cross_entropy(x, y, weight=weight) for x, y in zip(logits, ids, strict=True)]
    torch.testing.assert_close(found, torch.stack(alone).mean())


def test_a_wrapping_may_have_any_keywords():
    p, q = packed([torch.rand(4), torch.rand(1)]), packed([torch.rand(4), torch.rand(1)])
    expected = packed_loss(F.mse_loss, p, q)
    assert packed_loss(functools.partial(F.mse_loss, reduction="sum"), p, q) == expected

    def mine(x, y, loss, reduction):
        return loss * F.mse_loss(x, y, reduction=reduction)

    assert packed_loss(functools.partial(mine, loss=2), p, q) == 2 * expected


def test_a_module_is_refused():
    p = packed([torch.rand(4), torch.rand(1)])
    with pytest.raises(TypeError, match=r"got the module MSELoss\(\): give the function"):
        packed_loss(torch.nn.MSELoss(), p, p)
    with pytest.raises(TypeError, match="got the class of modules MSELoss: give the function"):
        packed_loss(torch.nn.MSELoss, p, p)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "sequence_mean"])
def test_each_step_against_every_other_is_refused(reduction):
    p = packed([torch.rand(4), torch.rand(1)])
    column = p.map(lambda data: data[:, None])
    with pytest.raises(ValueError, match=r"outputs \(5, 1\) and targets \(5,\).*to \(5, 5\)"):
        packed_loss(F.mse_loss, column, p, reduction)
    with pytest.raises(ValueError, match=r"outputs \(5,\) and targets \(5, 1\)"):
        packed_loss(F.l1_loss, p, column.map(torch.Tensor.long), reduction)
    one_class = column, p.map(torch.Tensor.long)
    zero = packed_loss(F.cross_entropy, *one_class, reduction)
    assert not (zero.data if reduction == "none" else zero).any()
    row = torch.rand(3)
    wide = p.map(lambda data: data[:, None] - row)  # features may be broadcast

    def to_a_row(x, y, reduction):
        return F.mse_loss(x, y.expand_as(x), reduction=reduction)

    packed_loss(to_a_row, wide, column, reduction)


def test_a_grid_is_refused():
    p, q = map(packed, batch(LENGTHS))
    for pair in ((p.data, q), (p, q.data)):
        with pytest.raises(TypeError, match="got Tensor: pack it first"):
            cross_entropy(*pair)
