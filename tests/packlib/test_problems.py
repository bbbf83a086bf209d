"""The numbered list of what users hit with packed sequences: one test each.

Each shows the clear error or the right value. Where torch is silent, a line shows what it does.
"""

import inspect
import pickle

import numpy as np
import oracle
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

import packlib
from packlib import pack_padded_sequence, pack_sequence, pad_packed_sequence, unpack_sequence

# B = 3 and T = 6; the order of the lengths, [1, 2, 0], is a 3-cycle: its inverse is another.
LENGTHS = [2, 5, 3]
X = torch.arange(1.0, 19.0).view(3, 6)
SEQUENCES = [X[0, :2], X[1, :5], X[2, :3]]


def pack(x=X, lengths=LENGTHS, **options):
    return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False, **options)


def features(f=4):
    """Sequences with ``f`` features, and their grid (B, T, F) with NaN in the padding."""
    xs = [torch.randn(n, f, dtype=torch.float64) for n in LENGTHS]
    return xs, packlib.pad_sequence(xs, batch_first=True, padding_value=float("nan"))


# --- A. lengths ---------------------------------------------------------------------------------

def test_p01_lengths_on_another_device():
    with pytest.raises(RuntimeError, match="lengths is on the meta device, which holds no values"):
        pack(lengths=torch.tensor(LENGTHS, device="meta"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_p01_lengths_on_the_gpu_are_taken():
    oracle.same_fields(pack(lengths=torch.tensor(LENGTHS, device="cuda")), pack())


def test_p02_the_default_device_is_not_the_lengths_device():
    with torch.device("meta"):
        with pytest.raises(RuntimeError, match="should be a 1D CPU int64 tensor, but got 1D meta"):
            rnn.pack_sequence([torch.zeros(5), torch.zeros(2)])
        made = pack_sequence([torch.zeros(4), torch.zeros(6)], enforce_sorted=False)
        assert [field.device.type for field in made] == ["meta", "cpu", "meta", "meta"]
        assert made.lengths.tolist() == [4, 6]
        assert made.to("meta") is made
        grid, lengths = pad_packed_sequence(made)
        assert (grid.device.type, lengths.device.type) == ("meta", "cpu")
        assert [s.shape for s in unpack_sequence(made)] == [(4,), (6,)]
        assert packlib.pad_sequence([torch.zeros(4), torch.zeros(6)]).shape == (6, 2)

        here = pack(lengths=LENGTHS)  # data that was made on the CPU stays there
        assert {field.device.type for field in here} == {"cpu"}
        oracle.same(pad_packed_sequence(here, True)[1], torch.tensor(LENGTHS, device="cpu"))
        assert packlib.lengths_to_mask(LENGTHS).device.type == "cpu"
        packlib.PackedSequence(*here)


def test_p03_float_lengths_are_refused():
    ratio = torch.tensor([0.3, 0.57], dtype=torch.float64) * 100
    grid = torch.zeros(2, 100)
    theirs = rnn.pack_padded_sequence(grid, ratio, batch_first=True, enforce_sorted=False)
    assert len(theirs.batch_sizes) == 56  # of 57 frames
    with pytest.raises(TypeError, match=r"lengths must be integers, got torch.float64, "
                                        r"lengths\[1\]=56.99999999999999: round them"):
        pack(grid, ratio)
    oracle.same(pack(grid, ratio.round().long()).lengths, torch.tensor([30, 57]))


def test_p03_bool_lengths_are_refused():
    with pytest.raises(TypeError, match=r"a mask is not a length, use mask.sum\(1\)"):
        pack(lengths=torch.tensor([True, True, True]))


@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_p04_a_mask_as_lengths_is_recognised(enforce_sorted):
    for wrong in (packlib.lengths_to_mask(LENGTHS), torch.tensor([[5], [3], [2]])):
        with pytest.raises(RuntimeError, match=r"got 2D of shape .*use lengths=mask.sum\(1\)"):
            pack_padded_sequence(X, wrong, True, enforce_sorted)


def test_p05_a_length_of_zero_is_named():
    with pytest.raises(RuntimeError, match=r"greater than 0.* <= 0: lengths\[1\]=0"):
        pack_sequence([torch.ones(2), torch.ones(0), torch.ones(3)], enforce_sorted=False)
    with pytest.raises(RuntimeError, match=r"lengths\[2\]=0"):
        pack(lengths=[2, 5, 0])


def test_p07_a_length_beyond_the_input_is_refused():
    theirs = rnn.pack_padded_sequence(torch.zeros(3, 4), [6, 2, 1], batch_first=True)
    assert (len(theirs.data), theirs.batch_sizes.sum().item()) == (7, 9)
    with pytest.raises(ValueError, match=r"lengths\[0\]=6, but the input has only T=4 steps"):
        pack_padded_sequence(torch.zeros(3, 4), [6, 2, 1], batch_first=True)


def test_p07_a_torch_batch_packed_with_such_lengths_is_refused():
    theirs = rnn.pack_padded_sequence(torch.zeros(3, 4), [6, 2, 1], batch_first=True)
    for use in (pad_packed_sequence, unpack_sequence):
        with pytest.raises(ValueError, match="batch_sizes add up to 9 steps, but data has 7 rows"):
            use(theirs)


def test_p08_total_length_gives_the_steps_back():
    assert pad_packed_sequence(pack(), batch_first=True)[0].shape == (3, 5)
    grid, _ = pad_packed_sequence(pack(), batch_first=True, total_length=X.size(1))
    oracle.same(grid, X * packlib.lengths_to_mask(LENGTHS, X.size(1)))


def test_p09_sorted_lengths_with_unsorted_data():
    x = torch.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    lengths = [2, 1, 3]
    wrong = pack_padded_sequence(x, sorted(lengths, reverse=True), batch_first=True)
    assert wrong.data.tolist() == [1, 3, 4, 2, 0, 0]  # lengths alone cannot show it
    assert pack(x, lengths).data.tolist() == [4, 1, 3, 5, 2, 6]
    with pytest.raises(RuntimeError, match="sort the sequences, not their lengths alone"):
        pack_padded_sequence(x, lengths, batch_first=True)


def test_p10_a_zero_within_a_sequence_is_data():
    tokens = torch.tensor([[5, 0, 7, 1], [2, 3, 0, 0]])
    packed = pack(tokens, [4, 2])
    assert packed.data.tolist() == [5, 2, 0, 3, 7, 1]
    with pytest.raises(ValueError, match="real steps after padding"):
        packlib.mask_to_lengths(tokens != 0)


# --- B. order -----------------------------------------------------------------------------------

def test_p12_unsorted_lengths_name_the_way_out():
    with pytest.raises(RuntimeError, match="`enforce_sorted=False`"):
        pack_padded_sequence(X, LENGTHS, batch_first=True)
    assert inspect.signature(pack_padded_sequence).parameters["enforce_sorted"].default is True


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_p13_states_are_in_the_users_order(name):
    xs, _ = features()
    layer = getattr(packlib, name)(4, 5, dtype=torch.float64)
    h0 = torch.randn(1, 3, 5, dtype=torch.float64)
    states = (h0, h0 / 2) if name == "LSTM" else h0
    last = layer(pack_sequence(xs, enforce_sorted=False), states)[1]
    for i, x in enumerate(xs):
        mine = tuple(s[:, i] for s in states) if name == "LSTM" else states[:, i]
        end = getattr(nn, name).forward(layer, x, mine)[1]
        for one, other in zip(*((last, end) if name == "LSTM" else ([last], [end])), strict=True):
            torch.testing.assert_close(one[:, i], other)


def test_p14_the_inverse_is_not_the_order():
    packed = pack()
    assert packed.sorted_indices.tolist() == [1, 2, 0]
    assert packed.unsorted_indices.tolist() == [2, 0, 1]
    first = packed.data[:3]
    assert first[packed.unsorted_indices].tolist() == [1, 7, 13]
    assert first[packed.sorted_indices].tolist() != [1, 7, 13]


def test_p14_an_order_as_its_own_inverse_is_refused():
    order = torch.tensor([1, 2, 0])
    with pytest.raises(ValueError, match="unsorted_indices must be the inverse of sorted_indices"):
        packlib.PackedSequence(pack().data, pack().batch_sizes, order, order)


def test_p15_new_values_keep_the_order():
    packed = pack_sequence([torch.tensor([1.0]), torch.tensor([2.0, 3.0, 4.0]),
                            torch.tensor([5.0, 6.0])], enforce_sorted=False)
    right = [[10, 0, 0], [20, 30, 40], [50, 60, 0]]
    for made in (packed.map(lambda d: d * 10), packed.with_data(packed.data * 10),
                 packed._replace(data=packed.data * 10)):
        assert pad_packed_sequence(made, True)[0].tolist() == right
    rebuilt = packlib.PackedSequence(packed.data * 10, packed.batch_sizes)  # order not handed on
    assert pad_packed_sequence(rebuilt, True)[0].tolist() == [right[1], right[2], right[0]]


def test_p16_ties_come_in_torchs_order():
    xs = [torch.tensor([float(i)]) for i in range(32)]
    packed = pack_sequence(xs, enforce_sorted=False)
    oracle.same_fields(packed, rnn.pack_sequence(xs, enforce_sorted=False))
    assert [s.item() for s in unpack_sequence(packed)] == list(range(32))


def test_p17_two_inputs_for_each_example():
    """Each is packed by its own lengths, and both come back in the examples' order."""
    premise, hypothesis = pack(), pack(X * 2, [4, 1, 6])
    for i in range(3):
        oracle.same(premise.sequence(i), X[i, :LENGTHS[i]])
        oracle.same(hypothesis.sequence(i), 2 * X[i, :[4, 1, 6][i]])


def test_p18_labels_packed_alike_meet_their_outputs():
    logits = [torch.randn(n, 4) for n in LENGTHS]  # C = 4 classes, T = 5 steps
    labels = [torch.randint(0, 4, (n,)) for n in LENGTHS]
    right = sum(F.cross_entropy(a, b, reduction="sum")
                for a, b in zip(logits, labels, strict=True)) / sum(LENGTHS)
    outputs, targets = pack_sequence(logits, False), pack_sequence(labels, False)
    torch.testing.assert_close(F.cross_entropy(outputs.data, targets.data), right)
    assert not torch.isclose(F.cross_entropy(outputs.data, torch.cat(labels)), right)


# --- C. layout and batch_first ------------------------------------------------------------------

def test_p19_batch_first_forgotten():
    grid = torch.zeros(3, 5, 2)  # B = 3, T = 5
    with pytest.raises(RuntimeError, match=r"got 3 \(batch_size=5\).*read as \(T, B\) = \(3, 5\)"
                                           r".*Did you mean batch_first=True\?"):
        pack_padded_sequence(grid, [5, 3, 2])
    with pytest.raises(RuntimeError, match=r"read as \(B, T\) = \(5, 3\).*batch_first=False\?"):
        pack_padded_sequence(grid.transpose(0, 1), [5, 3, 2], batch_first=True)
    with pytest.raises(ValueError, match=r"lengths\[0\]=5, but the input has only T=3 steps"):
        pack_padded_sequence(torch.zeros(3, 5, 3), [5, 3, 3, 2, 2])
    with pytest.raises(ValueError, match=r"read as \(B, T\) = \(5, 3\).*batch_first=False\?"):
        packlib.unpad_sequence(grid.transpose(0, 1), [5, 3, 2], batch_first=True)


def test_p19_a_square_grid_is_read_as_it_is_said():
    square = torch.arange(1, 10).view(3, 3)  # no check can tell; the defaults are torch's
    for batch_first in (True, False):
        oracle.same_fields(pack_padded_sequence(square, [3, 2, 2], batch_first),
                           rnn.pack_padded_sequence(square, [3, 2, 2], batch_first))


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_p20_batch_first_of_the_layer_does_not_matter_for_packed_input(name):
    xs, _ = features()
    one = getattr(packlib, name)(4, 5, dtype=torch.float64)
    other = getattr(packlib, name)(4, 5, dtype=torch.float64, batch_first=True)
    other.load_state_dict(one.state_dict())
    packed = pack_sequence(xs, enforce_sorted=False)
    torch.testing.assert_close(one(packed), other(packed), rtol=0, atol=0)


def test_p21_batch_first_does_not_touch_h0():
    xs, _ = features()
    layer = packlib.GRU(4, 5, batch_first=True, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 3, 5\), got \[3, 1, 5\]: h0 "
                                           "is always .*batch_first does not touch it"):
        layer(pack_sequence(xs, enforce_sorted=False), torch.zeros(3, 1, 5, dtype=torch.float64))


def test_p22_a_list_has_no_batch_first():
    with pytest.raises(TypeError, match="batch_first"):
        pack_sequence(SEQUENCES, batch_first=True)


def test_p24_batch_sizes_are_not_the_lengths():
    packed = pack_sequence([torch.ones(5), torch.ones(2)])
    assert packed.lengths.tolist() == [5, 2]
    assert packed.batch_sizes.tolist() == [2, 2, 1, 1, 1]
    with pytest.raises(ValueError, match="how many sequences still run there; they are not the"):
        packlib.PackedSequence(torch.zeros(8), torch.tensor([5, 2, 4]))


@pytest.mark.parametrize("wrong", [LENGTHS, torch.tensor(LENGTHS)])
def test_p25_unpacking_needs_no_lengths(wrong):
    with pytest.raises(TypeError, match="'batch_first' must be bool, not .*a PackedSequence knows"):
        pad_packed_sequence(pack(), wrong)


def test_p26_a_packed_batch_is_not_indexed_like_a_tensor():
    with pytest.raises(TypeError, match=r"cannot be indexed like a tensor.*Use \.sequence\(i\)"):
        pack()[:, -1]
    assert (pack().num_sequences, pack().dtype) == (3, torch.float32)
    assert pack().sequence(2).tolist() == [13, 14, 15]
    assert len(pack()) == 4  # torch's code counts on it


def test_p27_a_packed_batch_is_not_a_number():
    for wrong in (lambda p: p + p, lambda p: p * 2):
        assert len(wrong(rnn.pack_sequence(SEQUENCES, enforce_sorted=False))) == 8
        with pytest.raises(TypeError, match=r"use p\.map\(fn\)"):
            wrong(pack())


def test_p28_an_embedding_is_mapped_over_the_ids():
    ids, embedding = pack(X.long()), nn.Embedding(20, 4)
    oracle.same(ids.map(embedding).sequence(1), embedding(X[1, :5].long()))
    with pytest.raises(RuntimeError, match="must have 2 dimensions.*ids need an embedding first"):
        packlib.LSTM(4, 5)(ids)
    with pytest.raises(ValueError, match=r"ids need an embedding first: packed.map\(embedding\)"):
        packlib.LSTM(4, 5)(ids.map(lambda d: d[:, None].expand(-1, 4)))


def test_p29_what_comes_back():
    grid, lengths = pad_packed_sequence(pack())
    assert grid.shape == (5, 3) and lengths.tolist() == LENGTHS
    output, (h, c) = packlib.LSTM(4, 5).double()(pack_sequence(features()[0], False))
    assert isinstance(output, packlib.PackedSequence) and h.shape == c.shape == (1, 3, 5)
    torch.testing.assert_close(torch.stack([output.sequence(i)[-1] for i in range(3)]), h[0])


# --- D. last state, directions, pooling ---------------------------------------------------------

@pytest.fixture
def both_ways():
    """A bidirectional run: outputs (packed and padded), h_n, and the sequences."""
    xs, _ = features()
    layer = packlib.GRU(4, 5, num_layers=2, bidirectional=True, dtype=torch.float64)
    output, h = layer(pack_sequence(xs, enforce_sorted=False))
    return output, pad_packed_sequence(output)[0], h


def test_p30_the_last_output_lies_at_the_length(both_ways):
    output, grid, h = both_ways
    last = torch.stack([grid[n - 1, i, :5] for i, n in enumerate(LENGTHS)])
    oracle.same(last, h[-2])
    assert not grid[-1, 0].any() and not grid[-1, 2].any()


def test_p31_the_last_rows_are_not_the_last_steps():
    packed = pack_sequence([torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6]), torch.tensor([7])])
    assert packed.data[-3:].tolist() == [6, 3, 4]
    assert [packed.sequence(i)[-1].item() for i in range(3)] == [4, 6, 7]


def test_p32_the_backward_half_ends_at_the_first_step(both_ways):
    _, grid, h = both_ways
    oracle.same(grid[0, :, 5:], h[-1])
    assert not torch.isclose(grid[torch.tensor(LENGTHS) - 1, range(3), 5:], h[-1]).all(1).any()


def test_p33_the_backward_direction_never_sees_the_padding():
    xs, grid = features()
    layer = packlib.LSTM(4, 5, bidirectional=True, dtype=torch.float64)
    output, (h, _) = layer(pack(grid))  # the padding is NaN
    for i, x in enumerate(xs):
        alone, (end, _) = nn.LSTM.forward(layer, x)
        torch.testing.assert_close(output.sequence(i), alone)
        torch.testing.assert_close(h[:, i], end)


def test_p34_states_are_layer_by_layer_forward_then_backward(both_ways):
    output, _, h = both_ways
    right = torch.stack([torch.cat([output.sequence(i)[-1, :5], output.sequence(i)[0, 5:]])
                         for i in range(3)])
    oracle.same(torch.cat([h[2], h[3]], 1), right)
    assert h[-2:].reshape(3, 10).shape == right.shape  # which is why nobody notices
    assert not torch.equal(h[-2:].reshape(3, 10), right)


def test_p36_pooling_leaves_the_padding_out():
    packed = pack_sequence([torch.tensor([-5.0]), torch.tensor([-2.0, -8.0, -4.0]),
                            torch.tensor([-3.0, -9.0])], enforce_sorted=False)
    assert pad_packed_sequence(packed, True)[0].amax(1).tolist() == [0, -2, 0]
    lowest, lengths = pad_packed_sequence(packed, True, -float("inf"))
    assert lowest.amax(1).tolist() == [-5, -2, -3]
    zeros, _ = pad_packed_sequence(packed, True)
    torch.testing.assert_close(zeros.sum(1) / lengths, torch.tensor([-5.0, -14 / 3, -6.0]))


def test_p37_left_padding_is_packed_when_it_is_said():
    xs = [torch.tensor([4]), torch.tensor([1, 2, 3])]
    left = packlib.pad_sequence(xs, batch_first=True, padding_side="left")
    assert left.tolist() == [[0, 0, 4], [1, 2, 3]]
    assert pack(left, [1, 3]).data.tolist() == [1, 0, 2, 3]  # as torch: read as right padding
    assert pack(left, [1, 3], padding_side="left").data.tolist() == [1, 4, 2, 3]
    found = packlib.unpad_sequence(left, [1, 3], True, padding_side="left")
    assert [s.tolist() for s in found] == [[4], [1, 2, 3]]
    with pytest.raises(RuntimeError, match="one of left or right, but got start"):
        pack(left, [1, 3], padding_side="start")


# --- E. padding functions -----------------------------------------------------------------------

def test_p38_unpad_leaves_its_argument_alone():
    grid = torch.arange(20.0).view(5, 4)  # (T, B)
    theirs = grid.clone()
    rnn.unpad_sequence(theirs, torch.tensor([2, 5, 1, 3]))
    assert theirs.shape == (4, 5)  # turned over
    leaf = grid.clone().requires_grad_()
    for _ in range(2):
        found = packlib.unpad_sequence(leaf, torch.tensor([2, 5, 1, 3]))
        assert [s.tolist() for s in found] == [[0, 4], [1, 5, 9, 13, 17], [2], [3, 7, 11]]
    assert leaf.shape == (5, 4)


def test_p40_mixed_lists_are_refused():
    mixed = [torch.tensor([1, 2]), torch.tensor([0.5])]
    assert rnn.pad_sequence(mixed, batch_first=True).tolist() == [[1, 2], [0, 0]]  # 0.5 is lost
    for function in (packlib.pad_sequence, pack_sequence):
        with pytest.raises(TypeError, match=r"sequences\[1\] is torch.float32, but sequences\[0\]"):
            function(mixed)
        with pytest.raises(RuntimeError, match=r"\[1\] has steps of shape \(1,\), but sequences\["):
            function([torch.ones(2, 3), torch.ones(1, 1)])


def test_p43_total_length():
    with pytest.raises(ValueError, match="total_length=4 and max sequence length being 5"):
        pad_packed_sequence(pack(), total_length=4)
    with pytest.raises(TypeError, match="'total_length' must be int, not float"):
        pad_packed_sequence(pack(), total_length=7.5)
    assert pad_packed_sequence(pack(), total_length=7)[0].shape == (7, 3)


def test_p44_shards_of_a_batch_fit_together_by_total_length():
    x, lengths = torch.arange(24.0).view(4, 6), [6, 5, 3, 2]
    shards = [pack(a, b) for a, b in ((x[:2], lengths[:2]), (x[2:], lengths[2:]))]
    assert {pad_packed_sequence(s, True)[0].size(1) for s in shards} == {6, 3}
    grids = [pad_packed_sequence(s, True, total_length=x.size(1))[0] for s in shards]
    oracle.same(torch.cat(grids), x * packlib.lengths_to_mask(lengths))


@pytest.mark.parametrize("workers", [0, 1])
def test_p45_a_collate_function_may_return_a_packed_batch(workers):
    def collate(xs):
        return pack_sequence(xs, enforce_sorted=False)

    (packed,) = DataLoader(SEQUENCES, batch_size=3, collate_fn=collate, num_workers=workers,
                           multiprocessing_context="fork" if workers else None)
    assert type(packed) is packlib.PackedSequence
    oracle.same_fields(packed, pack())


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="tree_map of torch 2.6 makes a plain tuple")
def test_p45_code_for_any_tuple_does_not_spoil_the_layout_in_silence():
    theirs = tree_map(lambda t: t * 2, rnn.pack_sequence(SEQUENCES, enforce_sorted=False))
    assert theirs.batch_sizes.sum() == 2 * len(theirs.data)
    with pytest.raises(ValueError, match="batch_sizes add up to 20 steps, but data has 10 rows"):
        tree_map(lambda t: t * 2, pack())
    oracle.same_fields(tree_map(torch.clone, pack()), pack())


# --- F. validity and memory safety --------------------------------------------------------------

LAYERS = ["RNN", "GRU", "LSTM"]


@pytest.mark.parametrize("lengths", [LENGTHS, [4, 4, 4]], ids=["unequal", "equal"])
@pytest.mark.parametrize("name", LAYERS)
class TestP47:
    """torch's packed LSTM checks nothing, and can end the process: it is not called here."""

    def layer(self, name, **options):
        return getattr(packlib, name)(3, 5, **options)

    def batch(self, lengths, f=3, dtype=torch.float32):
        return pack_sequence([torch.ones(n, f, dtype=dtype) for n in lengths], enforce_sorted=False)

    def states(self, name, h, c=None):
        return (h, torch.zeros(1, 3, 5) if c is None else c) if name == "LSTM" else h

    @pytest.mark.parametrize("f", [1, 4, 300])
    def test_p47_the_wrong_number_of_features(self, name, lengths, f):
        with pytest.raises(RuntimeError, match=f"equal to input_size. Expected 3, got {f}"):
            self.layer(name)(self.batch(lengths, f))

    def test_p47_no_features(self, name, lengths):
        flat = pack_sequence([torch.ones(n) for n in lengths], enforce_sorted=False)
        with pytest.raises(RuntimeError, match=r"packed data \(N, input_size\), got shape"):
            self.layer(name)(flat)

    def test_p47_a_batch_of_torchs_that_breaks_the_law(self, name, lengths):
        wrong = rnn.PackedSequence(torch.ones(5, 3), torch.tensor([2, 1, 3]))
        with pytest.raises(ValueError, match="batch_sizes must never grow"):
            self.layer(name)(wrong)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.half, torch.int64])
    def test_p47_another_dtype(self, name, lengths, dtype):
        with pytest.raises(ValueError, match=rf"input dtype \({dtype}\) does not match weight"):
            self.layer(name)(self.batch(lengths, dtype=dtype))

    @pytest.mark.parametrize("shape", [(1, 1, 5), (1, 3, 4), (2, 3, 5), (3, 5), (3, 1, 5)])
    def test_p47_the_shape_of_h0(self, name, lengths, shape):
        words = rf"Expected hidden size \(1, 3, 5\), got \[{', '.join(map(str, shape))}\]"
        with pytest.raises(RuntimeError, match=words):
            self.layer(name)(self.batch(lengths), self.states(name, torch.zeros(shape)))

    def test_p47_the_dtype_of_h0(self, name, lengths):
        with pytest.raises(ValueError, match=r"h0 dtype \(torch.float64\) does not match weight"):
            self.layer(name)(self.batch(lengths), self.states(name, torch.zeros(1, 3, 5).double()))

    def test_p47_the_kind_of_h0(self, name, lengths):
        wrong = self.states(name, [[0.0] * 5] * 3)
        with pytest.raises(TypeError, match="h0 must be a Tensor, got list"):
            self.layer(name)(self.batch(lengths), wrong)

    def test_p47_the_device(self, name, lengths):
        with pytest.raises(RuntimeError, match="input is on meta, but the weights are on cpu"):
            self.layer(name)(self.batch(lengths).to("meta"))
        with pytest.raises(RuntimeError, match="h0 is on meta, but the weights are on cpu"):
            away = self.states(name, torch.zeros(1, 3, 5, device="meta"))
            self.layer(name)(self.batch(lengths), away)
        with pytest.raises(RuntimeError, match="input is on cpu, but the weights are on meta"):
            self.layer(name, device="meta")(self.batch(lengths))


@pytest.mark.parametrize(("hx", "error", "words"), [
    (torch.zeros(1, 3, 5), RuntimeError, r"hx must be the pair \(h0, c0\) for LSTM, got a Tensor"),
    ((torch.zeros(1, 3, 5),), RuntimeError, r"the pair \(h0, c0\) for LSTM, got 1 of them"),
    (3, RuntimeError, r"the pair \(h0, c0\) for LSTM, got int"),
    ((torch.zeros(1, 3, 5), None), TypeError, "c0 must be a Tensor, got NoneType"),
    ((torch.zeros(1, 3, 5), torch.zeros(1, 3, 4)), RuntimeError, r"Expected cell size \(1, 3, 5\)"),
    ((torch.zeros(1, 3, 5), torch.zeros(1, 3, 5).half()), ValueError, "c0 dtype"),
    ((torch.zeros(1, 3, 5), torch.zeros(1, 3, 5).to("meta")), RuntimeError, "c0 is on meta"),
])
def test_p47_the_pair_of_lstm(hx, error, words):
    packed = pack_sequence([torch.ones(n, 3) for n in LENGTHS], enforce_sorted=False)
    with pytest.raises(error, match=words):
        packlib.LSTM(3, 5)(packed, hx)


def test_p47_the_pair_of_a_projected_lstm():
    packed = pack_sequence([torch.ones(n, 3) for n in LENGTHS], enforce_sorted=False)
    layer = packlib.LSTM(3, 5, proj_size=2)
    _, (h, c) = layer(packed, (torch.zeros(1, 3, 2), torch.zeros(1, 3, 5)))
    assert (h.shape, c.shape) == ((1, 3, 2), (1, 3, 5))
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 3, 2\), got \[1, 3, 5\]"):
        layer(packed, (torch.zeros(1, 3, 5), torch.zeros(1, 3, 5)))


DATA = torch.ones(5, 1)
BROKEN = [
    (DATA, torch.tensor([2, 1, 2]), ValueError, "must never grow, got .2, 1, 2."),
    (DATA, torch.tensor([1, 2, 2]), ValueError, "must never grow"),
    (DATA, torch.tensor([3, 3, -1]), ValueError, "must be at least 1, got .3, 3, -1."),
    (DATA, torch.tensor([3, -1]), ValueError, "must be at least 1"),
    (DATA, torch.tensor([2, 1]), ValueError, "add up to 3 steps, but data has 5 rows"),
    (DATA, torch.tensor([5, 1]), ValueError, "add up to 6 steps, but data has 5 rows"),
    (DATA, torch.tensor([3, 2], dtype=torch.int32), TypeError, "1D tensor of torch.int64"),
    (DATA, [3, 2], TypeError, "batch_sizes must be a Tensor, got list"),
    (DATA, torch.tensor([], dtype=torch.int64), RuntimeError, "batch_sizes can not be empty"),
]


@pytest.mark.parametrize(("data", "sizes", "error", "words"), BROKEN)
def test_p48_hand_made_batch_sizes_are_checked_when_made(data, sizes, error, words):
    with pytest.raises(error, match=words):
        packlib.PackedSequence(data, sizes)


@pytest.mark.parametrize(("data", "sizes", "error", "words"),
                         [case for case in BROKEN if isinstance(case[1], torch.Tensor)])
def test_p48_torchs_own_are_checked_when_used(data, sizes, error, words):
    theirs = rnn.PackedSequence(data, sizes)  # takes them all; its functions are not called
    for use in (pad_packed_sequence, unpack_sequence, packlib.RNN(1, 2),
                lambda p: packlib.run_packed(lambda x, s: s, p, torch.zeros(3, 1))):
        with pytest.raises(error, match=words):
            use(theirs)


def test_p48_wrong_unsorted_indices():
    for inverse in ([0, 0, 1], [0, 1, 2]):
        with pytest.raises((RuntimeError, ValueError), match="unsorted_indices must"):
            packlib.PackedSequence(torch.zeros(6), torch.tensor([3, 2, 1]), torch.tensor([1, 2, 0]),
                                   torch.tensor(inverse))


def test_p48_a_pickle_that_was_tampered_with_is_checked():
    made = pickle.dumps(pack_sequence([torch.zeros(n) for n in np.array(LENGTHS)], False))
    sizes = pickle.loads(made).batch_sizes
    rebuild, fields = pickle.loads(made).__reduce__()
    with pytest.raises(ValueError, match="batch_sizes"):
        rebuild(fields[0], sizes.flip(0), *fields[2:])
