"""The deletes of a user's files as a Spark job of one task.

Those files may hold anything, so they are read where nothing else runs, in a Python worker with a bound for
its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elanus.api.imports import ImportOrder
from elanus.core.attempts import stamped
from elanus.core.jobs import JobKind
from elanus.core.segments import DeltaLog
from elanus.pipeline.import_memory import bounded_import, reading_bytes
from elanus.pipeline.import_plan import FileRows
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.pipeline.write_deletes import write_deletes
from elanus.storage.objects import open_store


@dataclass(frozen=True, slots=True)
class DeletesPlan:
    """The task. Pickles. ``bytes_max``: of the keys that it holds in memory."""

    order: ImportOrder
    source_url: str
    store_url: str
    scratch_dir: str
    bytes_max: int


def deletes_job(plan: DeletesPlan) -> Job[DeletesPlan, tuple[DeltaLog, ...]]:
    """Return the job of an order whose files hold keys. Running it raises `InvalidParameter`."""
    inputs = (f"deletes of import {plan.order.task_id}", *plan.order.files)
    return Job(JobKind.IMPORT, inputs, deletes_task, (plan,), _output)


def deletes_task(plan: DeletesPlan) -> tuple[DeltaLog, ...]:
    """The Spark task, in the Python worker."""
    order = plan.order
    files = [FileRows(name, ()) for name in order.files]
    name = attempt_name(stamped(order.attempt, "write"))
    source, store = open_store(plan.source_url), open_store(plan.store_url)
    with scratch_directory(plan.scratch_dir) as scratch, bounded_import(reading_bytes(plan.bytes_max), files):
        return write_deletes(order, (), source, store, scratch, name)


def _output(outcomes: Sequence[tuple[DeltaLog, ...]]) -> JobOutput:
    files = [log.file for logs in outcomes for log in logs]
    return JobOutput(
        tuple(f.path for f in files), sum(f.rows for f in files), sum(f.size_bytes for f in files)
    )
