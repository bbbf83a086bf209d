"""Build the book: python tools/book.py [folder]; it is then in folder/_build/html.

The folder is the repository's root if none is given. The address of the repository is known only
where the book is published: with BOOK_REPOSITORY_URL set (and BOOK_REPOSITORY_BRANCH, default main)
the pages get a button for the source; on GitHub and GitLab one for issues; on github.com one for
running a chapter in Colab. At a host that the theme does not know they get none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]


def provider(url: str) -> str:
    """Whose links the theme can make for this address, by the theme's own rule; "" if it cannot."""
    host = url.rsplit("/", 2)[0].lower()
    return next((name for name in ("bitbucket", "github", "gitlab") if name in host), "")


def with_repository(config: dict[str, Any], url: str, branch: str) -> dict[str, Any]:
    """The book's configuration with the buttons that need an address."""
    issues = provider(url) in ("github", "gitlab")  # the theme warns at others
    buttons = {"use_repository_button": True, "use_issues_button": issues}
    colab = {"colab_url": "https://colab.research.google.com"}
    # the copy lies elsewhere, and Jupyter Book looks for extensions beside the file it reads
    extensions = {
        name: str(ROOT / path) for name, path in config["sphinx"]["local_extensions"].items()
    }
    return config | {
        "sphinx": config["sphinx"] | {"local_extensions": extensions},
        "repository": {"url": url, "branch": branch},
        "html": config["html"] | buttons,
        "launch_buttons": colab if url.startswith("https://github.com/") else {},
    }


def config_file(build_folder: Path) -> Path:
    """The configuration to build with: the committed one, or a copy that knows the address."""
    committed = ROOT / "_config.yml"
    url = os.environ.get("BOOK_REPOSITORY_URL", "").rstrip("/")
    if not url:
        return committed
    if not provider(url):
        print(f"no buttons: the theme knows no links to the host of {url}", file=sys.stderr)
        return committed
    branch = os.environ.get("BOOK_REPOSITORY_BRANCH", "main")
    config = yaml.safe_load(committed.read_text(encoding="utf-8"))
    build_folder.mkdir(parents=True, exist_ok=True)
    published = build_folder / "_config.yml"
    published.write_text(yaml.safe_dump(with_repository(config, url, branch)), encoding="utf-8")
    return published


def build(folder: Path) -> int:
    """Build into ``folder/_build/html``; any warning is an error. Returns the exit status."""
    program = Path(sys.executable).with_name("jupyter-book")
    places = ["--config", config_file(folder / "_build"), "--path-output", folder]
    strict = ["-W", "-n", "--keep-going", "--quiet"]
    return subprocess.run([program, "build", ".", *places, *strict], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT).resolve()))
