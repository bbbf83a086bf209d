"""Packed sequences: torch's packing functions and recurrent layers, readable and drop-in.

Change one import line: every name of ``torch.nn.utils.rnn`` is here, with its arguments.
"""

import importlib
from typing import TYPE_CHECKING

from packlib.alike import same_layout
from packlib.cells import run_packed
from packlib.checks import check
from packlib.interop import (
    from_cu_seqlens,
    from_nested,
    mask_from_packed,
    packed_from_mask,
    to_cu_seqlens,
    to_nested,
)
from packlib.packing import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)
from packlib.padding import lengths_to_mask, mask_to_lengths, pad_sequence, unpad_sequence
from packlib.reduce import (
    last_step,
    packed_attention,
    packed_max,
    packed_mean,
    packed_softmax,
    packed_sum,
    reverse,
)
from packlib.rnn import GRU, LSTM, RNN
from packlib.sequence import PackedSequence, invert_permutation

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "PackedSequence",
    "check",
    "from_cu_seqlens",
    "from_nested",
    "invert_permutation",
    "last_step",
    "lengths_to_mask",
    "mask_from_packed",
    "mask_to_lengths",
    "pack_padded_sequence",
    "pack_sequence",
    "packed_attention",
    "packed_from_mask",
    "packed_max",
    "packed_mean",
    "packed_softmax",
    "packed_sum",
    "pad_packed_sequence",
    "pad_sequence",
    "reverse",
    "run_packed",
    "same_layout",
    "to_cu_seqlens",
    "to_nested",
    "unpack_sequence",
    "unpad_sequence",
]
__version__ = "0.1.0"

if not TYPE_CHECKING:  # a name that is not here is a mistake to it

    def __getattr__(name):
        """Rooms that need no import line of their own are opened when they are first entered."""
        if name in ("chunks", "data", "datasets", "losses", "testing", "viz"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
