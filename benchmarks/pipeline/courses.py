"""The courses of growth: flushes, compactions and index builds of the same numbers of rows.

- **Flush**: a log of narrow rows, cut into ranges of equal size; one job of one task per range.
- **Compaction**: small segments, each the size of such a range, with keys in no order and a tenth deleted,
  become as few segments as the server would make of them.
- **Index builds**: an IVF_FLAT, an HNSW over each segment of the size that those have.
- **Imports**: a Parquet file with row groups of the size of such a range; tasks as the server would cut them.

Segments end where the server ends them, at `datacoord.segment_size_max_mb` as it comes. So up to that size a
merge and a graph grow with the rows, and beyond it their number does.
"""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.pipeline import importing
from benchmarks.pipeline.compacting import docs_schema, make_order
from benchmarks.pipeline.flushing import make_rows, write_log_ranges
from benchmarks.pipeline.growth import Course
from elanus.api.datacoord import SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.api.imports import ImportOutcome
from elanus.core.ids import BuildID, IndexID, TaskID
from elanus.core.segments import IndexFile
from elanus.pipeline.compact import CompactionTask, compaction_job
from elanus.pipeline.flush import Outcomes, Plans, flush_job
from elanus.pipeline.import_job import import_job
from elanus.pipeline.import_plan import FileRows, ImportPlan, cut, rows_of_task
from elanus.pipeline.index_build import IndexBuildPlan, index_build_job
from elanus.pipeline.port import Job
from elanus.server.settings import DatacoordSettings, ImportsSettings
from elanus.storage.objects import open_store

RANGE_ROWS = 50_000
"""Rows of a range to flush, and of a segment to compact."""
IVF_FLAT = {"index_type": "IVF_FLAT", "metric_type": "L2", "nlist": "128"}
HNSW = {"index_type": "HNSW", "metric_type": "L2", "M": "8", "efConstruction": "40"}
HNSW_ROWS_MAX = 1_000_000
"""A graph takes some twenty times as long as anything else here: its course ends earlier."""
_MIB = 1024 * 1024


def flush_course(directory: Path, dim: int, steps: tuple[int, ...], passes: int) -> Course:
    """Ranges of one log below the directory."""
    plans = write_log_ranges(directory, make_rows(RANGE_ROWS, dim), max(steps) // RANGE_ROWS)

    def jobs(rows: int, name: str) -> list[Job[Plans, Outcomes]]:
        chosen = plans[: rows // RANGE_ROWS]
        renamed = [replace(plan, attempt=f"{name}-{n}") for n, plan in enumerate(chosen)]
        return [flush_job(renamed, len(renamed))]  # a task for each: growth is measured, not sharing

    return Course(steps, passes, open_store(plans[0].store_url), jobs)


def segment_courses(directory: Path, dim: int, steps: tuple[int, ...], passes: int) -> dict[str, Course]:
    """Compactions and index builds of the same segments, below the directory; of graphs one turn."""
    directory.mkdir()
    orders = _orders(directory, dim, steps)
    store = open_store(_store_url(directory))

    def compactions(rows: int, name: str) -> list[Job[CompactionTask, SegmentOutput]]:
        tasks = [
            CompactionTask(f"{name}-{n}", order, store.url, str(directory / "scratch"))
            for n, order in enumerate(orders[rows])
        ]
        return [compaction_job(task) for task in tasks]

    def builds(index: dict[str, str], rows: int, name: str) -> list[Job[IndexBuildPlan, IndexFile]]:
        return [
            index_build_job(_build(directory, index, order, f"{index['index_type']}-{name}-{n}"))
            for n, order in enumerate(orders[rows])
        ]

    graphs = tuple(rows for rows in steps if rows <= HNSW_ROWS_MAX)
    return {
        "compaction": Course(steps, passes, store, compactions),
        "IVF_FLAT build": Course(steps, passes, store, partial(builds, IVF_FLAT)),
        "HNSW build": Course(graphs, 1, store, partial(builds, HNSW)),
    }


def import_course(directory: Path, dim: int, steps: tuple[int, ...], passes: int) -> Course:
    """Imports of the first rows of one file."""
    directory.mkdir()
    plan = importing.make_plan(directory, max(steps), dim, groups=-(-max(steps) // RANGE_ROWS))
    task_bytes = ImportsSettings().task_mb * _MIB
    attempts, first_ids = itertools.count(1), itertools.count(1000, 2 * max(steps))

    def jobs(rows: int, name: str) -> list[Job[ImportPlan, ImportOutcome]]:
        row_bytes = plan.schema.row_bytes_estimate
        task_rows = rows_of_task(rows, row_bytes, task_bytes // row_bytes, os.cpu_count() or 1)
        attempt = next(attempts)
        plans = [
            replace(
                plan,
                attempt=attempt,
                parts=part,
                first_id=next(first_ids),
                rows_max=task_bytes // row_bytes,
                bytes_max=task_bytes,
            )
            for part in cut([_first_rows(plan.parts[0], rows)], task_rows)
        ]
        return [import_job(TaskID(attempt), [importing.FILE], plans)]

    return Course(steps, passes, open_store(plan.store_url), jobs)


def _first_rows(file: FileRows, rows: int) -> FileRows:
    """As many row groups as have so many rows."""
    return replace(file, groups=tuple(group for group in file.groups if group.first_row < rows))


def _orders(directory: Path, dim: int, steps: tuple[int, ...]) -> dict[int, list[CompactionOrder]]:
    """For each number of rows the orders that make as few segments of them as can hold them."""
    store = open_store(_store_url(directory))
    most = DatacoordSettings().segment_size_max_mb * _MIB // docs_schema(dim).row_bytes_estimate
    numbers = itertools.count()
    orders = {}
    for rows in steps:
        parts = math.ceil(rows / most)
        sizes = [rows * (part + 1) // parts - rows * part // parts for part in range(parts)]
        orders[rows] = [
            make_order(store, directory, size, dim, math.ceil(size / RANGE_ROWS), next(numbers))
            for size in sizes
        ]
    return orders


def _build(directory: Path, index: dict[str, str], order: CompactionOrder, name: str) -> IndexBuildPlan:
    """One index over all rows that the order reads."""
    return IndexBuildPlan(
        attempt=name,
        build_id=BuildID(order.segment_id),
        version=1,
        index_id=IndexID(1),
        field=order.schema.field("v"),
        params=index,
        manifest=replace(order.inputs[0], insert_logs=order.insert_logs),
        threads=os.cpu_count() or 1,
        store_url=_store_url(directory),
        scratch_dir=str(directory / "scratch"),
    )


def _store_url(directory: Path) -> str:
    return (directory / "store").as_uri()
