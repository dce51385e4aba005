"""A garbage collection with a fault on the way; and what must be there, and what must not, at its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_course import Contents, DataCourse
from fakes import CID, DEFAULT, OTHER, collection
from injected import Fault, as_spark_does, from_afar

from elanus.api.gc import GcReport, SweeperApi, SweepOrder, SweepOutcome
from elanus.core.errors import Internal
from elanus.core.ids import SegmentID
from elanus.core.jobs import JobKind
from elanus.pipeline.port import JobFailed
from elanus.pipeline.sweep import sweep
from elanus.storage.local import LocalStore
from elanus.storage.paths import insert_log_path

SEGMENT_ROWS = 10


@dataclass(frozen=True)
class Ending:
    """``report``: of the round that the fault struck. ``dropped``: what is left of a dropped segment."""

    report: GcReport
    contents: Contents
    dropped: tuple[str, ...]


class _HeldDeletes(LocalStore):
    """Keeps what is to be deleted until it is let go."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._held: list[str] = []

    def delete(self, path: str) -> None:
        self._held.append(path)

    def let_go(self) -> None:
        for path in self._held:
            super().delete(path)


class Sweeper:
    """A sweeper whose connection breaks when its process dies or stands still."""

    def __init__(self, root: Path, fault: Fault) -> None:
        self._root = root
        self._fault = fault
        self.going_on: list[asyncio.Task[SweepOutcome]] = []

    async def sweep(self, order: SweepOrder, cause: str) -> SweepOutcome:
        work = asyncio.create_task(self._sweep(order))
        self.going_on.append(work)
        return await from_afar(work, self._fault)

    async def _sweep(self, order: SweepOrder) -> SweepOutcome:
        async def task(_number: int) -> SweepOutcome:
            await self._fault.at("before read")
            held = _HeldDeletes(self._root)
            outcome = sweep(order, held)
            await self._fault.at("before write")
            held.let_go()
            await self._fault.at("after write")
            return outcome

        try:
            outcome = await as_spark_does(task)
        except JobFailed as error:
            raise Internal(str(error)) from error
        await self._fault.at("before commit")
        return outcome


class Course(DataCourse):
    """A segment lives, one is dropped with its partition, and a job that nobody waits for left a file.

    With ``damaged`` the manifest of the one that lives cannot be read.
    """

    struck = JobKind.GC

    def __init__(self, directory: Path, fault: Fault, *, damaged: bool = False) -> None:
        super().__init__(directory, fault, collection(partitions=(DEFAULT, OTHER)))
        self._damaged = damaged
        self._sweepers: list[Sweeper] = []

    def sweeper(self) -> SweeperApi:
        self._sweepers.append(Sweeper(self.root_dir, self.fault))
        return self._sweepers[-1]

    async def run(self) -> Ending:
        first = await self.start()
        living = await self._flush(DEFAULT)
        dropped = await self._flush(OTHER)
        await self.coord.drop_partition(CID, OTHER)
        self.store.put(insert_log_path(CID, DEFAULT, living, "a1-nobodys"), b"rows")
        intact = await self._damage(living) if self._damaged else b""
        round_ = asyncio.create_task(self.collected())
        await self.replaced(first)
        report = await round_
        later = asyncio.create_task(self._flush(DEFAULT))
        await later  # a zombie does not know these files
        await self.over(first)
        await asyncio.gather(*(task for s in self._sweepers for task in s.going_on if task.done()))
        if self._damaged:
            await self._repair(living, intact)
        left = tuple(info.path for info in self.store.list("") if f"/{dropped}/" in info.path)
        ending = Ending(report, await self.contents(), left)
        for task in [task for s in self._sweepers for task in s.going_on]:
            task.cancel()
        await self.stop()
        return ending

    async def _flush(self, partition: Any) -> SegmentID:
        segment = await self.write(SEGMENT_ROWS, partition=partition)
        await self.coord.flush(CID)
        await self.flushed(segment)
        return segment

    async def _damage(self, segment: SegmentID) -> bytes:
        (info,) = await self.coord.segments_by_id((segment,))
        manifest = self.root_dir / info.manifest
        intact = manifest.read_bytes()
        manifest.write_bytes(b"no manifest")
        self.manifests.forget(info.manifest)
        self.fault.struck.set()
        return intact

    async def _repair(self, segment: SegmentID, intact: bytes) -> None:
        (info,) = await self.coord.segments_by_id((segment,))
        (self.root_dir / info.manifest).write_bytes(intact)
