"""Take the pictures of docs/console.md.

``python -m tools.console_pictures ADDRESS DATABASE COLLECTION DIRECTORY``: ADDRESS is that of a server
without users, such as http://127.0.0.1:20530; the collection is one that it has loaded. `tools.browser` says
which browser takes them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tools.browser import Page, find, opened

PICTURES = ("overview", "segments", "playground", "jobs", "projection")
_WIDTH, _HEIGHT = 1100, 700
_RANDOM_ROW = "[...document.querySelectorAll('button')].find((b) => b.innerText === 'Random row')?.click()"
"""The playground is taken with the hits of a search."""
_SETTLE_MS = 7000
"""How long a page is watched before its picture: some draw changes since they were opened."""


def main(address: str, database: str, collection: str, directory: str) -> None:
    program = find()
    if not program:
        sys.exit("there is no Chromium: install one, or name it in CHROMIUM")
    with tempfile.TemporaryDirectory() as profile, opened(program, Path(profile)) as page:
        page.open(f"{address}/ui/")
        page.wait_for("document.querySelector('nav a')")
        for number, name in enumerate(PICTURES):
            page.use_scheme("dark" if number % 2 else "light")
            picture = taken(page, f"#/{name}/{database}/{collection}")
            Path(directory, f"console-{name}.png").write_bytes(picture)


def taken(page: Page, place: str) -> bytes:
    page.value(f"location.hash = {place!r}")
    page.wait_for("document.querySelector('#content h1 + div').innerText")
    page.value(_RANDOM_ROW)
    page.value(f"new Promise((done) => setTimeout(done, {_SETTLE_MS}))")
    return page.picture(_WIDTH, _HEIGHT)


if __name__ == "__main__":
    main(*sys.argv[1:])
