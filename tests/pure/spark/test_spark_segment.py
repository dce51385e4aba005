"""One segment of a snapshot as the connector's tasks read it, held against rows kept in a list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log
from pyspark.sql.types import StructType

from elanus.core.errors import InvalidParameter, MissingParameter, NotSupported
from elanus.core.field_changes import with_added_field
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, DroppedField, FieldSchema
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.rpc.security import ClientSecurity
from elanus.spark.change_rows import ChangeRead, read_changes
from elanus.spark.options import parse_options
from elanus.spark.segment import SegmentRead, read_segment, segment_rows
from elanus.spark.source import ElanusSource, as_spark, spark_schema
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.local import LocalStore
from elanus.storage.port import ObjectMissing

PART, DIM = PartitionID(8), 2
KEY = SegmentKey(CollectionID(7), PART, SegmentID(9), "by-dev-rootcoord-dml_0_7v0")
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "name", DataType.VARCHAR, max_length=20, nullable=True),
        FieldSchema(FieldID(102), "ok", DataType.BOOL),
        FieldSchema(FieldID(103), "price", DataType.DOUBLE),
        FieldSchema(FieldID(104), "v", DataType.FLOAT_VECTOR, dim=DIM),
        FieldSchema(FieldID(105), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)


def rows(*keys: int) -> pa.RecordBatch:
    vectors = np.array([[key, -key] for key in keys], dtype=np.float32)
    columns = [
        pa.array(keys, pa.int64()),
        pa.array([None if key % 5 == 0 else f"n{key}" for key in keys]),
        pa.array([key % 2 == 0 for key in keys]),
        pa.array([key / 2 for key in keys]),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=SCHEMA.field("v").arrow_type),
        pa.array([f'{{"x":{key}}}' for key in keys]),
    ]
    return pa.record_batch(columns, schema=SCHEMA.arrow_schema)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


@pytest.fixture
def read(store: LocalStore, tmp_path: Path) -> SegmentRead:
    """Keys 0 to 9 written at 10, 10 to 19 at 20; as of 30."""
    files_schema = insert_log_schema(SCHEMA, KEY)
    batches = [
        with_system_columns(rows(*range(n, n + 10)), n, Timestamp(n + 10), files_schema) for n in (0, 10)
    ]
    files = tuple(
        write_insert_log(store, f"insert_log/7/8/9/{n}.parquet", SCHEMA, KEY, [batch], tmp_path)
        for n, batch in enumerate(batches)
    )
    manifest = SegmentManifest(KEY.segment_id, KEY.collection_id, PART, KEY.vchannel, files, (), NO_TIMESTAMP)
    return SegmentRead(store.url, SCHEMA, manifest, (), Timestamp(30), ("id",))


def deletes(store: LocalStore, tmp_path: Path, *made: tuple[int, list[int], int]) -> DeltaLog:
    """A delta log of (timestamp, keys, partition)."""
    schema = delta_log_schema(SCHEMA.primary_field, KEY.collection_id, KEY.vchannel)
    with delta_log_writer(store, f"delta_log/{made[0][0]}.parquet", schema, tmp_path) as writer:
        for ts, keys, partition in made:
            writer.write(
                delete_rows(pa.array(keys, pa.int64()), Timestamp(ts), PartitionID(partition), schema)
            )
        return DeltaLog(KEY.vchannel, writer.finish())


def keys(read: SegmentRead, store: LocalStore) -> list[int]:
    return [key for batch in read_segment(read, store) for key in batch.column("id").to_pylist()]


def test_rows_later_than_the_snapshot_are_left_out(read: SegmentRead, store: LocalStore) -> None:
    assert keys(read, store) == list(range(20))
    assert keys(replace(read, read_ts=Timestamp(19)), store) == list(range(10))
    assert keys(replace(read, read_ts=Timestamp(9)), store) == []


def test_expired_rows_are_left_out(read: SegmentRead, store: LocalStore) -> None:
    assert keys(replace(read, expired_until=Timestamp(9)), store) == list(range(20))
    assert keys(replace(read, expired_until=Timestamp(10)), store) == list(range(10, 20))
    assert keys(replace(read, expired_until=Timestamp(20)), store) == []
    imported = replace(read, manifest=replace(read.manifest, commit_ts=Timestamp(25)))
    assert keys(replace(imported, expired_until=Timestamp(24)), store) == list(range(20))


def test_rows_are_left_out_whose_own_moment_is_over(read: SegmentRead, store: LocalStore) -> None:
    by_key = replace(read.schema, ttl_field=read.schema.primary_field.name)  # microseconds
    assert keys(replace(read, schema=by_key), store) == list(range(20)), "as of the first millisecond"
    late = replace(read, schema=by_key, read_ts=Timestamp(1 << 18))
    assert keys(late, store) == [0], "a row without a moment stays"


def test_imported_rows_count_from_their_commit(read: SegmentRead, store: LocalStore, tmp_path: Path) -> None:
    imported = replace(read, manifest=replace(read.manifest, commit_ts=Timestamp(25)))
    assert keys(replace(imported, read_ts=Timestamp(24)), store) == []
    log = deletes(store, tmp_path, (24, [1], 0), (26, [2], 0))
    assert keys(replace(imported, delta_logs=(log,)), store) == [k for k in range(20) if k != 2]


def test_deletes_concern_older_rows_up_to_the_snapshot(
    read: SegmentRead, store: LocalStore, tmp_path: Path
) -> None:
    logs = (
        deletes(store, tmp_path, (10, [0], 0), (15, [1, 11], 0), (20, [12], 0)),
        deletes(store, tmp_path, (21, [2, 13], 8), (22, [3], 77), (31, [4], 0)),
    )
    alive = set(range(20)) - {1, 2, 13}
    assert set(keys(replace(read, delta_logs=logs), store)) == alive
    folded = replace(read, manifest=replace(read.manifest, deletes_from=Timestamp(20)), delta_logs=logs)
    assert set(keys(folded, store)) == alive | {1}, "what is folded in has been applied already"


def test_columns_come_as_they_are_asked_for(read: SegmentRead, store: LocalStore) -> None:
    (first, _) = read_segment(replace(read, columns=("v", "id", "$meta")), store)
    assert first.schema.names == ["v", "id", "$meta"]
    assert first.to_pylist()[3] == {"v": [3.0, -3.0], "id": 3, "$meta": '{"x":3}'}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x > 17", [18, 19]), ("name is null and id < 7", [0, 5]), ("price == 4.5", [9]), ("id == 99", [])],
)
def test_a_filter(read: SegmentRead, store: LocalStore, text: str, expected: list[int]) -> None:
    assert keys(replace(read, filter=text), store) == expected


def test_row_groups_that_cannot_match_are_not_read(
    read: SegmentRead, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(
        "elanus.spark.segment._row_group",
        lambda read, file, group, *_: looked_at.append(file.metadata.num_rows),
    )
    keys(replace(read, filter="id > 15"), store)
    assert len(looked_at) == 1


def test_a_file_that_is_gone(read: SegmentRead, store: LocalStore) -> None:
    store.delete(read.manifest.insert_logs[0].path)
    with pytest.raises(ObjectMissing):
        keys(read, store)


def test_vectors_become_lists_as_spark_has_them(read: SegmentRead, store: LocalStore) -> None:
    target = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("v", pa.list_(pa.field("element", pa.float32(), nullable=False)), nullable=False),
        ]
    )
    batch = next(iter(read_segment(replace(read, columns=("id", "v")), store))).slice(2, 3)
    converted = as_spark(batch, SCHEMA, target)
    assert converted.schema.equals(target)
    assert converted.column("v").to_pylist() == [[2.0, -2.0], [3.0, -3.0], [4.0, -4.0]]
    assert spark_schema(SCHEMA, ("v", "name")).simpleString() == "struct<v:array<float>,name:string>"


def test_overwriting_is_refused_with_what_to_do_instead() -> None:
    for options in ({"collection": "a"}, {"collection": "a", "partition": "p", "operation": "delete"}):
        with pytest.raises(InvalidParameter, match="replaces the rows of one partition"):
            ElanusSource(options).writer(StructType(), overwrite=True)
    with pytest.raises(NotSupported, match="use update"):
        ElanusSource({}).streamWriter(StructType(), overwrite=True)


def test_options() -> None:
    options = parse_options({"Collection": "docs", "columns": "id, v,id", "lease_s": "90"})
    assert (options.address, options.database) == ("127.0.0.1:19530", "default")
    assert (options.columns, options.lease_ms) == (("id", "v"), 90_000)
    assert parse_options({"collection": "a", "uri": "http://db:1"}).address == "db:1"
    assert parse_options({"collection": "a", "uri": "http://[::1]"}).address == "[::1]:19530"
    assert parse_options({"collection": "a", "host": "db", "port": "7"}).address == "db:7"
    assert options.security is None


def test_tls_is_asked_for_by_the_uri_or_by_naming_a_ca() -> None:
    tls = {"collection": "a", "tls_ca": "ca.pem", "tls_server_name": "elanus.example"}
    asked = ClientSecurity(Path("ca.pem"), "elanus.example")
    assert parse_options(tls | {"uri": "HTTPS://db:1"}).security == asked
    assert parse_options(tls | {"host": "db"}).security == asked
    assert parse_options({"collection": "a", "uri": "https://db"}).security == ClientSecurity()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, MissingParameter),
        ({"collection": "a", "colums": "id"}, InvalidParameter),
        ({"collection": "a", "uri": "ftp://db"}, InvalidParameter),
        ({"collection": "a", "uri": "http://db", "tls_ca": "ca.pem"}, InvalidParameter),
        ({"collection": "a", "tls_server_name": "db"}, InvalidParameter),
        ({"collection": "a", "uri": "db", "port": "7"}, InvalidParameter),
        ({"collection": "a", "lease_s": "long"}, InvalidParameter),
        ({"collection": "a", "lease_s": "nan"}, InvalidParameter),
        ({"collection": "a", "lease_s": "inf"}, InvalidParameter),
        ({"collection": "a", "lease_s": "0"}, InvalidParameter),
        ({"collection": "a", "lease_s": "604801"}, InvalidParameter),
        ({"collection": "a", "port": "proxy"}, InvalidParameter),
        ({"collection": "a", "port": "65536"}, InvalidParameter),
        ({"collection": "a", "uri": "http://db:65536"}, InvalidParameter),
        ({"collection": "a", "uri": "http://[db"}, InvalidParameter),
    ],
)
def test_options_that_are_refused(given: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_options(given)


def test_a_field_that_was_added_later_is_null_in_older_files(read: SegmentRead, store: LocalStore) -> None:
    number = FieldSchema(FieldID(0), "extra", DataType.INT64, nullable=True)
    wider = replace(read, schema=with_added_field(SCHEMA, number), columns=("id", "extra"))
    found = pa.Table.from_batches(read_segment(wider, store))
    assert found.column("extra").to_pylist() == [None] * 20
    assert sorted(found.column("id").to_pylist()) == list(range(20))
    assert keys(replace(wider, filter="extra is null and id < 3"), store) == [0, 1, 2]
    assert keys(replace(wider, filter="extra > 1"), store) == []


def test_rows_after_a_clones_moment_are_no_part_of_it(read: SegmentRead, store: LocalStore) -> None:
    cut = tuple(replace(file, until=Timestamp(15)) for file in read.manifest.insert_logs)
    cloned = replace(read, manifest=replace(read.manifest, insert_logs=cut))
    found = [key for batch in read_segment(cloned, store) for key in batch.column("id").to_pylist()]
    assert found == list(range(10))


@pytest.mark.parametrize(("data_type", "default"), [(DataType.DOUBLE, 500.0), (DataType.VARCHAR, "new")])
def test_a_field_with_the_name_of_a_dropped_one_is_not_ruled_out_by_the_values_of_that(
    read: SegmentRead, store: LocalStore, data_type: DataType, default: float | str
) -> None:
    fields = [field for field in SCHEMA.fields if field.name != "ok"]
    named = FieldSchema(
        FieldID(106), "ok", data_type, max_length=9, nullable=True, default_value=default, is_added=True
    )
    schema = replace(SCHEMA, fields=(*fields, named), dropped=(DroppedField("ok", FieldID(102)),))
    wanted = replace(read, schema=schema, filter=f"ok == {default!r}")
    assert sorted(keys(wanted, store)) == list(range(20))
    assert segment_rows(wanted, store).visible.all()


def test_the_changes_of_a_clone_end_at_its_moment(read: SegmentRead, store: LocalStore) -> None:
    cut = tuple(replace(file, until=Timestamp(15)) for file in read.manifest.insert_logs)
    cloned = replace(read.manifest, insert_logs=cut)
    changes = ChangeRead(store.url, SCHEMA, ("id",), NO_TIMESTAMP, Timestamp(30), cloned)
    found = [key for batch in read_changes(changes, store) for key in batch.column("id").to_pylist()]
    assert found == list(range(10))
