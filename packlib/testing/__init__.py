"""Assertions for those who test their own packing or their own layers.

Each says which step of which sequence is wrong and, where making a classic mistake again gives just
that result, which mistake it looks like. They raise AssertionError, as torch.testing does, and need
no test runner. Sequences are numbered in your order; sequences, steps and rows count from 0.
"""

from packlib.testing.alone import one_by_one
from packlib.testing.batches import (
    assert_packed_equal,
    assert_padded_equal,
    assert_sequences_equal,
)
from packlib.testing.layers import assert_layer_equal

__all__ = ["assert_layer_equal", "assert_packed_equal", "assert_padded_equal",
           "assert_sequences_equal", "one_by_one"]
