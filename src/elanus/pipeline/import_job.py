"""The import job: users' Parquet files become segments.

One Spark task per part of the files (`elanus.pipeline.import_plan`). A task reads, checks, sorts and writes
by itself; what it returns is small: the names of its files, for one commit of all tasks together. A file that
does not fit fails the job, and nothing of it is ever committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from elanus.core.attempts import stamped
from elanus.core.ids import TaskID
from elanus.core.jobs import JobKind
from elanus.pipeline.import_files import SegmentsWriter, import_rows
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.rpc.imports import ImportedSegment
from elanus.storage.objects import open_store


def import_job(
    task_id: TaskID, files: Sequence[str], plans: Sequence[ImportPlan]
) -> Job[ImportPlan, tuple[ImportedSegment, ...]]:
    """A job over these parts. Running it raises `InvalidParameter` and `DiskFull`, among others."""
    return Job(JobKind.IMPORT, (f"import {task_id}", *files), import_task, tuple(plans), _output)


def _output(outcomes: Sequence[tuple[ImportedSegment, ...]]) -> JobOutput:
    logs = [segment.insert_log for segment in chain.from_iterable(outcomes)]
    return JobOutput(
        tuple(log.path for log in logs), sum(log.rows for log in logs), sum(log.size_bytes for log in logs)
    )


def import_task(plan: ImportPlan) -> tuple[ImportedSegment, ...]:
    """What runs in the Python worker."""
    name = attempt_name(stamped(plan.attempt, "import"))
    with scratch_directory(plan.scratch_dir) as scratch:
        writer = SegmentsWriter(plan, open_store(plan.store_url), scratch, name)
        for rows in import_rows(plan, open_store(plan.source_url), scratch):
            writer.add(rows)
        writer.write_out()
        return tuple(writer.written)
