"""The flush job: ranges of vchannels become insert, stats and delta logs.

One Spark task per range. A task reads its stretch of the log itself and writes the files; what it
returns is small: their names, for one commit by the data coordinator. Until that commit the files do
not exist for anybody; a task that ran twice, or too late, leaves only garbage.
"""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.jobs import JobKind
from elanus.log.backends import range_reader
from elanus.log.port import Position
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, writes_in_range
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.storage.objects import open_store


def flush_job(plans: Sequence[FlushPlan]) -> Job[FlushPlan, RangeOutcome]:
    """A job over these ranges. Running it raises `CorruptLog`, `TrimmedLog` and `DiskFull`, among others."""
    return Job(JobKind.FLUSH, tuple(plan.vchannel for plan in plans), flush_task, tuple(plans), _output)


def _output(outcomes: Sequence[RangeOutcome]) -> JobOutput:
    files = [file for outcome in outcomes for file in outcome.files]
    return JobOutput(
        tuple(file.path for file in files),
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
    )


def flush_task(plan: FlushPlan) -> RangeOutcome:
    """The Spark task, in the Python worker."""
    name = attempt_name(plan.attempt)
    start = Position(plan.start.position)
    with scratch_directory(plan.scratch_dir) as scratch:
        entries = range_reader(plan.log_url)(plan.pchannel, start, plan.stop)
        return write_range(plan, writes_in_range(entries, plan), open_store(plan.store_url), scratch, name)
