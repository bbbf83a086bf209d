"""Sequences without a step: packed on request, in no row of the data, and back in their places.

Whatever looks at steps gives for them what it gives for nothing, or refuses; a recurrent layer,
which reads no step of theirs, gives their first state as their last.
"""

import copy
import itertools
import pickle
from functools import partial

import oracle
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.utils._pytree import tree_map

import packlib
from packlib.chunks import chunks, run_chunks
from packlib.data import collate_packed
from packlib.interop import (
    from_cu_seqlens,
    from_nested,
    mask_from_packed,
    packed_from_mask,
    to_cu_seqlens,
    to_nested,
)
from packlib.losses import cross_entropy, packed_loss
from packlib.sequence import layout_of

LENGTHS = [2, 0, 4, 1, 0, 3]  # B = 6, four of them with steps; order [2, 5, 0, 3, 1, 4]
EMPTY, FULL = [1, 4], [0, 2, 3, 5]
FEATURES, HIDDEN, PROJ = 3, 7, 4
LAYERS = {"RNN": {}, "RNN relu": {"nonlinearity": "relu"}, "GRU": {}, "LSTM": {},
          "LSTM proj": {"proj_size": PROJ}}
ROUTES = ["auto", "plain", "hoisted", "cover", "torch"]
PAIRS = [(kind, route) for kind, route in itertools.product(LAYERS, ROUTES)
         if not (route == "cover" and "LSTM" not in kind or route in ("cover", "hoisted")
                 and "proj" in kind)]
batches = partial(strategies.batches, lengths=strategies.with_empty)
NEW_TORCH = pytest.mark.skipif(torch.__version__ < (2, 13), reason="seen to work on torch 2.13")


def drawn(lengths=LENGTHS, features=FEATURES, dtype=torch.float64):
    return [torch.randn(n, features, dtype=dtype) for n in lengths]


def packed(sequences):
    return packlib.pack_sequence(sequences, enforce_sorted=False, allow_empty=True)


def counted(lengths=LENGTHS):
    """Packed rows that are their own numbers in the user's order: 0, 1, 2 and so on."""
    return packed(list(torch.arange(float(sum(lengths))).split(lengths)))


def same_sequences(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        oracle.same(one, other)


# --- there and back -----------------------------------------------------------------------------

def test_the_fields():
    p = packed(list(torch.arange(10).split(LENGTHS)))
    assert p.data.tolist() == [2, 7, 0, 6, 3, 8, 1, 4, 9, 5]
    assert p.batch_sizes.tolist() == [4, 3, 2, 1]
    assert p.sorted_indices.tolist() == [2, 5, 0, 3]  # those that have steps
    assert p.unsorted_indices.tolist() == [2, 4, 0, 3, 5, 1]  # the places of all
    assert (p.num_sequences, p.lengths.tolist()) == (6, LENGTHS)
    assert p.sequence(4).shape == (0,) and p.sequence(4).dtype == torch.int64


@given(batches())
def test_a_list(batch):
    p = packed(batch.sequences)
    same_sequences(packlib.unpack_sequence(p), batch.sequences)
    same_sequences([p.sequence(i) for i in range(p.num_sequences)], batch.sequences)
    order = p.sorted_indices.tolist() if p.sorted_indices is not None else range(len(p.lengths))
    oracle.same(p.data, oracle.packed_rows(batch.sequences, order))
    assert p.batch_sizes.tolist() == oracle.batch_sizes(batch.lengths)


@given(batches(), st.sampled_from(["left", "right"]))
def test_a_grid(batch, side):
    p = packlib.pack_padded_sequence(batch.padded, batch.lengths, batch.batch_first, False,
                                     allow_empty=True)
    oracle.same_fields(p, packed(batch.sequences))
    value = strategies.poison(p.dtype)
    found, lengths = packlib.pad_packed_sequence(p, batch.batch_first, value, batch.total,
                                                 padding_side=side)
    expected = oracle.padded(batch.sequences, batch.total, batch.batch_first, value, side)
    oracle.same(found, expected)
    assert lengths.tolist() == batch.lengths
    oracle.same(packlib.pack_padded_sequence(expected, lengths, batch.batch_first, False,
                                             padding_side=side, allow_empty=True).data, p.data)


@given(batches())
def test_a_sorted_batch(batch):
    sequences = sorted(batch.sequences, key=len, reverse=True)
    p = packlib.pack_sequence(sequences, allow_empty=True)
    same_sequences(packlib.unpack_sequence(p), sequences)
    if 0 not in batch.lengths:
        oracle.same_fields(p, packlib.pack_sequence(sequences))  # as if it had not been asked for


@given(batches(), st.sampled_from(["left", "right"]))
def test_a_mask(batch, side):
    p = packed(batch.sequences)
    mask = mask_from_packed(p, batch.total)
    assert mask.tolist() == [[t < n for t in range(batch.total)] for n in batch.lengths]
    grid = oracle.padded(batch.sequences, batch.total, True, strategies.poison(p.dtype), side)
    oracle.same_fields(packed_from_mask(grid, mask.flip(1) if side == "left" else mask,
                                        padding_side=side, allow_empty=True), p)


@given(batches())
def test_offsets_and_nested_tensors(batch):
    p = packed(batch.sequences)
    rows, offsets, longest = to_cu_seqlens(p)
    ends = list(itertools.accumulate(batch.lengths, initial=0))
    assert (offsets.tolist(), longest) == (ends, max(batch.lengths))
    oracle.same(rows, torch.cat(batch.sequences))
    oracle.same_fields(from_cu_seqlens(rows, offsets, allow_empty=True), p)
    nested = to_nested(p)
    same_sequences(nested.unbind(), batch.sequences)
    oracle.same_fields(from_nested(nested, allow_empty=True), p)


@given(batches(dtypes=(torch.float32,)))
def test_fields_alone_say_it_all(batch):
    """Whoever makes, copies or sends a batch by its four fields keeps the empty sequences."""
    p = packed(batch.sequences)
    copies = [packlib.PackedSequence(*p), rnn.PackedSequence(*p), copy.copy(p), copy.deepcopy(p),
              pickle.loads(pickle.dumps(p)), p._replace(data=p.data.clone()), p.map(torch.clone),
              p.with_data(p.data.clone()), p.detach(), p.double().float()]
    for q in copies:
        same_sequences(packlib.unpack_sequence(q), batch.sequences)
        assert packlib.same_layout(p, q)


@NEW_TORCH
def test_tree_map_keeps_them():
    q = tree_map(torch.clone, packed(drawn()))
    assert type(q) is packlib.PackedSequence and q.lengths.tolist() == LENGTHS


@given(strategies.with_empty)
def test_without_them_it_is_an_ordinary_batch(lengths):
    p = counted(lengths)
    q, full = p.without_empty(), [n for n in lengths if n]
    same_sequences(rnn.unpack_sequence(q), [s for s in packlib.unpack_sequence(p) if len(s)])
    assert q.data is p.data and q.lengths.tolist() == full
    packlib.PackedSequence(*q)  # keeps the law
    assert q.without_empty() is q


def test_collated():
    items = [(x, len(x), x[:, 0]) for x in drawn()]
    p, counts, column = collate_packed(items, allow_empty=True)
    assert p.lengths.tolist() == counts.tolist() == LENGTHS
    assert packlib.same_layout(p, column) and column.layout is p.layout
    with pytest.raises(ValueError, match=r"batch\[1\]\[0\] has no steps.*allow_empty=True"):
        collate_packed(items)


# --- what is refused ----------------------------------------------------------------------------

PACKS = {
    "list": lambda lengths, **more: packlib.pack_sequence(
        drawn(lengths), enforce_sorted=False, **more),
    "grid": lambda lengths, **more: packlib.pack_padded_sequence(
        torch.zeros(9, len(lengths), 2), lengths, enforce_sorted=False, **more),
    "mask": lambda lengths, **more: packed_from_mask(
        torch.zeros(len(lengths), 9), packlib.lengths_to_mask(lengths, 9), **more),
    "offsets": lambda lengths, **more: from_cu_seqlens(
        torch.zeros(sum(lengths)), [0, *itertools.accumulate(lengths)], **more),
    "nested": lambda lengths, **more: from_nested(
        torch.nested.as_nested_tensor(drawn(lengths), layout=torch.jagged), **more),
}


@pytest.mark.parametrize("form", PACKS)
def test_only_on_request_and_never_all(form):
    pack = PACKS[form]
    assert pack(LENGTHS, allow_empty=True).lengths.tolist() == LENGTHS
    with pytest.raises(RuntimeError, match=r"has to be greater than 0.*lengths\[1\]=0"):
        pack(LENGTHS)
    with pytest.raises(RuntimeError, match="all 2 sequences are empty, so there is no step"):
        pack([0, 0], allow_empty=True)
    with pytest.raises(TypeError, match="'allow_empty' must be bool, not str"):
        pack(LENGTHS, allow_empty="yes")


def test_lengths_that_are_no_lengths():
    x = torch.zeros(4, 3, 2)
    with pytest.raises(RuntimeError, match=r"at least 0, got lengths\[1\]=-1"):
        packlib.pack_padded_sequence(x, [4, -1, 0], enforce_sorted=False, allow_empty=True)
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        packlib.pack_padded_sequence(x, [4, 0, 2], allow_empty=True)
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        packlib.pack_padded_sequence(torch.zeros(0, 3), [0, 0, 0], allow_empty=True)


DATA, SIZES, ORDER, PLACES = (torch.arange(7.0), *map(torch.tensor, (
    [2, 2, 1, 1, 1], [3, 1], [2, 1, 3, 0])))  # lengths [0, 2, 0, 5]


def test_fields_by_hand():
    assert packlib.PackedSequence(DATA, SIZES, ORDER, PLACES).lengths.tolist() == [0, 2, 0, 5]


@pytest.mark.parametrize(("order", "places", "error", "words"), [
    (PLACES.argsort(), PLACES, ValueError, "sorted_indices must have one entry for each of 2"),
    (None, PLACES, ValueError, "unsorted_indices must have one entry for each of 2"),
    (PLACES.argsort(), None, ValueError, "sorted_indices must have one entry for each of 2"),
    (ORDER, PLACES.int(), RuntimeError, "unsorted_indices must be torch.int64"),
    (ORDER, torch.tensor([2, 1, 3, 1]), RuntimeError, "each of 0 to 3 once"),
    (ORDER.flip(0), PLACES, ValueError, "must be the inverse"),
    (torch.tensor([3, 4]), PLACES, ValueError, "must be the inverse"),
    (torch.tensor([3, -3]), PLACES, ValueError, "must be the inverse"),
])
def test_fields_that_do_not_fit(order, places, error, words):
    with pytest.raises(error, match=words):
        packlib.PackedSequence(DATA, SIZES, order, places)
    with pytest.raises(error, match=words):
        layout_of(rnn.PackedSequence_.__new__(rnn.PackedSequence, DATA, SIZES, order, places))


def test_lengths_taken_for_batch_sizes_are_still_found():
    order = torch.tensor([1, 3, 0, 4, 2])
    with pytest.raises(ValueError, match="one entry for each of 2 sequences, got 5"):
        packlib.PackedSequence(DATA, SIZES, order, order.argsort())


@pytest.mark.parametrize("lengths", [[0, 3, 0], [0, 2, 2], [2, 0, 2], [3, 2, 0], LENGTHS], ids=str)
def test_torch_is_never_silently_wrong(lengths):
    """It has no place for the last of the indices. Were ``sorted_indices`` as long, its LSTM would
    go on with states of whatever stands in memory."""
    p, steps = packed(drawn(lengths, dtype=torch.float32)), sum(n > 0 for n in lengths)
    calls = [partial(rnn.pad_packed_sequence, p), partial(rnn.unpack_sequence, p)]
    for name, both, size in itertools.product(("RNN", "GRU", "LSTM"), (False, True),
                                              (None, steps, len(lengths))):
        layer, h = getattr(nn, name)(FEATURES, HIDDEN, bidirectional=both), None
        if size:
            h = torch.zeros(1 + both, size, HIDDEN)
        calls.append(partial(layer, p, (h, h) if size and name == "LSTM" else h))
    for call in calls:
        with pytest.raises((RuntimeError, IndexError)):
            call()


# --- layers -------------------------------------------------------------------------------------

def make(kind, route, dtype=torch.float64, **options):
    name = kind.split()[0]
    options = {**LAYERS[kind], **options, "dtype": dtype}
    ours = getattr(packlib, name)(FEATURES, HIDDEN, route=route, **options)
    theirs = getattr(nn, name)(FEATURES, HIDDEN, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def first_states(layer, size=6):
    rows = layer.num_layers * (1 + layer.bidirectional)
    like = layer.weight_ih_l0
    h = torch.randn(rows, size, layer.proj_size or HIDDEN).to(like).requires_grad_()
    c = torch.randn(rows, size, HIDDEN).to(like).requires_grad_()
    return (h, c) if layer.mode == "LSTM" else (h,)


def hx(layer, states):
    return states if layer.mode == "LSTM" else states[0]


def flat(last):
    return last if isinstance(last, tuple) else (last,)


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("both", [False, True], ids=["forward", "bidirectional"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("kind", "route"), PAIRS)
def test_each_sequence_as_if_alone(kind, route, dtype, both):
    """Outputs, states and gradients; an empty one's last state is its first, bit for bit."""
    ours, theirs = make(kind, route, dtype, num_layers=2, bidirectional=both)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    xs = [x.requires_grad_() for x in drawn(dtype=dtype)]
    states = first_states(ours)
    output, last = ours(packed(xs), hx(ours, states))
    expected = {i: theirs(xs[i], hx(theirs, tuple(s[:, i] for s in states))) for i in FULL}
    ends = {i: flat(end) for i, (_, end) in expected.items()}
    for i in FULL:
        close(output.sequence(i), expected[i][0], tolerance)
        for one, other in zip(flat(last), ends[i], strict=True):
            close(one[:, i], other, tolerance)
    for one, first in zip(flat(last), states, strict=True):
        oracle.same(one[:, EMPTY], first[:, EMPTY])

    def loss(outputs, ends):
        return sum(o.pow(2).sum() for o in outputs) + sum(e.pow(3).sum() for e in ends)

    found = torch.autograd.grad(loss([output.data], flat(last)),
                                [*(xs[i] for i in FULL), *states, *ours.parameters()])
    alone = loss([o for o, _ in expected.values()], itertools.chain(
        *ends.values(), (s[:, EMPTY] for s in states)))
    for one, other in zip(found, torch.autograd.grad(
            alone, [*(xs[i] for i in FULL), *states, *theirs.parameters()]), strict=True):
        close(one, other, 10 * tolerance)


@pytest.mark.parametrize(("kind", "route"), PAIRS)
def test_no_state_given_is_zeros(kind, route):
    layer, _ = make(kind, route, bidirectional=True)
    for last in flat(layer(packed(drawn()))[1]):
        assert last.shape[1] == len(LENGTHS)
        assert (last[:, EMPTY] == 0).all() and (last[:, FULL] != 0).any(2).all()


@pytest.mark.parametrize(("kind", "route"), PAIRS)
def test_gradient_to_the_first_state_of_an_empty_one_is_its_own(kind, route):
    layer, _ = make(kind, route, torch.float32)
    states = first_states(layer)
    _, last = layer(packed(drawn(dtype=torch.float32)), hx(layer, states))
    weights = [torch.randn_like(s) for s in states]
    for e, w, s in zip(flat(last), weights, torch.autograd.grad(flat(last), states, weights),
                       strict=True):
        oracle.same(s[:, EMPTY], w[:, EMPTY])
        assert e.shape == w.shape


@pytest.mark.parametrize("route", ["auto", "plain"])
@pytest.mark.parametrize("kind", LAYERS)
def test_double_backward(kind, route):
    layer, _ = make(kind, route, bidirectional=True)
    states = first_states(layer, 4)
    x = torch.randn(6, FEATURES, dtype=torch.float64, requires_grad=True)

    def run(x, *states):
        output, last = layer(packed([x[:2], x[2:2], x[2:5], x[5:]]), hx(layer, states))
        return output.data, *flat(last)

    assert torch.autograd.gradcheck(run, (x, *states), fast_mode=True)
    if "relu" not in kind:
        assert torch.autograd.gradgradcheck(run, (x, *states), fast_mode=True)


@pytest.mark.parametrize("lengths", [[0, 3, 0], [3, 3, 0, 3], [7, 1, 0, 6, 1, 2]], ids=str)
@pytest.mark.parametrize("route", ROUTES)
def test_other_shapes(route, lengths):
    """One sequence with steps; equal ones, a single rectangle; ragged ones, several of them."""
    ours, theirs = make("LSTM", route, torch.float32)
    xs, states = drawn(lengths, dtype=torch.float32), first_states(ours, len(lengths))
    output, last = ours(packed(xs), states)
    for i, x in enumerate(xs):
        mine = tuple(s[:, i] for s in states)
        out, end = theirs(x, mine) if len(x) else (x.new_zeros(0, HIDDEN), mine)
        close(output.sequence(i), out, 1e-5)
        for one, other in zip(last, end, strict=True):
            close(one[:, i], other, 1e-5)


@pytest.mark.parametrize("route", ["auto", "torch"])
def test_autocast(route):
    """Their states are given in autocast's dtype, as all are."""
    layer, _ = make("LSTM", route, torch.float32)
    states = first_states(layer)
    with torch.autocast("cpu", torch.bfloat16):
        _, last = layer(packed(drawn(dtype=torch.float32)), states)
    for one, first in zip(last, states, strict=True):
        oracle.same(one[:, EMPTY], first[:, EMPTY].to(one.dtype))


def test_any_cell():
    cell, xs = nn.LSTMCell(FEATURES, HIDDEN, dtype=torch.float64), drawn()
    states = tuple(torch.randn(6, HIDDEN, dtype=torch.float64) for _ in range(2))
    output, last = packlib.run_packed(cell, packed(xs), states)
    for i, x in enumerate(xs):
        mine = tuple(s[i:i + 1] for s in states)
        for t, row in enumerate(x):
            mine = cell(row[None], mine)
            close(output.sequence(i)[t], mine[0][0])
        for one, other in zip(last, mine, strict=True):
            close(one[i:i + 1], other)
    with pytest.raises(ValueError, match="state must be given, since sequence 1 is empty"):
        packlib.run_packed(cell, packed(xs))


# --- one sequence at a time, or all together ----------------------------------------------------

@given(batches(dtypes=(torch.float64, torch.int64)))
def test_row_by_row_and_sums(batch):
    p = packed(batch.sequences)
    same_sequences(packlib.unpack_sequence(packlib.reverse(p)),
                   [s.flip(0) for s in batch.sequences])
    oracle.same(packlib.packed_sum(p), torch.stack([s.sum(0) for s in batch.sequences]))
    if p.data.is_floating_point():
        shares = packlib.packed_softmax(p)
        for found, s in zip(packlib.unpack_sequence(shares), batch.sequences, strict=True):
            torch.testing.assert_close(found, s.softmax(0))


@pytest.mark.parametrize(("reduce", "what"), [
    (packlib.last_step, "last step"), (packlib.packed_mean, "mean"),
    (packlib.packed_max, "maximum")])
def test_what_nothing_does_not_have(reduce, what):
    p = counted()
    for _ in range(2):  # asked again, it says the same
        with pytest.raises(ValueError, match=rf"sequence 1 is empty, so it has no {what}: .*"
                                             r"packed.without_empty\(\)"):
            reduce(p)
    expected = {"last step": [1, 5, 6, 9], "mean": [0.5, 3.5, 6, 8], "maximum": [1, 5, 6, 9]}
    assert reduce(p.without_empty()).tolist() == expected[what]


def test_softmax_gradient():
    x = torch.randn(10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: packlib.packed_softmax(packed(list(x.split(LENGTHS)))).data, (x,))


def test_attention_gives_zeros_as_torch_does():
    keys, values = drawn(), drawn(features=2)
    query = torch.randn(6, 2, FEATURES, dtype=torch.float64, requires_grad=True)
    output, weights = packlib.packed_attention(query, packed(keys), packed(values))
    mask = torch.tensor([[t < n for t in range(4)] for n in LENGTHS])
    expected = F.scaled_dot_product_attention(
        query, *(oracle.padded(s, 4, True, 0.0) for s in (keys, values)), attn_mask=mask[:, None])
    close(output, expected)
    assert (output[EMPTY] == 0).all() and weights.lengths.tolist() == LENGTHS
    grad, = torch.autograd.grad(output.pow(2).sum(), query)
    assert (grad[EMPTY] == 0).all() and (grad[FULL][[0, 1, 3]] != 0).any()


def test_losses():
    ids, logits = packed([torch.randint(3, (n,)) for n in LENGTHS]), packed(drawn())
    each = [F.cross_entropy(logits.sequence(i), ids.sequence(i)) for i in FULL]
    close(cross_entropy(logits, ids, "sequence_mean"), torch.stack(each).mean())
    close(cross_entropy(logits, ids), F.cross_entropy(logits.data, ids.data))
    zeros = logits.map(torch.zeros_like)
    squares = [logits.sequence(i).pow(2).mean() for i in FULL]
    close(packed_loss(F.mse_loss, logits, zeros, "sequence_mean"), torch.stack(squares).mean())
    assert packed_loss(F.mse_loss, logits, zeros, "none").lengths.tolist() == LENGTHS


def test_layouts_are_compared():
    p = counted()
    assert packlib.same_layout(p, counted())
    assert not packlib.same_layout(p, p.without_empty())
    assert not packlib.same_layout(p, counted([2, 0, 4, 1, 3, 0]))
    ours = packlib.pack_sequence(list(torch.zeros(5).split([3, 2, 0, 0])), allow_empty=True)
    other = torch.tensor([0, 1, 3, 2])  # the places of empty ones are of no row
    assert packlib.same_layout(ours, packlib.PackedSequence(*ours[:3], other))


# --- in pieces ----------------------------------------------------------------------------------

@settings(max_examples=20)
@given(strategies.with_empty, st.integers(1, 5))
def test_pieces(lengths, steps):
    layer = packlib.GRU(FEATURES, HIDDEN, dtype=torch.float64)
    xs, h = drawn(lengths), torch.randn(1, len(lengths), HIDDEN, dtype=torch.float64)
    p = packed(xs)
    output, last = layer(p, h)
    assert all((piece.lengths > 0).all() for piece in chunks(p, steps))
    found = list(run_chunks(layer, p, steps, h))
    close(torch.cat([o.data for o, _ in found]), output.data)
    close(found[-1][1], last)
    empty = [i for i, n in enumerate(lengths) if n == 0]
    oracle.same(found[-1][1][:, empty], h[:, empty])


def test_pieces_need_a_first_state():
    with pytest.raises(ValueError, match="state must be given, since sequence 1 is empty"):
        run_chunks(packlib.GRU(FEATURES, HIDDEN), packed(drawn()), 2)


# --- compiled and exported ----------------------------------------------------------------------

class Model(nn.Module):
    def __init__(self, name, enforce_sorted=False, **options):
        super().__init__()
        self.enforce_sorted = enforce_sorted
        self.layer = getattr(packlib, name)(FEATURES, HIDDEN, **options)

    def forward(self, x, lengths, h):
        p = packlib.pack_padded_sequence(x, lengths, True, self.enforce_sorted, allow_empty=True)
        output, last = self.layer(p, (h, h) if self.layer.mode == "LSTM" else h)
        padded, lengths = packlib.pad_packed_sequence(output.map(torch.relu), True,
                                                      total_length=x.shape[1])
        return padded, lengths, *flat(last)


SETS = [LENGTHS, [1, 0, 6], [3, 2, 5, 4, 1], [0, 0, 3, 2, 0, 1, 1]]


def inputs(lengths, rows):
    size = len(lengths)
    return (torch.randn(size, 8, FEATURES, requires_grad=True), torch.tensor(lengths),
            torch.randn(rows, size, HIDDEN, requires_grad=True))


@NEW_TORCH
@pytest.mark.parametrize(("name", "enforce_sorted"), [("LSTM", False), ("GRU", True),
                                                      ("RNN", False)])
def test_one_graph_equal_to_eager(name, enforce_sorted):
    torch._dynamo.reset()
    model = Model(name, enforce_sorted, bidirectional=True, num_layers=2)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for lengths in SETS:
        x, counts, h = inputs(sorted(lengths, reverse=True) if enforce_sorted else lengths, 4)
        results = []
        for run in (compiled, model):
            found = run(x, counts, h)
            loss = sum(f.pow(2).sum() for f in (found[0], *found[2:]))
            results.append([*found, *torch.autograd.grad(loss, [x, h, *model.parameters()])])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        oracle.same(results[0][2][:, counts == 0], h[:, counts == 0])
    assert counter.frame_count <= 2  # the first sizes, then any
    with pytest.raises(RuntimeError, match="sequences are empty, so there is no step"):
        compiled(x, counts * 0, h)
    torch._dynamo.reset()


@NEW_TORCH
def test_export():
    model = Model("LSTM").eval()
    size, steps = torch.export.Dim("size", min=2), torch.export.Dim("steps", min=2)
    x, lengths, h = (t.detach() for t in inputs(LENGTHS, 1))
    exported = torch.export.export(model, (x, lengths, h), dynamic_shapes=(
        {0: size, 1: steps}, {0: size}, {1: size}))
    for counts in SETS:
        x, lengths, h = (t.detach() for t in inputs(counts, 1))
        for one, other in zip(exported.module()(x, lengths, h), model(x, lengths, h), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
