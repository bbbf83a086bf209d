"""<pack-viz>: driven by keyboard alone, and the same cells and words as packlib.viz."""

import random

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from packlib.layout import conjugate
from packlib.viz import show

BATCHES = [
    [5, 2],
    [2, 4, 1, 4, 3],
    [4, 6, 8, 5, 4, 3, 7, 8],
    [9, 8, 6, 4, 3, 2],
    ["abc", "x"],
    [6],
    [1],
]


@pytest.fixture
def bare(tmp_path, request):
    """A page of nothing but the element: bare([5, 2], [3, 1], ...) gives its path."""
    static = request.config.rootpath / "_static"

    def write(*batches, names=None):
        path = tmp_path / "bare.html"
        path.write_text(
            '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>bare</title>'
            f'<link rel="stylesheet" href="{(static / "packviz.css").as_uri()}">'
            f'<script src="{(static / "packviz.js").as_uri()}"></script>'
            + "".join(show(batch, names)._repr_html_() for batch in batches),
            encoding="utf-8",
        )
        return path

    return write


def table(element):
    rows = element.locator("table").first.locator("tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def tab_to(page, selector):
    """Press Tab until the focus is on what the selector names."""
    for _ in range(300):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"no Tab reaches {selector}")


def type_lengths(page, text):
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def lit(element, part):
    return element.locator(f"{part} .pv-now").all_inner_texts()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_by_keyboard_in_the_book(book, open_page, scheme):
    page = open_page(book.html / "chapters" / "02_pad_and_count.html", color_scheme=scheme)
    element = page.locator("pack-viz").first
    spoken = element.locator("[aria-live=polite]")

    tab_to(page, "pack-viz input[type=text]")
    type_lengths(page, "[9, 8, 6, 4, 3, 2]")
    assert "54 cells, but only 32 real steps" in spoken.inner_text()
    type_lengths(page, "4,6,8,5,4,3,7,8")
    assert "64 cells, but only 45 real steps" in spoken.inner_text()

    tab_to(page, "pack-viz input[type=range]")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert "Step 4: 5 of 8 sequences run." in spoken.inner_text()
    column = ["4", "c4", "h4", "g4", "b4", "d4", "pad", "pad", "pad", "5"]
    assert lit(element, "table") == column
    assert lit(element, ".pv-data") == ["c4", "h4", "g4", "b4", "d4"]

    tab_to(page, "pack-viz summary")
    page.keyboard.press("Enter")
    assert element.locator("figure").count() == 2
    for figure in element.locator("figure").all():
        assert figure.is_visible()
        assert figure.locator(".pv-now").count() == 5


def test_the_slider_stops_at_the_last_step(bare, open_page):
    page = open_page(bare([5, 2]))
    tab_to(page, "input[type=range]")
    page.keyboard.press("End")
    assert page.locator("output").inner_text() == "4 (0 to 4)"
    page.keyboard.press("Shift+Tab")
    type_lengths(page, "3 1")
    assert "Step 2: 1 of 2 sequences runs." in page.locator("[aria-live]").inner_text()


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_the_live_picture_is_the_static_one(bare, open_page, batch):
    grid = show(batch)
    element = open_page(bare(batch)).locator("pack-viz")
    assert table(element) == grid.table()
    assert element.locator("caption").inner_text() == "The padded batch, longest sequence first"
    assert element.locator(".pv-data").inner_text().split() == ["data:", *grid.data]
    assert grid.sentence in element.locator("[aria-live]").inner_text()
    assert [head.get_attribute("scope") for head in element.locator("tr th:first-child").all()] == [
        "col",
        *["row"] * (len(batch) + 1),
    ]


def test_names_are_kept(bare, open_page):
    element = open_page(bare([2, 4, 1], names=["u", "v", "<i>"])).locator("pack-viz")
    assert element.locator("input").count() == 2
    assert table(element) == show([2, 4, 1], names=["u", "v", "<i>"]).table()


def test_the_layout_is_torchs(bare, open_page):
    page = open_page(bare([5, 2]))
    draw = random.Random(0)
    for _ in range(50):
        lengths = [draw.randint(1, 24) for _ in range(draw.randint(1, 16))]
        got = page.evaluate("lengths => customElements.get('pack-viz').layout(lengths)", lengths)
        sequence, step = torch.meshgrid(
            torch.arange(len(lengths)), torch.arange(max(lengths)), indexing="ij"
        )
        cells = torch.stack([sequence, step], dim=-1)
        packed = pack_padded_sequence(cells, lengths, batch_first=True, enforce_sorted=False)
        assert got["batchSizes"] == packed.batch_sizes.tolist()
        assert got["batchSizes"] == conjugate(torch.tensor(lengths).numpy()).tolist()
        assert got["order"] == packed.sorted_indices.tolist()
        assert got["data"] == packed.data.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4, 0, 3", "0 does not fit"),
        ("4, 0", "PyTorch refuses 0 too"),
        ("-1", "-1 does not fit"),
        ("2.5", "2.5 does not fit"),
        ("25", "a whole number from 1 to 24"),
        ("abcdefghijklmnopqrstuvwxyz", "at most 24 letters"),
        ("1 " * 17, "Give 1 to 16 lengths, not 17."),
        ("", "No length yet: give 1 to 16."),
        (" ", "The picture still shows 5, 2."),
        ("3, x, 0", "The picture still shows 5, 2."),
    ],
)
def test_a_bad_input_says_so_and_keeps_the_picture(bare, open_page, text, words):
    page = open_page(bare([5, 2]))
    element, box = page.locator("pack-viz"), page.locator("input[type=text]")
    assert box.get_attribute("aria-invalid") == "false"
    before = table(element)
    box.fill(text)
    alert = element.locator("[role=alert]")
    assert words in alert.inner_text()
    assert alert.get_attribute("id") == box.get_attribute("aria-describedby")
    assert box.get_attribute("aria-invalid") == "true"
    assert table(element) == before
    box.fill("3, 1")
    assert alert.inner_text() == ""
    assert table(element) == show([3, 1]).table()


def test_the_message_names_the_lengths_that_are_drawn(bare, open_page):
    page = open_page(bare([5, 2]))
    tab_to(page, "input[type=text]")
    type_lengths(page, "6, 0")
    assert page.locator("[role=alert]").inner_text().endswith("The picture still shows 6.")
    assert table(page.locator("pack-viz")) == show([6]).table()


def test_a_shape_that_is_its_own_mirror_image_says_so(bare, open_page):
    page = open_page(bare([4, 3, 3, 1]))
    page.locator("summary").click()
    assert "its own mirror image" in page.locator("pack-viz").inner_text()
    page.locator("input[type=text]").fill("5 2")
    assert "its own mirror image" not in page.locator("pack-viz").inner_text()


def test_two_elements_do_not_meddle(bare, open_page):
    page = open_page(bare([5, 2], [2, 4, 1, 4, 3]))
    first, second = page.locator("pack-viz").all()
    first.locator("input[type=range]").fill("2")
    first.locator("input[type=text]").fill("6, 1")
    assert table(second) == show([2, 4, 1, 4, 3]).table()
    assert lit(second, "thead") == ["0"]
    ids = page.eval_on_selector_all("[id]", "all => all.map(element => element.id)")
    assert len(ids) == len(set(ids)) == 6
    for label in page.locator("label").all():
        assert label.get_attribute("for") in ids


def test_moving_the_element_keeps_what_the_reader_typed(bare, open_page):
    page = open_page(bare([5, 2]))
    page.locator("input[type=text]").fill("6, 1")
    page.evaluate("document.body.prepend(document.querySelector('pack-viz'))")
    assert table(page.locator("pack-viz")) == show([6, 1]).table()


def test_an_attribute_that_cannot_be_drawn_leaves_the_table(bare, open_page):
    path = bare([5, 2])
    text = path.read_text(encoding="utf-8").replace('lengths="5,2"', 'lengths="5,0"')
    path.write_text(text, encoding="utf-8")
    page = open_page(path)
    assert page.locator("input").count() == 0
    assert table(page.locator("pack-viz")) == show([5, 2]).table()


def test_without_javascript_the_table_is_there(book, open_page):
    page = open_page(book.html / "chapters" / "02_pad_and_count.html", java_script_enabled=False)
    element = page.locator("pack-viz").first
    assert element.locator("input").count() == 0
    assert element.locator("table").is_visible()
    lengths = [int(n) for n in element.get_attribute("lengths").split(",")]
    assert table(element) == show(lengths).table()
    assert show(lengths).sentence in element.inner_text()


@pytest.mark.parametrize(("motion", "still"), [("reduce", True), ("no-preference", False)])
def test_motion_is_for_those_who_like_it(bare, open_page, motion, still):
    page = open_page(bare([5, 2]), reduced_motion=motion)
    duration = "getComputedStyle(document.querySelector('pack-viz td')).transitionDuration"
    assert (page.evaluate(duration) == "0s") is still


def test_on_a_phone_the_lit_step_comes_into_sight(bare, open_page):
    page = open_page(bare([24, 3]), viewport={"width": 390, "height": 800}, reduced_motion="reduce")
    tab_to(page, "input[type=range]")
    page.keyboard.press("End")
    assert page.locator("thead .pv-now").bounding_box()["x"] < 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
