"""Merging segments: what is dead goes, the rest is sorted, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log

from elanus.api.datanode import CompactionOrder
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import ROW_ID_FIELD, TIMESTAMP_FIELD, CollectionSchema, DataType, FieldSchema
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.pipeline.compact import CompactionTask, compaction_job, compaction_task
from elanus.pipeline.merge import merge_segments
from elanus.storage.binlog import SegmentKey, insert_log_schema, read_columns, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.objects import open_store
from elanus.storage.port import CorruptObject, ObjectStore
from elanus.storage.stats_log import read_stats_logs

CID, PID, VCHANNEL = CollectionID(7), PartitionID(8), "by-dev-rootcoord-dml_0_7v0"
DIM = 4


def schema_of(key: DataType) -> CollectionSchema:
    return CollectionSchema(
        "docs",
        (
            FieldSchema(FieldID(100), "id", key, is_primary=True, max_length=20),
            FieldSchema(FieldID(101), "name", DataType.VARCHAR, max_length=20, nullable=True),
            FieldSchema(FieldID(102), "v", DataType.FLOAT_VECTOR, dim=DIM),
            FieldSchema(FieldID(103), "bits", DataType.BINARY_VECTOR, dim=16),
            FieldSchema(
                FieldID(104),
                "tags",
                DataType.ARRAY,
                element_type=DataType.VARCHAR,
                max_capacity=4,
                max_length=20,
                nullable=True,
            ),
        ),
    )


INTS, STRINGS = schema_of(DataType.INT64), schema_of(DataType.VARCHAR)


def keys_of(schema: CollectionSchema, numbers: list[int]) -> pa.Array:
    column = pa.array(numbers, pa.int64())
    return column if schema is INTS else pa.array([f"{n:04}" for n in numbers])


def rows_of(schema: CollectionSchema, numbers: list[int]) -> pa.RecordBatch:
    vectors = np.repeat(np.array(numbers, dtype=np.float32)[:, None], DIM, axis=1)
    bits = np.array([[n % 256, n // 256] for n in numbers], dtype=np.uint8)
    tags = schema.field("tags")
    columns = [
        keys_of(schema, numbers),
        pa.array([None if n % 3 == 0 else f"name {n}" for n in numbers]),
        schema.field("v").vector.to_column(vectors),
        schema.field("bits").vector.to_column(bits),
        pa.array([None if n % 4 == 0 else [f"tag {n}"] * (n % 3) for n in numbers], tags.arrow_type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def segment(
    store: ObjectStore, tmp_path: Path, number: int, writes: list[tuple[int, list[int]]], schema=INTS
) -> SegmentManifest:
    """``writes``: (timestamp, keys) of each message, in order."""
    key = SegmentKey(CID, PID, SegmentID(number), VCHANNEL)
    file_schema = insert_log_schema(schema, key)
    batches = [
        with_system_columns(rows_of(schema, numbers), 1000 * ts, Timestamp(ts), file_schema)
        for ts, numbers in writes
    ]
    file = write_insert_log(store, f"insert_log/7/8/{number}/a", schema, key, batches, tmp_path)
    return SegmentManifest(SegmentID(number), CID, PID, VCHANNEL, (file,), (), NO_TIMESTAMP)


def deletes(
    store: ObjectStore, tmp_path: Path, name: str, *made: tuple[int, list[int], int], schema=INTS
) -> BinlogFile:
    """``made``: (timestamp, keys, partition) of each."""
    file_schema = delta_log_schema(schema.primary_field, CID, VCHANNEL)
    with delta_log_writer(store, f"delta_log/7/{name}", file_schema, tmp_path) as writer:
        for ts, numbers, partition in made:
            writer.write(
                delete_rows(keys_of(schema, numbers), Timestamp(ts), PartitionID(partition), file_schema)
            )
        return writer.finish()


def order(
    inputs: list[SegmentManifest], *deltas: BinlogFile, fold: int = 100, expire: int = 0, schema=INTS
) -> CompactionOrder:
    return CompactionOrder(
        plan_id=1,
        attempt=2,
        collection_id=CID,
        partition_id=PID,
        vchannel=VCHANNEL,
        segment_id=SegmentID(99),
        schema=schema,
        inputs=tuple(inputs),
        delta_logs=deltas,
        fold_until=Timestamp(fold),
        expire_until=Timestamp(expire),
    )


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


def merged(asked: CompactionOrder, store: ObjectStore, tmp_path: Path) -> pa.Table:
    output = merge_segments(asked, store, tmp_path, "a2-x")
    assert output.segment_id == 99
    if not output.insert_logs:
        return pa.table({"id": [], TIMESTAMP_FIELD: []})
    return read_columns(store, output.insert_logs, [ROW_ID_FIELD, TIMESTAMP_FIELD, *asked.schema.by_name])


@pytest.mark.parametrize("schema", [INTS, STRINGS], ids=["int64", "string"])
def test_segments_become_one_sorted_by_key(schema, store: ObjectStore, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    one = segment(store, tmp_path, 1, [(10, [5, 300, 9]), (20, [2])], schema)
    two = segment(store, tmp_path, 2, [(15, [7, 4])], schema)
    output = merge_segments(order([one, two], schema=schema), store, tmp_path, "a2-x")
    found = read_columns(store, output.insert_logs, [ROW_ID_FIELD, TIMESTAMP_FIELD, *schema.by_name])
    expected = [2, 4, 5, 7, 9, 300]
    assert found.select(list(schema.by_name)).to_pylist() == rows_of(schema, expected).to_pylist()
    assert found.column(TIMESTAMP_FIELD).to_pylist() == [20, 15, 10, 15, 10, 10]
    assert found.column(ROW_ID_FIELD).to_pylist() == [20000, 15001, 10000, 15000, 10002, 10001]
    (file,) = output.insert_logs
    assert (file.rows, file.ts_min, file.ts_max) == (6, 10, 20)
    (stats,) = read_stats_logs(store, output.stats_logs)
    assert (stats.rows, [stats.pk_min, stats.pk_max]) == (6, keys_of(schema, [2, 300]).to_pylist())
    assert stats.may_contain(keys_of(schema, expected)).all()


@pytest.mark.parametrize("schema", [INTS, STRINGS], ids=["int64", "string"])
def test_a_delete_takes_older_rows_of_its_partition_within_the_fold(  # type: ignore[no-untyped-def]
    schema, store: ObjectStore, tmp_path: Path
) -> None:
    rows = segment(store, tmp_path, 1, [(10, [1, 2, 3, 4, 5, 6]), (30, [1])], schema)
    made = [(10, [6], 0), (20, [1, 2], 0), (21, [3], PID), (22, [4], PID + 1)]
    delta = deletes(store, tmp_path, "d", *made, schema=schema)
    later = deletes(store, tmp_path, "e", (101, [5], 0), schema=schema)
    found = merged(order([rows], delta, later, schema=schema), store, tmp_path)
    left = list(zip(found.column("id").to_pylist(), found.column(TIMESTAMP_FIELD).to_pylist(), strict=True))
    first, four, five, six = keys_of(schema, [1, 4, 5, 6]).to_pylist()
    assert left == [(first, 30), (four, 10), (five, 10), (six, 10)], (
        "a row as new as the delete, another partition's, and one deleted after the fold stay"
    )


def test_of_several_deletes_of_a_key_the_last_within_the_fold_counts(
    store: ObjectStore, tmp_path: Path
) -> None:
    rows = segment(store, tmp_path, 1, [(10, [1]), (30, [1]), (50, [1])])
    delta = deletes(store, tmp_path, "d", (20, [1], 0), (40, [1], 0))
    for fold, left in ((39, [30, 50]), (40, [50])):
        scratch = tmp_path / str(fold)
        scratch.mkdir()
        output = merge_segments(order([rows], delta, fold=fold), store, scratch, f"a2-{fold}")
        stamps = read_columns(store, output.insert_logs, [TIMESTAMP_FIELD]).column(0).to_pylist()
        assert stamps == left
        assert list(scratch.iterdir()) == [], "vectors leave nothing behind"


def test_expired_rows_go(store: ObjectStore, tmp_path: Path) -> None:
    rows = segment(store, tmp_path, 1, [(10, [1]), (20, [2]), (21, [3])])
    assert merged(order([rows], expire=20), store, tmp_path).column("id").to_pylist() == [3]


def test_nothing_left_is_no_file(store: ObjectStore, tmp_path: Path) -> None:
    rows = segment(store, tmp_path, 1, [(10, [1, 2])])
    before = {o.path for o in store.list("")}
    output = merge_segments(order([rows], expire=20), store, tmp_path, "a2-x")
    assert (output.insert_logs, output.stats_logs) == ((), ())
    assert {o.path for o in store.list("")} == before


def test_imported_rows_count_from_their_commit(store: ObjectStore, tmp_path: Path) -> None:
    imported = replace(segment(store, tmp_path, 1, [(10, [1])]), commit_ts=Timestamp(50))
    delta = deletes(store, tmp_path, "d", (20, [1], 0))
    assert merged(order([imported], delta), store, tmp_path).column(TIMESTAMP_FIELD).to_pylist() == [50]


@pytest.mark.slow
def test_many_row_groups_and_rows_of_a_key_by_age(store: ObjectStore, tmp_path: Path) -> None:
    numbers = np.random.default_rng(3).permutation(np.repeat(np.arange(20_000), 2)).tolist()
    half = len(numbers) // 2
    rows = segment(store, tmp_path, 1, [(10, numbers[:half]), (20, numbers[half:])])
    found = merged(order([rows]), store, tmp_path)
    keys, ts = found.column("id").to_numpy(), found.column(TIMESTAMP_FIELD).to_numpy()
    assert keys.tolist() == sorted(numbers)
    same = keys[1:] == keys[:-1]
    assert (ts[1:][same] >= ts[:-1][same]).all()
    vectors = found.column("v").combine_chunks().flatten().to_numpy().reshape(-1, DIM)
    assert (vectors[:, 0] == keys).all()


def test_a_damaged_file_is_named_and_scratch_is_left_clean(store: ObjectStore, tmp_path: Path) -> None:
    good = segment(store, tmp_path, 1, [(10, [1])])
    store.put("insert_log/7/8/2/bad", b"no parquet")
    bad = replace(good, insert_logs=(replace(good.insert_logs[0], path="insert_log/7/8/2/bad"),))
    scratch = tmp_path / "scratch"
    with pytest.raises(CorruptObject, match="insert_log/7/8/2/bad"):
        compaction_task(CompactionTask("a2-x", order([good, bad]), store.url, str(scratch)))
    assert list(scratch.iterdir()) == []


def test_the_job_names_its_inputs_and_sums_up(store: ObjectStore, tmp_path: Path) -> None:
    rows = segment(store, tmp_path, 1, [(10, [1, 2])])
    job = compaction_job(CompactionTask("a2-x", order([rows]), store.url, str(tmp_path / "scratch")))
    assert job.inputs == ("segment 1",)
    outcome = job.task(job.plans[0])
    assert job.output([outcome]).rows == 2
    assert "a2-x" in outcome.insert_logs[0].path


def test_rows_go_whose_own_moment_was_over_before_the_fold(store: ObjectStore, tmp_path: Path) -> None:
    rows = segment(store, tmp_path, 1, [(10, [0, 1000, 2000, 2001])])
    by_key = replace(INTS, ttl_field="id")  # microseconds
    left = merged(order([rows], fold=2 << 18, schema=by_key), store, tmp_path)
    assert left.column("id").to_pylist() == [0, 2001]


def test_rows_and_deletes_after_a_clones_moment_are_left_out(store: ObjectStore, tmp_path: Path) -> None:
    rows = segment(store, tmp_path, 1, [(10, [1, 2, 3]), (30, [4])])
    (file,) = rows.insert_logs
    cloned = replace(rows, insert_logs=(replace(file, until=Timestamp(20)),))
    delta = deletes(store, tmp_path, "d", (15, [1], 0), (25, [2], 0))
    cut = replace(delta, until=Timestamp(20))
    found = merged(order([cloned], cut), store, tmp_path)
    assert found.column("id").to_pylist() == [2, 3]
