"""The pages' files, read once from the package. Only files that are there have a path."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """``tag``: changes with the content."""

    content: bytes
    media_type: str
    tag: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files by name. Raises `ValueError` for one of a type that is not known."""
    found = {}
    for entry in (resources.files(__package__) / "static").iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix not in _TYPES:
            raise ValueError(f"the console has a file of an unknown type: {entry.name}")
        content = entry.read_bytes()
        tag = hashlib.blake2b(content, digest_size=12).hexdigest()
        found[entry.name] = StaticFile(content, _TYPES[suffix], f'"{tag}"')
    return found
