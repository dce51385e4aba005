"""Imports as Spark jobs: an order becomes plans, and the plans' outcomes become the answer.

One job surveys the files, a last one imports them; where rows are left out because of their keys, two between
them find those. It keeps no state: if this process dies, the coordinator
sees the call end and orders the import again, and what finished tasks have written is found in the object
store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

from elanus.api.imports import ImportedSegment, ImportOrder, ImportOutcome
from elanus.api.rootcoord import RootCoordApi
from elanus.core.attempts import stamped
from elanus.core.errors import Cancelled, Internal, Unavailable
from elanus.core.faults import Fault
from elanus.core.imports import Duplicates, WriteMode, waiting_for
from elanus.core.segments import DeltaLog
from elanus.pipeline.delete_job import DeletesPlan, deletes_job
from elanus.pipeline.import_duplicates import buckets_of
from elanus.pipeline.import_job import import_job
from elanus.pipeline.import_keys import buckets_job, keys_job, without
from elanus.pipeline.import_outcomes import kept_outcomes
from elanus.pipeline.import_plan import FileRows, ImportPlan, cut, rows_of_task
from elanus.pipeline.import_rejects import check_count
from elanus.pipeline.import_sources import tables
from elanus.pipeline.import_survey import named_files, survey_job
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import Job, JobCancelled, JobLost
from elanus.pipeline.worker import scratch_directory
from elanus.pipeline.write_deletes import write_deletes
from elanus.storage.objects import open_store

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """``source_url``: the store of the files; ``task_bytes_max``: the memory that a task may use."""

    source_url: str
    store_url: str
    scratch_dir: str
    task_bytes_max: int


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
        if order.mode is WriteMode.DELETE:
            return ImportOutcome((), 0, await self._given_deletes(order))
        outcomes, files_bytes = await self._written(order)
        rejected = sum(outcome.rejected for outcome in outcomes)
        check_count(rejected, order.rejects_max)
        segments = tuple(s for outcome in outcomes for s in outcome.segments)
        left_out = sum(outcome.left_out for outcome in outcomes)
        deltas = await self._offload(self._deletes, order, segments)
        return ImportOutcome(segments, rejected, deltas, left_out, files_bytes)

    async def _given_deletes(self, order: ImportOrder) -> tuple[DeltaLog, ...]:
        """Return the deletes of the keys in users' files."""
        s = self._settings
        plan = DeletesPlan(order, s.source_url, s.store_url, s.scratch_dir, s.task_bytes_max)
        (deltas,) = await self._run(deletes_job(plan), order)
        return deltas

    async def _written(self, order: ImportOrder) -> tuple[list[ImportOutcome], tuple[int, ...]]:
        """Return what the tasks of the import have written, in this try or in an earlier one, and the sizes
        of the order's files."""
        settings = self._settings
        named: list[tuple[str, ...]] = await self._offload(_named, settings.source_url, order)
        found = list(tables(tuple(dict.fromkeys(chain.from_iterable(named))), order.csv))
        survey = survey_job(order.task_id, found, order.schema, settings.source_url, self._runner.slots)
        files = [file for part in await self._run(survey, order) for file in part]
        plans = self._plans(order, files)
        if plans and order.duplicates is not Duplicates.KEEP:
            plans = await self._without_duplicates(order, plans)
        outcomes: list[ImportOutcome]
        left, outcomes = await self._offload(self._left, order, plans)
        if left:
            left = await self._numbered(left)
            outcomes += await self._run(import_job(order.task_id, order.files, left), order)
        return outcomes, _sizes(named, files)

    async def _without_duplicates(self, order: ImportOrder, plans: list[ImportPlan]) -> list[ImportPlan]:
        settings = self._settings
        rows = sum(plan.rows for plan in plans)
        buckets = buckets_of(rows, len(order.vchannels), settings.task_bytes_max)
        parts = await self._run(keys_job(plans, buckets), order)
        return without(plans, await self._run(buckets_job(order, parts, buckets, settings.store_url), order))

    async def _run(self, job: Job[Plan, Outcome], order: ImportOrder) -> list[Outcome]:
        cause = f"import {order.task_id} into {order.schema.name}"
        try:
            return await self._runner.run(job, cause, waiting=(waiting_for(order.task_id),))
        except JobCancelled as error:
            raise Cancelled(f"the import was cancelled: {error}") from error
        except JobLost as error:
            raise Unavailable(f"the import has to be run again: {error}") from error
        except Fault as error:
            raise Internal(f"the import failed: {error}") from error

    def _deletes(self, order: ImportOrder, segments: Sequence[ImportedSegment]) -> tuple[DeltaLog, ...]:
        settings = self._settings
        source, store = open_store(settings.source_url), open_store(settings.store_url)
        with scratch_directory(settings.scratch_dir) as scratch:
            return write_deletes(order, segments, source, store, scratch, stamped(order.attempt, "write"))

    def _left(
        self, order: ImportOrder, plans: list[ImportPlan]
    ) -> tuple[list[ImportPlan], list[ImportOutcome]]:
        """Return the tasks that are left to do, without their ids, and what earlier tries have done."""
        if order.attempt == order.first_attempt:
            return plans, []
        store = open_store(self._settings.store_url)
        kept = kept_outcomes(store, order.task_id, order.first_attempt)
        by_key = {plan.key: plan for plan in plans}
        left = [plan for key, plan in by_key.items() if key not in kept]
        return left, [kept[key] for key in by_key if key in kept]

    async def _numbered(self, plans: Sequence[ImportPlan]) -> list[ImportPlan]:
        """Return plans with ids of their own: two for each row."""
        first_id = await self._rootcoord.alloc_ids(2 * sum(plan.rows for plan in plans))
        numbered = []
        for plan in plans:
            numbered.append(replace(plan, first_id=first_id))
            first_id += 2 * plan.rows
        return numbered

    def _plans(self, order: ImportOrder, files: list[FileRows]) -> list[ImportPlan]:
        settings, schema = self._settings, order.schema
        rows_max = max(1, min(order.segment_rows_max, settings.task_bytes_max // schema.row_bytes_estimate))
        rows = sum(file.rows for file in files)
        task_rows = rows_of_task(rows, schema.row_bytes_estimate, rows_max, self._runner.slots)
        return [
            ImportPlan(
                attempt=order.attempt,
                collection_id=order.collection_id,
                partition_id=order.partition_id,
                schema=schema,
                vchannels=order.vchannels,
                parts=parts,
                first_id=0,
                rows_max=rows_max,
                bytes_max=settings.task_bytes_max,
                stamp=order.stamp,
                source_url=settings.source_url,
                store_url=settings.store_url,
                scratch_dir=settings.scratch_dir,
                key_partitions=order.key_partitions,
                rejects_max=order.rejects_max,
                task_id=order.task_id,
                duplicates=order.duplicates,
            )
            for parts in cut(files, task_rows)
        ]


def _named(source_url: str, order: ImportOrder) -> list[tuple[str, ...]]:
    """Return the files that each of the order's names, patterns, directories and lists means."""
    store = open_store(source_url)
    return [named_files(store, (name,)) for name in order.files]


def _sizes(named: Sequence[tuple[str, ...]], surveyed: Sequence[FileRows]) -> tuple[int, ...]:
    """Return the size in bytes of the files that each name means, by their survey: of a file that two names
    mean, the first has it."""
    sizes = {
        name: size for table in surveyed for name, size in zip(table.names, table.sizes_bytes, strict=True)
    }
    return tuple(sum(sizes.pop(file, 0) for file in files) for files in named)
