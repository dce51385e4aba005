"""Tasks for the session tests; Python workers import them from here."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from elanus.core.errors import DiskFull, Unavailable
from elanus.pipeline.progress import TaskProgress
from elanus.storage.objects import open_store


def double(plan: int) -> int:
    return 2 * plan


def whoami(_plan: int) -> int:
    return os.getpid()


def loaded(module: str) -> bool:
    return module in sys.modules


def fail(plan: str) -> str:
    if plan == "own":
        raise DiskFull("no room in the worker")
    if plan == "foreign":
        raise RuntimeError("something else")
    return plan


def die(_plan: int) -> int:
    os._exit(3)


def answer_late(plan: tuple[str, int]) -> int:
    """Fail as a store does that does not answer, until so many tries were made; returns their number."""
    file, failures = Path(plan[0]), plan[1]
    with file.open("a") as tries:
        tries.write("x")
    if len(file.read_text()) <= failures:
        raise Unavailable(f"no answer at try {len(file.read_text())}")
    return len(file.read_text())


def fail_while_another_runs(plan: tuple[str, str]) -> None:
    """The one that has no file of its own fails once the other has begun."""
    mine, other = plan
    if not mine:
        wait_for(Path(other))
        raise DiskFull("no room in the worker")
    mark_and_sleep(mine)
    Path(mine).with_suffix(".end").touch()


def mark_and_sleep(plan: str) -> None:
    Path(plan).write_text(str(os.getpid()))
    time.sleep(60)


def mark_and_wait_for(plan: tuple[str, str]) -> bool:
    """Say "I am here", then wait for the other file; True when it came."""
    mine, other = map(Path, plan)
    mine.touch()
    return wait_for(other)


def wait_for(file: Path) -> bool:
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return file.exists()


def report_until(plan: tuple[str, str, str]) -> bool:
    """Say again and again that half of the work is done, until a file is there."""
    store_url, job, stop = plan
    progress = TaskProgress.of_this(open_store(store_url), job)
    deadline = time.monotonic() + 60
    while not Path(stop).exists() and time.monotonic() < deadline:
        progress(0.5, 7)
        time.sleep(0.05)
    return Path(stop).exists()
