"""The data that ships: the right bytes, the right shapes, the notices their licences ask for."""

import hashlib
import re
from collections import Counter
from importlib.resources import files

import pytest
import torch

from packlib.datasets import japanese_vowels, names

DATA = files("packlib") / "shipped"
SHA256 = {
    "japanese_vowels.npz": "7a5f12d34236f3e3e279612b5f2db86941d6e6b276814b91c4eaa9ee1e1fabf9",
    "names_in_20_languages.tsv": "315ecbe9de1cdde1227c80d52c34c7b2f3da1e4024d9e95a2bb9b9bcead5ff6a",
}


@pytest.mark.parametrize("name", SHA256)
def test_files_are_the_published_bytes(name):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == SHA256[name]


def test_the_readme_names_every_file_with_its_checksum():
    text = (DATA / "README.md").read_text(encoding="utf-8")
    shipped = {p.name for p in DATA.iterdir() if p.name.endswith((".npz", ".tsv"))}
    assert shipped == SHA256.keys()
    assert dict(re.findall(r"sha256 of `([^`]+)`: `([0-9a-f]{64})`", text)) == SHA256


def test_the_licences_are_there():
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    licence = "creativecommons.org/licenses/by/4.0"
    for words in ("10.24432/C5NS47", "Kudo", "CC BY 4.0", licence, "Changes"):
        assert words in readme
    unicode_licence = (DATA / "LICENSE.unicode").read_text(encoding="utf-8")
    assert unicode_licence.startswith("UNICODE LICENSE V3")
    assert "SPDX-License-Identifier: Unicode-3.0" in unicode_licence


@pytest.mark.parametrize(
    ("split", "count", "frames", "first", "per_speaker"),
    [
        ("train", 270, 4274, [20, 26, 22, 20, 21], [30] * 9),
        ("test", 370, 5687, [19, 17, 19, 18, 24], [31, 35, 88, 44, 29, 24, 40, 50, 29]),
    ],
)
def test_vowels(split, count, frames, first, per_speaker):
    sequences, speakers = japanese_vowels(split)
    lengths = [len(s) for s in sequences]
    assert (len(sequences), sum(lengths), lengths[:5]) == (count, frames, first)
    assert (min(lengths), max(lengths)) == (7, 29 if split == "test" else 26)
    assert {(s.shape[1:], s.dtype) for s in sequences} == {((12,), torch.float32)}
    assert speakers.dtype == torch.int64
    assert speakers.bincount().tolist() == per_speaker
    assert all(torch.isfinite(s).all() for s in sequences)


def test_one_vowel_does_not_hold_the_memory_of_all():
    sequences, _ = japanese_vowels()
    assert sequences[0].untyped_storage().nbytes() == sequences[0].numel() * 4


def test_the_caller_may_change_what_it_gets():
    japanese_vowels()[0][0].zero_()
    assert japanese_vowels()[0][0].abs().sum() > 0


@pytest.mark.parametrize("split", ["dev", "", None])
def test_an_unknown_split_is_refused(split):
    with pytest.raises(ValueError, match="'train' or 'test'"):
        japanese_vowels(split)


def test_names():
    words, languages = names()
    assert len(words) == len(languages) == 9270
    assert len(set(words)) == 9270
    assert (min(map(len, words)), max(map(len, words))) == (2, 63)
    count = Counter(languages)
    assert len(count) == 20
    assert (count["es"], count["vi"], count["lt"]) == (348, 697, 731)
    assert all(word == word.lower() and "\t" not in word for word in words)
