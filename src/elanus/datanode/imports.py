"""Imports as Spark jobs: an order becomes plans, and the plans' outcomes become the answer.

It keeps no state. If this process dies, the coordinator sees the call end and orders the import again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elanus.api.imports import ImportedSegment, ImportOrder, ImportOutcome
from elanus.api.rootcoord import RootCoordApi
from elanus.core.attempts import stamped
from elanus.core.errors import Cancelled, Internal
from elanus.core.faults import Fault
from elanus.core.imports import WriteMode, waiting_for
from elanus.core.segments import DeltaLog
from elanus.pipeline.import_files import survey
from elanus.pipeline.import_job import import_job
from elanus.pipeline.import_plan import FileRows, ImportPlan, cut, rows_of_task
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import JobCancelled
from elanus.pipeline.worker import scratch_directory
from elanus.pipeline.write_deletes import write_deletes
from elanus.storage.objects import open_store


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """``source_url``: the store of the files; ``task_bytes_max``: the memory that a task may use.

    ``slots``: how many tasks run at a time.
    """

    source_url: str
    store_url: str
    scratch_dir: str
    task_bytes_max: int
    slots: int


class SparkImports:
    """Implements `elanus.api.imports.ImportNodeApi`. ``offload(function, *args)`` runs blocking I/O."""

    def __init__(
        self,
        runner: JobRunner,
        rootcoord: RootCoordApi,
        settings: ImportSettings,
        offload: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._runner = runner
        self._rootcoord = rootcoord
        self._settings = settings
        self._offload = offload

    async def import_files(self, order: ImportOrder) -> ImportOutcome:
        segments = () if order.mode is WriteMode.DELETE else await self._segments(order)
        return ImportOutcome(segments, await self._offload(self._deletes, order, segments))

    async def _segments(self, order: ImportOrder) -> tuple[ImportedSegment, ...]:
        files: list[FileRows] = await self._offload(self._survey, order)
        rows = sum(file.rows for file in files)
        if not rows:
            return ()
        plans = self._plans(order, files, await self._rootcoord.alloc_ids(2 * rows))
        job = import_job(order.task_id, order.files, plans)
        cause = f"import {order.task_id} into {order.schema.name}"
        try:
            outcomes = await self._runner.run(job, cause, waiting=(waiting_for(order.task_id),))
        except JobCancelled as error:
            raise Cancelled(f"the import was cancelled: {error}") from error
        except Fault as error:
            raise Internal(f"the import failed: {error}") from error
        return tuple(segment for segments in outcomes for segment in segments)

    def _deletes(self, order: ImportOrder, segments: Sequence[ImportedSegment]) -> tuple[DeltaLog, ...]:
        settings = self._settings
        source, store = open_store(settings.source_url), open_store(settings.store_url)
        with scratch_directory(settings.scratch_dir) as scratch:
            return write_deletes(order, segments, source, store, scratch, stamped(order.attempt, "write"))

    def _survey(self, order: ImportOrder) -> list[FileRows]:
        with scratch_directory(self._settings.scratch_dir) as scratch:
            return survey(open_store(self._settings.source_url), order.files, order.schema, Path(scratch))

    def _plans(self, order: ImportOrder, files: list[FileRows], first_id: int) -> list[ImportPlan]:
        settings, schema = self._settings, order.schema
        rows_max = max(1, min(order.segment_rows_max, settings.task_bytes_max // schema.row_bytes_estimate))
        rows = sum(file.rows for file in files)
        plans = []
        for parts in cut(files, rows_of_task(rows, schema.row_bytes_estimate, rows_max, settings.slots)):
            plan = ImportPlan(
                attempt=order.attempt,
                collection_id=order.collection_id,
                partition_id=order.partition_id,
                schema=schema,
                vchannels=order.vchannels,
                parts=parts,
                first_id=first_id,
                rows_max=rows_max,
                bytes_max=settings.task_bytes_max,
                stamp=order.stamp,
                source_url=settings.source_url,
                store_url=settings.store_url,
                scratch_dir=settings.scratch_dir,
                key_partitions=order.key_partitions,
            )
            plans.append(plan)
            first_id += 2 * plan.rows
        return plans
