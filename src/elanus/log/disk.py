"""The few file system operations that the embedded log needs, in one replaceable place.

Tests use a `Disk` that is full, or whose fsync fails. Nothing else in the log calls the operating system to
change a file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from elanus.log.frames import Part

_IOV_MAX = 1024
"""The number of buffers that one writev accepts (``IOV_MAX`` of Linux and macOS)."""


class Disk:
    """Writes to files. With ``fsync`` off no call waits for stable storage: for tests and scratch data."""

    def __init__(self, *, fsync: bool = True) -> None:
        self._fsync = fsync

    def create(self, path: Path) -> int:
        """Create a file for reading and writing. Raises `FileExistsError`."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, fd: int, parts: Sequence[Part], offset: int) -> None:
        """Write all parts, one after the other, from ``offset`` on."""
        left = iter(parts)
        batch: list[Part] = list(islice(left, _IOV_MAX))
        while batch:
            written = os.pwritev(fd, batch, offset)
            offset += written
            batch = _after(batch, written)
            batch += islice(left, _IOV_MAX - len(batch))

    def sync(self, fd: int) -> None:
        """Return when the file's data and size are on stable storage."""
        if self._fsync:
            os.fdatasync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_directories(self, directory: Path) -> None:
        """Create missing directories, and make each new name durable in its parent."""
        if directory.is_dir():
            return
        if not directory.parent.exists():
            self.make_directories(directory.parent)
        directory.mkdir(exist_ok=True)
        self.sync_directory(directory.parent)

    def sync_directory(self, directory: Path) -> None:
        """Make the directory's entries (files created in it) durable."""
        if not self._fsync:
            return
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _after(parts: Sequence[Part], written: int) -> list[Part]:
    """Return the rest of the parts after their first ``written`` bytes."""
    for index, part in enumerate(parts):
        view = memoryview(part).cast("B")
        if written < len(view):
            return [view[written:], *parts[index + 1 :]]
        written -= len(view)
    return []
