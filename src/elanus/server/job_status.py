"""Convert a job of the ledger to the form that the HTTP port serves."""

from __future__ import annotations

from datetime import UTC, datetime

from elanus.core.jobs import JobEntry
from elanus.server.status import JobStatus


def job_status(entry: JobEntry, now_s: float) -> JobStatus:
    """Return the status of a job. ``now_s``: Unix time; the end of a running job's duration so far."""
    progress = entry.progress
    return JobStatus(
        job_id=entry.job_id,
        kind=entry.kind.value,
        state=entry.state.value,
        cause=entry.cause,
        started=iso(entry.started_s),
        duration_ms=entry.duration_ms(now_s),
        rows=entry.rows or progress.rows,
        bytes=entry.size_bytes or progress.size_bytes,
        waiting=entry.waiting,
        attempt=entry.attempt,
        ordered=iso(entry.ordered_s),
        ended=iso(entry.ended_s),
        percent=progress.percent,
        tasks=progress.tasks,
        tasks_done=progress.tasks_done,
        inputs=entry.inputs,
        input_count=entry.input_count,
        outputs=entry.outputs,
        output_count=entry.output_count,
        ui_url=entry.ui_url,
        error=entry.error,
        index_type=entry.index_type,
        planned_s=entry.planned_s,
    )


def iso(unix_s: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, "" for 0."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds") if unix_s else ""
