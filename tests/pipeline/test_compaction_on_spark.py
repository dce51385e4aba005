"""Compaction on a real Spark session: one task a plan, errors as what they are, cancelled without a trace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from elanus.api.datanode import CompactionOrder
from elanus.core.attempts import number_in
from elanus.core.clustering import clustering_of
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.jobs import JobKind, JobState
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datanode.compactions import SparkCompactions
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.session import PipelineSession
from elanus.storage.binlog import SegmentKey, insert_log_schema, read_columns, with_system_columns
from elanus.storage.objects import open_store
from elanus.storage.port import CorruptObject, ObjectStore
from tests.pure.insert_log_files import write_insert_log

pytestmark = pytest.mark.jvm

DIM, ROWS = 16, 2_000
CID, PID, VCHANNEL = CollectionID(7), PartitionID(8), "by-dev-rootcoord-dml_0_7v0"
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=DIM),
    ),
)


def segment(store: ObjectStore, scratch: Path, number: int) -> SegmentManifest:
    """Keys ``number``, ``number + 2`` and so on, at the timestamp ``number``."""
    key = SegmentKey(CID, PID, SegmentID(number), VCHANNEL)
    keys = np.arange(number, number + 2 * ROWS, 2)
    vectors = np.repeat(keys[:, None], DIM, axis=1).astype(np.float32)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(keys), SCHEMA.field("v").vector.to_column(vectors)],
        schema=SCHEMA.arrow_schema,
    )
    logged = with_system_columns(batch, 0, Timestamp(number), insert_log_schema(SCHEMA, key))
    file = write_insert_log(store, f"insert_log/7/8/{number}/a", SCHEMA, key, [logged], scratch)
    return SegmentManifest(SegmentID(number), CID, PID, VCHANNEL, (file,), (), NO_TIMESTAMP)


def order(*inputs: SegmentManifest, expire: int = 0) -> CompactionOrder:
    return CompactionOrder(
        plan_id=1,
        attempt=5,
        collection_id=CID,
        partition_id=PID,
        vchannel=VCHANNEL,
        segment_id=SegmentID(99),
        schema=SCHEMA,
        inputs=inputs,
        delta_logs=(),
        fold_until=Timestamp(100),
        expire_until=Timestamp(expire),
    )


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


def test_a_job_merges_segments(session: PipelineSession, store: ObjectStore, tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = JobRunner(session)
        compactions = SparkCompactions(runner, store.url, session.task_scratch)
        inputs = [segment(store, tmp_path, number) for number in (1, 2)]
        (output,) = await compactions.compact(order(*inputs))
        found = read_columns(store, output.insert_logs, ["id", "v"])
        assert found.column("id").to_pylist() == list(range(1, 2 * ROWS + 1))
        first = found.column("v").combine_chunks().flatten().to_numpy()[::DIM]
        assert (first == found.column("id").to_numpy()).all()
        assert number_in(Path(output.insert_logs[0].path).name) == 5, "garbage collection reads the attempt"
        (emptied,) = await compactions.compact(replace(order(inputs[0], expire=50), segment_id=SegmentID(98)))
        assert emptied.insert_logs == ()
        record = runner.book.entries()[0]
        assert (record.kind, record.state, record.cause) == (
            JobKind.COMPACTION,
            JobState.FINISHED,
            "compaction 1",
        )
        assert record.rows == 2 * ROWS
        runner.close()

    asyncio.run(scenario())


def test_jobs_make_clusters(session: PipelineSession, store: ObjectStore, tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = JobRunner(session)
        compactions = SparkCompactions(runner, store.url, session.task_scratch)
        inputs = [segment(store, tmp_path, number) for number in (1, 2)]
        clustering = clustering_of(FieldID(100), 2 * ROWS, ROWS, SegmentID(500))
        outputs = await compactions.compact(replace(order(*inputs), clustering=clustering))
        tables = [read_columns(store, output.insert_logs, ["id", "v"]) for output in outputs]
        keys = [key for table in tables for key in table.column("id").to_pylist()]
        assert keys == list(range(1, 2 * ROWS + 1)), (
            "each segment is sorted, and the ranges follow one another"
        )
        assert len(outputs) == 3
        assert {number_in(Path(o.insert_logs[0].path).name) for o in outputs} == {5}
        entries = runner.book.entries()
        assert len(entries) == 1 + 2 + 3, "a survey, a split of each input, a segment of each cluster"
        assert {e.cause for e in entries} == {"compaction 1 by clustering key"}
        runner.close()

    asyncio.run(scenario())


def test_a_damaged_file_is_named(session: PipelineSession, store: ObjectStore, tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = JobRunner(session)
        good = segment(store, tmp_path, 1)
        store.put("insert_log/7/8/2/bad", b"no parquet")
        bad = replace(good, insert_logs=(replace(good.insert_logs[0], path="insert_log/7/8/2/bad"),))
        with pytest.raises(CorruptObject, match="insert_log/7/8/2/bad"):
            await SparkCompactions(runner, store.url, session.task_scratch).compact(order(good, bad))
        assert [record.state for record in runner.book.entries()] == [JobState.FAILED]
        assert list(Path(session.task_scratch).glob("task-*")) == []
        runner.close()

    asyncio.run(scenario())
