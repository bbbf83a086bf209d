"""Left as it was given out."""

import torch

LOSES = {"ps2.lengths": "not-written", "ps2.pack_without_loops": "not-written"}


def lengths_from_batch_sizes(batch_sizes):
    # YOUR CODE HERE
    raise NotImplementedError()


def pack_without_loops(x, lengths):
    # YOUR CODE HERE
    raise NotImplementedError()
