"""The jobs that look at an import's keys before its rows are written (`elanus.pipeline.import_duplicates`).

The first job has a task for each part of the files, the second one for each bucket of keys. Keys
pass from one to the other through the object store, where they are garbage when the import has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elanus.api.connector import SNAPSHOTS
from elanus.api.imports import ImportOrder
from elanus.core.attempts import stamped
from elanus.core.ids import TaskID
from elanus.core.jobs import JobKind
from elanus.core.schema import CollectionSchema
from elanus.pipeline.import_duplicates import Bucket, write_keys, write_left_out
from elanus.pipeline.import_memory import bounded_import, reading_bytes
from elanus.pipeline.import_plan import FileRows, ImportPlan, LeftOut
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.worker import attempt_name
from elanus.storage.objects import open_store
from elanus.storage.paths import import_keys_path
from elanus.storage.snapshots import read_snapshot


@dataclass(frozen=True, slots=True)
class KeysPlan:
    """One part of the files. Pickles. ``bytes_max``: as in `ImportPlan`."""

    task_id: TaskID
    attempt: int
    number: int
    schema: CollectionSchema
    parts: tuple[FileRows, ...]
    buckets: int
    source_url: str
    store_url: str
    rejects_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """One bucket. Pickles. ``existing``: the path of a snapshot, see `ImportOrder`."""

    task_id: TaskID
    attempt: int
    bucket: Bucket
    existing: str
    store_url: str


def keys_job(plans: Sequence[ImportPlan], buckets: int) -> Job[KeysPlan, str]:
    """Return a job over the parts of an import. Running it raises `InvalidParameter` for keys that do not
    fit."""
    tasks = tuple(
        KeysPlan(
            plan.task_id,
            plan.attempt,
            number,
            plan.schema,
            plan.parts,
            buckets,
            plan.source_url,
            plan.store_url,
            plan.rejects_max,
            plan.bytes_max,
        )
        for number, plan in enumerate(plans)
    )
    return Job(JobKind.IMPORT, (f"keys of import {plans[0].task_id}",), keys_task, tasks, _keys_output)


def keys_task(plan: KeysPlan) -> str:
    """The Spark task, in the Python worker. Returns the path of the object."""
    path = import_keys_path(plan.task_id, attempt_name(stamped(plan.attempt, f"part-{plan.number}")))
    source, store = open_store(plan.source_url), open_store(plan.store_url)
    with bounded_import(reading_bytes(plan.bytes_max, plan.parts), plan.parts):
        write_keys(plan.schema, plan.parts, plan.buckets, source, store, path, plan.rejects_max)
    return path


def buckets_job(
    order: ImportOrder, parts: Sequence[str], buckets: int, store_url: str
) -> Job[BucketPlan, tuple[LeftOut | None, ...]]:
    """Return a job over the buckets. Its outcomes are index-aligned with the parts."""
    shards = len(order.vchannels)
    tasks = tuple(
        BucketPlan(
            order.task_id,
            order.attempt,
            Bucket(order.schema, number, order.vchannels[number % shards], tuple(parts), order.duplicates),
            order.existing,
            store_url,
        )
        for number in range(buckets)
    )
    inputs = (f"duplicates of import {order.task_id}",)
    return Job(JobKind.IMPORT, inputs, bucket_task, tasks, _buckets_output)


def bucket_task(plan: BucketPlan) -> tuple[LeftOut | None, ...]:
    """The Spark task, in the Python worker."""
    store, bucket = open_store(plan.store_url), plan.bucket
    if plan.existing:
        bucket = replace(bucket, existing=read_snapshot(store, plan.existing, SNAPSHOTS))
    name = attempt_name(stamped(plan.attempt, f"bucket-{bucket.number}"))
    return write_left_out(bucket, store, import_keys_path(plan.task_id, name))


def without(plans: Sequence[ImportPlan], found: Sequence[tuple[LeftOut | None, ...]]) -> list[ImportPlan]:
    """Return the plans with the rows that the buckets leave out of each."""
    by_part = zip(*found, strict=True)
    return [
        replace(plan, left_out=tuple(rows for rows in own if rows is not None))
        for plan, own in zip(plans, by_part, strict=True)
    ]


def _keys_output(paths: Sequence[str]) -> JobOutput:
    return JobOutput(tuple(paths), 0, 0)


def _buckets_output(found: Sequence[tuple[LeftOut | None, ...]]) -> JobOutput:
    """An output counts rows that are written."""
    return JobOutput((), 0, 0)
