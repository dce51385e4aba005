"""A program, and what its tasks run: how many threads of a Python worker work for one task.

``python thread_watch.py CPUS DIRECTORY`` gives each task of a session so many cores, runs an index build, a
kNN join and a task with a thread too many, and prints what each used as JSON.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

SHARE_MIN = 0.1
"""A thread that took less of the task's processor time than this did not work for it: it waited, or read a
file ahead."""
_LOOK_S = 0.01


class Watch:
    """Looks at the threads of this process while it is entered.

    Counts by processor time, which other work on the machine does not change.
    """

    def __enter__(self) -> Watch:
        self._process = psutil.Process()
        self._before = {thread.id: _cpu_s(thread) for thread in self._process.threads()}
        self._process_s = sum(self._process.cpu_times()[:2])
        self._seen: list[frozenset[int]] = []
        self._used_s: dict[int, float] = {}
        self._ends = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._looking.join()
        self.cpu_s = sum(self._process.cpu_times()[:2]) - self._process_s

    def _look(self) -> None:
        own = threading.get_native_id()
        while True:
            ends = self._ends.wait(_LOOK_S)
            threads = [thread for thread in self._process.threads() if thread.id != own]
            self._used_s |= {t.id: _cpu_s(t) - self._before.get(t.id, 0.0) for t in threads}
            self._seen.append(frozenset(thread.id for thread in threads))
            if ends:
                return

    def report(self, cpus: int) -> dict[str, Any]:
        """Return the processor time of the task, the share of it that no thread seen here took, and how many
        threads that worked for it were there at the same time."""
        working = {thread for thread, used_s in self._used_s.items() if used_s >= SHARE_MIN * self.cpu_s}
        return {
            "cpus": cpus,
            "cpu_s": self.cpu_s,
            "unseen": 1 - sum(self._used_s.values()) / self.cpu_s,
            "working": max(len(working & there) for there in self._seen),
        }


def _cpu_s(thread: Any) -> float:
    return float(thread.user_time + thread.system_time)


def watched(task: Callable[[Any], Any], plan: Any) -> dict[str, Any]:
    """A task that runs another one, and returns what that used."""
    from pyspark import TaskContext

    with Watch() as watch:
        task(plan)
    return watch.report(TaskContext.get().cpus())


def watched_batches(
    task: Callable[..., Iterator[pa.RecordBatch]], report: Path, *arguments: Any
) -> Iterator[pa.RecordBatch]:
    """As `watched`, for a task of batches, which writes the report into a file."""
    from pyspark import TaskContext

    with Watch() as watch:
        found = list(task(*arguments))
    report.write_text(json.dumps(watch.report(TaskContext.get().cpus())))
    yield from found


def one_too_many(_plan: None) -> None:
    """Do the same work in one thread more than the task has cores."""
    from pyspark import TaskContext

    content = bytes(1 << 20)

    def work() -> None:
        for _ in range(200):
            hashlib.sha256(content)  # without the interpreter's lock

    threads = [threading.Thread(target=work) for _ in range(TaskContext.get().cpus() + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(cpus: int, directory: Path) -> None:
    from pyspark.sql import SparkSession
    from thread_watch import one_too_many, watched, watched_batches

    from elanus.core.ids import BuildID, IndexID
    from elanus.pipeline.index_build import IndexBuildPlan, index_build_task
    from elanus.pipeline.session import PipelineSession
    from elanus.pipeline.spark_conf import SparkSettings
    from elanus.spark import knn
    from elanus.spark.searches import SearchJob, search_plan, segment_sets
    from tests.e2e.spark_classes import lend
    from tests.pure.spark.snapshot_world import HNSW, World, vectors

    world = World(directory)
    indexed = world.add(list(range(12_000)), vectors(12_000))
    world.index(indexed)
    settings = SparkSettings(
        master=f"local[{cpus}]", driver_memory_mb=512, conf={"spark.task.cpus": str(cpus)}
    )
    session = PipelineSession.start(settings, lend(directory / "scratch"))

    def run(task: Callable[[Any], Any], plan: Any) -> dict[str, Any]:
        watching = functools.partial(watched, task)
        (report,) = session.run(watching, [plan], group="g", description="watched", pool="p")
        return report

    try:
        build = IndexBuildPlan(
            attempt="a",
            build_id=BuildID(9),
            version=1,
            index_id=IndexID(1),
            field=world.schema.field("v"),
            params={**HNSW, "M": "16", "efConstruction": "200"},
            manifest=indexed,
            threads=cpus,
            store_url=world.store.url,
            scratch_dir=str(directory),
        )
        reports = {"build": run(index_build_task, build), "too many": run(one_too_many, None)}
        spark = SparkSession(session.context)
        plan = search_plan(world.snapshot, world.store.url, field="v", k=10, params={"ef": 500})
        job = SearchJob(plan, segment_sets(world.snapshot, plan, 1))
        asked = [(n, vector.tolist()) for n, vector in enumerate(vectors(4_000, 6))]
        queries = spark.createDataFrame(asked, "query_id long, vector array<float>")
        file = directory / "join.json"
        knn._search = functools.partial(watched_batches, knn._search, file)
        assert knn.joined(spark, job, queries, 1).count() == 10 * len(asked)
        reports["join"] = json.loads(file.read_text())
    finally:
        session.stop()
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
