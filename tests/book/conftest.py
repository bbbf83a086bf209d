"""The built book, once for all tests, and a browser to read it with."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Book:
    """A build of the book: its pages, its exit status, and what it said."""

    html: Path
    status: int
    log: str


@pytest.fixture(scope="session")
def book(tmp_path_factory):
    """The book, built by the first worker that asks; the others wait and read the same files."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # the workers' folders lie side by side
    status, log = shared / "book.status", shared / "book.log"
    with FileLock(shared / "book.lock"):
        if not status.exists():
            built = build(shared / "book")
            log.write_text(built.stdout, encoding="utf-8")
            status.write_text(str(built.returncode), encoding="utf-8")
    html = shared / "book" / "_build" / "html"
    return Book(html, int(status.read_text(encoding="utf-8")), log.read_text(encoding="utf-8"))


def build(folder):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BOOK_REPOSITORY")}
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "book.py", folder],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def chromium():
    """Debian's browser: skip where there is none, but not in CI."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        report(f"no browser: install one of {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """Open pages from disk, closed at the end: open_page(path, color_scheme="dark", ...)."""
    contexts = []

    def open_(path, **options):
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(Path(path).as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
