"""Cutting imports into tasks, and what a task writes: sorted segments, each row once, in its key's shard."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from insert_log_files import read_vectors

from elanus.api.imports import ImportedSegment, ImportOutcome
from elanus.core.channels import shard_of_keys
from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, FieldID, PartitionID, TaskID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_input import input_file
from elanus.pipeline.import_job import import_job, import_task
from elanus.pipeline.import_plan import FileRows, ImportPlan, RowGroup, cut, rows_of_task
from elanus.pipeline.import_segments import SegmentsWriter
from elanus.pipeline.import_sources import tables
from elanus.storage.binlog import read_columns
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing
from elanus.storage.stats_log import read_stats_logs

DIM = 4
VCHANNELS = ("by-dev-rootcoord-dml_0_7v0", "by-dev-rootcoord-dml_1_7v1")
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=DIM),
    ),
)
AUTO = replace(SCHEMA, fields=(replace(SCHEMA.fields[0], auto_id=True), SCHEMA.fields[1]))


def vectors_of_keys(keys: np.ndarray) -> np.ndarray:
    return np.repeat(keys.astype(np.float32)[:, None], DIM, axis=1) + np.arange(DIM, dtype=np.float32)


def write(tmp_path: Path, name: str, keys: np.ndarray, group_rows: int) -> None:
    vectors = pa.array(list(vectors_of_keys(keys)), pa.list_(pa.float32()))
    file = tmp_path / "import" / name
    file.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table({"id": keys, "v": vectors}), file, row_group_size=group_rows)


def plan(
    tmp_path: Path, files: list[FileRows], schema: CollectionSchema = SCHEMA, **changes: int
) -> ImportPlan:
    known = ImportPlan(
        attempt=5,
        collection_id=CollectionID(7),
        partition_id=PartitionID(8),
        schema=schema,
        vchannels=VCHANNELS,
        parts=tuple(files),
        first_id=1000,
        rows_max=10_000,
        bytes_max=2**30,
        stamp=Timestamp(99),
        source_url=(tmp_path / "import").as_uri(),
        store_url=(tmp_path / "files").as_uri(),
        scratch_dir=str(tmp_path / "scratch"),
    )
    return replace(known, **changes)


def surveyed(tmp_path: Path, *names: str, schema: CollectionSchema = SCHEMA) -> list[FileRows]:
    return survey(open_store((tmp_path / "import").as_uri()), tables(names), schema)


def keys_by_segment(tmp_path: Path, segments: tuple[ImportedSegment, ...]) -> dict[int, list[int]]:
    store = open_store((tmp_path / "files").as_uri())
    return {s.segment_id: read_columns(store, [s.insert_log], ["id"])["id"].to_pylist() for s in segments}


@pytest.fixture
def keys() -> np.ndarray:
    return np.random.default_rng(3).permutation(1000)


def test_a_file_that_is_overwritten_meanwhile_is_detected(tmp_path: Path, keys: np.ndarray) -> None:
    """Mapped, it would end the process."""
    write(tmp_path, "a.parquet", keys, 500)
    source = open_store((tmp_path / "import").as_uri())
    batches = import_rows(plan(tmp_path, surveyed(tmp_path, "a.parquet")), source)
    next(batches)
    os.truncate(tmp_path / "import" / "a.parquet", 100)
    with pytest.raises(InvalidParameter, match=r"a\.parquet changed while the import ran"):
        list(batches)


def test_rows_go_to_the_partitions_of_their_partition_key(tmp_path: Path, keys: np.ndarray) -> None:
    tenant = FieldSchema(FieldID(102), "tenant", DataType.INT64, is_partition_key=True)
    of = replace(SCHEMA, fields=(*SCHEMA.fields, tenant))
    partitions = tuple(map(PartitionID, (31, 32, 33)))
    vectors = pa.array(list(vectors_of_keys(keys)), pa.list_(pa.float32()))
    (tmp_path / "import").mkdir()
    tenants = keys % 50
    file = pa.table({"id": keys, "v": vectors, "tenant": tenants})
    pq.write_table(file, tmp_path / "import" / "a.parquet")
    task = replace(plan(tmp_path, surveyed(tmp_path, "a.parquet", schema=of), of), key_partitions=partitions)
    segments = import_task(task).segments
    assert {(s.vchannel, s.partition_id) for s in segments} == {(v, p) for v in VCHANNELS for p in partitions}
    assert len({s.segment_id for s in segments}) == len(segments) == 6
    found = keys_by_segment(tmp_path, segments)
    assert sorted(key for segment in found.values() for key in segment) == list(range(1000))
    numbers = shard_of_keys(pa.array(np.arange(1000) % 50), 3)
    for segment in segments:
        ids = found[segment.segment_id]
        assert ids == sorted(ids)
        assert {partitions[numbers[key]] for key in ids} == {segment.partition_id}
        assert f"/{segment.partition_id}/" in segment.insert_log.path


def test_a_task_writes_one_sorted_segment_per_shard(tmp_path: Path, keys: np.ndarray) -> None:
    write(tmp_path, "a.parquet", keys[:600], 100)
    write(tmp_path, "b.parquet", keys[600:], 100)
    segments = import_task(plan(tmp_path, surveyed(tmp_path, "a.parquet", "b.parquet"))).segments
    assert [(s.segment_id, s.vchannel) for s in segments] == [(2000, VCHANNELS[0]), (2001, VCHANNELS[1])]
    store = open_store((tmp_path / "files").as_uri())
    for shard, segment in enumerate(segments):
        table = read_columns(store, [segment.insert_log], ["RowID", "Timestamp", "id"])
        found = table["id"].to_numpy()
        expected = np.sort(keys[shard_of_keys(pa.array(keys), 2) == shard])
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(read_vectors(store, [segment.insert_log], "v"), vectors_of_keys(found))
        assert set(table["Timestamp"].to_pylist()) == {99}
        (stats,) = read_stats_logs(store, [segment.stats_log])
        assert (stats.rows, stats.pk_min, stats.pk_max) == (len(found), found.min(), found.max())
    row_ids = [
        r for s in segments for r in read_columns(store, [s.insert_log], ["RowID"])["RowID"].to_pylist()
    ]
    assert sorted(row_ids) == list(range(1000, 2000))
    job = import_job(TaskID(3), ["a.parquet"], [plan(tmp_path, [])])
    assert job.output([ImportOutcome(segments)]).rows == 1000
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("limit", [{"rows_max": 150}, {"bytes_max": 150 * (8 + 4 * DIM)}])
def test_no_segment_grows_beyond_what_a_task_may_hold(
    tmp_path: Path, keys: np.ndarray, limit: dict[str, int]
) -> None:
    write(tmp_path, "a.parquet", keys, 1000)
    found = keys_by_segment(
        tmp_path, import_task(plan(tmp_path, surveyed(tmp_path, "a.parquet"), **limit)).segments
    )
    if "rows_max" in limit:
        assert max(map(len, found.values())) <= 150
        assert len(found) == 2 * 7
    assert all(of_segment == sorted(of_segment) for of_segment in found.values())
    assert sorted(key for of_segment in found.values() for key in of_segment) == list(range(1000))


def test_two_tries_of_a_task_write_the_same_rows_under_other_names(tmp_path: Path, keys: np.ndarray) -> None:
    write(tmp_path, "a.parquet", keys, 300)
    first = plan(tmp_path, surveyed(tmp_path, "a.parquet"))
    one, two = import_task(first).segments, import_task(replace(first, attempt=6)).segments
    assert keys_by_segment(tmp_path, one) == keys_by_segment(tmp_path, two)
    assert not {s.insert_log.path for s in one} & {s.insert_log.path for s in two}


def test_automatic_keys_are_the_tasks_own_and_decide_the_shard(tmp_path: Path) -> None:
    file = tmp_path / "import" / "a.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"v": pa.array(list(vectors_of_keys(np.arange(50))))}), file, row_group_size=7)
    segments = import_task(plan(tmp_path, surveyed(tmp_path, "a.parquet", schema=AUTO), AUTO)).segments
    found = keys_by_segment(tmp_path, segments)
    assert sorted(key for of_segment in found.values() for key in of_segment) == list(range(1000, 1050))
    for shard, of_segment in enumerate(found.values()):
        assert set(shard_of_keys(pa.array(of_segment), 2).tolist()) == {shard}


def test_an_error_names_the_row_within_the_file(tmp_path: Path) -> None:
    file = tmp_path / "import" / "deep" / "a.parquet"
    file.parent.mkdir(parents=True)
    vectors = [[1.0] * DIM] * 25 + [[1.0] * (DIM - 1)]
    pq.write_table(pa.table({"id": range(26), "v": vectors}), file, row_group_size=10)
    of = plan(tmp_path, surveyed(tmp_path, "deep/a.parquet"))
    with pytest.raises(InvalidParameter, match=r"deep/a.parquet, row group 2, row 25: field v has 3 values"):
        import_task(of)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.parquet", "absent.parquet: no such file in the import directory"),
        ("../files/x.parquet", "is no path below the import directory"),
        ("broken.parquet", "broken.parquet cannot be read as Parquet"),
    ],
)
def test_files_that_cannot_be_had(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "import").mkdir()
    (tmp_path / "import" / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidParameter, match=message):
        surveyed(tmp_path, name)


def test_a_file_that_was_replaced_after_the_plan_was_made_is_noticed(
    tmp_path: Path, keys: np.ndarray
) -> None:
    write(tmp_path, "a.parquet", keys[:100], 100)
    of = plan(tmp_path, surveyed(tmp_path, "a.parquet"))
    write(tmp_path, "a.parquet", keys[:90], 100)
    with pytest.raises(InvalidParameter, match="changed while the import ran"):
        for _ in import_rows(of, open_store(of.source_url)):
            pass


def test_rows_of_one_batch_are_split_where_the_limit_falls(tmp_path: Path, keys: np.ndarray) -> None:
    of = plan(tmp_path, [], rows_max=30)
    (tmp_path / "scratch").mkdir()
    writer = SegmentsWriter(of, open_store(of.store_url), tmp_path / "scratch", "one")
    vectors = pa.array(list(vectors_of_keys(keys[:100])), SCHEMA.fields[1].arrow_type)
    writer.add(pa.record_batch([pa.array(keys[:100]), vectors], schema=SCHEMA.arrow_schema))
    assert sum(s.insert_log.rows for s in writer.written) == 90
    writer.write_out()
    assert sum(s.insert_log.rows for s in writer.written) == 100


FILES = st.lists(st.lists(st.integers(0, 50), max_size=6), max_size=5)


@given(FILES, st.integers(1, 120))
def test_every_row_group_is_in_exactly_one_part(files: list[list[int]], task_rows: int) -> None:
    surveys = [
        FileRows(f"f{n}", tuple(RowGroup(g, 0, rows) for g, rows in enumerate(groups)))
        for n, groups in enumerate(files)
    ]
    parts = cut(surveys, task_rows)
    taken = [(f.file, g.number) for part in parts for f in part for g in f.groups]
    assert taken == [(f.file, g.number) for f in surveys for g in f.groups if g.rows]
    for part in parts:
        groups = [g for f in part for g in f.groups]
        assert len(groups) == 1 or sum(g.rows for g in groups) <= task_rows


def test_tasks_are_as_many_as_there_are_slots_unless_they_would_be_tiny() -> None:
    assert rows_of_task(1_000_000, row_bytes=512, rows_max=700_000, slots=4) == 250_000
    assert rows_of_task(10_000_000, row_bytes=512, rows_max=700_000, slots=4) == 700_000
    assert rows_of_task(1000, row_bytes=512, rows_max=700_000, slots=4) == 65_536


def test_a_missing_file_of_a_bucket_says_nothing_of_its_keys() -> None:
    class Empty:
        url = "s3://bucket/incoming?endpoint=http%3A%2F%2Fhost&credentials=%2Fetc%2Fkeys"

        def head(self, path: str) -> NoReturn:
            raise ObjectMissing(path)

    with pytest.raises(InvalidParameter) as refused:
        input_file(Empty(), "incoming/a.parquet")  # type: ignore[arg-type]
    assert refused.value.message == (
        "incoming/a.parquet: no such file in the import directory s3://bucket/incoming: "
        "name files relative to it"
    )
