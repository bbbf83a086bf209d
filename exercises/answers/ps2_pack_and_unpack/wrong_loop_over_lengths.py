"""The bonus calls pack, and takes part 2 for itself."""

import torch

LOSES = {"ps2.pack_without_loops": "loops"}


def pack_without_loops(x, lengths):
    return pack(x, lengths)
