"""The import job: users' Parquet files become segments.

One Spark task per part of the files (`elanus.pipeline.import_plan`). A task reads, checks, sorts and writes
by itself; what it returns is small: the names of its files, for one commit of all tasks together. A file that
does not fit fails the job, and nothing of it is ever committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from elanus.api.imports import ImportedSegment
from elanus.core.attempts import stamped
from elanus.core.ids import TaskID
from elanus.core.jobs import JobKind
from elanus.pipeline.import_files import SegmentsWriter, import_rows
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.progress import ProgressBoard, TaskProgress
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.storage.objects import open_store


def import_job(
    task_id: TaskID, files: Sequence[str], plans: Sequence[ImportPlan]
) -> Job[ImportPlan, tuple[ImportedSegment, ...]]:
    """A job over these parts. Running it raises `InvalidParameter` and `DiskFull`, among others."""
    inputs, board = (f"import {task_id}", *files), _board(plans[0])
    return Job(JobKind.IMPORT, inputs, import_task, tuple(plans), _output, board)


def _board(plan: ImportPlan) -> ProgressBoard:
    """Of all tasks of an attempt."""
    return ProgressBoard(plan.store_url, f"import-{plan.attempt}")


def _output(outcomes: Sequence[tuple[ImportedSegment, ...]]) -> JobOutput:
    logs = [segment.insert_log for segment in chain.from_iterable(outcomes)]
    return JobOutput(
        tuple(log.path for log in logs), sum(log.rows for log in logs), sum(log.size_bytes for log in logs)
    )


def import_task(plan: ImportPlan) -> tuple[ImportedSegment, ...]:
    """The Spark task, in the Python worker."""
    name = attempt_name(stamped(plan.attempt, "import"))
    with scratch_directory(plan.scratch_dir) as scratch:
        store, read = open_store(plan.store_url), 0
        writer = SegmentsWriter(plan, store, scratch, name)
        progress = TaskProgress.of_this(store, _board(plan).job)
        for rows in import_rows(plan, open_store(plan.source_url), scratch):
            writer.add(rows)
            read += rows.num_rows
            progress((read + writer.rows) / (2 * plan.rows), writer.rows)  # each is read, and written
        writer.write_out()
        progress.done(writer.rows)
        return tuple(writer.written)
