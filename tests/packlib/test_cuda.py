"""What a GPU must do as the CPU does: moves, layers, gradients, and not one needless wait.

These tests run wherever torch sees a GPU, and nowhere else.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from strategies import DTYPES, in_memory, values
from torch.nn.utils import rnn

import packlib
from packlib import moves as by_kernel
from packlib.layout import Layout

pytestmark = [pytest.mark.cuda,
              pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]

DEVICE = "cuda"
LENGTHS = [2, 4, 1, 4, 3]
LONG = torch.randint(1, 90, (70,), generator=torch.Generator().manual_seed(0)).tolist()
LAYERS = [packlib.RNN, packlib.GRU, packlib.LSTM]


def same(found, expected):
    assert found.device.type == DEVICE
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def close(found, expected, **tolerance):
    torch.testing.assert_close(found.cpu(), expected, **tolerance)


def pack(x, lengths, batch_first=True, **options):
    return packlib.pack_padded_sequence(x, lengths, batch_first, False, **options)


@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=len)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (64,), (33, 2)], ids=str)
def test_moves_equal_the_cpu(shape, dtype, lengths):
    x = values((len(lengths), max(lengths) + 1, *shape), dtype)
    value = {torch.bool: True}.get(dtype, 2 - 3j if dtype.is_complex else -3)
    for batch_first in (True, False):
        for side in ("right", "left"):
            grid = x if batch_first else x.transpose(0, 1)
            expected = pack(grid, lengths, batch_first, padding_side=side)
            packed = pack(grid.to(DEVICE), lengths, batch_first, padding_side=side)
            same(packed.data, expected.data)
            (found, counts), (wanted, _) = (
                packlib.pad_packed_sequence(p, batch_first, value, max(lengths) + 2,
                                            padding_side=side) for p in (packed, expected))
            same(found, wanted)
            assert counts.tolist() == lengths
    pieces = [row[:n] for row, n in zip(x, lengths, strict=True)]
    on_gpu = [piece.to(DEVICE) for piece in pieces]
    packed = packlib.pack_sequence(on_gpu, enforce_sorted=False)
    same(packed.data, packlib.pack_sequence(pieces, enforce_sorted=False).data)
    for found, piece in zip(packlib.unpack_sequence(packed), pieces, strict=True):
        same(found, piece)


@pytest.mark.parametrize("how", ["transposed", "strided", "expanded"])
def test_any_memory(how):
    x = values((5, 6, 4), torch.float32)
    same(pack(in_memory(x.to(DEVICE), how), LENGTHS).data, pack(in_memory(x, how), LENGTHS).data)


def test_fields_equal_torch():
    x = values((70, 90, 3), torch.float32).to(DEVICE)
    found = pack(x, LONG)
    expected = rnn.pack_padded_sequence(x, torch.tensor(LONG), True, False)
    for name in ("data", "batch_sizes", "sorted_indices", "unsorted_indices"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.device == other.device
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_lengths_on_the_gpu():
    x = values((5, 6, 3), torch.float32)
    packed = pack(x.to(DEVICE), torch.tensor(LENGTHS, device=DEVICE))
    same(packed.data, pack(x, LENGTHS).data)
    assert packed.lengths.tolist() == LENGTHS and packed.batch_sizes.is_cpu


def moves(x, pieces):
    """All four moves there and back, in one number that weighs every element differently."""
    packed = pack(x, LENGTHS)
    grid, _ = packlib.pad_packed_sequence(packed.map(torch.sin), True, 0.5, 7)
    again = packlib.pack_sequence(pieces, enforce_sorted=False)
    rows = torch.cat(packlib.unpack_sequence(again.map(torch.exp)))
    return weighed(grid) + weighed(rows)


def weighed(x):
    weights = torch.arange(1, x.numel() + 1, dtype=x.dtype).to(x.device).view_as(x)
    return (x * weights).sum()


def leaves(device):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(5, 6, 3, generator=draw, dtype=torch.float64)
    pieces = [torch.randn(n, 3, generator=draw, dtype=torch.float64) for n in LENGTHS]
    return [t.to(device).requires_grad_() for t in (x, *pieces)]


def test_gradients_of_the_moves_first_and_second():
    found, expected = [], []
    for device, results in ((DEVICE, found), ("cpu", expected)):
        x, *pieces = leaves(device)
        first = torch.autograd.grad(moves(x, pieces), [x, *pieces], create_graph=True)
        second = torch.autograd.grad(sum(weighed(g) for g in first), [x, *pieces])
        results += [*first, *second]
    for one, other in zip(found, expected, strict=True):
        close(one, other)


def layer_pair(kind, dtype=torch.float32, **options):
    """The same layer on the CPU and on the GPU."""
    torch.manual_seed(0)
    ours = kind(3, 8, **options).to(dtype)
    theirs = kind(3, 8, **options).to(dtype).to(DEVICE)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def run(layer, device, dtype=torch.float32, create_graph=False):
    """Outputs, last states, and all gradients."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(5, 6, 3, generator=draw, dtype=dtype).to(device).requires_grad_()
    output, last = layer(pack(x, LENGTHS))
    states = last if isinstance(last, tuple) else (last,)
    total = weighed(output.data) + sum(weighed(s) for s in states)
    wanted = [x, *layer.parameters()]
    grads = torch.autograd.grad(total, wanted, create_graph=create_graph)
    results = [output.data, *states, *grads]
    if create_graph:
        results += torch.autograd.grad(sum((g**2).sum() for g in grads), wanted)
    return [r.detach() for r in results]


@pytest.mark.parametrize("options", [
    {}, {"num_layers": 2, "bidirectional": True}, {"bias": False}, {"batch_first": True},
], ids=str)
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_layers_equal_the_cpu(kind, options):
    on_cpu, on_gpu = layer_pair(kind, **options)
    for found, expected in zip(run(on_gpu, DEVICE), run(on_cpu, "cpu"), strict=True):
        close(found, expected, rtol=2e-3, atol=2e-3)  # cuDNN may multiply in TF32


@pytest.mark.parametrize("route", ["auto", "plain", "hoisted"])
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_routes_equal_the_cpu_in_float64(kind, route):
    on_cpu, on_gpu = layer_pair(kind, torch.float64, route=route)
    for found, expected in zip(run(on_gpu, DEVICE, torch.float64),
                               run(on_cpu, "cpu", torch.float64), strict=True):
        close(found, expected)


def test_projection():
    on_cpu, on_gpu = layer_pair(packlib.LSTM, torch.float64, proj_size=5)
    for found, expected in zip(run(on_gpu, DEVICE, torch.float64),
                               run(on_cpu, "cpu", torch.float64), strict=True):
        close(found, expected)


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_double_backward_of_layers(kind):
    """cuDNN has none: its routes replay the plain steps."""
    for route in ("plain", "hoisted", "auto", "torch", *["cover"] * (kind is packlib.LSTM)):
        on_cpu, on_gpu = layer_pair(kind, torch.float64, route=route)
        for found, expected in zip(run(on_gpu, DEVICE, torch.float64, create_graph=True),
                                   run(on_cpu, "cpu", torch.float64, create_graph=True),
                                   strict=True):
            close(found, expected)


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_backward_in_eval_mode(kind):
    """cuDNN refuses a backward in eval mode on its own; the other routes do not know modes."""
    for route in ("hoisted", "auto", "torch", *["cover"] * (kind is packlib.LSTM)):
        on_cpu, on_gpu = layer_pair(kind, torch.float64, route=route)
        for found, expected in zip(run(on_gpu.eval(), DEVICE, torch.float64),
                                   run(on_cpu.eval(), "cpu", torch.float64), strict=True):
            close(found, expected)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize("route", ["auto", "hoisted"])
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_autocast(kind, route, dtype):
    on_cpu, on_gpu = layer_pair(kind, route=route)
    x = torch.randn(5, 6, 3)
    with torch.autocast(DEVICE, dtype):
        output, _ = on_gpu(pack(x.to(DEVICE), LENGTHS))
    assert output.data.dtype == dtype
    expected, _ = on_cpu(pack(x, LENGTHS))
    close(output.data.float(), expected.data, rtol=0.05, atol=0.05)
    output.data.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in on_gpu.parameters())


@contextlib.contextmanager
def no_waiting():
    """An error for whatever makes the host wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_host_never_waits():
    """With lengths on the CPU everything the host needs is there already."""
    x, *pieces = leaves(DEVICE)
    ones = torch.ones((), dtype=torch.float64, device=DEVICE)
    torch.autograd.grad(moves(x, pieces), [x, *pieces], ones)  # compiles, and fills caches
    with no_waiting():
        packed = pack(x, LENGTHS)
        grid, _ = packlib.pad_packed_sequence(packed, True, 0.0, 7)
        again = packlib.pack_sequence(pieces, enforce_sorted=False)
        outputs = [grid, *packlib.unpack_sequence(again)]
        torch.autograd.grad(outputs, [x, *pieces], [torch.ones_like(o) for o in outputs])


def test_default_device():
    """Plans are made on the CPU, whatever torch.set_default_device says."""
    x = values((5, 6, 3), torch.float32)
    expected, _ = packlib.pad_packed_sequence(pack(x, LENGTHS), True, 0.5)
    with torch.device(DEVICE):
        packed = pack(x.to(DEVICE), LENGTHS)
        same(packlib.pad_packed_sequence(packed, True, 0.5)[0], expected)
        assert packed.batch_sizes.is_cpu
        mixed = pack(x, LENGTHS)  # and a batch on the CPU stays there
        torch.testing.assert_close(packlib.pad_packed_sequence(mixed, True, 0.5)[0], expected)


def test_other_stream():
    x = torch.randn(70, 90, 64)
    on_gpu, stream = x.to(DEVICE), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        packed = pack(on_gpu.add(1), LONG)
    torch.cuda.current_stream().wait_stream(stream)
    same(packed.data, pack(x.add(1), LONG).data)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU here, or none")
def test_second_gpu():
    x = values((5, 6, 3), torch.float32)
    packed = pack(x.to("cuda:1"), LENGTHS)
    assert packed.data.device == torch.device("cuda:1")
    same(packed.data, pack(x, LENGTHS).data)


def kernels_of(run):
    """What the GPU does for one call; what the host sends it is not counted."""
    run()  # compiles, and fills caches
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
        torch.cuda.synchronize()
    return [event.name for event in profile.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and "HtoD" not in event.name]


@pytest.mark.parametrize("lengths", [[2, 5, 1], [20, 50, 10], [2, 5, 1] * 30, LONG], ids=len)
def test_launches_depend_on_nothing(lengths):
    pytest.importorskip("triton", minversion="3.6")
    x = torch.rand(len(lengths), max(lengths) + 1, 4, device=DEVICE, requires_grad=True)
    whole = [torch.rand(n, 4, device=DEVICE, requires_grad=True) for n in lengths]
    data = packlib.pack_sequence(whole, enforce_sorted=False)
    packed = data.with_data(data.data.detach().requires_grad_())
    for run, leaves in ((lambda: [pack(x, lengths).data], [x]),
                        (lambda: [packlib.pad_packed_sequence(packed, True, 1.0)[0]],
                         [packed.data]),
                        (lambda: [packlib.pack_sequence(whole, False).data], whole),
                        (lambda: packlib.unpack_sequence(packed), [packed.data]),
                        (lambda: [packlib.reverse(packed).data], [packed.data])):
        assert len(kernels_of(run)) == 1
        results = run()
        grads = [torch.rand_like(result) for result in results]
        backward = kernels_of(lambda r=results, g=grads, leaves=leaves: torch.autograd.grad(
            r, leaves, g, retain_graph=True))
        assert len(backward) == 1, backward


def test_without_triton_all_is_the_same(monkeypatch):
    x, *whole = leaves(DEVICE)
    expected = moves(x, whole)
    monkeypatch.setattr(packlib.kernels, "_runs", lambda: False)
    close(moves(x, whole).detach(), expected.detach().cpu())


def test_a_table_is_made_for_each_stream():
    """Another stream could come to it before the copy from the host has."""
    packed = pack(torch.randn(70, 90, 64, device=DEVICE), LONG)
    expected = packlib.pad_packed_sequence(packed)[0].cpu()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    before = len(packed.layout._kept)
    with torch.cuda.stream(stream):
        same(packlib.pad_packed_sequence(packed)[0], expected)
    assert len(packed.layout._kept) == before + 1


@pytest.mark.parametrize("lengths", [LENGTHS, LONG, [0, 3, 0]], ids=len)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (64,), (1500,)], ids=str)
def test_every_move(shape, dtype, lengths):
    """The kernel against the places written out."""
    order = torch.sort(torch.tensor(lengths), descending=True).indices.numpy()
    layout, total = Layout.from_lengths(np.array(lengths), order), max(lengths) + 1
    rows = [(j, t) for t in range(max(lengths)) for j in order if t < lengths[j]]
    x = values((len(lengths), total, *shape), dtype)
    on_gpu, (seqs, steps) = x.to(DEVICE), map(list, zip(*rows, strict=True))
    data = by_kernel.to_packed(on_gpu.flatten(0, 1), layout, by_kernel.cells(total, True))
    same(data, x[seqs, steps])
    same(by_kernel.turned(data, layout), x[seqs, [lengths[j] - 1 - t for j, t in rows]])
    for side in ("right", "left"):
        cells = by_kernel.cells(total, True, side)
        grid = by_kernel.from_packed(data, layout, cells, True)
        wanted = torch.ones_like(x)
        for row, source, n in zip(wanted, x, lengths, strict=True):
            row[total - n if side == "left" else 0:][:n] = source[:n]
        same(grid.view(x.shape), wanted)
        same(by_kernel.to_packed(grid, layout, cells), x[seqs, steps])
    pieces = by_kernel.to_list(data, layout)
    for piece, source, n in zip(pieces, x, lengths, strict=True):
        same(piece, source[:n])
    same(by_kernel.from_list([p.clone() for p in pieces], layout), x[seqs, steps])


LONG_LENGTHS = [9 * i % 100 + 1 for i in range(64)]  # long enough for a cover


def long_run(layer, device):
    x = torch.randn(64, 100, 3, generator=torch.Generator().manual_seed(1)).to(device)
    x.requires_grad_()
    output, _ = layer(pack(x, LONG_LENGTHS))
    wanted = [x, *layer.parameters()]
    grads = torch.autograd.grad(output.data.square().mean(), wanted)
    return [output.data.detach(), *grads]


@pytest.mark.filterwarnings("error")  # cuDNN warns of weights that lie apart
@pytest.mark.parametrize("lengths", ["ragged", "equal"])
@pytest.mark.parametrize("route", ["auto", "cover", "torch"])
def test_dense_routes_equal_the_cpu(monkeypatch, route, lengths):
    if lengths == "equal":
        monkeypatch.setattr(f"{__name__}.LONG_LENGTHS", [100] * 64)
    on_cpu, on_gpu = layer_pair(packlib.LSTM, bidirectional=True, route=route)
    tolerance = {"rtol": 2e-3, "atol": 2e-3}  # cuDNN may multiply in TF32
    for found, expected in zip(long_run(on_gpu, DEVICE), long_run(on_cpu, "cpu"), strict=True):
        close(found, expected, **tolerance)
    with torch.no_grad():
        x = torch.randn(64, 100, 3)
        found, expected = (layer(pack(x.to(device), LONG_LENGTHS))[0].data
                           for layer, device in ((on_gpu, DEVICE), (on_cpu, "cpu")))
    close(found, expected, **tolerance)


def test_the_brake_holds_in_half_precision():
    on_cpu, on_gpu = layer_pair(packlib.LSTM, route="cover")
    x = torch.randn(64, 100, 3)
    expected, (h, c) = on_cpu(pack(x, LONG_LENGTHS))
    output, (h_n, c_n) = on_gpu.half()(pack(x.half().to(DEVICE), LONG_LENGTHS))
    for found, wanted in ((output.data, expected.data), (h_n, h), (c_n, c)):
        close(found.float(), wanted.detach(), rtol=0.02, atol=0.02)
