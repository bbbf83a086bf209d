"""Write the repository's web address where it is needed: python tools/address.py URL

In Colab the chapters install packlib from there; until then they say that they cannot. The book's
own buttons take the address from the environment when it is built, see tools/book.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHAPTERS = Path(__file__).parents[1] / "chapters"
SET_UP = re.compile(r'(REPOSITORY = \\")[^"\\]*(\\")')  # as it stands in a notebook's JSON
ADDRESS = re.compile(r"https://[\w.-]+/[\w./-]*[\w-]")


def fill_in(text: str, url: str) -> str:
    """The notebook's text with the address in its set-up cell."""
    filled, count = SET_UP.subn(rf"\g<1>{url}\g<2>", text)
    if count != 1:
        raise ValueError(f"expected one set-up cell with REPOSITORY = \"...\", found {count}")
    return filled


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not ADDRESS.fullmatch(arguments[0]):
        print("usage: python tools/address.py https://HOST/NAME/REPOSITORY", file=sys.stderr)
        return 2
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        path.write_text(fill_in(path.read_text(encoding="utf-8"), arguments[0]), encoding="utf-8")
        print(f"{path.name}: installs from {arguments[0]} in Colab")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
