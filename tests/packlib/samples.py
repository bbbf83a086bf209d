"""Sequences that the tests of assertions share, and what an assertion says."""

import oracle
import pytest
import strategies
import torch
from torch.nn.utils import rnn

import packlib

LENGTHS = [2, 4, 1, 4, 3, 6, 1]
ORDER = [5, 1, 3, 4, 0, 2, 6]
INVERSE = [ORDER.index(i) for i in range(len(ORDER))]
SIZES = oracle.batch_sizes(LENGTHS)


def sequences(lengths=LENGTHS, features=(3,), dtype=torch.float64):
    return [strategies.values((n, *features), dtype, seed=i) for i, n in enumerate(lengths)]


def grid(xs, total=None, value=0):
    return oracle.padded(xs, total or max(map(len, xs)), True, value)


def packed_with_empty(xs):
    return packlib.pack_sequence(xs, enforce_sorted=False, allow_empty=True)


def fields(data, sizes, order=None):
    """torch's class, which takes whatever it is given."""
    indices = None if order is None else torch.as_tensor(order)
    inverse = None if order is None else torch.as_tensor(indices.argsort())
    return rnn.PackedSequence(data, torch.as_tensor(sizes), indices, inverse)


def said(assertion, *args, **options):
    with pytest.raises(AssertionError) as caught:
        assertion(*args, **options)
    return str(caught.value)
