"""The import job under simulation: users' files become segments, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elanus.api.imports import ImportedSegment, ImportOrder, ImportOutcome
from elanus.api.rootcoord import RootCoordApi
from elanus.core.errors import Internal
from elanus.core.imports import Duplicates, WriteMode
from elanus.pipeline.import_duplicates import Bucket, left_out_rows, write_keys, write_left_out
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_keys import without
from elanus.pipeline.import_plan import ImportPlan, cut
from elanus.pipeline.import_segments import SegmentsWriter
from elanus.pipeline.import_sources import tables
from elanus.pipeline.port import JobFailed
from elanus.pipeline.write_deletes import write_deletes
from elanus.sim.pipeline import Jobs
from elanus.sim.stores import MemoryStore
from elanus.storage.paths import import_keys_path

_TASK_BYTES_MAX = 1 << 20


class SimImports:
    """Implements `elanus.api.imports.ImportNodeApi` for one life. ``source``: where the users' files are."""

    def __init__(
        self, jobs: Jobs, root: RootCoordApi, source: MemoryStore, store: MemoryStore, scratch: Path
    ) -> None:
        self._jobs = jobs
        self._root = root
        self._source = source
        self._store = store
        self._scratch = scratch

    async def import_files(self, order: ImportOrder) -> ImportOutcome:
        """Import as `elanus.datanode.imports.SparkImports` does.

        Raises `Internal`, and what reading the files and the tasks raise.
        """
        files = []
        if order.mode is not WriteMode.DELETE:
            files = survey(self._source, tables(order.files, order.csv), order.schema)
        rows = sum(file.rows for file in files)
        first_id = await self._root.alloc_ids(2 * rows)
        plans = []
        for parts in cut(files, order.segment_rows_max):
            plan = ImportPlan(
                attempt=order.attempt,
                collection_id=order.collection_id,
                partition_id=order.partition_id,
                schema=order.schema,
                vchannels=order.vchannels,
                parts=parts,
                first_id=first_id,
                rows_max=order.segment_rows_max,
                bytes_max=_TASK_BYTES_MAX,
                stamp=order.stamp,
                source_url="",
                store_url="",
                scratch_dir=str(self._scratch),
                key_partitions=order.key_partitions,
            )
            plans.append(plan)
            first_id += 2 * plan.rows
        try:
            return await self._jobs.run_job(
                f"import {order.task_id}", order.attempt, lambda name: self._write(order, plans, name)
            )
        except JobFailed as error:
            raise Internal(f"the import failed: {error}") from error

    def _write(self, order: ImportOrder, plans: Sequence[ImportPlan], name: str) -> ImportOutcome:
        written: list[ImportedSegment] = []
        left_out = 0
        for plan in self._without_duplicates(order, plans, name):
            writer = SegmentsWriter(plan, self._store, self._scratch, name)
            for rows in import_rows(plan, self._source, left_out=left_out_rows(self._store, plan)):
                writer.add(rows)
            writer.write_out()
            written += writer.written
            left_out += sum(rows.rows for rows in plan.left_out)
        deltas = write_deletes(order, written, self._source, self._store, self._scratch, name)
        return ImportOutcome(tuple(written), deltas=deltas, left_out=left_out)

    def _without_duplicates(
        self, order: ImportOrder, plans: Sequence[ImportPlan], name: str
    ) -> Sequence[ImportPlan]:
        if order.duplicates is Duplicates.KEEP:
            return plans
        paths = [import_keys_path(order.task_id, f"{name}-{place}") for place in range(len(plans))]
        shards = len(order.vchannels)
        for plan, path in zip(plans, paths, strict=True):
            write_keys(order.schema, plan.parts, shards, self._source, self._store, path)
        found = []
        for number, vchannel in enumerate(order.vchannels):
            bucket = Bucket(order.schema, number, vchannel, tuple(paths), order.duplicates)
            path = import_keys_path(order.task_id, f"{name}-b{number}")
            found.append(write_left_out(bucket, self._store, path))
        return without(plans, found)
