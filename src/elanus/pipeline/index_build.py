"""The index job: the values of one field (or of one JSON path) of one segment become one index file.

One Spark task per segment. It reads the column from the segment's insert logs itself, vectors into one
matrix, builds with as many threads as the plan allows, and puts the file into the object store. The
file's name is the attempt's; a task that ran twice, or for a version that has been given up, leaves garbage.

Memory of a task: the raw values and the growing index. A build that cannot fit is refused before it begins
(`elanus.pipeline.task_memory`); builds that do not fit next to each other wait
(`elanus.pipeline.memory_share`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from elanus.core.errors import InvalidParameter
from elanus.core.ids import BuildID, IndexID
from elanus.core.jobs import JobKind
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.vector_lists import VectorLists
from elanus.expr import typed_column
from elanus.index import IndexSpec, build, json_path_of, measure, resolve_field_index, save
from elanus.index.build_work import build_seconds
from elanus.index.sizes import VALUE_BYTES, build_bytes_min
from elanus.index.spec import Progress
from elanus.pipeline.memory_share import builds_bytes_max, claimed_memory, claims_directory
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.progress import ProgressBoard, TaskProgress
from elanus.pipeline.task_memory import memory_limit_bytes, require_memory
from elanus.pipeline.worker import attempt_name, scratch_directory
from elanus.storage.binlog import read_columns
from elanus.storage.computed import read_field_vectors
from elanus.storage.objects import open_store
from elanus.storage.paths import index_file_path
from elanus.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class IndexBuildPlan:
    """One segment to index. Pickles; carries all that a task needs to know.

    ``params`` are the index's parameters as `elanus.index.resolve_index` takes them; ``threads``:
    cores for the build; ``attempt`` is unique to this try of this build. ``scratch_dir`` is a
    directory on the machine that runs the task. ``schema``: see `elanus.api.indexnode.BuildIndex`.
    """

    attempt: str
    build_id: BuildID
    version: int
    index_id: IndexID
    field: FieldSchema
    params: Mapping[str, str]
    manifest: SegmentManifest
    threads: int
    store_url: str
    scratch_dir: str
    schema: CollectionSchema | None = None

    @property
    def board(self) -> ProgressBoard:
        return ProgressBoard(self.store_url, f"build-{self.build_id}-{self.attempt}")


def index_build_job(plan: IndexBuildPlan, cpus: int = 1) -> Job[IndexBuildPlan, IndexFile]:
    """Return a job that builds this index. ``cpus``: the cores that Spark counts for it.

    Running it raises `InvalidParameter`, `ObjectMissing`, `CorruptObject` and `DiskFull`, among others.
    """
    source = f"segment {plan.manifest.segment_id}, field {plan.field.name}"
    output = partial(_output, plan)
    try:
        memory_bytes = _memory_bytes(plan)
    except InvalidParameter:
        memory_bytes = 0  # the task fails with it, and so the job is on record
    return Job(
        JobKind.INDEX_BUILD, (source,), index_build_task, (plan,), output, plan.board, cpus, memory_bytes
    )


def _memory_bytes(plan: IndexBuildPlan) -> int:
    """Return the memory that the build takes at least; 0 where that is not known."""
    field = plan.field
    if field.kind.vector is None or field.has_vector_lists or field.nullable:
        return 0
    return build_bytes_min(resolve_field_index(plan.params, field), plan.manifest.rows)


def _output(plan: IndexBuildPlan, files: Sequence[IndexFile]) -> JobOutput:
    (file,) = files
    return JobOutput((file.path,), file.rows, file.size_bytes, file.index_type, _planned_s(plan, file))


def _planned_s(plan: IndexBuildPlan, file: IndexFile) -> float:
    """Return the time that the build was estimated to take; 0 where there is no estimate."""
    field = plan.field
    if field.kind.vector is None or field.has_vector_lists or not file.rows:
        return 0.0
    values_per_row = file.size_bytes / VALUE_BYTES / file.rows  # counts for sparse vectors only
    return build_seconds(resolve_field_index(plan.params, field), file.rows, values_per_row)


def index_build_task(plan: IndexBuildPlan) -> IndexFile:
    """The Spark task, in the Python worker."""
    store = open_store(plan.store_url)
    with scratch_directory(plan.scratch_dir) as scratch:
        progress = TaskProgress.of_this(store, plan.board.job)
        return build_index_file(plan, store, scratch, attempt_name(plan.attempt), progress)


def build_index_file(
    plan: IndexBuildPlan, store: ObjectStore, scratch: Path, name: str, progress: Progress | None = None
) -> IndexFile:
    """Build the index and put it into the store. Needs no Spark. Raises `InsufficientMemory` before anything
    is read, if the build cannot fit.

    ``name`` is used by no other attempt; ``scratch`` is an empty local directory. ``progress`` is called with
    the share of rows that are in the index.
    """
    manifest = plan.manifest
    spec = resolve_field_index(plan.params, plan.field)
    what = f"to build {spec.index_type} over {manifest.rows} rows (segment {manifest.segment_id})"
    wanted_bytes = _memory_bytes(plan)
    require_memory(wanted_bytes, what, memory_limit_bytes())
    file = scratch / "index"
    with claimed_memory(wanted_bytes, builds_bytes_max(), claims_directory()):
        values = _values(plan, spec, store)
        began_s = time.perf_counter()
        index = build(spec, values, plan.threads, progress)
        measure(index, values, time.perf_counter() - began_s, plan.threads)
        save(index, file)
    size_bytes = file.stat().st_size
    path = index_file_path(plan.build_id, plan.version, manifest.partition_id, manifest.segment_id, name)
    store.put_file(path, file)
    return IndexFile(
        build_id=plan.build_id,
        index_id=plan.index_id,
        field_id=plan.field.field_id,
        segment_id=manifest.segment_id,
        index_type=spec.index_type,
        metric_type="" if spec.metric is None else str(spec.metric),
        params=spec.flattened(),
        path=path,
        rows=index.rows,
        size_bytes=size_bytes,
        has_raw_vectors=index.has_raw_vectors,
        disk_bytes=index.disk_bytes,
    )


def _values(plan: IndexBuildPlan, spec: IndexSpec, store: ObjectStore) -> Any:
    if plan.field.kind.vector is not None:
        return read_field_vectors(store, plan.manifest, plan.schema, plan.field)
    added = (plan.field,) if plan.field.is_added else ()
    column = read_columns(store, plan.manifest, [plan.field.name], added).column(0).combine_chunks()
    if plan.field.has_vector_lists:
        return VectorLists.from_column(plan.field.vector, plan.field.dim, column)
    path = json_path_of(spec, plan.field)
    return column if path is None else typed_column(column, path, spec.params["json_cast_type"])
