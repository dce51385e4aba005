"""Whether cost grows with the rows alone: flush jobs from a hundred thousand rows to millions.

One log of narrow rows, cut into ranges of equal size; a job flushes the first so many of them, one Spark task
each, in one session on all cores of the machine. Two things are taken: seconds per job, and the memory of the
driver (this process's Python and the JVM it started; the tasks' Python workers are apart) after each.
"""

from __future__ import annotations

import shutil
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import psutil

from benchmarks.pipeline.flushing import make_rows, write_log_ranges
from benchmarks.pipeline.sides import timed_s
from elanus.pipeline.flush import flush_task
from elanus.pipeline.ranges import FlushPlan
from elanus.pipeline.session import PipelineSession, SparkSettings

RANGE_ROWS = 50_000
_MB = 1_000_000


class GrowthPoint(msgspec.Struct, frozen=True):
    """Jobs of one size. ``seconds``: the median job; ``driver_mb``: the most resident memory after one.

    The driver's memory is that of its Python and its JVM, in units of 10⁶ bytes.
    """

    rows: int
    seconds: float
    driver_mb: float


def measure(directory: Path, dim: int, steps: tuple[int, ...], passes: int) -> list[GrowthPoint]:
    """So many passes over the steps, one job for each; a step is a number of rows, in `RANGE_ROWS`."""
    plans = write_log_ranges(directory, make_rows(RANGE_ROWS, dim), max(steps) // RANGE_ROWS)
    session = PipelineSession.start(SparkSettings(), directory / "spark")
    try:
        session.warm_up()
        _flush(session, plans[:2], "unmeasured")
        taken: dict[int, list[tuple[float, float]]] = {rows: [] for rows in steps}
        for _ in range(passes):
            for rows in steps:
                job = partial(_flush, session, plans[: rows // RANGE_ROWS], f"growth-{rows}")
                taken[rows].append((timed_s(job), _driver_mb()))
                shutil.rmtree(directory / "files")
    finally:
        session.stop()
    return [_point(rows, jobs) for rows, jobs in taken.items()]


def _point(rows: int, jobs: list[tuple[float, float]]) -> GrowthPoint:
    seconds, driver_mb = zip(*jobs, strict=True)
    return GrowthPoint(rows, statistics.median(seconds), round(max(driver_mb), 1))


def _flush(session: PipelineSession, plans: list[FlushPlan], name: str) -> None:
    named = [replace(plan, attempt=f"{name}-{number}") for number, plan in enumerate(plans)]
    session.run(flush_task, named, group=name, description=name, pool="flush")


def _driver_mb() -> float:
    here = psutil.Process()
    java = [child for child in here.children() if child.name() == "java"]
    return sum(process.memory_info().rss for process in (here, *java)) / _MB
