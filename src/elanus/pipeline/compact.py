"""The compaction job: segments of one partition and vchannel become one, or delta logs of a vchannel do.

One Spark task per plan. The task reads the inputs' files and the vchannel's deletes itself, and writes the
files of the new segment; what it returns is their names, for one commit by the data coordinator that puts
the new segment in the inputs' place. Until then its files do not exist for anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elanus.api.datacoord import SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.jobs import JobKind
from elanus.pipeline.merge import compact
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.progress import ProgressBoard, TaskProgress
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.storage.objects import open_store


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """One order as a task. Pickles; carries all that a task needs to know.

    ``attempt`` is unique to this try of this compaction; ``scratch_dir`` is a directory on the machine that
    runs the task.
    """

    attempt: str
    order: CompactionOrder
    store_url: str
    scratch_dir: str

    @property
    def board(self) -> ProgressBoard:
        return ProgressBoard(self.store_url, f"compaction-{self.attempt}")


def compaction_job(task: CompactionTask) -> Job[CompactionTask, SegmentOutput]:
    """Return a job that carries this order out. Running it raises `ObjectMissing`, `CorruptObject`,
    `DiskFull`."""
    order = task.order
    if order.merges_deltas:
        inputs = tuple(f"delta log {file.path}" for file in order.delta_logs)
    else:
        inputs = tuple(f"segment {manifest.segment_id}" for manifest in order.inputs)
    return Job(JobKind.COMPACTION, inputs, compaction_task, (task,), _output, task.board)


def _output(outputs: Sequence[SegmentOutput]) -> JobOutput:
    files = [file for output in outputs for file in output.insert_logs]
    return JobOutput(
        tuple(file.path for file in files),
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
    )


def compaction_task(task: CompactionTask) -> SegmentOutput:
    """The Spark task, in the Python worker."""
    store = open_store(task.store_url)
    with scratch_directory(task.scratch_dir) as scratch:
        progress = TaskProgress.of_this(store, task.board.job)
        return compact(task.order, store, scratch, attempt_name(task.attempt), progress)
