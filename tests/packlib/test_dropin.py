"""Change one import line: torch's functions swapped for ours, in scripts as people write them."""

import copy
import doctest
import importlib
import inspect
import io
import subprocess
import sys

import oracle
import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn.utils import rnn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

import packlib

# torch 2.6 loses the type of a named tuple's subclass in tree_map and in the compiler
NEW_TORCH = pytest.mark.skipif(torch.__version__ < (2, 13), reason="seen to work on torch 2.13")

SHARED = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pad_packed_sequence",
          "pad_sequence", "unpad_sequence", "pack_sequence", "unpack_sequence"]


def test_every_public_name_of_torch_is_here():
    assert set(rnn.__all__) <= set(packlib.__all__)
    assert set(SHARED) <= set(packlib.__all__)


@pytest.mark.parametrize("name", ["chunks", "data", "datasets", "losses", "testing", "viz"])
def test_one_import_opens_every_room(name):
    """In a process of its own: here others have imported them."""
    program = f"import packlib; print(packlib.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == f"packlib.{name}", done.stderr
    with pytest.raises(AttributeError, match="module 'packlib' has no attribute 'dta'"):
        packlib.dta  # noqa: B018


@pytest.mark.parametrize("name", SHARED)
def test_names_order_and_defaults_of_arguments_are_torchs(name):
    """We may add arguments, by keyword only."""
    ours, theirs = (list(inspect.signature(getattr(module, name)).parameters.values())
                    for module in (packlib, rnn))
    for one, other in zip(ours, theirs, strict=False):
        assert (one.name, one.default) == (other.name, other.default)
        assert one.kind == other.kind
    assert len(ours) >= len(theirs)
    assert all(p.kind == inspect.Parameter.KEYWORD_ONLY for p in ours[len(theirs):])


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_layers_take_torchs_arguments(name):
    ours, theirs = getattr(packlib, name), getattr(nn, name)
    nonlinearity = ["relu"] if name == "RNN" else []
    proj = [3 if name == "LSTM" else 0]
    arguments = (4, 6, 2, *nonlinearity, False, True, 0.25, True, *proj, None, torch.float64)
    one, other = ours(*arguments), theirs(*arguments)
    assert repr(one) == repr(other)
    assert {k: (v.shape, v.dtype) for k, v in one.state_dict().items()} == {
        k: (v.shape, v.dtype) for k, v in other.state_dict().items()}
    *forward, more = inspect.signature(ours.forward).parameters.values()
    assert [p.name for p in forward] == list(inspect.signature(theirs.forward).parameters)
    assert (more.name, more.kind, more.default) == ("lengths", more.KEYWORD_ONLY, None)
    assert all(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD, p.VAR_POSITIONAL) or p.name == "self"
               for p in inspect.signature(ours.__init__).parameters.values())


# --- a training script --------------------------------------------------------------------------

SENTENCES = [[5, 0, 7, 2], [3, 9], [1, 4, 4, 8, 6, 2], [7, 7, 1], [0, 3], [2, 8, 5, 0, 9]] * 2
TAGS = [[token % 3 for token in sentence] for sentence in SENTENCES]


class Tagger(nn.Module):
    """Embedding, packed LSTM, a class for each token."""

    def __init__(self, functions, layers):
        super().__init__()
        self.functions = functions
        self.embedding = nn.Embedding(10, 6)
        self.lstm = layers.LSTM(6, 8, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(16, 3)

    def forward(self, ids, lengths):
        packed = self.functions.pack_padded_sequence(self.embedding(ids), lengths, batch_first=True,
                                                     enforce_sorted=False)
        output, _ = self.lstm(packed)
        grid, _ = self.functions.pad_packed_sequence(output, batch_first=True,
                                                     total_length=ids.size(1))
        return self.linear(grid)


class Collate:
    """Pads the tokens, and packs the tags."""

    def __init__(self, functions):
        self.functions = functions

    def __call__(self, pairs):
        ids, tags = ([torch.tensor(v) for v in values] for values in zip(*pairs, strict=True))
        return (self.functions.pad_sequence(ids, batch_first=True),
                torch.tensor([len(i) for i in ids]),
                self.functions.pack_sequence(tags, enforce_sorted=False))


def train(functions, layers, workers=0):
    torch.manual_seed(1)
    model = Tagger(functions, layers)
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    loader = DataLoader(list(zip(SENTENCES, TAGS, strict=True)), batch_size=4, num_workers=workers,
                        collate_fn=Collate(functions), persistent_workers=workers > 0,
                        multiprocessing_context="fork" if workers else None)
    losses = []
    for _ in range(4):
        for ids, lengths, tags in loader:
            assert isinstance(tags, functions.PackedSequence)
            grid = model(ids, lengths)
            packed = functions.pack_padded_sequence(grid, lengths, True, False)
            loss = nn.functional.cross_entropy(packed.data, tags.data)
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            losses.append(loss.item())
    return losses, model


@pytest.mark.parametrize(("layers", "workers"), [(nn, 0), (packlib, 0), (packlib, 2)],
                         ids=["torch's LSTM", "ours", "ours, 2 workers"])
def test_a_training_script_runs_as_before(layers, workers):
    expected, _ = train(rnn, nn)
    found, model = train(packlib, layers, workers)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found[-1] < found[0]
    theirs = Tagger(rnn, nn)  # a checkpoint of one is a checkpoint of the other
    theirs.load_state_dict(model.state_dict())
    ids, lengths = rnn.pad_sequence([torch.tensor(s) for s in SENTENCES[:5]], True), [4, 2, 6, 3, 2]
    torch.testing.assert_close(model(ids, lengths), theirs(ids, lengths), rtol=1e-4, atol=1e-5)


# --- mixed with torch ---------------------------------------------------------------------------

XS = [torch.arange(8.0).view(2, 4), torch.ones(5, 4), torch.zeros(3, 4)]  # order [1, 2, 0]


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_torchs_layers_take_our_batch(name):
    layer = getattr(nn, name)(4, 6, num_layers=2, bidirectional=True)
    ours, theirs = (layer(module.pack_sequence(XS, enforce_sorted=False))
                    for module in (packlib, rnn))
    oracle.same_fields(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=0)
    for one, other in zip(packlib.unpack_sequence(ours[0]), rnn.unpack_sequence(theirs[0]),
                          strict=True):
        oracle.same(one, other)


@pytest.mark.parametrize(("pack", "unpack"), [(packlib, rnn), (rnn, packlib)])
def test_each_unpacks_what_the_other_packs(pack, unpack):
    packed = pack.pack_sequence(XS, enforce_sorted=False)
    for x, found in zip(XS, unpack.unpack_sequence(packed), strict=True):
        oracle.same(found, x)
    grid, lengths = unpack.pad_packed_sequence(packed, True, -1.0, 7)
    oracle.same(grid, oracle.padded(XS, 7, True, -1.0))
    oracle.same(lengths, torch.tensor([2, 5, 3]))


def test_a_model_in_eval_in_half_and_copied():
    packed = packlib.pack_sequence(XS, enforce_sorted=False)
    model = packlib.GRU(4, 6).eval()
    expected = model(packed)[0].data
    oracle.same(copy.deepcopy(model)(packed)[0].data, expected)
    half = copy.deepcopy(model).half()(packed.half())[0]
    assert half.data.dtype == torch.half
    torch.testing.assert_close(half.float().data, expected, rtol=0.01, atol=0.01)


def test_a_model_that_holds_a_packed_batch_is_copied_and_saved():
    model = nn.Linear(4, 2)
    model.example = packlib.pack_sequence(XS, enforce_sorted=False)
    packlib.pad_packed_sequence(model.example)  # fills its caches
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for again in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert type(again.example) is packlib.PackedSequence
        oracle.same_fields(again.example, model.example)


# --- modes and wrappers -------------------------------------------------------------------------

def energy(x):
    packed = packlib.pack_padded_sequence(x, [2, 5, 1, 4], True, False)
    return packlib.pad_packed_sequence(packed, True)[0].pow(2).sum()


X = torch.arange(24.0).view(4, 6)
GRAD = 2 * X * torch.tensor([[t < n for t in range(6)] for n in (2, 5, 1, 4)])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    x = X.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(energy, x, use_reentrant=reentrant).backward()
    oracle.same(x.grad, GRAD)


def test_what_inference_mode_has_cached_serves_training_later():
    packed = packlib.pack_padded_sequence(X, [2, 5, 1, 4], True, False)
    with torch.inference_mode():
        packlib.pad_packed_sequence(packed)
        packlib.unpack_sequence(packed)
        made_inside = packlib.pack_sequence([X[0], X[1, :2]])
    data = packed.data.clone().requires_grad_()
    again = packed.with_data(data)
    (packlib.pad_packed_sequence(again)[0] ** 2).sum().backward()
    sum((s ** 3).sum() for s in packlib.unpack_sequence(again)).backward()
    oracle.same(data.grad, 2 * packed.data + 3 * packed.data ** 2)
    assert [len(s) for s in packlib.unpack_sequence(made_inside)] == [6, 2]


def test_no_grad():
    x = X.clone().requires_grad_()
    with torch.no_grad():
        packed = packlib.pack_padded_sequence(x, [2, 5, 1, 4], True, False)
    assert not packed.data.requires_grad


def test_another_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        packed = packlib.pack_padded_sequence(X, [2, 5, 1, 4], True, False)
        assert packed.dtype == packlib.pad_packed_sequence(packed)[0].dtype == torch.float32
        assert packed.lengths.dtype == torch.int64
    finally:
        torch.set_default_dtype(torch.float32)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = packlib.GRU(4, 6)

    def forward(self, xs):
        output, h = self.gru(packlib.pack_sequence(xs, enforce_sorted=False))
        return packlib.pad_packed_sequence(output)[0], h


@NEW_TORCH
def test_a_compiled_model_gives_the_same():
    """Without fullgraph, and without a compiler: what dynamo makes of it must be right."""
    model = Model()
    compiled = torch.compile(model, backend="eager")
    for xs in (XS, XS[::-1], XS[:2]):
        torch.testing.assert_close(compiled(xs), model(xs))


# --- what torch's own tests ask of a packed batch -----------------------------------------------
# The contracts, in our words: conversions of dtype and device; wrong order; equality.

def both_packed(ordered):
    xs = sorted(XS, key=len, reverse=True) if ordered else XS
    return xs, packlib.pack_sequence(xs, enforce_sorted=ordered)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kind", ["float", "double", "half", "int", "long", "short", "byte"])
def test_conversions_convert_the_data_alone(kind, ordered):
    _, packed = both_packed(ordered)
    found = getattr(packed, kind)()
    assert isinstance(found, packlib.PackedSequence)
    oracle.same(found.data, getattr(packed.data, kind)())
    assert found.batch_sizes is packed.batch_sizes
    assert (found.sorted_indices is None) == ordered
    assert packed.dtype == torch.float32


@pytest.mark.parametrize("ordered", [True, False])
def test_a_batch_that_is_where_it_should_be_is_itself(ordered):
    _, packed = both_packed(ordered)
    for same in (packed.to("cpu"), packed.cpu(), packed.to(torch.float32),
                 packed.to(torch.device("cpu")), packed.to("cpu", dtype=torch.float32)):
        assert same is packed
    for other in (packed.to("cpu", dtype=torch.int32), packed.to(torch.float64)):
        assert other is not packed


@pytest.mark.parametrize("ordered", [True, False])
def test_a_batch_equals_itself_in_tests(ordered):
    _, packed = both_packed(ordered)
    torch.testing.assert_close(packed, packed)
    torch.testing.assert_close(packed, copy.deepcopy(packed))
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        torch.testing.assert_close(packed, packed.map(lambda d: d + 1))


def test_the_wrong_order_is_refused_with_torchs_words():
    words = "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence"
    for module in (packlib, rnn):
        with pytest.raises(RuntimeError, match=words):
            module.pack_sequence(XS)
        with pytest.raises(RuntimeError, match=words):
            module.pack_padded_sequence(torch.zeros(6, 3), [2, 5, 3])


@pytest.mark.parametrize(("call", "words"), [
    (lambda m: m.pack_sequence([]), "received an empty list of sequences"),
    (lambda m: m.pad_sequence([]), "received an empty list of sequences"),
    (lambda m: m.pad_sequence(5), "Expected iterable for input sequences, but got arg of type"),
    (lambda m: m.pack_padded_sequence(torch.zeros(0, 0), []), "Cannot pack empty tensors"),
    (lambda m: m.pack_padded_sequence(X, [2, 5, 0, 4], True, False), "has to be greater than 0"),
    (lambda m: m.pack_padded_sequence(X, [2, 5, 4], True), r"but got 3 \(batch_size=4\)"),
    (lambda m: m.pad_packed_sequence(m.pack_sequence(XS, False), total_length=4),
     "Expected total_length to be at least the length of the longest sequence in input"),
    (lambda m: m.PackedSequence(X, torch.tensor([4], device="meta")), "should always be on CPU"),
])
def test_errors_have_torchs_type_and_words(call, words):
    with pytest.raises(Exception, match=words) as theirs:
        call(rnn)
    with pytest.raises(theirs.type, match=words):
        call(packlib)


@NEW_TORCH
def test_tree_map_and_replace_keep_the_type():
    _, packed = both_packed(False)
    for made in (tree_map(torch.clone, packed), packed._replace(data=packed.data.clone()),
                 type(packed)(*packed)):
        assert type(made) is packlib.PackedSequence
        oracle.same_fields(made, packed)


CORE = ["layout", "ops", "sequence", "padding", "packing", "cells", "rnn", "alike", "reduce",
        "losses", "interop", "chunks", "data", "samplers", "cover"]


@pytest.mark.parametrize("name", CORE)
def test_doctests(name):
    module = importlib.import_module(f"packlib.{name}")
    assert doctest.testmod(module).failed == 0
    for public in packlib.__all__:
        function = getattr(packlib, public)
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            assert ">>> " in inspect.getdoc(function), public


def test_pytest_runs_the_doctests_too(pytestconfig):
    assert pytestconfig.getoption("doctestmodules")
    assert "packlib" in pytestconfig.getini("testpaths")


@pytest.mark.filterwarnings("ignore")  # torch's own, about trace
@pytest.mark.parametrize("fn", [
    lambda x: packlib.pack_padded_sequence(x, [4, 2, 1], True).data,
    lambda x: packlib.pack_sequence(list(x)).data,
    lambda x: packlib.pad_packed_sequence(rnn.pack_padded_sequence(x, torch.tensor([4, 2, 1]),
                                                                   True))[0],
], ids=["grid", "list", "back"])
def test_jit_trace_is_refused_in_words(fn):
    with pytest.raises(RuntimeError, match="packlib cannot be traced by torch.jit.trace"):
        torch.jit.trace(fn, torch.zeros(3, 4, 2))
