"""Pieces of a batch along time: joined they are the batch; run one by one, the whole run."""

import functools

import oracle
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn

import packlib
from packlib.chunks import chunks, run_chunks
from packlib.losses import cross_entropy

LENGTHS = [2, 4, 1, 4, 3]
packs = st.sampled_from([packlib.pack_sequence, rnn.pack_sequence])


def packed(sequences, pack=packlib.pack_sequence):
    return pack(sequences, enforce_sorted=False)


def drawn(lengths=LENGTHS, features=3):
    return [torch.randn(n, features, dtype=torch.float64) for n in lengths]


def close(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


# --- the pieces ---------------------------------------------------------------------------------

@given(strategies.batches(), st.integers(1, 10), packs)
def test_pieces(batch, steps, pack):
    """Each holds the next steps of the sequences still running, in the user's order."""
    p = packed(batch.sequences, pack)
    pieces = list(chunks(p, steps))
    oracle.same(torch.cat([piece.data for piece in pieces]), p.data)
    for number, piece in enumerate(pieces):
        running = [s[number * steps:][:steps] for s in batch.sequences if len(s) > number * steps]
        found = packlib.unpack_sequence(piece)
        assert len(found) == len(running)
        for one, other in zip(found, running, strict=True):
            oracle.same(one, other)
        packlib.PackedSequence(*piece)  # the law of the fields holds
    assert len(pieces) == -(-max(batch.lengths) // steps)


def test_a_sorted_batch_stays_without_an_order():
    p = packlib.pack_sequence(drawn([4, 2, 1]))
    assert all(piece.sorted_indices is None for piece in chunks(p, 3))


def test_a_piece_is_a_view():
    p = packed(drawn())
    assert [piece.data.data_ptr() - p.data.data_ptr() for piece in chunks(p, 3)] == [0, 12 * 3 * 8]


def test_gradients_through_the_pieces():
    p = packed(drawn())
    leaf = p.data.clone().requires_grad_()
    sum((piece.data ** 2).sum() for piece in chunks(p.with_data(leaf), 3)).backward()
    oracle.same(leaf.grad, 2 * p.data)


def test_steps_may_be_as_many_as_any():
    p = packed(drawn())
    (piece,) = chunks(p, 2**70)
    oracle.same_fields(piece, p)


@pytest.mark.parametrize(("steps", "error", "words"), [
    (0, ValueError, "steps must be at least 1, got 0"),
    (-3, ValueError, "steps must be at least 1, got -3"),
    (2.5, TypeError, "'steps' must be int, not float"),
    (True, TypeError, "'steps' must be int, not bool"),
])
def test_steps_that_are_refused(steps, error, words):
    """At the call, before any piece is asked for."""
    p = packed(drawn())
    with pytest.raises(error, match=words):
        chunks(p, steps)
    with pytest.raises(error, match=words):
        run_chunks(nn.GRU(3, 6), p, steps)


def test_a_grid_is_refused():
    for call in (chunks, functools.partial(run_chunks, nn.GRU(3, 6))):
        with pytest.raises(TypeError, match="got Tensor: pack it first"):
            call(torch.zeros(3, 6, 4), 2)


# --- a run in pieces is the whole run -----------------------------------------------------------

LAYERS = {"torch LSTM": nn.LSTM, "LSTM": packlib.LSTM, "torch GRU": nn.GRU, "GRU": packlib.GRU,
          "RNN": packlib.RNN}


def first_state(layer, lengths):
    """Rows in the user's order, all of them different."""
    size = (layer.num_layers, len(lengths), layer.hidden_size)
    h, c = torch.randn(2, *size, dtype=torch.float64)
    return (h, c) if layer.mode == "LSTM" else h


@pytest.mark.parametrize("given_state", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 3, 9])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_states_are_those_of_the_whole_run(name, steps, given_state):
    layer = LAYERS[name](3, 6, num_layers=2).double()
    p = packed(drawn())
    state = first_state(layer, LENGTHS) if given_state else None
    output, last = layer(p, state)
    pieces = list(run_chunks(layer, p, steps, state))
    close(torch.cat([piece.data for piece, _ in pieces]), output.data)
    close(pieces[-1][1], last)


@given(strategies.lengths, st.integers(1, 9), packs)
@settings(max_examples=30)
def test_any_lengths(lengths, steps, pack):
    gru, p = nn.GRU(3, 6).double(), packed(drawn(lengths), pack)
    state = first_state(gru, lengths)
    output, last = gru(p, state)
    pieces = list(run_chunks(gru, p, steps, state))
    close(torch.cat([piece.data for piece, _ in pieces]), output.data)
    close(pieces[-1][1], last)


def test_a_state_that_has_ended_stays():
    gru, p = nn.GRU(3, 6).double(), packed(drawn())
    states = [state for _, state in run_chunks(gru, p, 2)]
    oracle.same(states[1][:, [0, 2]], states[0][:, [0, 2]])  # lengths 2 and 1
    assert (states[1] - states[0])[:, [1, 3, 4]].abs().amax((0, 2)).min() > 0.001


def test_any_cell():
    cell, p = nn.LSTMCell(3, 6).double(), packed(drawn())
    state = tuple(torch.randn(2, 5, 6, dtype=torch.float64))
    run = functools.partial(packlib.run_packed, cell)
    output, last = run(p, state)
    pieces = list(run_chunks(run, p, 2, state, batch_dim=0))
    close(torch.cat([piece.data for piece, _ in pieces]), output.data)
    close(pieces[-1][1], last)


# --- truncated ----------------------------------------------------------------------------------

def truncated_alone(gru, sequences, steps, weigh):
    """The loss of each sequence alone, its state cut off after each few steps."""
    loss = 0
    for s in sequences:
        h = None
        for part in s.split(steps):
            output, h = gru(part[:, None], h)
            loss, h = loss + weigh(output).sum(), h.detach()
    return loss


def weigh(outputs):
    return outputs ** 2


@pytest.mark.parametrize("steps", [1, 2, 3, 9])
def test_gradients_are_cut_where_the_pieces_meet(steps):
    gru, sequences = nn.GRU(3, 6).double(), drawn()
    for output, _ in run_chunks(gru, packed(sequences), steps):
        weigh(output.data).sum().backward()
    found = [w.grad.clone() for w in gru.parameters()]
    expected = torch.autograd.grad(truncated_alone(gru, sequences, steps, weigh), gru.parameters())
    for one, other in zip(found, expected, strict=True):
        close(one, other)


def test_the_first_state_is_not_cut_off():
    """It may be learnt: its gradient is that of the first piece."""
    gru, p = nn.GRU(3, 6).double(), packed(drawn())
    start = torch.randn(1, 5, 6, dtype=torch.float64, requires_grad=True)
    for output, _ in run_chunks(gru, p, 2, start):
        output.data.sum().backward()
    h0 = start.detach().requires_grad_()
    gru(next(chunks(p, 2)), h0)[0].data.sum().backward()
    close(start.grad, h0.grad)


def model():
    torch.manual_seed(1)
    layers = nn.ModuleList([nn.Embedding(5, 3), nn.GRU(3, 6), nn.Linear(6, 5)]).double()
    return layers, torch.optim.SGD(layers.parameters(), lr=0.5)


def by_hand(ids, steps):
    """Truncated training of torch's layers, with its packing and all the bookkeeping."""
    (embedding, gru, head), optimiser = layers, _ = model()
    h = torch.zeros(1, len(ids), 6, dtype=torch.float64)
    for t in range(0, max(map(len, ids)), steps):
        live = [i for i, s in enumerate(ids) if len(s) > t]
        part = rnn.pack_sequence([ids[i][t:t + steps] for i in live], enforce_sorted=False)
        output, new = gru(part._replace(data=embedding(part.data)), h[:, live])
        h[:, live] = new.detach()
        nn.functional.cross_entropy(head(output.data), part.data).backward()
        optimiser.step()
        optimiser.zero_grad()
    return layers


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_three_lines_of_training(steps):
    """The optimiser's step counts for the next piece, and an embedding inside is learnt."""
    ids = [torch.randint(0, 5, (n,)) for n in LENGTHS]
    (embedding, gru, head), optimiser = layers, _ = model()
    inputs = targets = packed(ids)

    def layer(piece, state):
        return gru(piece.map(embedding), state)

    for (output, _), target in zip(run_chunks(layer, inputs, steps), chunks(targets, steps),
                                   strict=True):
        cross_entropy(output.map(head), target).backward()
        optimiser.step()
        optimiser.zero_grad()

    for one, other in zip(layers.parameters(), by_hand(ids, steps).parameters(), strict=True):
        close(one, other)


# --- what is refused ----------------------------------------------------------------------------

@pytest.mark.parametrize("kind", [nn.LSTM, packlib.GRU])
def test_a_backward_direction_is_refused(kind):
    with pytest.raises(ValueError, match="bidirectional layer cannot run in chunks"):
        run_chunks(kind(3, 6, bidirectional=True), packed(drawn()), 2)
    with pytest.raises(ValueError, match="bidirectional layer cannot run in chunks"):
        run_chunks(nn.Sequential(kind(3, 6, bidirectional=True)), packed(drawn()), 2)


@pytest.mark.parametrize(("state", "error", "words"), [
    (torch.zeros(1, 4, 6), ValueError, r"5 long, one for each sequence, in dimension batch_dim=1"),
    (torch.zeros(5), ValueError, r"got shape \(5,\)"),
    ((torch.zeros(1, 5, 6), torch.zeros(5, 1, 6)), ValueError, r"got shape \(5, 1, 6\)"),
    ([torch.zeros(1, 5, 6), None], TypeError, "a Tensor or a tuple of them, got NoneType"),
    ("zeros", TypeError, "a Tensor or a tuple of them, got str"),
])
def test_states_that_are_refused(state, error, words):
    with pytest.raises(error, match=words):
        run_chunks(nn.LSTM(3, 6), packed(drawn()), 2, state)


def test_states_with_the_batch_elsewhere_are_found_at_the_first_piece():
    run = functools.partial(packlib.run_packed, nn.GRUCell(3, 6).double())
    with pytest.raises(ValueError, match=r"in dimension batch_dim=1, got shape \(5, 6\)"):
        next(run_chunks(run, packed(drawn()), 2))
