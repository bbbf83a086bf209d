"""The two real data sets that ship with packlib: no download, no network.

Sources, licences and checksums are in ``packlib/shipped/README.md``.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

SPLITS = ("train", "test")
_DATA = files("packlib") / "shipped"


def japanese_vowels(split: str = "train") -> tuple[list[Tensor], Tensor]:
    """Spoken vowels of nine speakers, and who speaks: (sequences, speakers).

    Each sequence is (T_i, 12) float32, with T_i from 7 to 29 frames; ``speakers`` is (B,) int64,
    0 to 8. B is 270 for ``split="train"`` and 370 for ``split="test"``.
    The order is that of the original files: sorted by speaker, so shuffle before you train.

    Raises ValueError for any other split. Source: Kudo, Toyama and Shimbo (1999), CC BY 4.0.

    >>> sequences, speakers = japanese_vowels("train")
    >>> len(sequences), sequences[0].shape, speakers.shape
    (270, torch.Size([20, 12]), torch.Size([270]))
    """
    if split not in SPLITS:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    with (_DATA / "japanese_vowels.npz").open("rb") as file, np.load(file) as arrays:
        values = torch.from_numpy(arrays[f"{split}_values"])
        lengths = arrays[f"{split}_lengths"].tolist()
        speakers = torch.from_numpy(arrays[f"{split}_speaker"])
    # clones, so that saving or sending one sequence does not drag all the others along
    return [sequence.clone() for sequence in values.split(lengths)], speakers


def names() -> tuple[list[str], list[str]]:
    """Names of places and languages, and the language each is written in: (names, languages).

    9,270 names in lower case, 2 to 63 characters, each found in one of the 20 languages only;
    languages are codes such as ``"fi"``. The list is sorted by language, so shuffle before you
    train. Source: Unicode CLDR, under the Unicode licence.

    >>> words, languages = names()
    >>> len(words), len(set(languages))
    (9270, 20)
    """
    text = (_DATA / "names_in_20_languages.tsv").read_text(encoding="utf-8")
    lines = text.rstrip("\n").split("\n")
    languages, words = zip(*(line.split("\t") for line in lines), strict=True)
    return list(words), list(languages)
