"""The memory of index builds that run next to each other on one machine, or in one container.

A build takes the vectors of a segment and the growing index. Spark counts cores, not memory: an executor with
eight cores may run seven builds. Each alone fits (`elanus.pipeline.task_memory`), and together they outgrow
the container, which is then killed with all its tasks. So a build claims its memory before it reads
anything, and waits until the claims fit. Tasks of one executor are processes that share only the machine, so
a claim is a file that its process holds locked: the lock goes with the process, however that ends.

Only builds whose memory is known claim it, and only builds wait for each other. A build that is alone never
waits.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from elanus.pipeline.task_memory import machine_bytes

_LOCK = "LOCK"
_CLAIM = ".claim"
_POLL_S = 1.0
_log = structlog.get_logger("pipeline")


def builds_bytes_max() -> int:
    """Return the memory that all builds of the machine or container may take together.

    A quarter is left to the JVM and to tasks of other kinds.
    """
    return machine_bytes() * 3 // 4


def claims_directory() -> Path:
    """Return where this user's processes keep their claims; `/tmp` of the machine, or of the container."""
    return Path(tempfile.gettempdir()) / f"elanus-memory-{os.getuid()}"


@contextmanager
def claimed_memory(
    wanted_bytes: int, limit_bytes: int, directory: Path, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Hold a claim. Waits while it and the others' are more than the limit; 0 bytes are not claimed."""
    claim = None
    try:
        while wanted_bytes and (claim := _claim(wanted_bytes, limit_bytes, directory)) is None:
            sleep(_POLL_S)
    except OSError as error:  # another user's directory, or a full disk: build, as if alone
        _log.warning("memory of index builds not shared out", directory=str(directory), error=str(error))
    try:
        yield
    finally:
        if claim is not None:
            os.close(claim)  # the next one that looks removes the file


def _claim(wanted_bytes: int, limit_bytes: int, directory: Path) -> int | None:
    """Return the open file of a claim; None if there is no room now."""
    directory.mkdir(mode=0o700, exist_ok=True)
    with (directory / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others_bytes = sum(_held_bytes(path) for path in directory.glob(f"*{_CLAIM}"))
        if others_bytes and others_bytes + wanted_bytes > limit_bytes:
            return None
        fd, _ = tempfile.mkstemp(_CLAIM, dir=directory)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, b"%d" % wanted_bytes)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _held_bytes(path: Path) -> int:
    """Return the bytes of a claim; 0, and remove it, if nobody holds it any more."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read() or 0)
        path.unlink()
        return 0
