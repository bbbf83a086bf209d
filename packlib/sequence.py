"""``PackedSequence``: torch's, checked when it is made, and with names for what it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn.utils import rnn as torch_rnn
from torch.utils.weak import WeakTensorKeyDictionary

from packlib.fields import check_fields, check_permutation
from packlib.host import host, pair_near
from packlib.layout import Layout, eager_only, refuse_tracing

NOT_PACKED = ("expected a PackedSequence, got {}: pack it first with pack_padded_sequence or "
              "pack_sequence")


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the inverse of a permutation ``(B,)``: ``inverse[permutation[i]] = i``.

    Raises:
        TypeError: it is not a tensor of int64.
        RuntimeError: it is not a permutation (values are checked on the CPU only).

    >>> invert_permutation(torch.tensor([1, 2, 0]))
    tensor([2, 0, 1])
    """
    if permutation is None:
        return None
    check_permutation("permutation", permutation, permutation.numel()
                       if isinstance(permutation, Tensor) else 0)
    count = torch.arange(permutation.numel(), device=permutation.device)
    return torch.empty_like(permutation).scatter_(0, permutation, count)


class PackedSequence(torch_rnn.PackedSequence):
    """A batch of sequences without padding, step after step; longest sequence first in each step.

    It is a subclass of torch's, so ``torch.nn.LSTM`` takes it. ``data`` is (N, *) with N = sum of
    lengths, ``batch_sizes`` (T,) int64 on the CPU, ``sorted_indices`` and ``unsorted_indices``
    (B,) int64 on the data's device, or None when the batch came sorted.

    Law: ``batch_sizes`` never grows, each is at least 1, and they add up to ``len(data)``.

    With empty sequences (``allow_empty=True`` where it is packed) the first of ``batch_sizes`` and
    ``sorted_indices`` count those that have steps, and ``unsorted_indices`` (B,) counts all: the
    empty ones have the last places. torch's own functions and layers raise for such a batch, since
    they know no empty sequence: give them ``without_empty()``.

    Raises:
        TypeError, ValueError: a field breaks the law. torch accepts such a batch, and gives wrong
            numbers or kills the process later.

    >>> p = PackedSequence(torch.tensor([1, 4, 2, 5, 3]), torch.tensor([2, 2, 1]))
    >>> p.lengths
    tensor([3, 2])
    >>> p.sequence(1)
    tensor([4, 5])
    """

    def __new__(cls, data: Any, batch_sizes: Tensor | None = None,
                sorted_indices: Tensor | None = None,
                unsorted_indices: Tensor | None = None) -> PackedSequence:
        if batch_sizes is None:  # torch takes the pair as one argument too
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        eager_only("PackedSequence()", "use pack_padded_sequence, or p.with_data(data)")
        check_fields(data, batch_sizes, sorted_indices, unsorted_indices)
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        elif sorted_indices is None:  # torch leaves it so, and then takes first states as sorted
            sorted_indices = invert_permutation(unsorted_indices)
        return super().__new__(cls, data, *map(_ordinary, (batch_sizes, sorted_indices,
                                                           unsorted_indices)))

    @classmethod
    def from_layout(cls, data: Tensor, layout: Layout) -> PackedSequence:
        """Packed ``data`` (N, *) with the layout it was packed by; not checked again."""
        # copies, which their owner may change
        sizes, order, inverse = torch.from_numpy(layout.batch_sizes.copy()), None, None
        if layout.order is not None:
            indices: Any = layout.started, layout.inverse
            order, inverse = pair_near(data.device, *indices)
        made = cls.unchecked(data, sizes, order, inverse)
        made.__dict__["_layout"] = layout, UNCHANGED
        if not sizes.is_inference():  # those do not count their changes
            _PLANS[sizes] = _Plan(layout, order, inverse, UNCHANGED)
        return made

    @property
    def layout(self) -> Layout:
        """Where each step of each sequence lies; made once and kept."""
        kept = self._kept()
        if kept is None:
            eager_only("PackedSequence.layout", "packlib's functions find it again by themselves")
            kept = self._keep(layout_of(self))
        return kept

    @property
    def lengths(self) -> Tensor:
        """Lengths (B,) in the user's order, int64, on the CPU."""
        if torch.compiler.is_compiling():
            return _traced().rows_of(self).lengths
        return torch.from_numpy(self.layout.lengths.copy())

    @property
    def num_sequences(self) -> int:
        """Number of sequences B. (``len(p)`` is 4, the number of fields, as in torch.)"""
        if torch.compiler.is_compiling():
            return _traced().num_sequences(self)
        return self.layout.num_sequences

    @property
    def device(self) -> torch.device:
        """Where the data is; ``batch_sizes`` stay on the CPU."""
        return self.data.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the data."""
        return self.data.dtype

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """As torch's; the layout goes along, so nothing is read back from a device."""
        if torch.compiler.is_compiling():
            return self.map(lambda data: data.to(*args, **kwargs))
        moved = super().to(*args, **kwargs)
        moved._keep(self.layout)
        return moved

    def sequence(self, i: int) -> Tensor:
        """Sequence ``i`` of the user's order, (lengths[i], *)."""
        eager_only("PackedSequence.sequence", "use pad_packed_sequence, and a row of its grid")
        if not -self.num_sequences <= i < self.num_sequences:
            raise IndexError(f"sequence {i} of a batch of {self.num_sequences}")
        rows = self.layout.rows_of(i % self.num_sequences)
        return self.data.index_select(0, torch.from_numpy(rows).to(self.device))

    def without_empty(self) -> PackedSequence:
        """The same data (N, *) as a batch of the sequences that have steps, in the user's order.

        They are those of ``lengths > 0``. A batch without empty sequences is given back as it is.

        >>> from packlib import pack_sequence
        >>> p = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5]), torch.tensor([])
        ...                    .long()], enforce_sorted=False, allow_empty=True)
        >>> p.lengths, p.without_empty().lengths
        (tensor([2, 3, 0]), tensor([2, 3]))
        """
        if torch.compiler.is_compiling():
            return _traced().without_empty(self)
        if not self.layout.num_empty:
            return self
        return self.from_layout(self.data, self.layout.without_empty[0])

    def with_data(self, data: Tensor) -> PackedSequence:
        """The same sequences with other values: ``data`` (N, *) row for row; the order is kept."""
        return self.like(self, data)

    def map(self, fn: Callable[[Tensor], Tensor]) -> PackedSequence:
        """Apply ``fn``, (N, *) -> (N, *), to the data: linear layers, embeddings, activations.

        >>> p = PackedSequence(torch.tensor([1., 4., 2.]), torch.tensor([2, 1]))
        >>> p.map(torch.neg).data
        tensor([-1., -4., -2.])
        """
        return self.with_data(fn(self.data))

    def detach(self) -> PackedSequence:
        """The same values, cut off from the graph."""
        return self.with_data(self.data.detach())

    @classmethod
    def like(cls, packed: torch_rnn.PackedSequence, data: Tensor) -> PackedSequence:
        """``data`` (N, *) in the layout of ``packed``, which may be torch's own."""
        if torch.compiler.is_compiling():
            return cls.unchecked(*_traced().like(packed, data))
        layout = layout_of(packed)
        if not isinstance(data, Tensor) or data.shape[:1] != packed.data.shape[:1]:
            found = tuple(data.shape) if isinstance(data, Tensor) else type(data).__name__
            raise ValueError(f"data must have {len(packed.data)} rows, one for each real step, "
                             f"got {found}")

        _, sizes, *indices = packed
        device = data.device
        indices = [i if i is None or i.device == device else i.to(device) for i in indices]
        return cls._made(layout, data, *map(_ordinary, (sizes, *indices)))

    @classmethod
    def unchecked(cls, *fields: Any) -> PackedSequence:
        """All four fields as they are, for those who have made them by a layout."""
        return torch_rnn.PackedSequence_.__new__(cls, *fields)

    @classmethod
    def _made(cls, layout: Layout, *fields: Any) -> PackedSequence:
        made = cls.unchecked(*fields)
        made._keep(layout)
        return made

    def _keep(self, layout: Layout) -> Layout:
        self.__dict__["_layout"] = layout, self._versions()
        return layout

    def _kept(self) -> Layout | None:
        """The layout, unless a field has been changed in place since."""
        layout, versions = self.__dict__.get("_layout", (None, ()))
        return layout if layout is None or versions == self._versions() else None

    def _versions(self) -> tuple[int, ...]:
        return _versions(self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self)  # the plan is made again where it arrives

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (tuple, Tensor)):
            raise TypeError("a PackedSequence cannot be indexed like a tensor: its steps have "
                            "different sizes. Use .sequence(i) for one sequence, .data for all "
                            "rows, or pad_packed_sequence(p) for a grid")
        return super().__getitem__(key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, torch_rnn.PackedSequence):
            raise TypeError("PackedSequences are not compared with ==; compare their .data with "
                            "torch.equal or torch.testing.assert_close(p, q)")
        return NotImplemented

    def __ne__(self, other: object) -> bool:  # tuple has its own, which compares tensors
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = tuple.__hash__

    def _no_arithmetic(self, *_: Any) -> NoReturn:
        raise TypeError("arithmetic on a PackedSequence would join its fields as a tuple; "
                        "use p.map(fn), or p.with_data(p.data + q.data) for two of one layout")

    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = _no_arithmetic
    __truediv__ = __rtruediv__ = __matmul__ = __neg__ = __pow__ = _no_arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = _no_arithmetic


def _ordinary(field: Tensor | None) -> Tensor | None:
    """In one piece, since torch's kernels look at no stride, and such as a backward may keep."""
    if field is None:
        return None
    if field.is_inference() and not torch.is_inference_mode_enabled():
        return field.clone()
    return field.contiguous()


def _traced() -> Any:
    from packlib import traced  # which needs this class

    return traced


UNCHANGED = (0, 0, 0)


class _Plan(NamedTuple):
    """A layout, the index tensors that were made from it, and their counts of changes."""

    layout: Layout
    order: Tensor | None
    inverse: Tensor | None
    versions: tuple[int, ...]


# torch's layers hand on the very index tensors that they are given. By them the layout is found
# again, and need be neither checked nor made a second time.
_PLANS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _versions(*fields: Tensor | None) -> tuple[int, ...]:
    """How often each was changed in place; tensors of inference mode do not count that."""
    return tuple([0 if t is None or t.is_inference() else t._version for t in fields])


def _known_layout(data: Any, batch_sizes: Any, order: Any, inverse: Any) -> Layout | None:
    if not isinstance(batch_sizes, Tensor) or batch_sizes.is_inference():
        return None
    plan = _PLANS.get(batch_sizes)
    if plan is None or plan.order is not order or plan.inverse is not inverse:
        return None
    unchanged = plan.versions == _versions(batch_sizes, order, inverse)
    fits = isinstance(data, Tensor) and data.shape[:1] == (plan.layout.num_rows,)
    return plan.layout if unchanged and fits else None


def layout_of(packed: torch_rnn.PackedSequence) -> Layout:
    """The layout of a packed batch, torch's or ours."""
    refuse_tracing()
    if isinstance(packed, PackedSequence) and (kept := packed._kept()) is not None:
        return kept
    if not isinstance(packed, torch_rnn.PackedSequence):
        raise TypeError(NOT_PACKED.format(type(packed).__name__) + (
            "; a layer gives a pair, (output, last states)" if isinstance(packed, tuple) else ""))
    known = _known_layout(*packed)
    if known is not None:
        return known
    check_fields(*packed)  # torch's own, or ours after _replace, which asks no constructor
    order = whole_order(packed)
    return Layout.from_batch_sizes(host(packed.batch_sizes).copy(),
                                   None if order is None else host(order).copy())


def whole_order(packed: torch_rnn.PackedSequence) -> Tensor | None:
    """The user's numbers of all sequences (B,), longest first and empty ones last."""
    order, inverse = packed.sorted_indices, packed.unsorted_indices
    if inverse is None or order is not None and _as_many(order, inverse):
        return order
    return inverse.argsort()


def whole_inverse(packed: torch_rnn.PackedSequence) -> Tensor | None:
    """The place of each of the user's sequences (B,): undoes ``whole_order``."""
    inverse = packed.unsorted_indices
    return invert_permutation(packed.sorted_indices) if inverse is None else inverse


def _as_many(one: Tensor, other: Tensor) -> bool:
    if torch.compiler.is_compiling():  # there the number of sequences with steps has no value yet
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        return statically_known_true(one.shape[0] == other.shape[0])
    return len(one) == len(other)


def layout_of_sizes(batch_sizes: Tensor) -> Layout:
    """A layout with these ``batch_sizes`` (T,); its order may be any."""
    plan = None if batch_sizes.is_inference() else _PLANS.get(batch_sizes)
    if plan is not None and plan.versions[0] == batch_sizes._version:
        return plan.layout
    return Layout.from_batch_sizes(host(batch_sizes).copy())
