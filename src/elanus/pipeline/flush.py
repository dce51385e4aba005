"""The flush job: ranges of vchannels become insert, stats and delta logs.

A task has one range, or several of one pchannel whose stretches of the log overlap: then it reads the log
once for all of them. It reads and writes by itself; its result is small: the names of files, for one commit
by the data coordinator. Until that commit the files do not exist for anybody; a task that ran twice, or too
late, leaves only garbage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from elanus.core.jobs import JobKind
from elanus.log.backends import range_reader
from elanus.log.port import Position
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.range_files import RangeFiles
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, RangeReading, shared
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.storage.objects import open_store

Plans = tuple[FlushPlan, ...]
Outcomes = tuple[RangeOutcome, ...]


def flush_job(plans: Sequence[FlushPlan], slots: int) -> Job[Plans, Outcomes]:
    """Return a job over these ranges, whose outcomes come task by task.

    Running it raises `CorruptLog`, `TrimmedLog` and `DiskFull`, among others.
    """
    names = tuple(plan.vchannel for plan in plans)
    return Job(JobKind.FLUSH, names, flush_task, tuple(shared(plans, slots)), _output)


def _output(outcomes: Sequence[Outcomes]) -> JobOutput:
    files = [file for task in outcomes for outcome in task for file in outcome.files]
    return JobOutput(
        tuple(file.path for file in files),
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
    )


def flush_task(plans: Plans) -> Outcomes:
    """The Spark task, in the Python worker. The plans are of one pchannel."""
    first = plans[0]
    start = Position(min(plan.start.position for plan in plans))
    stop = max(plan.stop for plan in plans)
    store = open_store(first.store_url)
    with scratch_directory(first.scratch_dir) as scratch, contextlib.ExitStack() as opened:
        ranges = [
            (
                RangeReading(plan),
                opened.enter_context(RangeFiles(plan, store, scratch, attempt_name(plan.attempt))),
            )
            for plan in plans
        ]
        left = len(ranges)
        for entry in range_reader(first.log_url)(first.pchannel, start, stop):
            for reading, files in ranges:
                if not reading.has_ended:
                    for message in reading.feed(entry):
                        files.write(message)
                    left -= reading.has_ended
            if not left:
                break
        for reading, _ in ranges:
            reading.check_end()
        return tuple(files.finish() for _, files in ranges)
