"""Whether cost grows with the rows alone: jobs from a hundred thousand rows to millions.

A *course* is one kind of job over growing numbers of rows. Its jobs run through the pipeline's own runner, so
what the server would run one after another runs one after another here. All courses share one session on all
cores. Taken are seconds, and while the jobs run the memory of the driver (this process's Python and the JVM
that it started) and that of the Python workers, which run the tasks.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.pipeline.task_memory import TaskMemory
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import Job, JobSession
from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings
from elanus.storage.port import ObjectStore

_MB = 1_000_000
_SAMPLE_S = 0.1


class GrowthPoint(msgspec.Struct, frozen=True):
    """Work on so many rows. ``seconds``: the median turn; ``driver_mb``: the most resident memory in any.

    The driver's memory is that of its Python and its JVM, in units of 10⁶ bytes. ``task_mb``: the same of one
    of its Python workers, which run the tasks. ``fastest_s``, ``slowest_s``: of the turns. These three are 0
    in figures that lack them.
    """

    rows: int
    seconds: float
    driver_mb: float
    task_mb: float = 0.0
    fastest_s: float = 0.0
    slowest_s: float = 0.0

    @property
    def row_us(self) -> float:
        """Microseconds a row."""
        return 1e6 * self.seconds / self.rows


@dataclass(frozen=True, slots=True)
class Course:
    """``jobs`` are what the server would run on so many rows, under a name that it has not been given before.

    They write into ``store``, which is cleared after each turn. ``steps`` are numbers of rows.
    """

    steps: tuple[int, ...]
    passes: int
    store: ObjectStore
    jobs: Callable[[int, str], Sequence[Job[Any, Any]]]


def measure(
    directory: Path, courses: dict[str, Course], report: Callable[[str], None]
) -> dict[str, list[GrowthPoint]]:
    """All courses, one after another. ``directory`` is for Spark's own files."""
    session = PipelineSession.start(SparkSettings(), directory)
    try:
        session.warm_up()
        return {name: _take(session, name, course, report) for name, course in courses.items()}
    finally:
        session.stop()


def _take(session: JobSession, kind: str, course: Course, report: Callable[[str], None]) -> list[GrowthPoint]:
    """The course's points, after its smallest step once unmeasured."""
    asyncio.run(_turn(session, course, course.steps[0], "unmeasured"))
    taken: dict[int, list[tuple[float, float, float]]] = {rows: [] for rows in course.steps}
    for number in range(1, course.passes + 1):
        for rows, turns in taken.items():
            report(f"growth of {kind}: {rows:,} rows, turn {number} of {course.passes}")
            turns.append(asyncio.run(_turn(session, course, rows, f"{number}-{rows}")))
    return [_point(rows, turns) for rows, turns in taken.items()]


def _point(rows: int, turns: list[tuple[float, float, float]]) -> GrowthPoint:
    seconds, driver_mb, task_mb = zip(*turns, strict=True)
    median_s = round(statistics.median(seconds), 4)
    spread_s = round(min(seconds), 4), round(max(seconds), 4)
    return GrowthPoint(rows, median_s, round(max(driver_mb), 1), round(max(task_mb), 1), *spread_s)


async def _turn(session: JobSession, course: Course, rows: int, name: str) -> tuple[float, float, float]:
    """Seconds until all jobs have ended, and the most memory of the driver and of a task meanwhile."""
    jobs = course.jobs(rows, name)
    gc.collect()
    runner, memory, task_memory = JobRunner(session), DriverMemory(), TaskMemory()
    watching = [asyncio.ensure_future(watched.watch()) for watched in (memory, task_memory)]
    try:
        began_s = time.perf_counter()
        outcomes = await asyncio.gather(*(runner.run(job, "benchmark") for job in jobs))
        seconds = time.perf_counter() - began_s
    finally:
        for watch in watching:
            watch.cancel()
        runner.close()
    for job, outcome in zip(jobs, outcomes, strict=True):
        for path in job.output(outcome).objects:
            course.store.delete(path)
    return seconds, memory.most_mb, task_memory.most_mb


class DriverMemory:
    """The most resident memory that this process and its JVM were seen to have together."""

    def __init__(self) -> None:
        here = psutil.Process()
        self._processes = (here, *(child for child in here.children() if child.name() == "java"))
        self.most_mb = self._now_mb()

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_SAMPLE_S)
            self.most_mb = max(self.most_mb, self._now_mb())

    def _now_mb(self) -> float:
        return sum(process.memory_info().rss for process in self._processes) / _MB
