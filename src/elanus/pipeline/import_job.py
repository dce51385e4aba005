"""The import job: users' Parquet files become segments.

One Spark task per part of the files (`elanus.pipeline.import_plan`). A task reads, checks, sorts and writes
by itself; what it returns is small: the names of its files, for one commit of all tasks together. A file that
does not fit fails the job, and nothing of it is ever committed. Rows that do not fit may be left out instead,
up to a number that the client gives (`elanus.pipeline.import_rejects`).
"""

from __future__ import annotations

from collections.abc import Sequence

from elanus.api.imports import ImportOutcome
from elanus.core.attempts import stamped
from elanus.core.ids import TaskID
from elanus.core.import_files import REJECTS
from elanus.core.imports import Duplicates
from elanus.core.jobs import JobKind
from elanus.pipeline.import_duplicates import left_out_rows
from elanus.pipeline.import_files import import_rows
from elanus.pipeline.import_memory import bounded_import, reading_bytes
from elanus.pipeline.import_outcomes import keep_outcome
from elanus.pipeline.import_plan import NO_TASK, ImportPlan
from elanus.pipeline.import_rejects import Rejects
from elanus.pipeline.import_segments import SegmentsWriter
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.progress import ProgressBoard, TaskProgress
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.storage.objects import open_store


def import_job(
    task_id: TaskID, files: Sequence[str], plans: Sequence[ImportPlan]
) -> Job[ImportPlan, ImportOutcome]:
    """Return a job over these parts. Running it raises `InvalidParameter` and `DiskFull`, among others."""
    inputs, board = (f"import {task_id}", *files), _board(plans[0])
    return Job(JobKind.IMPORT, inputs, import_task, tuple(plans), _output, board)


def _board(plan: ImportPlan) -> ProgressBoard:
    """Of all tasks of an attempt."""
    return ProgressBoard(plan.store_url, f"import-{plan.attempt}")


def _output(outcomes: Sequence[ImportOutcome]) -> JobOutput:
    logs = [segment.insert_log for outcome in outcomes for segment in outcome.segments]
    return JobOutput(
        tuple(log.path for log in logs), sum(log.rows for log in logs), sum(log.size_bytes for log in logs)
    )


def import_task(plan: ImportPlan) -> ImportOutcome:
    """The Spark task, in the Python worker."""
    name = attempt_name(stamped(plan.attempt, "import"))
    bytes_max = reading_bytes(plan.bytes_max, plan.parts)
    with scratch_directory(plan.scratch_dir) as scratch, bounded_import(bytes_max, plan.parts):
        store, source, read = open_store(plan.store_url), open_store(plan.source_url), 0
        rejects = Rejects(plan.rejects_max)
        writer = SegmentsWriter(plan, store, scratch, name)
        progress = TaskProgress.of_this(store, _board(plan).job)
        left_out = left_out_rows(store, plan)
        for rows in import_rows(plan, source, rejects if plan.rejects_max else None, left_out):
            writer.add(rows)
            read += rows.num_rows
            progress((read + writer.rows) / (2 * plan.rows), writer.rows)  # each is read, and written
        writer.write_out()
        progress.done(writer.rows)
        rejects.write(source, f"{REJECTS}/{plan.task_id}/{plan.key}.jsonl")
        is_counted = plan.duplicates is not Duplicates.REJECT  # of these, rejects has the count
        gone = len(left_out) if is_counted else 0
        outcome = ImportOutcome(tuple(writer.written), len(rejects), left_out=gone)
        return outcome if plan.task_id == NO_TASK else keep_outcome(store, plan, outcome)
