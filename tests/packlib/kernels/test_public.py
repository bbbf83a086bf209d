"""packlib's own functions by the kernel: what they give by row numbers, and gradients of any order.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from oracle import Work, packed_rows, padded, same, same_fields
from strategies import DTYPES, batches, in_memory, values, with_empty
from torch.nn.utils import rnn

import packlib
from packlib import kernels, moves

LENGTHS = [2, 4, 1, 4, 3]
ORDER = [1, 3, 4, 0, 2]
MORE_DTYPES = [*DTYPES, torch.int32, torch.uint8, torch.complex128]
SHAPES = [(), (3,), (2, 4)]


def pack(x, lengths=LENGTHS, batch_first=True, **options):
    return packlib.pack_padded_sequence(x, lengths, batch_first, False, **options)


def pieces(shape=(3,), dtype=torch.float64, lengths=LENGTHS):
    return [values((n, *shape), dtype, seed=i) for i, n in enumerate(lengths)]


@pytest.mark.parametrize("dtype", MORE_DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moves_equal_torch(launches, shape, dtype):
    value = {torch.bool: True, torch.uint8: 7}.get(dtype, 2 - 3j if dtype.is_complex else -3)
    for batch_first in (True, False):
        x = values((5, 6, *shape) if batch_first else (6, 5, *shape), dtype)
        expected = rnn.pack_padded_sequence(x, LENGTHS, batch_first, enforce_sorted=False)
        packed = pack(x, batch_first=batch_first)
        same_fields(packed, expected)
        for total in (None, 7):
            same(packlib.pad_packed_sequence(packed, batch_first, value, total)[0],
                 rnn.pad_packed_sequence(expected, batch_first, value, total)[0])
    whole = pieces(shape, dtype)
    packed = packlib.pack_sequence(whole, enforce_sorted=False)
    same_fields(packed, rnn.pack_sequence(whole, enforce_sorted=False))
    for found, sequence in zip(packlib.unpack_sequence(packed), whole, strict=True):
        same(found, sequence)
    rows, offsets, longest = packlib.to_cu_seqlens(packed)
    same(rows, torch.cat(whole))
    assert (offsets.tolist(), longest) == ([0, 2, 6, 7, 11, 14], 4)
    same_fields(packlib.from_cu_seqlens(rows, offsets), packed)
    same(packlib.reverse(packed).data, packed_rows([s.flip(0) for s in whole], ORDER))
    assert len(launches) == 2 * 3 + 5


@settings(max_examples=15)  # the interpreter is slow
@given(batch=batches(dtypes=(torch.float32, torch.bool), lengths=with_empty))
def test_any_batch_on_both_sides_empty_sequences_too(batch):
    packed = packlib.pack_sequence(batch.sequences, False, allow_empty=True)
    order = sorted(range(len(batch.lengths)), key=lambda i: -batch.lengths[i])
    if len(set(batch.lengths)) == len(batch.lengths):  # else torch has its own order of ties
        same(packed.data, packed_rows(batch.sequences, order))
    for side in ("right", "left"):
        grid = padded(batch.sequences, batch.total, batch.batch_first, 1, side)
        found, lengths = packlib.pad_packed_sequence(packed, batch.batch_first, 1, batch.total,
                                                     padding_side=side)
        same(found, grid)
        assert lengths.tolist() == batch.lengths
        same_fields(pack(grid, batch.lengths, batch.batch_first, padding_side=side,
                         allow_empty=True), packed)
    for found, sequence in zip(packlib.unpack_sequence(packed), batch.sequences, strict=True):
        same(found, sequence)


@pytest.fixture(autouse=True)
def _by_kernel(launches):
    """All tests here, those of hypothesis too."""


@pytest.mark.parametrize("how", ["transposed", "strided", "expanded", "conjugated", "negated"])
def test_any_memory(launches, how):
    x = values((5, 6, 4), torch.complex64)
    x = {"conjugated": x.conj(), "negated": x.conj().imag}.get(how, in_memory(x, how))
    expected = rnn.pack_padded_sequence(x, LENGTHS, True, False)
    same(pack(x).data, expected.data)
    same(pack(x.transpose(0, 1), batch_first=False).data, expected.data)
    whole = [row[:n] for row, n in zip(x, LENGTHS, strict=True)]
    same(packlib.pack_sequence(whole, False).data, expected.data)
    assert len(launches) == 3


def test_gradients_of_first_and_second_order(launches):
    x = torch.randn(5, 6, 2, dtype=torch.float64, requires_grad=True)

    def there_and_back(x):
        packed = packlib.reverse(pack(x).map(torch.sin))
        rows, _, _ = packlib.to_cu_seqlens(packed)
        again = packlib.from_cu_seqlens(rows ** 2, [0, 2, 6, 7, 11, 14])
        return packlib.pad_packed_sequence(again, True, 0.5, 7, padding_side="left")[0]

    assert torch.autograd.gradcheck(there_and_back, (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(there_and_back, (x,), fast_mode=True)
    assert launches


@pytest.mark.parametrize("lengths", [LENGTHS, [2, 0, 5, 0]], ids=str)
def test_gradients_through_lists(launches, lengths):
    xs = [torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in lengths]

    def lists(*xs):
        packed = packlib.pack_sequence(list(xs), enforce_sorted=False, allow_empty=True)
        return tuple(packlib.unpack_sequence(packed.map(torch.sin)))

    assert torch.autograd.gradcheck(lists, xs)
    assert torch.autograd.gradgradcheck(lists, xs, fast_mode=True)
    assert launches


def test_gradients_of_one_piece_alone():
    xs = [torch.randn(n, 2, requires_grad=True) for n in LENGTHS]
    unpacked = packlib.unpack_sequence(packlib.pack_sequence(xs, enforce_sorted=False))
    grads = torch.autograd.grad((unpacked[3] ** 2).sum(), xs)
    for i, (grad, x) in enumerate(zip(grads, xs, strict=True)):
        same(grad, (2 * x if i == 3 else torch.zeros_like(x)).detach())


def test_complex_gradients():
    x = torch.randn(5, 6, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: packlib.pad_packed_sequence(pack(x).map(lambda d: d * d * 1j))[0], (x,))


def test_pieces_may_be_changed_in_place():
    leaf = torch.arange(14.0, requires_grad=True)
    packed = packlib.from_cu_seqlens(leaf * 1, [0, 2, 6, 7, 11, 14])
    first, second, *_ = packlib.unpack_sequence(packed)
    first.mul_(10)
    second.add_(1)
    (first.sum() + (second ** 2).sum()).backward()
    assert leaf.grad.tolist() == [10, 10, 6, 8, 10, 12] + [0] * 8


def test_inference_mode_then_training():
    x = torch.randn(5, 6, 3, requires_grad=True)
    with torch.inference_mode():
        packed = pack(x)
        grid = packlib.pad_packed_sequence(packed, True, total_length=6)[0]
    trained = pack(x)
    same(trained.data.detach(), packed.data)
    trained.data.sum().backward()
    assert x.grad.sum() == 3 * sum(LENGTHS)
    same(grid * x.grad, grid)


def test_there_and_back_between_dtypes():
    packed = pack(values((5, 6, 3), torch.float32))
    same(packlib.pad_packed_sequence(packed.to(torch.float64).to(torch.float32))[0],
         packlib.pad_packed_sequence(packed)[0])


# Few and short; more steps; more sequences; more distinct lengths.
BATCHES = [[2, 3, 1], [20, 30, 10], [2, 3, 1] * 9, list(range(1, 28))]
# most launches forward and backward: the kernel's, and torch's that are not views
COUNTED = {
    "pack": (lambda ls, x, p: [pack(x, ls).data], 1, 1),
    "pack the other way": (lambda ls, x, p: [pack(x.transpose(0, 1), ls, False).data], 1, 1),
    "pack every second": (lambda ls, x, p: [pack(x[..., ::2], ls).data], 2, 3),
    "unpack": (lambda ls, x, p: [packlib.pad_packed_sequence(p, True, 1.0)[0]], 1, 1),
    "list to packed": (lambda ls, x, p: [packlib.pack_sequence(p, False).data], 1, 1),
    "packed to list": (lambda ls, x, p: packlib.unpack_sequence(p), 1, 1),
    "to_cu_seqlens": (lambda ls, x, p: [packlib.to_cu_seqlens(p)[0]], 2, 1),
    "reverse": (lambda ls, x, p: [packlib.reverse(p).data], 1, 1),
}


@pytest.mark.parametrize("name", COUNTED)
def test_launches_depend_on_nothing(launches, monkeypatch, interpreted, name):
    run, forward, backward = COUNTED[name]
    monkeypatch.setattr(interpreted, "_launch", lambda *args, **options: launches.append(args))
    monkeypatch.setattr(moves, "watched", lambda: False)  # Work is a mode; here it may look on
    for lengths in BATCHES:
        x = torch.rand(len(lengths), max(lengths) + 1, 4, requires_grad=True)
        given = [torch.rand(n, 4, requires_grad=True) for n in lengths]
        if name != "list to packed":
            given = packlib.pack_sequence(given, enforce_sorted=False)
            given = given.with_data(given.data.detach().requires_grad_())
        results, found = counted(launches, lambda ls=lengths, x=x, p=given: run(ls, x, p))
        assert found <= forward
        leaves = [x, *(given if name == "list to packed" else [given.data])]
        grads = [torch.rand_like(result).requires_grad_() for result in results]
        first, found = counted(launches, lambda r=results, g=grads, leaves=leaves: [
            g for g in torch.autograd.grad(r, leaves, g, create_graph=True, allow_unused=True)
            if g is not None])
        assert found <= backward
        ones = [torch.rand_like(grad) for grad in first]
        _, found = counted(launches, lambda f=first, g=grads, o=ones: torch.autograd.grad(f, g, o))
        assert found <= forward + 1


def counted(launches, run):
    launches.clear()
    with Work() as work:
        results = run()
    made = [name for name in work.names if "empty" not in name]
    plans = "sort.default", "full.default", "lift_fresh_copy.default"  # made on the host
    assert len(launches) == 1
    return results, 1 + sum(name not in plans for name in made)


def test_whoever_follows_the_operators_sees_operators(launches):
    """The kernel would be nothing to a mode, a transform or a compiler."""
    x = torch.arange(30.0).view(5, 6)
    with Work() as work:
        pack(x)
    assert "index_select.default" in work.names or "packlib.take.default" in work.names
    same(torch.func.vmap(lambda x: pack(x).data)(torch.stack([x, -x]))[1], -pack(x).data)
    launches.clear()
    torch.func.grad(lambda x: pack(x).data.sum())(x)
    torch.func.jvp(lambda x: pack(x).data, (x,), (x,))
    torch.compile(lambda x: pack(x).data, backend="eager", fullgraph=True)(x)
    assert not launches


def test_many_gradients_at_once():
    x = torch.randn(5, 6, requires_grad=True)
    data = pack(x).data
    rows = torch.autograd.grad(data, x, torch.eye(14), is_grads_batched=True)[0]
    same(rows.sum(0), packlib.pad_packed_sequence(pack(x).with_data(torch.ones(14)), True,
                                                  total_length=6)[0])


def test_subclasses_go_by_rows(launches):
    class Mine(torch.Tensor):
        pass

    x = values((5, 6, 3), torch.float32)
    same(pack(x.as_subclass(Mine)).data.as_subclass(torch.Tensor), pack(x).data)
    assert len(launches) == 1
    pack(torch.nn.Parameter(x))
    assert len(launches) == 2


def test_layers_equal_torch(launches):
    """Time reversal goes by the kernel, and so does the padding of a cover."""
    for kind in (packlib.GRU, packlib.LSTM):
        ours = kind(3, 6, bidirectional=True, route="cover" if kind is packlib.LSTM else "plain")
        theirs = getattr(torch.nn, kind.__name__)(3, 6, bidirectional=True)
        theirs.load_state_dict(ours.state_dict())
        x = torch.randn(5, 6, 3)
        launches.clear()
        found = ours(pack(x))[0].data
        assert len(launches) >= 3
        expected = theirs(rnn.pack_padded_sequence(x, LENGTHS, True, False))[0].data
        torch.testing.assert_close(found, expected)
        for one, other in zip(torch.autograd.grad(found.sin().sum(), list(ours.parameters())),
                              torch.autograd.grad(expected.sin().sum(), list(theirs.parameters())),
                              strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_nested_tensors_with_and_without_holes():
    whole = pieces(dtype=torch.float32)
    packed = packlib.pack_sequence(whole, enforce_sorted=False)
    same_fields(packlib.from_nested(packlib.to_nested(packed)), packed)
    x = values((5, 6, 3), torch.float32)
    holes = torch.nested.narrow(x, 1, 0, torch.tensor(LENGTHS), layout=torch.jagged)
    same_fields(packlib.from_nested(holes), pack(x))


def run_alone(code, **environment):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**__import__("os").environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


PACK_ONE = """
import sys, torch, packlib
x = torch.arange(6.).view(2, 3)
print(packlib.pack_padded_sequence(x, [2, 3], True, False).data.tolist(), "triton" in sys.modules)
"""


def test_the_environment_switches_it_on():
    assert run_alone(PACK_ONE, TRITON_INTERPRET="1").split("]")[1].strip() == "True"


def test_nothing_of_triton_is_imported_for_the_cpu():
    assert run_alone(PACK_ONE, TRITON_INTERPRET="0") == "[3.0, 0.0, 4.0, 1.0, 5.0] False\n"


def test_without_triton_rows_are_gathered(monkeypatch, launches):
    monkeypatch.setattr(kernels, "_triton_found", lambda: False)
    x = values((5, 6, 3), torch.float32)
    same(pack(x).data, rnn.pack_padded_sequence(x, LENGTHS, True, False).data)
    assert not launches


def test_where_it_cannot_run_that_is_said_once(monkeypatch, interpreted):
    def refuse(*args, **options):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(kernels, "_triton_found", lambda: True)
    monkeypatch.setattr(interpreted, "works", refuse)
    kernels._runs.cache_clear()
    try:
        with pytest.warns(UserWarning, match="does not run here .Failed to find C compiler."):
            assert not kernels.usable("cuda")
        assert not kernels.usable("cuda")  # a second warning would be an error
        monkeypatch.undo()
        kernels._runs.cache_clear()
        assert interpreted.works(torch.device("cpu"))
        assert not np.any([kernels.usable(kind) for kind in ("cpu", "meta", "mps")])
    finally:
        kernels._runs.cache_clear()


def test_a_hole_at_the_end_has_a_gradient_too():
    x = torch.rand(1, 5, 3, requires_grad=True)
    holes = torch.nested.nested_tensor_from_jagged(x[0], torch.tensor([0, 5]), torch.tensor([3]))
    packlib.from_nested(holes).data.sum().backward()
    assert x.grad[0].sum(1).tolist() == [3, 3, 3, 0, 0]
