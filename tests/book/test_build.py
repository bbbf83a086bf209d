"""The book builds without a warning, loads nothing from a network, and invents no address."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import yaml
from sphinx.errors import SphinxError
from sphinx_book_theme.header_buttons import update_context_with_repository_info

from tools import book as builder

TOC = yaml.safe_load((builder.ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [TOC["root"], *(page["file"] for part in TOC["parts"] for page in part["chapters"])]

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch"}
REMOTE = re.compile(r"\s*(?:https?:)?//")
REMOTE_IN_CSS = re.compile(r"""(?:url\(\s*|@import\s+)["']?\s*(?:https?:)?//[^)"']*""")


class Loaded(HTMLParser):
    """Collects what a page loads by itself: scripts, styles, pictures, frames."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        # a link to the next page or to the licence is for the reader to follow, not loaded
        if tag == "link" and not set(named.get("rel", "").split()) & {
            "stylesheet",
            "icon",
            "preload",
        }:
            return
        self.addresses += [named[LOADS[tag]]] if named.get(LOADS.get(tag)) else []


def remote(html):
    parser = Loaded()
    parser.feed(html)
    return [a for a in parser.addresses if REMOTE.match(a)] + REMOTE_IN_CSS.findall(html)


def test_builds_without_a_warning(book):
    assert book.status == 0, book.log
    assert "WARNING" not in book.log


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_there(book, page):
    assert (book.html / f"{page}.html").stat().st_size > 1000


def test_no_page_loads_anything_from_a_network(book):
    pages = sorted(book.html.rglob("*.html"))
    assert len(pages) > len(PAGES)  # search and index too
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    assert not [(name, found) for name in texts for found in remote(texts[name])]


def test_no_style_loads_anything_from_a_network(book):
    styles = sorted(book.html.rglob("*.css"))
    assert styles
    found = {
        style.name: REMOTE_IN_CSS.findall(style.read_text(encoding="utf-8")) for style in styles
    }
    assert not {name: addresses for name, addresses in found.items() if addresses}


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.invalid/mathjax.js"></script>',
        '<link rel="stylesheet" href="//cdn.invalid/a.css">',
        '<img alt="x" src="http://cdn.invalid/a.png">',
        "<style>@import 'https://cdn.invalid/a.css';</style>",
        "<style>b { background: url(//cdn.invalid/a.png) }</style>",
    ],
)
def test_the_scan_finds_what_is_loaded(html):
    assert len(remote(html)) == 1


def test_the_scan_leaves_links_to_the_reader():
    assert not remote('<a href="https://docs.invalid/">x</a> <link rel="next" href="//x.invalid/">')


def test_the_element_is_loaded_once_a_page(book):
    html = (book.html / f"{PAGES[1]}.html").read_text(encoding="utf-8")
    assert html.count("packviz.js") == html.count("packviz.css") == 1


def test_no_repository_is_named(book):
    """Without BOOK_REPOSITORY_URL there are no buttons to a repository that nobody knows."""
    for page in PAGES:
        html = (book.html / f"{page}.html").read_text(encoding="utf-8")
        assert not re.search(r"colab\.research|mybinder\.org/v2|/issues/new|btn-source", html), page


def published(folder, monkeypatch, url):
    monkeypatch.setenv("BOOK_REPOSITORY_URL", url)
    monkeypatch.setenv("BOOK_REPOSITORY_BRANCH", "trunk")
    return builder.config_file(folder)


@pytest.mark.parametrize(
    ("url", "issues", "launch"),
    [
        ("https://github.com/owner/name", True, {"colab_url"}),
        ("https://github.host.invalid/owner/name", True, set()),  # Colab reads github.com only
        ("https://gitlab.host.invalid/group/part/name", True, set()),
        ("https://bitbucket.org/owner/name", False, set()),
    ],
)
def test_the_address_is_filled_in_at_publishing(tmp_path, monkeypatch, url, issues, launch):
    path = published(tmp_path, monkeypatch, f"{url}/")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert config["repository"] == {"url": url, "branch": "trunk"}
    assert config["html"]["use_repository_button"] is True
    assert config["html"]["use_issues_button"] is issues
    assert set(config["launch_buttons"]) == launch
    committed = yaml.safe_load((builder.ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert config["title"] == committed["title"]
    assert config["html"]["extra_footer"] == committed["html"]["extra_footer"]


@pytest.mark.parametrize(
    "url", ["https://host.invalid/owner/name", "https://host.invalid/github/name"]
)
def test_a_host_that_the_theme_does_not_know_gets_no_buttons(tmp_path, monkeypatch, capsys, url):
    assert published(tmp_path, monkeypatch, url) == builder.ROOT / "_config.yml"
    assert capsys.readouterr().err == f"no buttons: the theme knows no links to the host of {url}\n"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/owner/name",
        "https://gitlab.host.invalid/group/part/name",
        "https://bitbucket.org/owner/name",
        "https://host.invalid/owner/name",
        "https://host.invalid/github/name",
    ],
)
def test_the_rule_for_hosts_is_the_themes(url):
    options = {"repository_url": url}
    app = SimpleNamespace(
        config=SimpleNamespace(html_theme_options=options, html_context={}),
        builder=SimpleNamespace(theme_options=options),
    )
    if builder.provider(url):
        update_context_with_repository_info(app)
        assert f"{builder.provider(url)}_url" in app.config.html_context
    else:
        with pytest.raises(SphinxError, match="Provider not recognized"):
            update_context_with_repository_info(app)


def test_without_an_address_the_committed_configuration_is_used(tmp_path, monkeypatch):
    monkeypatch.delenv("BOOK_REPOSITORY_URL", raising=False)
    assert builder.config_file(tmp_path) == builder.ROOT / "_config.yml"
    assert not list(tmp_path.iterdir())
