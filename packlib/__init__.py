"""Packed sequences: torch's packing functions and recurrent layers, readable and drop-in.

Change one import line: every name of ``torch.nn.utils.rnn`` is here, with its arguments.
"""

from packlib.cells import run_packed
from packlib.checks import check
from packlib.packing import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)
from packlib.padding import lengths_to_mask, mask_to_lengths, pad_sequence, unpad_sequence
from packlib.rnn import GRU, LSTM, RNN
from packlib.sequence import PackedSequence, invert_permutation

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "PackedSequence",
    "check",
    "invert_permutation",
    "lengths_to_mask",
    "mask_to_lengths",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "run_packed",
    "unpack_sequence",
    "unpad_sequence",
]
__version__ = "0.1.0"
