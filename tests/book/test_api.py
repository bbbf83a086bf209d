"""The page of the API: every public name is there, with an example, and its text reads as text."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

import packlib
from _ext.docstrings import as_rst

PAGE = (Path(__file__).parents[2] / "chapters" / "api.md").read_text(encoding="utf-8")
BESIDE = {  # what is public beside the names of packlib itself
    "packlib.data": ["BucketBatchSampler", "Padded", "TokenBatchSampler", "collate_packed",
                     "collate_padded"],
    "packlib.datasets": ["japanese_vowels", "names"],
    "packlib.testing": ["assert_layer_equal", "assert_packed_equal", "assert_padded_equal",
                        "assert_sequences_equal", "one_by_one"],
    "packlib.viz": ["show", "figure"],
}
NAMES = [("packlib", name) for name in packlib.__all__] + [
    (module, name) for module, names in BESIDE.items() for name in names]
public = pytest.mark.parametrize(("module", "name"), NAMES)


@pytest.fixture(scope="module")
def page(book):
    return (book.html / "chapters" / "api.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", ["packlib.data", "packlib.testing"])
def test_all_of_a_module_is_meant(module):
    assert sorted(importlib.import_module(module).__all__) == BESIDE[module]


@public
def test_every_public_name_is_on_the_page(page, module, name):
    made_in = getattr(importlib.import_module(module), name).__module__
    places = {f"{module}.{name}", f"{made_in}.{name}"}
    assert places & set(re.findall(r'<dt class="sig[^>]*id="([^"]+)"', page))


@public
def test_every_public_name_has_a_docstring_with_an_example(module, name):
    text = inspect.getdoc(getattr(importlib.import_module(module), name))
    assert text.splitlines()[0].endswith((".", ":"))
    assert ">>> " in text or name in ("Padded", "GRU"), "a named tuple, and RNN's twin, need none"


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_the_arguments_of_layers_are_as_written(name):
    """The page says what ``*args`` hides."""
    (written,) = re.findall(rf"autoclass:: packlib\.{name}\((.*)\)$", PAGE, re.MULTILINE)
    places: dict = {}
    exec(f"def layer({written}): pass", places)
    arguments = inspect.signature(places["layer"]).parameters.values()
    given = {p.name: p.default for p in arguments if p.default is not inspect.Parameter.empty}
    layer, plain = getattr(packlib, name)(3, 4, **given), getattr(packlib, name)(3, 4)
    assert (repr(layer), layer.mode, layer.route) == (repr(plain), plain.mode, plain.route)
    getattr(packlib, name)(3, 4, *[p.default for p in arguments
                                   if p.kind == p.POSITIONAL_OR_KEYWORD][2:])


def test_the_loader_of_the_page():
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    data = [(torch.full((1 + i % 7, 4), float(i)), torch.full((3,), i)) for i in range(40)]
    places: dict = {"data": data}
    exec(code, places)
    loader = places["loader"]
    first, second = ([data[i] for i in batch] for batch in loader.batch_sampler)
    packed, target = loader.collate_fn(min(first, second, key=len))
    assert (packed.num_sequences, target.shape) == (8, (8, 3))
    assert packed.sequence(2)[0, 0] == target[2, 0]


def test_each_kind_of_section_is_there(page):
    sections = set(re.findall(r"<dt class=\"field-[^>]*>(\w+)<", page))
    assert sections >= {"Law", "Parameters", "Raises", "Returns"}
    assert page.count(">Law<") > 10


def test_no_mark_of_plain_text_is_left(page):
    text = re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL)
    assert "``" not in text
    assert r"\*" not in text
    assert "(N, *)" in text
    assert "Law: " not in text


@pytest.mark.parametrize(("lines", "expected"), [
    (["data (N, *) -> (B, *)."], [r"data (N, \*) -> (B, \*)."]),
    (["as ``f(*x)`` and *"], [r"as ``f(*x)`` and \*"]),
    (["Law: kept,", "always.", "", "More."], [":Law: kept,", "    always.", "", "More."]),
    (["Raises: as ``f``."], [":Raises: as ``f``."]),
    (["Raises:", "    ValueError: (B, *)."], ["Raises:", r"    ValueError: (B, \*)."]),
    ([">>> 2 * 3", "6", "", "2 * 3"], [">>> 2 * 3", "6", "", r"2 \* 3"]),
])
def test_plain_text_as_restructured_text(lines, expected):
    assert as_rst(lines) == expected
