"""Warm-up of mapped files: their pages are in the operating system's cache before they are first used."""

from __future__ import annotations

from pathlib import Path

_PIECE_BYTES = 1 << 20


def warm_file(path: Path) -> int:
    """Read a file once, and return its bytes. For a worker thread: it takes as long as the disk does.

    The pages stay in the cache as long as nothing else needs the memory: a file of a mapping whose pages were
    dropped is read again, which changes no answer.
    """
    piece, read_bytes = bytearray(_PIECE_BYTES), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            read_bytes += count
    return read_bytes
