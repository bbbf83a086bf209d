"""The two moves, and what they cost: as many kernels for long batches as for short ones."""

import numpy as np
import oracle
import pytest
import strategies
import torch
from hypothesis import given, settings

import packlib
from packlib import ops
from packlib.ops import split

# torch 2.6 lets nobody read the values of a lengths tensor inside torch.func.grad
NEW_TORCH = pytest.mark.skipif(torch.__version__ < (2, 13), reason="seen to work on torch 2.13")


def work(fn):
    """The kernels that ``fn`` calls forward, and those of its backward pass."""
    with oracle.Work() as forward:
        result = fn()
    grads = [torch.ones_like(r) for r in result]
    with oracle.Work() as backward:
        torch.autograd.backward(result, grads)
    return forward.names, backward.names


def leaf(*shape):
    return torch.rand(shape, requires_grad=True)


def packed_leaf(lengths):
    packed = packlib.pack_sequence([torch.rand(n, 3) for n in lengths], enforce_sorted=False)
    return packed.with_data(packed.data.detach().requires_grad_())


MOVES = {
    "pack": lambda ls, x, p: [packlib.pack_padded_sequence(x, ls, True, False).data],
    "unpack": lambda ls, x, p: [packlib.pad_packed_sequence(p)[0]],
    "unpack_sequence": lambda ls, x, p: packlib.unpack_sequence(p),
    "unpad_sequence": lambda ls, x, p: packlib.unpad_sequence(x, ls, True),
}
FROM_LISTS = {
    "pad_sequence": lambda xs: [packlib.pad_sequence(xs)],
    "pack_sequence": lambda xs: [packlib.pack_sequence(xs, enforce_sorted=False).data],
}
# Few and short; more steps; more sequences; more distinct lengths.
SHAPES = [[2, 3, 1], [20, 30, 10], [2, 3, 1] * 9, list(range(1, 28))]


@pytest.mark.parametrize("name", MOVES)
def test_the_work_does_not_grow(name):
    """The number of kernels is the same for any T, B and number of distinct lengths."""
    counts = set()
    for lengths in SHAPES:
        x, p = leaf(len(lengths), max(lengths) + 1, 3), packed_leaf(lengths)
        forward, backward = work(lambda ls=lengths, x=x, p=p: MOVES[name](ls, x, p))
        assert len(forward) <= 3 and len(backward) <= 3, (forward, backward)
        counts.add((len(forward), len(backward)))
    assert len(counts) == 1, counts


@pytest.mark.parametrize("name", FROM_LISTS)
def test_the_work_from_a_list_does_not_grow(name):
    counts = set()
    for lengths in SHAPES:
        leaves = [leaf(n, 3) for n in lengths]
        forward, backward = work(lambda xs=leaves: FROM_LISTS[name](xs))
        assert len(forward) <= 4 and len(backward) <= 3, (forward, backward)
        counts.add((len(forward), len(backward)))
    assert len(counts) == 1, counts


@pytest.mark.parametrize("name", MOVES)
def test_the_work_of_torch_does_grow(name):
    """The counter counts: torch's own functions need more kernels for more lengths."""
    from torch.nn.utils import rnn

    moves = {
        "pack": lambda ls, x, p: [rnn.pack_padded_sequence(x, ls, True, False).data],
        "unpack": lambda ls, x, p: [rnn.pad_packed_sequence(p)[0]],
        "unpack_sequence": lambda ls, x, p: rnn.unpack_sequence(p),
        "unpad_sequence": lambda ls, x, p: rnn.unpad_sequence(x * 1, torch.tensor(ls), True),
    }

    def count(lengths):
        x, p = leaf(len(lengths), max(lengths), 3), packed_leaf(lengths)
        return sum(map(len, work(lambda: moves[name](lengths, x, p))))

    assert count(SHAPES[3]) > count(SHAPES[0]) + 20


def test_double_backward_costs_as_little():
    counts = set()
    for lengths in SHAPES:
        p = packed_leaf(lengths)
        out = packlib.pad_packed_sequence(p)[0]
        (grad,) = torch.autograd.grad((out ** 3).sum(), p.data, create_graph=True)
        with oracle.Work() as second:
            grad.sum().backward()
        counts.add(len(second.names))
    assert len(counts) == 1, counts


@given(strategies.batches(dtypes=(torch.float64,)))
@settings(max_examples=15)
def test_gradients_of_first_and_second_order(batch):
    """gradcheck compares with finite differences, so with no code of ours."""
    rows = batch.padded.nan_to_num().detach().requires_grad_()

    def there_and_back(x):
        packed = packlib.pack_padded_sequence(x / 50, batch.lengths, batch.batch_first, False)
        cubes = packed.with_data(packed.data ** 3)
        return packlib.pad_packed_sequence(cubes, batch.batch_first, total_length=batch.total)[0]

    assert torch.autograd.gradcheck(there_and_back, (rows,), fast_mode=True)
    assert torch.autograd.gradgradcheck(there_and_back, (rows,), fast_mode=True)


@pytest.mark.parametrize("lengths", [[2, 5, 1], [2, 4, 1, 4, 3], [3], [2, 2, 2]], ids=str)
def test_gradients_through_lists(lengths):
    xs = [torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in lengths]

    def lists(*xs):
        packed = packlib.pack_sequence(xs, enforce_sorted=False)
        unpacked = packlib.unpack_sequence(packed.map(torch.sin))
        grid = packlib.pad_sequence([x ** 2 for x in unpacked], batch_first=True)
        return tuple(packlib.unpad_sequence(grid, lengths, batch_first=True))

    assert torch.autograd.gradcheck(lists, xs, fast_mode=True)
    assert torch.autograd.gradgradcheck(lists, xs, fast_mode=True)


@pytest.mark.parametrize("large", [ops.LARGE, 1], ids=["small", "large"])
@pytest.mark.parametrize("name", [*MOVES, *FROM_LISTS])
def test_many_gradients_at_once(name, large, monkeypatch):
    """As one after the other; rows of 16 bytes, and of memory of another kind, are moved by ways
    that look into the memory, and a batch of gradients has none."""
    monkeypatch.setattr(ops, "LARGE", large)
    x = torch.randn(3, 5, 4, requires_grad=True)
    if name in MOVES:
        packed = packlib.pack_padded_sequence(x, [2, 5, 1], True, False)
        results = MOVES[name]([2, 5, 1], x, packed)
    else:
        results = FROM_LISTS[name](list(x))
    result = torch.cat(tuple(r.flatten() for r in results))
    grads = torch.randn(2, *result.shape)
    each = [torch.autograd.grad(result, x, grad, retain_graph=True)[0] for grad in grads]
    (found,) = torch.autograd.grad(result, x, grads, is_grads_batched=True)
    oracle.same(found, torch.stack(each))


def test_complex_gradients():
    x = torch.randn(3, 6, dtype=torch.complex128, requires_grad=True)

    def turn(x):
        packed = packlib.pack_padded_sequence(x, [2, 5, 1], True, False)
        return packlib.pad_packed_sequence(packed.map(lambda d: d * d * 1j))[0]

    assert torch.autograd.gradcheck(turn, (x,))


def test_pieces_are_not_views():
    """torch's are not either: each may be changed in place, with and without gradients."""
    data = torch.arange(6.0, requires_grad=True)
    first, second = split(data * 1, [2, 4])
    first.mul_(10)
    second.add_(1)
    (first.sum() + (second ** 2).sum()).backward()
    assert data.grad.tolist() == [10, 10, 6, 8, 10, 12]


class TestTransforms:
    """torch.func: torch's own pack works under vmap, and under neither grad nor jvp."""

    X = torch.arange(20.0).view(4, 5)
    LENGTHS = [2, 5, 1, 4]
    MASK = torch.tensor([[t < n for t in range(5)] for n in LENGTHS])

    def round_trip(self, x):
        packed = packlib.pack_padded_sequence(x, self.LENGTHS, True, False)
        return packlib.pad_packed_sequence(packed, batch_first=True, padding_value=7.0)[0]

    def test_vmap(self):
        many = torch.stack([self.X, self.X + 1, self.X - 3])
        oracle.same(torch.func.vmap(self.round_trip)(many), torch.where(self.MASK, many, 7.0))

    def test_vmap_of_inputs_with_gradients(self):
        many = torch.stack([self.X, self.X + 1, self.X - 3]).requires_grad_()
        torch.func.vmap(self.round_trip)(many).pow(2).sum().backward()
        oracle.same(many.grad, 2 * many.detach() * self.MASK)

    @NEW_TORCH
    def test_grad(self):
        found = torch.func.grad(lambda x: (self.round_trip(x) ** 2).sum())(self.X)
        oracle.same(found, 2 * self.X * self.MASK)

    @NEW_TORCH
    def test_vmap_of_grad(self):
        many = torch.stack([self.X, self.X + 1, self.X - 3])
        found = torch.func.vmap(torch.func.grad(lambda x: (self.round_trip(x) ** 2).sum()))(many)
        oracle.same(found, 2 * many * self.MASK)

    @NEW_TORCH
    def test_hessian(self):
        def energy(x):
            return (self.round_trip(x) ** 3).sum()

        found = torch.func.jacrev(torch.func.grad(energy))(self.X).view(20, 20)
        oracle.same(found, torch.diag((6 * self.X * self.MASK).flatten()))

    @NEW_TORCH
    @pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own call
    def test_jvp(self):
        _, moved = torch.func.jvp(self.round_trip, (self.X,), (self.X + 1,))
        oracle.same(moved, (self.X + 1) * self.MASK)

    def test_a_batch_packed_outside_is_used_inside_and_outside_again(self):
        packed = packlib.pack_padded_sequence(self.X, self.LENGTHS, True, False)

        def energy(data):
            return (packlib.pad_packed_sequence(packed.with_data(data), True)[0] ** 2).sum()

        oracle.same(torch.func.grad(energy)(packed.data), 2 * packed.data)
        oracle.same(packlib.pad_packed_sequence(packed, True)[0], self.X * self.MASK)


def by_hand(data, rows, cells, value):
    grid = torch.full((cells, *data.shape[1:]), value, dtype=data.dtype)
    for i, row in enumerate(rows.tolist()):
        grid[row] = data[i]
    return grid


def misplaced(data):
    """The same numbers at an address that 16 divides, in a storage that begins at none."""
    bytes_ = np.zeros(4 * data.numel() + 64, dtype=np.uint8)
    start = -bytes_.ctypes.data % 16 + 4
    storage = torch.from_numpy(bytes_[start:start + 4 * data.numel() + 12].view(np.float32))
    return storage[3:].view(data.shape).copy_(data)


ROWS = torch.tensor([3, 0, 4, 1])
# Rows of 16 bytes are moved as words; those that cannot be are not.
DATA = {
    "4 floats": torch.randn(4, 4),
    "3 floats": torch.randn(4, 3),
    "no features": torch.randn(4),
    "none of them": torch.randn(4, 0),
    "two dimensions": torch.randn(4, 2, 6),
    "bools": torch.rand(4, 16) > 0.5,
    "half": torch.randn(4, 8).bfloat16(),
    "complex": torch.randn(4, 2, dtype=torch.complex128),
    "unsigned": torch.randint(0, 60000, (4, 3)).to(torch.uint16),
    "unsigned words": torch.randint(0, 2**40, (4, 4)).to(torch.uint64),
    "conjugated": torch.randn(4, 2, dtype=torch.complex64).conj(),
    "negated": torch._neg_view(torch.randn(4, 4)),
    "one float aside": torch.randn(17)[1:].view(4, 4),
    "aside in its storage": misplaced(torch.randn(4, 4)),
    "every second row": torch.randn(8, 4)[::2],
    "columns first": torch.randn(4, 4).t(),
    "one row, strides aside": torch.randn(4, 1).t(),
    "no row": torch.randn(0, 4),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_rows_of_any_kind_arrive(data):
    value = {torch.bool: True, torch.uint16: 65534, torch.uint64: 2**40}.get(data.dtype, -2.0)
    rows = ROWS[:len(data)]
    grid = ops.put(data, rows, 6, value)
    oracle.same(grid, by_hand(data, rows, 6, value))
    oracle.same(ops.take(grid, rows), data.clone())


@pytest.mark.parametrize("value", [0.0, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_large_results(dtype, value, monkeypatch):
    """Above a size results lie in memory of another kind: same values, and as free to change."""
    data = torch.randn(4, 4).to(dtype).requires_grad_()
    small = ops.put(data, ROWS, 6, value), ops.take(data, ROWS[:2] - ROWS[:2] // 2)
    monkeypatch.setattr(ops, "LARGE", 1)
    large = ops.put(data, ROWS, 6, value), ops.take(data, ROWS[:2] - ROWS[:2] // 2)
    for one, other in zip(small, large, strict=True):
        assert other.data_ptr() % 64 == 0
        oracle.same(one, other)
        (gradient,) = torch.autograd.grad(one.abs().sum(), data)
        oracle.same(torch.autograd.grad(other.abs().sum(), data)[0], gradient)
    with torch.no_grad():
        free = ops.put(data, ROWS, 6, value)
        joined = ops.joined([data, free])
    oracle.same(joined, torch.cat([data.detach(), small[0].detach()]))
    weight = torch.ones(4, dtype=dtype, requires_grad=True)
    free.mul_(weight)
    free.abs().sum().backward()
    expected = by_hand(data.detach(), ROWS, 6, value).abs().sum(0)
    torch.testing.assert_close(weight.grad, expected.to(dtype))


def test_large_results_lie_with_their_input_whatever_the_default_device(monkeypatch):
    monkeypatch.setattr(ops, "LARGE", 1)
    data = torch.randn(4, 4)
    with torch.device("meta"):
        made = [ops.put(data, ROWS, 6, 1.5), ops.take(data, ROWS[:2] - ROWS[:2] // 2),
                ops.joined([data, data]), ops.put(data.to(torch.uint16), ROWS, 6)]
    assert {m.device.type for m in made} == {"cpu"}


def test_forward_mode():
    """A dual tensor that asks for no gradient still carries its tangent."""
    from torch.autograd import forward_ad

    x, tangent = torch.randn(3, 4), torch.randn(3, 4)
    with forward_ad.dual_level():
        packed = packlib.pack_sequence(list(forward_ad.make_dual(x, tangent).split([1, 2])), False)
        grid = packlib.pad_packed_sequence(packed)[0]
        moved = forward_ad.unpack_dual(grid).tangent
    short = torch.stack([tangent[0], torch.zeros(4)])
    oracle.same(moved, torch.stack([short, tangent[1:]], 1))


VALUES = {torch.float32: 2.5, torch.half: -1.0, torch.int64: 7, torch.bool: True,
          torch.complex64: 3.0}


@pytest.mark.parametrize("dtype", VALUES, ids=str)
def test_the_operators_keep_torchs_rules(dtype):
    """Schema, fake kernel, autograd registration, and AOT with dynamic shapes."""
    rows = torch.tensor([3, 0, 4, 1])
    grid = torch.ones(6, 3).to(dtype)
    data = torch.ones(4, 3).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        grid.requires_grad_()
        data.requires_grad_()
    for op, inputs in ((ops.take_op, (grid, rows)), (ops.put_op, (data, rows, 6, VALUES[dtype]))):
        assert set(torch.library.opcheck(op, inputs).values()) == {"SUCCESS"}
