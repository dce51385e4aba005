"""Faults put between the product's parts: it knows nothing of them.

A job goes through `STEPS`. A `Fault` strikes at one of them, once: a task is lost and Spark runs it again,
the driver dies and another takes its place, or goes on when it has long been replaced, the disk is full, or
an object's put breaks off near its end. Damaged input is no fault of a moment: it is there
from the beginning of a course.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from elanus.core.errors import DiskFull, Unavailable
from elanus.pipeline.port import JobFailed
from elanus.storage.local import LocalStore

Outcome = TypeVar("Outcome")

STEPS = ("before read", "before write", "after write", "before commit", "after commit")
TASK_STEPS = STEPS[:3]
TRIES_MAX = 4
_BROKEN_OFF = 0.9


class Victim(StrEnum):
    TASK = "executor or Python worker"
    DRIVER = "driver or JVM"
    ZOMBIE = "zombie driver"
    DISK = "disk full"
    PUT = "put breaks off at 90 %"
    DAMAGE = "damaged input"


CASES = [
    *((victim, step) for victim in (Victim.DRIVER, Victim.ZOMBIE) for step in STEPS),
    *((Victim.TASK, step) for step in TASK_STEPS),
    *((victim, "before write") for victim in (Victim.DISK, Victim.PUT)),
    (Victim.DAMAGE, "before read"),
]
"""A fault and the step that it strikes. Disk and put strike while the first object is written."""


class TaskLost(Exception):
    """An executor, or its Python worker, is gone. Spark runs the task again."""


async def as_spark_does(task: Callable[[int], Awaitable[Outcome]]) -> Outcome:
    """Run a task, and a lost one again; it gets the number of the try, from 0."""
    for number in range(TRIES_MAX):
        try:
            return await task(number)
        except TaskLost:
            continue
        except OSError as error:
            raise JobFailed(str(error)) from error
    raise JobFailed("all tries are used up")


async def from_afar(work: asyncio.Task[Outcome], fault: Fault) -> Outcome:
    """The caller's error when a process dies, or stops for a while, and the connection breaks."""
    struck = asyncio.create_task(fault.struck.wait())
    if fault.victim in (Victim.DRIVER, Victim.ZOMBIE) and not fault.struck.is_set():
        await asyncio.wait([work, struck], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Unavailable("the connection broke")
    struck.cancel()
    return await work


def no_fault() -> Fault:
    """One that never strikes."""
    return Fault(Victim.TASK, "never")


@dataclass
class Fault:
    """``struck`` is set when it has happened; a zombie goes on with ``go_on``."""

    victim: Victim
    step: str
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def at(self, step: str) -> None:
        """A job has come to this step. A driver that dies here does not come back from it."""
        if step != self.step or self.struck.is_set():
            return
        match self.victim:
            case Victim.TASK:
                self.struck.set()
                raise TaskLost
            case Victim.DRIVER:
                self.struck.set()
                await asyncio.Event().wait()
            case Victim.ZOMBIE:
                self.struck.set()
                await self.go_on.wait()

    async def stall(self) -> None:
        """The point at which a paused process would send or receive."""
        if self.victim is Victim.ZOMBIE and self.struck.is_set():
            await self.go_on.wait()

    def on_put(self) -> bool:
        """Whether the put that begins now is the one that fails."""
        if self.victim not in (Victim.DISK, Victim.PUT) or self.struck.is_set():
            return False
        self.struck.set()
        return True


class FaultyStore(LocalStore):
    """A store on whose puts the fault strikes. A broken put leaves what a real one leaves."""

    writes_at_once = 1  # so that it strikes once

    def __init__(self, root: Path, fault: Fault) -> None:
        super().__init__(root)
        self._directory = root
        self._fault = fault

    def put(self, path: str, data: Any) -> None:
        if self._fault.on_put():
            self._break_off(path, bytes(memoryview(data)))
        super().put(path, data)

    def put_file(self, path: str, source: Path) -> None:
        if self._fault.on_put():
            self._break_off(path, source.read_bytes())
        super().put_file(path, source)

    def _break_off(self, path: str, data: bytes) -> None:
        if self._fault.victim is Victim.DISK:
            raise DiskFull(f"no room left while writing {path}; free disk space, then retry")
        staging = self._directory / ".staging"
        staging.mkdir(parents=True, exist_ok=True)
        (staging / "broken-off").write_bytes(data[: int(len(data) * _BROKEN_OFF)])
        raise OSError(f"the connection broke while {path} was written")


class HeldStore(LocalStore):
    """Keeps what is put until it is let go: so a fault finds a job that has read all and written nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._held: list[tuple[str, bytes]] = []

    def put(self, path: str, data: Any) -> None:
        self._held.append((path, bytes(memoryview(data))))

    def put_file(self, path: str, source: Path) -> None:
        self._held.append((path, source.read_bytes()))

    def let_go(self, store: LocalStore) -> None:
        for path, data in self._held:
            store.put(path, data)
