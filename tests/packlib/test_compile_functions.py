"""packlib's functions inside of a compiled or exported model, beside its layers (test_compile.py).

Each is compiled as one graph and compared with itself outside of it, values and gradients, for
lengths unsorted, with ties, of other sizes each time; where it takes empty sequences with those.
"""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F

import packlib
from packlib import alike, interop, layer_ops, losses, padding, traced
from packlib.chunks import chunks

SETS = [[2, 4, 1, 4, 3], [1, 6, 2], [3, 3, 5, 2, 2, 1, 4], [2, 7, 1, 5], [4, 1, 6, 6, 2, 3]]
WITH_EMPTY = [[2, 0, 4, 1, 4], [1, 6, 0], [0, 3, 5, 0, 2, 1, 4], [2, 7, 1, 5], [4, 0, 6, 6, 2, 3]]
FEATURES, HIDDEN, CLASSES, WORDS = 3, 6, 4, 9

# torch 2.6 cannot trace a subclass of a named tuple
pytestmark = pytest.mark.skipif(torch.__version__ < (2, 13), reason="seen to work on torch 2.13")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def batch(lengths):
    torch.manual_seed(len(lengths))
    x = torch.randn(len(lengths), max(lengths) + 2, FEATURES, requires_grad=True)
    return x, torch.tensor(lengths)


def pack(x, lengths):
    return packlib.pack_padded_sequence(x, lengths, True, False)


def pack_sorted(x, lengths):
    return packlib.pack_padded_sequence(x, lengths.sort(descending=True).values, True)


def pack_empty(x, lengths):
    return packlib.pack_padded_sequence(x, lengths, True, False, allow_empty=True)


def real(x, lengths):
    return torch.arange(x.shape[1]) < lengths[:, None]


def outcome(function, *inputs):
    """What it gives, and the gradients of x."""
    found = function(*inputs)
    found = [found] if isinstance(found, torch.Tensor) else list(found)
    x = inputs[0]
    (grad,) = torch.autograd.grad(sum(f.pow(2).sum() for f in found if f.requires_grad), x)
    return [*found, grad]


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def compiled(function, dynamic=None):
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(function, fullgraph=True, backend=counter, dynamic=dynamic), counter


def check(function, sets):
    run, counter = compiled(function, dynamic=True)
    graphs = []
    for lengths in sets:
        inputs = batch(lengths)
        same(outcome(run, *inputs), outcome(function, *inputs))
        graphs.append(counter.frame_count)
    assert graphs[0] == graphs[-1]  # the first sizes serve for any (torch may try twice for them)


def attention(p, query):
    output, weights = packlib.packed_attention(query, p, p.map(torch.tanh))
    return output, weights.data


def end_to_end(p):
    rows, offsets, longest = packlib.to_cu_seqlens(p)
    return rows * longest, offsets, packlib.from_cu_seqlens(rows, offsets, allow_empty=True).data


def cross_entropy(p, reduction):
    targets = p.map(lambda x: x.detach().argmax(1))
    found = losses.cross_entropy(p, targets, reduction, ignore_index=2)
    return found.data if reduction == "none" else found


OF_PACKED = {
    "last_step": lambda p, x: packlib.last_step(p),
    "packed_mean": lambda p, x: packlib.packed_mean(p),
    "packed_max": lambda p, x: packlib.packed_max(p),
    "without_order": lambda p, x: packlib.packed_mean(p) * x[:, 0],
}
OF_EMPTY_TOO = {
    "packed_sum": lambda p, x: packlib.packed_sum(p),
    "packed_softmax": lambda p, x: packlib.packed_softmax(p).data,
    "attention": lambda p, x: attention(p, x[:, 0]),
    "attention, many queries": lambda p, x: attention(p, x[:, :2]),
    "reverse": lambda p, x: packlib.reverse(p).data,
    "mask_from_packed": lambda p, x: packlib.mask_from_packed(p, x.shape[1])[:, :, None] * x,
    "as long as pad": lambda p, x: (packlib.mask_from_packed(p)[:, :, None]
                                    * packlib.pad_packed_sequence(p, True)[0]),
    "facts": lambda p, x: (p.lengths, p.num_sequences * x),
    "fields": lambda p, x: p.with_data(p.data * 2).double().map(torch.exp).data,
    "without_empty": lambda p, x: packlib.packed_mean(p.without_empty()),
    "cu_seqlens": lambda p, x: end_to_end(p),
    **{f"cross_entropy, {r}": lambda p, x, r=r: cross_entropy(p, r) for r in losses.REDUCTIONS},
    "mse, sequence_mean": lambda p, x: losses.packed_loss(
        F.mse_loss, p, p.map(torch.zeros_like), "sequence_mean"),
}
OF_GRIDS = {
    "packed apart": lambda x, n: losses.packed_loss(
        F.mse_loss, pack(x, n), pack(x.detach() + 1, n)),
    "ids": lambda x, n: pack(x.detach().abs().long(), n).map(
        lambda ids: F.one_hot(ids, WORDS)).data * x.sum(),
    "lengths_to_mask": lambda x, n: packlib.lengths_to_mask(n).sum(1)[:, None] * x[:, 0],
    "lengths_to_mask, T": lambda x, n: packlib.lengths_to_mask(n, x.shape[1])[:, :, None] * x,
    "mask_to_lengths": lambda x, n: packlib.mask_to_lengths(real(x, n))[:, None] * x[:, 0],
    "packed_from_mask": lambda x, n: packlib.packed_from_mask(
        x, real(x, n).flip(1), padding_side="left").data,
    "pad_sequence": lambda x, n: packlib.pad_sequence(pieces(x), padding_value=7),
    "pad_sequence, left": lambda x, n: packlib.pad_sequence(pieces(x), True, padding_side="left"),
    "pack_sequence": lambda x, n: packlib.packed_mean(
        packlib.pack_sequence(pieces(x), enforce_sorted=False)),
}


def pieces(x):
    return [x[0, 1:], x[1], x[2, 2:], x.flatten(0, 1)]


def several(names, packing):
    def function(x, n):
        found = [{**OF_PACKED, **OF_EMPTY_TOO}[name](packing(x, n), x) for name in names]
        return [t for f in found for t in ([f] if isinstance(f, torch.Tensor) else f)]

    return function


@pytest.mark.parametrize("name", [*OF_PACKED, *OF_EMPTY_TOO])
def test_of_packed(name):
    function = {**OF_PACKED, **OF_EMPTY_TOO}[name]
    check(lambda x, n: function(pack(x, n), x), SETS[:3])


@pytest.mark.parametrize("names", [["last_step", "packed_max"], ["attention", "facts"],
                                   ["without_order", "mse, sequence_mean"]], ids=" ".join)
def test_of_a_batch_that_came_sorted(names):
    check(several(names, pack_sorted), SETS[:3])


@pytest.mark.parametrize("names", [
    ["packed_sum", "reverse", "facts", "as long as pad"], ["attention", "without_empty"],
    ["cu_seqlens", "cross_entropy, sequence_mean", "mse, sequence_mean"]], ids=" ".join)
def test_of_empty_sequences_too(names):
    check(several(names, pack_empty), WITH_EMPTY)


def test_of_sums_in_more_than_one_piece():
    check(lambda x, n: packlib.packed_sum(pack_empty(x, n)), [[600, 0, 257], [256, 513, 1]])


@pytest.mark.parametrize("name", OF_GRIDS)
def test_of_grids_and_lists(name):
    check(OF_GRIDS[name], SETS[:3])


class Classifier(nn.Module):
    """A user's model: embedding, layer, three ways to bring a sequence together, two losses."""

    def __init__(self, **options):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, FEATURES)
        self.layer = packlib.LSTM(FEATURES, HIDDEN, **options)
        width = self.layer.proj_size or HIDDEN
        self.head = nn.Linear(3 * width, CLASSES)
        self.tagger = nn.Linear(width, WORDS)

    def forward(self, ids, lengths, labels):
        words = packlib.pack_padded_sequence(ids, lengths, True, False)
        return self.losses(words, labels)

    def losses(self, words, labels):
        output, _ = self.layer(words.map(self.embedding))
        last = packlib.last_step(output)
        pooled = [last, packlib.packed_mean(output), packlib.packed_attention(last, output)[0]]
        tags = losses.cross_entropy(output.map(self.tagger), words, "sequence_mean")
        return F.cross_entropy(self.head(torch.cat(pooled, 1)), labels) + tags


def words(lengths):
    torch.manual_seed(len(lengths))
    size = len(lengths)
    return (torch.randint(0, WORDS, (size, max(lengths) + 1)), torch.tensor(lengths),
            torch.randint(0, CLASSES, (size,)))


def trained(function, model, *inputs):
    model.zero_grad()
    loss = function(*inputs)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}, {"route": "torch"}],
                         ids=["plain", "proj_size", "torch's"])
def test_a_training_step(options):
    model = Classifier(**options)
    run, counter = compiled(model)
    for lengths in SETS:
        inputs = words(lengths)
        same(trained(run, model, *inputs), trained(model, model, *inputs))
    assert counter.frame_count <= 2


def test_of_a_batch_packed_before():
    model = Classifier()
    run, counter = compiled(model.losses)
    for lengths in SETS:
        ids, counts, labels = words(lengths)
        p = pack(ids, counts)
        same(trained(run, model, p, labels), trained(model.losses, model, p, labels))
    assert counter.frame_count <= 2


@pytest.mark.slow
def test_inductor():
    def model(x, lengths):
        p = packlib.reverse(pack(x, lengths))
        return packlib.last_step(p) + packlib.packed_max(p) + attention(p, x[:, 0])[0]

    run = torch.compile(model, fullgraph=True, backend="inductor", dynamic=True)
    for lengths in SETS[:2]:
        same(outcome(run, *batch(lengths)), outcome(model, *batch(lengths)))


def test_autocast_and_dropout():
    torch.manual_seed(0)
    layer = packlib.LSTM(FEATURES, HIDDEN, 2, bidirectional=True, dropout=0.5)

    def model(x, lengths):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, _ = layer(pack(x, lengths))
        assert output.dtype == torch.bfloat16
        return packlib.packed_mean(output.float())

    layer.eval()
    check(model, SETS[:2])
    layer.train()
    run, _ = compiled(model)
    inputs = batch(SETS[0])
    assert not torch.equal(run(*inputs), run(*inputs))  # other rows are dropped each time


def test_export():
    model = Classifier(proj_size=2)
    size, steps = torch.export.Dim("size", min=2), torch.export.Dim("steps", min=2)
    exported = torch.export.export(model, words(SETS[0]), dynamic_shapes=(
        {0: size, 1: steps}, {0: size}, {0: size})).module()
    for lengths in SETS:
        inputs = words(lengths)
        same([exported(*inputs)], [model(*inputs)])


# --- checks still hold --------------------------------------------------------------------------

WRONG = {
    "mean of an empty one": (lambda x, n: packlib.packed_mean(pack_empty(x, n)), [2, 0, 5],
                             ValueError, "sequence 1 is empty, so it has no mean"),
    "last of an empty one": (lambda x, n: packlib.last_step(pack_empty(x, n)), [0, 3, 5],
                             ValueError, "sequence 0 is empty, so it has no last step"),
    "another layout": (lambda x, n: losses.packed_loss(F.mse_loss, pack(x, n), pack(x, n.flip(0))),
                       [2, 3, 5], ValueError, "outputs and targets are packed differently: "
                       "sequence 0 has 2 steps and 5"),
    "another size": (lambda x, n: losses.packed_loss(F.mse_loss, pack(x, n), pack(x, n + 1)),
                     [2, 3, 5], ValueError, "sequence 0 has 2 steps and 3"),
    "rows lost": (lambda x, n: pack(x, n).map(lambda rows: rows[:3]).data, [2, 3, 5],
                  RuntimeError, "data must have one row for each real step"),
    "a mask too short": (lambda x, n: packlib.lengths_to_mask(n, 4), [2, 3, 5], ValueError,
                         "max_len=4 is shorter than the longest of lengths, 5"),
    "a mask with holes": (lambda x, n: packlib.mask_to_lengths(~real(x, n)), [2, 3, 5], ValueError,
                          "mask has real steps after padding"),
    "lengths for offsets": (lambda x, n: packlib.from_cu_seqlens(x.flatten(0, 1), n).data,
                            [2, 3, 5], ValueError, "cu_seqlens must run from 0 up to 21"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_told_as_ever(name):
    function, lengths, error, message = WRONG[name]
    run, _ = compiled(function)
    with pytest.raises(error, match=message):
        run(*batch(lengths))


# --- what no graph can hold ---------------------------------------------------------------------

def unpacked(x, n):
    return torch.stack([s.sum(0) for s in packlib.unpack_sequence(pack(x, n))])


EAGER = {
    "unpack_sequence": (unpacked, "use pad_packed_sequence"),
    "unpad_sequence": (lambda x, n: packlib.unpad_sequence(x, n, True)[1], "lengths_to_mask"),
    "PackedSequence.sequence": (lambda x, n: pack(x, n).sequence(1), "pad_packed_sequence"),
    "PackedSequence.layout": (lambda x, n: x * pack(x, n).layout.num_rows, "by themselves"),
    r"PackedSequence\(\)": (lambda x, n: packlib.PackedSequence(*pack(x, n)).data, "with_data"),
    "same_layout": (lambda x, n: x * packlib.same_layout(pack(x, n), pack(x, n)), "checks it"),
    "to_nested": (lambda x, n: packlib.to_nested(pack(x, n)).values(), "to_cu_seqlens"),
    "run_packed": (lambda x, n: packlib.run_packed(lambda x, s: x + s, pack(x, n), x[:, 0])[1],
                   "use packlib.RNN, GRU or LSTM"),
    "chunks": (lambda x, n: sum(p.data.sum() for p in chunks(pack(x, n), 2)), "outside of it"),
}


@pytest.mark.parametrize("name", EAGER)
def test_says_what_no_graph_can_hold(name):
    function, instead = EAGER[name]
    run, _ = compiled(function)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=f"{name} depends on the values.*"
                       f"{instead}"):
        run(*batch(SETS[0]))


@pytest.mark.parametrize("name", ["unpack_sequence", "run_packed"])
def test_leaves_the_graph_for_it(name):
    function = EAGER[name][0]
    run = torch.compile(function, backend="aot_eager")
    for lengths in SETS[:2]:
        same(outcome(run, *batch(lengths)), outcome(function, *batch(lengths)))


def test_export_says_so_too():
    class Model(nn.Module):
        forward = staticmethod(unpacked)

    x, lengths = batch(SETS[0])
    with pytest.raises(RuntimeError, match="unpack_sequence depends on the values"):
        torch.export.export(Model(), (x.detach(), lengths))


# --- the operators ------------------------------------------------------------------------------

def test_the_operators_keep_torchs_rules():
    p = packlib.pack_sequence([torch.zeros(n, 2) for n in SETS[0]], enforce_sorted=False)
    fields = p.batch_sizes, p.sorted_indices
    offsets = F.pad(p.lengths.cumsum(0), (1, 0))
    for op, inputs in [
        (traced.grid_op, (*fields, 14, 4, True, "right", "mean")),
        (traced.plan_op, (p.lengths, [14], True, False, "right", True)),
        (alike.alike_op, (*fields, *fields, "a", "b")),
        (padding.mask_op, (p.lengths, None)),
        (padding.mask_op, (p.lengths, 6)),
        (padding.lengths_op, (packlib.mask_from_packed(p),)),
        (interop.diff_op, (offsets, 14)),
    ]:
        assert set(torch.library.opcheck(op, inputs).values()) == {"SUCCESS"}


def test_the_projected_operator():
    p = packlib.pack_sequence([torch.zeros(n, 2) for n in SETS[0]], enforce_sorted=False)

    def leaf(*shape):
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    inputs = (leaf(14, 3), leaf(5, 2), leaf(5, 4), leaf(16, 3), leaf(16, 2), leaf(16), leaf(16),
              leaf(2, 4))
    found = torch.library.opcheck(layer_ops.lstm, (p.batch_sizes, *inputs))
    assert set(found.values()) == {"SUCCESS"}

    def layer(*given):
        return layer_ops.lstm(p.batch_sizes, *given)[:3]

    assert torch.autograd.gradcheck(layer, inputs)
    assert torch.autograd.gradgradcheck(layer, inputs)
