"""Each sequence of a packed batch brought together: its last step, sum, mean, maximum, softmax.

No grid is built, so no padding can leak into a result: each is a gather or a scatter over the N
real rows, and so is its gradient, whatever the number of steps. Sequences are in the user's order;
torch's own packed sequences are taken as well.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn

from packlib import moves, traced
from packlib.alike import check_same_layout
from packlib.host import Ints
from packlib.layout import Layout
from packlib.ops import autocast_dtype, take
from packlib.planning import refuse_empty
from packlib.sequence import PackedSequence, layout_of

Where = Layout | traced.Rows


def last_step(packed: torch_rnn.PackedSequence) -> Tensor:
    """The last real step of each sequence: data (N, *) -> (B, *), in one gather.

    Law: row ``i`` is the last row of ``packed.sequence(i)``. For the outputs of a layer with one
    direction that is ``h_n[-1]``. A backward direction ends at step 0 instead: take its half from
    ``last_step(reverse(packed))``, or both halves from ``h_n``.

    Raises:
        ValueError: a sequence is empty.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    >>> last_step(p)
    tensor([2, 5])
    """
    def make(layout: Layout) -> Ints:
        rank = np.arange(layout.num_sequences) if layout.inverse is None else layout.inverse
        return layout.offsets[layout.lengths - 1] + rank

    layout = _where(packed, "last step")
    return take(packed.data, _near(layout, "last_step", packed.data.device, make))


def reverse(packed: torch_rnn.PackedSequence) -> PackedSequence:
    """Each sequence from its last step to its first: data (N, *) -> (N, *), in the same layout.

    Law: ``reverse(reverse(p))`` is ``p``. (``flip`` on a padded grid would put the padding first.)

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    >>> reverse(p).sequence(1)
    tensor([5, 4, 3])
    """
    if torch.compiler.is_compiling():
        turned = take(packed.data, traced.turn(packed))
    else:
        turned = moves.turned(packed.data, layout_of(packed))
    return PackedSequence.like(packed, turned)


def packed_sum(packed: torch_rnn.PackedSequence) -> Tensor:
    """The sum of each sequence over its steps: data (N, *) -> (B, *).

    Steps are added in pieces of 256, and then the pieces, so that long sums lose little.

    Law: row ``i`` is ``packed.sequence(i).sum(0)``, dtype included: integers and bools add up to
    int64, half precision is added in float32 and rounded once. An empty sequence has the sum 0.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    >>> packed_sum(p)
    tensor([ 3, 12])
    """
    total = _sum(_where(packed), _wide(packed.data))
    return total.to(packed.data.dtype) if _inexact(packed.data) else total


def packed_mean(packed: torch_rnn.PackedSequence) -> Tensor:
    """The mean of each sequence over its steps: data (N, *) -> (B, *), dtype kept.

    Law: row ``i`` is ``packed.sequence(i).mean(0)``: divided by its length, not by T.

    Raises:
        TypeError: the data are integers or bools.
        ValueError: a sequence is empty.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.tensor([1., 2.]), torch.tensor([3., 4., 5.])],
    ...                   enforce_sorted=False)
    >>> packed_mean(p)
    tensor([1.5000, 4.0000])
    """
    data = packed.data
    if not _inexact(data):
        raise TypeError(f"packed_mean wants floating numbers, got {data.dtype}: ids have no mean, "
                        "counts have one after packed.float()")
    layout = _where(packed, "mean")
    counts = _near(layout, "lengths", data.device, lambda at: at.lengths)
    total = _sum(layout, _wide(data))
    return (total / counts.view(-1, *[1] * (data.dim() - 1))).to(data.dtype)


def packed_max(packed: torch_rnn.PackedSequence) -> Tensor:
    """The maximum of each sequence over its steps: data (N, *) -> (B, *), dtype kept.

    Law: row ``i`` is ``packed.sequence(i).amax(0)``. As there, steps that tie share the gradient.

    Raises:
        TypeError: the data are complex.
        ValueError: a sequence is empty.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.tensor([-1., -2.]), torch.tensor([3., 5., 4.])],
    ...                   enforce_sorted=False)
    >>> packed_max(p)
    tensor([-1.,  5.])
    """
    if packed.data.is_complex():
        raise TypeError(f"packed_max wants real numbers, got {packed.data.dtype}")
    return _max(_where(packed, "maximum"), packed.data)


def packed_softmax(packed: torch_rnn.PackedSequence) -> PackedSequence:
    """Softmax of each sequence over its steps: data (N, *) -> (N, *), dtype kept.

    Law: sequence ``i`` of the result is ``packed.sequence(i).softmax(0)``; each adds up to 1, and
    padding has no share. A score of -inf gets 0; a sequence of nothing else gets NaN, as in torch.

    Raises:
        TypeError: the data are not real floating numbers.

    >>> from packlib import pack_sequence
    >>> p = pack_sequence([torch.zeros(2), torch.zeros(4)], enforce_sorted=False)
    >>> packed_softmax(p).sequence(1)
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    layout, data = _where(packed), packed.data
    if not data.is_floating_point():
        raise TypeError(f"packed_softmax wants real floating numbers, got {data.dtype}")
    scores = _wide(data)
    highest = _max(layout, scores.detach())  # any shift cancels out: this one keeps exp in range
    parts = (scores - _spread(layout, highest)).exp()
    shares = parts / _spread(layout, _sum(layout, parts))
    return PackedSequence.like(packed, shares.to(data.dtype))


def packed_attention(query: Tensor, keys: torch_rnn.PackedSequence,
                     values: torch_rnn.PackedSequence | None = None, *,
                     scale: float | None = None) -> tuple[Tensor, PackedSequence]:
    """Scaled dot-product attention (Vaswani et al., 2017) of each query to its own sequence.

    Args:
        query: (B, F), one a sequence, or (B, Q, F); rows in the user's order.
        keys: data (N, F).
        values: data (N, V), in the layout of ``keys``; the keys themselves if None.
        scale: what the scores are multiplied with; F ** -0.5 if None.

    Returns:
        The attended values, (B, V) or (B, Q, V), and the weights, packed: data (N,) or (N, Q).

    Law: equals ``scaled_dot_product_attention`` on padded keys with the padding masked out, under
    autocast too; as there, the query of an empty sequence gets zeros, the sum of nothing. Memory is
    that of N * Q * max(F, V) numbers: meant for a few queries, as in a decoder's step.

    Raises:
        ValueError: shapes do not fit, or the layouts of keys and values differ.
        TypeError: the query is not a tensor, or dtypes are not floating or differ.

    >>> from packlib import pack_sequence
    >>> keys = pack_sequence([torch.zeros(2, 4), torch.ones(3, 4)], enforce_sorted=False)
    >>> output, weights = packed_attention(torch.ones(2, 4), keys)
    >>> output.shape, weights.sequence(1)
    (torch.Size([2, 4]), tensor([0.3333, 0.3333, 0.3333]))
    """
    values = keys if values is None else values
    check_same_layout(keys, values, ("keys", "values"))
    layout = _where(keys)
    if isinstance(query, Tensor):
        query, keys, values = _as_autocast(query, keys, values)
    _check_attention(layout, query, keys.data, values.data)
    queries = query if query.dim() == 3 else query[:, None]
    scale = max(query.shape[-1], 1) ** -0.5 if scale is None else scale
    scores = torch.einsum("nqf,nf->nq", _spread(layout, queries * scale), keys.data)
    weights = packed_softmax(PackedSequence.like(keys, scores))
    output = packed_sum(weights.map(lambda w: w[:, :, None] * values.data[:, None]))
    if query.dim() == 3:
        return output, weights
    return output[:, 0], weights.map(lambda w: w[:, 0])


def _where(packed: torch_rnn.PackedSequence, what: str = "") -> Where:
    """Whose step each row is. With ``what`` no sequence may be empty: such a one has none."""
    if torch.compiler.is_compiling():
        return traced.rows_of(packed, what)
    layout = layout_of(packed)
    if what:
        refuse_empty(layout, what)
    return layout


def _as_autocast(query: Tensor, keys: torch_rnn.PackedSequence, values: torch_rnn.PackedSequence
                 ) -> tuple[Tensor, PackedSequence, PackedSequence]:
    dtype = autocast_dtype(query, keys.data, values.data)
    keys, values = (PackedSequence.like(p, p.data if dtype is None else p.data.to(dtype))
                    for p in (keys, values))
    return query if dtype is None else query.to(dtype), keys, values


def _check_attention(layout: Where, query: Tensor, keys: Tensor, values: Tensor) -> None:
    if not isinstance(query, Tensor):
        raise TypeError(f"query must be a Tensor, got {type(query).__name__}; it has one row, or "
                        "Q rows, for each sequence")
    if keys.dim() != 2 or values.dim() != 2:
        raise ValueError("keys must have data (N, F) and values (N, V), got "
                         f"{tuple(keys.shape)} and {tuple(values.shape)}")
    size, features = layout.num_sequences, keys.shape[1]
    if query.dim() not in (2, 3) or not traced.same_shape(
            (query.shape[0], query.shape[-1]), (size, features)):
        raise ValueError(f"query must be (B, F) or (B, Q, F) with B={size}, F={features}, got "
                         f"{tuple(query.shape)}")
    dtypes = {x.dtype for x in (query, keys, values)}
    if len(dtypes) > 1 or not query.is_floating_point():
        raise TypeError("query, keys and values must have one floating dtype, got "
                        f"{query.dtype}, {keys.dtype} and {values.dtype}")


def _wide(data: Tensor) -> Tensor:
    """Data in the dtype that sums are made in."""
    if data.dtype in (torch.half, torch.bfloat16):
        return data.float()
    return data if _inexact(data) else data.long()


def _inexact(data: Tensor) -> bool:
    return data.is_floating_point() or data.is_complex()


def _sum(layout: Where, data: Tensor) -> Tensor:
    """In pieces of some steps, and then the pieces."""
    piece = _near(layout, "piece", data.device, lambda at: at.piece)
    owner = _near(layout, "owner", data.device, lambda at: at.owner)
    return _added(_added(data, piece, owner.shape[0]), owner, layout.num_sequences)


def _added(data: Tensor, numbers: Tensor, size: int) -> Tensor:
    """Rows (N, *) of one number (N,) added up: (size, *)."""
    grid = data.new_zeros(size, *data.shape[1:])
    return grid.scatter_add(0, _for_each(numbers, data), data)


def _max(layout: Where, data: Tensor) -> Tensor:
    # The start is not included in the maximum, but torch lets it share the gradient of a tie: so
    # it is a value that ties with nothing.
    start = float("nan") if data.is_floating_point() else 0
    grid = data.new_full((layout.num_sequences, *data.shape[1:]), start)
    return grid.scatter_reduce(0, _sequence(layout, data), data, "amax", include_self=False)


def _spread(layout: Where, values: Tensor) -> Tensor:
    """Each sequence's values at all of its rows, (B, *) -> (N, *): the transpose of ``_sum``."""
    return values.gather(0, _sequence(layout, values))


def _sequence(layout: Where, like: Tensor) -> Tensor:
    """The user's number of each row's sequence, (N,), as ``_for_each`` has it."""
    return _for_each(_near(layout, "sequence", like.device, lambda at: at.sequence), like)


def _for_each(numbers: Tensor, like: Tensor) -> Tensor:
    """Numbers (N,) repeated to (N, *) without a copy."""
    trailing = like.shape[1:]
    return numbers.view(-1, *[1] * len(trailing)).expand(-1, *trailing)


def _near(layout: Where, name: str, device: torch.device, make: Callable[[Layout], Ints]) -> Tensor:
    """What ``make`` counts, on the device; made once for each layout."""
    if isinstance(layout, traced.Rows):
        return getattr(layout, name).to(device)
    return layout.rows((name, device), lambda: make(layout))
