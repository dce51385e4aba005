"""Where an import runs and writes: on more and more workers of a Spark cluster, and to stores further away.

Both measure the import job. The cluster is Spark's own standalone one, on this machine: with more workers
than processors it shows what further workers cost, not what they bring. The stores are the disk, an S3 server
on this machine, and the same server behind a relay that delays each request (`benchmarks.pipeline.far`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from benchmarks.pipeline import importing
from benchmarks.pipeline.far import Far
from benchmarks.pipeline.sides import timed_s
from benchmarks.pipeline.task_memory import TaskMemory
from elanus.core.ids import TaskID
from elanus.devcluster.spark import Spark
from elanus.devcluster.swift import Swift
from elanus.pipeline.import_files import survey
from elanus.pipeline.import_job import import_job, import_task
from elanus.pipeline.import_plan import FileRows, ImportPlan, cut
from elanus.pipeline.import_sources import tables
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import JobSession
from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings
from elanus.storage.objects import open_store
from elanus.storage.s3_source import S3Source

WORKERS = (1, 2, 4)
DELAY_MS = 30
DISK, NEAR, FAR = "disk", "S3 here", f"S3 {DELAY_MS} ms away"


class Turns(msgspec.Struct, frozen=True):
    """The same work several times. ``seconds``: of each turn. ``task_mb``: the most resident memory that a
    Python worker had in any, in units of 10⁶ bytes; 0 where no worker took part."""

    rows: int
    dim: int
    seconds: list[float]
    task_mb: float = 0.0


def measure_workers(
    directory: Path, rows: int, dim: int, turns: int, report: Callable[[str], None]
) -> dict[str, Turns]:
    """Import the same rows on clusters of `WORKERS` workers with one core each, in one task for each of the
    largest cluster's workers."""
    plan = importing.make_plan(directory, rows, dim, groups=max(WORKERS))
    parts = cut(plan.parts, -(-rows // max(WORKERS)))
    plans = [replace(plan, parts=part) for part in parts]
    found = {}
    for count in WORKERS:
        report(f"import on {count} workers")
        with _cluster(directory / f"workers-{count}", count) as session:
            seconds, memory = _turns(session, plans, count, turns)
        found[str(count)] = Turns(rows, dim, seconds, memory)
    return found


@contextlib.contextmanager
def _cluster(directory: Path, workers: int) -> Iterator[PipelineSession]:
    directory.mkdir()
    cluster = Spark(directory, workers=workers)
    cluster.start()
    try:
        settings = SparkSettings(master=cluster.master, driver_host="127.0.0.1", executor_memory_mb=512)
        session = PipelineSession.start(settings, directory / "driver")
        try:
            session.warm_up()
            yield session
        finally:
            session.stop()
    finally:
        cluster.stop()


def _turns(
    session: JobSession, plans: Sequence[ImportPlan], workers: int, turns: int
) -> tuple[list[float], float]:
    """Seconds of so many turns, after one that does not count, and the most memory of a Python worker."""
    seconds, memory = [], 0.0
    for turn in range(turns + 1):
        # row ids and names of files may be those of no other turn
        numbered = [
            replace(plan, attempt=100 * workers + turn, first_id=1000 + 2 * plan.rows * number)
            for number, plan in enumerate(plans)
        ]
        taken_s, task_mb = asyncio.run(_turn(session, numbered))
        memory = max(memory, task_mb)
        if turn:
            seconds.append(taken_s)
    return seconds, memory


async def _turn(session: JobSession, plans: Sequence[ImportPlan]) -> tuple[float, float]:
    gc.collect()
    runner, memory = JobRunner(session), TaskMemory()
    watching = asyncio.ensure_future(memory.watch())
    try:
        began_s = time.perf_counter()
        await runner.run(import_job(TaskID(1), [importing.FILE], plans), "benchmark")
        return round(time.perf_counter() - began_s, 4), memory.most_mb
    finally:
        watching.cancel()
        runner.close()


def measure_stores(
    directory: Path, rows: int, dim: int, turns: int, report: Callable[[str], None]
) -> dict[str, Turns]:
    """Import the same file in one task: read from, and written to, stores at several distances."""
    plan = importing.make_plan(directory, rows, dim)
    server = Swift(directory)
    server.start()
    try:
        near = S3Source.parse(server.store_url("near"))
        open_store(near.url).put_file(importing.FILE, _copy(directory, plan))
        with Far(urlsplit(server.url).netloc, DELAY_MS) as relay:
            far = replace(near, endpoint=f"http://{relay.address}")
            found = {}
            for tried, (place, url) in enumerate(((DISK, ""), (NEAR, near.url), (FAR, far.url))):
                report(f"import with its files on {place}")
                here = replace(plan, source_url=url, store_url=url) if url else plan
                here = replace(here, parts=_surveyed(here))
                attempts = range(1000 * tried, 1000 * tried + turns + 1)  # both names lead to one store
                seconds = [_timed_import(here, attempt) for attempt in attempts][1:]
                found[place] = Turns(rows, dim, seconds)
            return found
    finally:
        server.stop()


def _copy(directory: Path, plan: ImportPlan) -> Path:
    """A copy of the rows: a store takes the file that it is given away."""
    copy = directory / "copy.parquet"
    shutil.copyfile(Path(urlsplit(plan.source_url).path) / importing.FILE, copy)
    return copy


def _surveyed(plan: ImportPlan) -> tuple[FileRows, ...]:
    """The plan's file with its version in the plan's store."""
    return tuple(survey(open_store(plan.source_url), tables([importing.FILE]), plan.schema))


def _timed_import(plan: ImportPlan, attempt: int) -> float:
    return timed_s(lambda: import_task(replace(plan, attempt=attempt)))
