"""The jobs of a clustering compaction: its steps (`elanus.pipeline.clustering`) as tasks.

Each job has one task. A job of many tasks would take every slot of Spark, and flushes need one
(`elanus.pipeline.jobs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elanus.api.datacoord import SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.jobs import JobKind
from elanus.pipeline.clustering import Boundaries, Chunk, Write, split, survey, write
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.storage.objects import open_store


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """One task. Pickles. ``attempt``: unique to this step of this try; ``found``: by the survey, for a
    split; ``step``: of a
    write. ``scratch_dir``: a directory on the machine that runs the task."""

    attempt: str
    order: CompactionOrder
    store_url: str
    scratch_dir: str
    found: Boundaries = ()
    step: Write | None = None


def survey_job(task: ClusterTask) -> Job[ClusterTask, Boundaries]:
    """Return a job that finds the boundaries of clusters. Raises `ObjectMissing`, `CorruptObject`."""
    return Job(
        JobKind.COMPACTION, _inputs(task, "survey"), survey_task, (task,), lambda _: JobOutput((), 0, 0)
    )


def split_job(task: ClusterTask) -> Job[ClusterTask, tuple[Chunk, ...]]:
    """Return a job that splits inputs into clusters. Raises `ObjectMissing`, `CorruptObject`, `DiskFull`."""
    return Job(JobKind.COMPACTION, _inputs(task, "split"), split_task, (task,), _chunks)


def write_job(task: ClusterTask) -> Job[ClusterTask, SegmentOutput]:
    """Return a job that writes one segment. Raises as `split_job`."""
    return Job(JobKind.COMPACTION, _inputs(task, "cluster"), write_task, (task,), _output)


def survey_task(task: ClusterTask) -> Boundaries:
    """The Spark task, in the Python worker."""
    return survey(task.order, open_store(task.store_url))


def split_task(task: ClusterTask) -> tuple[Chunk, ...]:
    """The Spark task, in the Python worker."""
    with scratch_directory(task.scratch_dir) as scratch:
        name = attempt_name(task.attempt)
        return split(task.order, task.found, open_store(task.store_url), scratch, name)


def write_task(task: ClusterTask) -> SegmentOutput:
    """The Spark task, in the Python worker."""
    assert task.step is not None, "a task that writes has a step"
    with scratch_directory(task.scratch_dir) as scratch:
        name = attempt_name(task.attempt)
        return write(task.order, task.step, open_store(task.store_url), scratch, name)


def _inputs(task: ClusterTask, what: str) -> tuple[str, ...]:
    if task.step is not None:
        return (f"{what} {task.step.slice.cluster} of compaction {task.order.plan_id}",)
    inputs = (f"segment {manifest.segment_id}" for manifest in task.order.inputs)
    return (f"{what} of compaction {task.order.plan_id}", *inputs)


def _chunks(outcomes: Sequence[tuple[Chunk, ...]]) -> JobOutput:
    files = [chunk.file for chunks in outcomes for chunk in chunks]
    return JobOutput(
        tuple(f.path for f in files), sum(f.rows for f in files), sum(f.size_bytes for f in files)
    )


def _output(outcomes: Sequence[SegmentOutput]) -> JobOutput:
    files = [file for output in outcomes for file in output.insert_logs]
    return JobOutput(
        tuple(f.path for f in files), sum(f.rows for f in files), sum(f.size_bytes for f in files)
    )
