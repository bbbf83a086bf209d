"""packlib.viz: the picture as text, as a table, and what it refuses."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from packlib.viz import MAX_LENGTH, MAX_SEQUENCES, figure, show

BATCHES = [[5, 2], [2, 4, 1, 4, 3], [4, 6, 8, 5, 4, 3, 7, 8], [9, 8, 6, 4, 3, 2], [7], [4, 4, 4]]


def parsed(grid):
    """The HTML as a tree; that it parses as XML also says that every tag is closed."""
    return ET.fromstring(grid._repr_html_())


def table_of(tree):
    return [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]


def torch_packs(lengths):
    """What torch makes of the batch: batch_sizes, and (sequence, step) of each row of data."""
    cells = torch.zeros(len(lengths), max(lengths), 2, dtype=torch.int64)
    cells[:, :, 0] = torch.arange(len(lengths))[:, None]
    cells[:, :, 1] = torch.arange(max(lengths))
    packed = pack_padded_sequence(cells, lengths, batch_first=True, enforce_sorted=False)
    return packed.batch_sizes.tolist(), packed.data.tolist()


def test_the_picture_of_abc_and_x():
    assert repr(show(["abc", "x"])) == (
        "step         0    1    2  length\n"
        "abc          a    b    c       3\n"
        "x            x  pad  pad       1\n"
        "batch_sizes  2    1    1       4\n"
        "\n"
        "data: a x b c\n"
        "The padded batch has 6 cells, but only 4 real steps: padding wastes 33 %."
    )


@pytest.mark.parametrize("lengths", BATCHES)
def test_batch_sizes_and_data_are_torchs(lengths):
    grid = show(lengths)
    batch_sizes, data = torch_packs(lengths)
    assert grid.batch_sizes == batch_sizes
    assert grid.data == [f"{'abcdefgh'[i]}{t}" for i, t in data]


@pytest.mark.parametrize("lengths", BATCHES)
def test_the_html_table_says_what_the_text_says(lengths):
    grid = show(lengths)
    rows = table_of(parsed(grid))
    assert [" ".join(row) for row in rows] == [
        " ".join(line.split()) for line in repr(grid).partition("\n\n")[0].split("\n")
    ]
    assert [p.text for p in parsed(grid).iter("p")] == repr(grid).partition("\n\n")[2].split("\n")


def test_sums_stand_at_the_margins():
    *_, sizes = rows = table_of(parsed(show([2, 5])))
    assert [row[-1] for row in rows] == ["length", "5", "2", "7"]
    assert sizes == ["batch_sizes", "2", "2", "1", "1", "1", "7"]


@pytest.mark.parametrize(
    ("lengths", "cells", "real", "waste"),
    [([9, 8, 6, 4, 3, 2], 54, 32, 41), ([4, 6, 8, 5, 4, 3, 7, 8], 64, 45, 30), ([8, 7], 16, 15, 6)],
)
def test_the_price(lengths, cells, real, waste):
    assert show(lengths).sentence == (
        f"The padded batch has {cells} cells, but only {real} real steps: padding wastes {waste} %."
    )


def test_half_a_per_cent_is_rounded_up_as_in_the_browser():
    assert "wastes 13 %" in show([4, 3]).sentence  # 1 of 8


def test_nothing_wasted():
    sentence = "Every cell of the batch is a real step ({0} of {0}): nothing is wasted."
    assert show([3, 3]).sentence == sentence.format(6)
    assert show([1]).sentence == sentence.format(1)


def test_a_screen_reader_finds_its_way():
    tree = parsed(show([5, 2]))
    assert tree.findtext("table/caption") == "The padded batch, longest sequence first"
    assert all(cell.get("scope") == "col" for cell in tree.iterfind("table/thead/tr/th"))
    heads = [row[0] for row in tree.iter("tr")][1:]
    assert [(head.tag, head.get("scope")) for head in heads] == [("th", "row")] * 3


def test_the_element_knows_its_lengths_and_names():
    assert parsed(show([5, 2])).attrib == {"lengths": "5,2"}
    assert parsed(show([5, 2], names=["u", "v"])).attrib == {"lengths": "5,2", "names": "u,v"}
    assert parsed(show(["abc", "x"])).attrib == {"lengths": "abc,x"}


def test_names_are_used_and_escaped():
    tree = parsed(show([2, 1], names=["<b>", '"&']))
    assert tree.get("names") == '<b>,"&'
    assert table_of(tree)[1] == ["<b>", "<b>0", "<b>1", "2"]


@pytest.mark.parametrize("make", [tuple, np.array, torch.tensor, iter])
def test_any_list_of_whole_numbers_will_do(make):
    assert repr(show(make([2, 4, 1]))) == repr(show([2, 4, 1]))


def test_the_same_picture_each_time():
    assert show([2, 4, 1])._repr_html_() == show([2, 4, 1])._repr_html_()


@pytest.mark.parametrize(
    ("lengths", "error", "words"),
    [
        ([], ValueError, "1 to 16 entries, got 0"),
        ([1] * (MAX_SEQUENCES + 1), ValueError, "1 to 16 entries, got 17"),
        ([3, 0], RuntimeError, "lengths must be at least 1, got 0"),
        ([3, -2], RuntimeError, "lengths must be at least 1, got -2"),
        ([MAX_LENGTH + 1], ValueError, "at most 24 in a picture, got 25"),
        ([2.5], TypeError, "whole numbers or words, got 2.5"),
        ([True], TypeError, "whole numbers or words, got True"),
        ([None], TypeError, "whole numbers or words, got None"),
        (torch.tensor([1.5]), TypeError, "whole numbers or words"),
        (torch.ones(2, 3, dtype=torch.int64), TypeError, "whole numbers or words"),
        ("abc", TypeError, "lengths must be a list of whole numbers or words, got 'abc'"),
        (["a b"], ValueError, "got 'a b'"),
        (["12"], ValueError, "got '12'"),
        ([""], ValueError, "got ''"),
    ],
)
def test_what_is_refused(lengths, error, words):
    with pytest.raises(error, match="lengths must") as caught:
        show(lengths)
    assert words in str(caught.value)


def test_names_that_do_not_fit():
    with pytest.raises(ValueError, match="one entry a sequence, got 1 for 2"):
        show([2, 1], names=["u"])
    with pytest.raises(ValueError, match="names must hold words"):
        show([2, 1], names=["u", "v w"])


def test_a_figure_carries_its_words():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    fig, axes = pyplot.subplots(figsize=(2, 1))
    axes.plot([1, 3, 2])
    picture = figure(fig, "A line that rises\n  and falls.")
    data, metadata = picture._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG")
    assert b"matplotlib" not in data["image/png"].lower()  # no version: the bytes stay the same
    assert metadata == {"image/png": {"alt": "A line that rises and falls."}}
    assert repr(picture) == data["text/plain"] == "A line that rises and falls."
    assert not pyplot.fignum_exists(fig.number)


def test_a_figure_needs_words():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    fig, _ = pyplot.subplots()
    with pytest.raises(ValueError, match="alt must say"):
        figure(fig, " ")
    pyplot.close(fig)
