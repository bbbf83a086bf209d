"""Every page in the browser, light and dark: no error, no request, nothing against WCAG A or AA."""

from pathlib import Path

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe

TOC = yaml.safe_load((Path(__file__).parents[2] / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [TOC["root"], *(page["file"] for part in TOC["parts"] for page in part["chapters"])]
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    "resultTypes": ["violations"],
    "preload": False,  # axe would fetch the styles again, which a browser forbids under file://
}


def visit(context, path):
    """Open a page; also the errors it reported and the requests that left the disk."""
    page = context.new_page()
    errors, requests = [], []
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))

    def stay_on_disk(route):
        if route.request.url.startswith(("file:", "data:", "blob:")):
            return route.continue_()
        requests.append(route.request.url)
        return route.abort()

    page.route("**/*", stay_on_disk)
    page.goto(path.as_uri())
    return page, errors, requests


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [*PAGES, "search", "genindex"])
def test_page(book, chromium, name, scheme):
    context = chromium.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    path = book.html / f"{name}.html"
    page, errors, requests = visit(context, path)
    assert page.locator("html").get_attribute("data-theme") == scheme
    for details in page.locator("pack-viz details").all():
        details.evaluate("element => element.open = true")
    live = page.locator("pack-viz input[type=range]").count()
    report = Axe().run(page, options=RULES)
    page.set_viewport_size({"width": 390, "height": 800})
    width = page.evaluate("document.documentElement.scrollWidth")
    context.close()
    assert not errors
    assert not requests
    assert live == path.read_text(encoding="utf-8").count("<pack-viz ")
    assert report.violations_count == 0, report.generate_report()
    assert width <= 390, "a phone would have to scroll sideways"


def test_the_element_is_in_the_book(book):
    chapters = (book.html / "chapters").glob("*.html")
    assert sum("<pack-viz " in path.read_text(encoding="utf-8") for path in chapters) >= 2


def test_the_checks_can_fail(chromium, tmp_path):
    """A page with one fault of each kind, to see that each is noticed."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<html lang="en"><title>x</title><img src="https://cdn.invalid/a.png">'
        '<div style="width: 2000px">wide</div><script>console.error("oh")</script></html>',
        encoding="utf-8",
    )
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    page, errors, requests = visit(context, bad)
    report = Axe().run(page, options=RULES)
    assert "oh" in errors
    assert requests == ["https://cdn.invalid/a.png"]
    assert [violation["id"] for violation in report.response["violations"]] == ["image-alt"]
    assert page.evaluate("document.documentElement.scrollWidth") > 390
    context.close()
