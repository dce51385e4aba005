"""An import from its order to its commit, with a fault on the way; and what must be true at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from data_course import Contents, DataCourse
from fakes import CID, DEFAULT, collection, inline
from injected import Fault, FaultyStore, HeldStore, as_spark_does, from_afar
from rows import batch

from elanus.api.imports import ImportNodeApi, ImportOrder, ImportOutcome, ImportRequest
from elanus.core.attempts import stamped
from elanus.core.imports import ImportState, ImportTask, WriteMode
from elanus.core.jobs import JobKind
from elanus.datanode.imports import ImportSettings, SparkImports
from elanus.pipeline.import_files import import_rows
from elanus.pipeline.import_job import import_task
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.import_segments import SegmentsWriter
from elanus.pipeline.port import Job
from elanus.storage.objects import open_store

ROWS, FILES = 20, 2
_ENDED = (ImportState.COMPLETED, ImportState.FAILED)


@dataclass(frozen=True)
class Ending:
    """``task``: the import that the fault struck; ``again``: the same one, asked for again where that failed.

    ``after``: when garbage has been collected as well.
    """

    task: ImportTask
    again: ImportTask | None
    between: Contents
    before: Contents
    after: Contents


class _Runner:
    """Runs the tasks' own code here and now."""

    slots = 2

    def __init__(self, root: Path, source_url: str, fault: Fault) -> None:
        self._root = root
        self._source_url = source_url
        self._fault = fault
        self._scratch = root.parent / "scratch"
        self._scratch.mkdir(exist_ok=True)

    async def run(self, job: Job[Any, Any], cause: str, waiting: tuple[str, ...]) -> list[Any]:
        if job.task is not import_task:
            return [job.task(plan) for plan in job.plans]
        return [await self._task(plan) for plan in job.plans]

    async def _task(self, plan: ImportPlan) -> ImportOutcome:
        async def task(number: int) -> ImportOutcome:
            await self._fault.at("before read")
            held = HeldStore(self._root)
            name = f"{stamped(plan.attempt, 'import')}-{number}"
            writer = SegmentsWriter(plan, held, self._scratch, name)
            for rows in import_rows(plan, open_store(self._source_url)):
                writer.add(rows)
            writer.write_out()
            await self._fault.at("before write")
            held.let_go(FaultyStore(self._root, self._fault))
            await self._fault.at("after write")
            return ImportOutcome(tuple(writer.written))

        return await as_spark_does(task)


class Importer:
    """The importing side of a node, whose connection breaks when its process dies or stands still."""

    def __init__(self, imports: SparkImports, fault: Fault) -> None:
        self._imports = imports
        self._fault = fault
        self.going_on: list[asyncio.Task[ImportOutcome]] = []

    async def import_files(self, order: ImportOrder) -> ImportOutcome:
        work = asyncio.create_task(self._import(order))
        self.going_on.append(work)
        return await from_afar(work, self._fault)

    async def _import(self, order: ImportOrder) -> ImportOutcome:
        outcome = await self._imports.import_files(order)
        await self._fault.at("before commit")
        return outcome


class Course(DataCourse):
    """Two files, written in a ``mode``; with ``damaged`` the second is no Parquet."""

    struck = JobKind.IMPORT

    def __init__(
        self, directory: Path, fault: Fault, *, damaged: bool = False, mode: WriteMode = WriteMode.APPEND
    ) -> None:
        super().__init__(directory, fault, collection(shards=2))
        self._source = directory / "import"
        self._source.mkdir()
        for number in range(FILES):
            rows = batch(self.collection, number * ROWS, ROWS)
            pq.write_table(pa.Table.from_batches([rows]), self._source / f"{number}.parquet")
        self._damaged = damaged
        self._mode = mode
        if damaged:
            (self._source / "1.parquet").write_bytes(b"no Parquet" * 100)
            fault.struck.set()
        self._importers: list[Importer] = []

    def importer(self) -> ImportNodeApi:
        settings = ImportSettings(
            source_url=self._source.as_uri(),
            store_url=self.root_dir.as_uri(),
            scratch_dir=str(self.root_dir.parent / "scratch"),
            task_bytes_max=1 << 20,
        )
        runner = _Runner(self.root_dir, settings.source_url, self.fault)
        imports = SparkImports(runner, self.root, settings, inline)  # type: ignore[arg-type]
        self._importers.append(Importer(imports, self.fault))
        return self._importers[-1]

    async def run(self) -> Ending:
        first = await self.start()
        task = await self._import(first, [f"{n}.parquet" for n in range(FILES)])
        between, again = await self.contents(), None
        if task.state is ImportState.FAILED:
            again = await self._import(first, [f"{n}.parquet" for n in range(1 if self._damaged else FILES)])
        await self.over(first)
        before = await self.contents()
        await self.collected()
        ending = Ending(task, again, between, before, await self.contents())
        for importer in self._importers:
            for work in importer.going_on:
                work.cancel()
            await asyncio.gather(*importer.going_on, return_exceptions=True)
        await self.stop()
        return ending

    async def _import(self, first: asyncio.Task[None], files: Sequence[str]) -> ImportTask:
        request = ImportRequest(CID, self.collection.name, DEFAULT, "_default", tuple(files), mode=self._mode)
        task_id = await self.coord.start_import(request)
        ticking = asyncio.create_task(self._ticking())
        await self.replaced(first)

        async def is_over() -> bool:
            return (await self.coord.import_task(task_id)).state in _ENDED

        await self.until(is_over)
        ticking.cancel()
        return await self.coord.import_task(task_id)

    async def _ticking(self) -> None:
        """Let the snapshot of an overwrite reach its moment."""
        while self._mode is WriteMode.OVERWRITE:
            await self.tick()
            await asyncio.sleep(0.2)
