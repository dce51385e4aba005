"""The free space of the disks that this machine's part of the data is on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOOK_S = 1.0
_NO_LIMIT_BYTES = 1 << 62


def directories_of(urls: Iterable[str]) -> tuple[Path, ...]:
    """Return the directories among the URLs of a log and an object store."""
    return tuple(Path(unquote(parts.path)) for parts in map(urlsplit, urls) if parts.scheme == "file")


def _free_bytes(directory: Path) -> int:
    """Return the free space of the file system that a directory is on, or will be."""
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free


class FreeDisk:
    """The lowest free space of some directories' file systems, looked at once a second.

    Without directories there is no limit: services refuse writes themselves when their disks are full.
    """

    def __init__(
        self,
        directories: Iterable[Path],
        now_s: Callable[[], float] = time.monotonic,
        look: Callable[[Path], int] = _free_bytes,
    ) -> None:
        self._directories = tuple(directories)
        self._now_s = now_s
        self._look = look
        self._free_bytes = _NO_LIMIT_BYTES
        self._looked_s = float("-inf")

    def free_bytes(self) -> int:
        now_s = self._now_s()
        if self._directories and now_s - self._looked_s >= _LOOK_S:
            self._free_bytes = min(self._look(directory) for directory in self._directories)
            self._looked_s = now_s
        return self._free_bytes
