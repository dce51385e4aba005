"""The directory of one cluster process: its scratch files and its announcement.

A later process needs nothing in it; the archive of Java's classes, from which it starts sooner, is kept.
Processes of one machine share a data directory; each one takes the first free number below it, so a restarted
process finds the directory of its predecessor.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
from pathlib import Path

from elanus.pipeline.class_archive import is_archive
from elanus.server.startup import CannotStart


class Workspace:
    """``DATA_DIR/NAME-N``, locked until `close`. Raises `CannotStart` if it cannot be created."""

    def __init__(self, data_dir: Path, name: str) -> None:
        try:
            self.root, self._lock = _claim(data_dir.absolute(), name)
            self._clear()
            self.scratch.mkdir(exist_ok=True)
        except OSError as error:
            raise CannotStart(f"the data directory {data_dir} cannot be used: {error.strerror}") from error

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def close(self) -> None:
        self._clear()
        os.close(self._lock)

    def _clear(self) -> None:
        """Remove the scratch files but the archive of Java's classes, which takes long to make."""
        for entry in self.scratch.glob("*"):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif not is_archive(entry):
                with contextlib.suppress(OSError):
                    entry.unlink()


def _claim(data_dir: Path, name: str) -> tuple[Path, int]:
    for number in itertools.count(1):
        root = data_dir / f"{name}-{number}"
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return root, descriptor
    raise AssertionError("there is always a next number")
