"""Delta logs, stats logs and manifests: written, read, and refused when damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from samples import EVERY_TYPE, KEY

from elanus.core.clones import deletes_as_of
from elanus.core.ids import ALL_PARTITIONS, FieldID, PartitionID, SegmentID
from elanus.core.schema import DataType, FieldSchema
from elanus.core.segments import BinlogFile, DeltaLog, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer, read_delta_log
from elanus.storage.local import LocalStore
from elanus.storage.manifests import read_manifest, write_manifest
from elanus.storage.port import CorruptObject, ObjectExists, ObjectMissing
from elanus.storage.stats_log import KeyStats, KeyStatsBuilder, read_stats_logs, write_stats_log

STRING_KEY = FieldSchema(FieldID(100), "id", DataType.VARCHAR, is_primary=True, max_length=20)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


def stats_of(*batches: pa.Array) -> KeyStats:
    builder = KeyStatsBuilder()
    for batch in batches:
        builder.add(batch)
    return builder.finish()


@pytest.mark.parametrize(
    ("field", "first", "second"),
    [(EVERY_TYPE.primary_field, [5, 3], [7]), (STRING_KEY, ["b", "ä"], [""])],
    ids=["int64", "string"],
)
def test_deletes_come_back_in_order(
    store: LocalStore, tmp_path: Path, field: FieldSchema, first: list[object], second: list[object]
) -> None:
    schema = delta_log_schema(field, KEY.collection_id, KEY.vchannel)
    with delta_log_writer(store, "d.parquet", schema, tmp_path) as writer:
        writer.write(delete_rows(pa.array(first, field.arrow_type), Timestamp(20), ALL_PARTITIONS, schema))
        writer.write(delete_rows(pa.array(second, field.arrow_type), Timestamp(30), PartitionID(8), schema))
        file = writer.finish()
    assert (file.rows, file.ts_min, file.ts_max) == (3, 20, 30)
    assert read_delta_log(store, file).to_pydict() == {
        "PrimaryKey": [*first, *second],
        "Timestamp": [20, 20, 30],
        "PartitionID": [0, 0, 8],
    }
    with pytest.raises(CorruptObject, match=r"d\.parquet.*kind"):
        read_columns(store, [file], ["Timestamp"])


def test_a_clone_at_the_moment_of_the_first_delete_of_a_file_has_no_later_one(
    store: LocalStore, tmp_path: Path
) -> None:
    key = EVERY_TYPE.primary_field
    schema = delta_log_schema(key, KEY.collection_id, KEY.vchannel)
    with delta_log_writer(store, "d.parquet", schema, tmp_path) as writer:
        for moment in (20, 30):
            keys = pa.array([moment], key.arrow_type)
            writer.write(delete_rows(keys, Timestamp(moment), ALL_PARTITIONS, schema))
        log = DeltaLog(KEY.vchannel, writer.finish())
    (kept,) = deletes_as_of([log], Timestamp(20))
    assert read_delta_log(store, kept.file).to_pydict() == {
        "PrimaryKey": [20],
        "Timestamp": [20],
        "PartitionID": [0],
    }


@pytest.mark.parametrize(
    ("batches", "inside", "outside"),
    [
        ([[5, 90], [40]], [5, 40, 90], [4, 91, 41, 6, -(2**63)]),
        ([["b", "y"], ["käse"]], ["b", "käse", "y"], ["", "a", "zz", "c"]),
    ],
    ids=["int64", "string"],
)
def test_statistics_show_which_keys_may_be_there(
    store: LocalStore, batches: list[list[object]], inside: list[object], outside: list[object]
) -> None:
    stats = stats_of(*map(pa.array, batches))
    assert (stats.rows, stats.pk_min, stats.pk_max) == (3, inside[0], inside[-1])
    write_stats_log(store, "s.json", stats)
    (read,) = read_stats_logs(store, ["s.json"])
    assert read.may_contain(pa.array(inside)).all()
    assert not read.may_contain(pa.array(outside)).any()
    assert read.may_contain(pa.array(inside).slice(0, 0)).tolist() == []


def test_the_range_alone_denies_keys_the_bloom_filter_would_let_pass() -> None:
    stats = stats_of(pa.array([10, 20]))
    full = KeyStats(stats.rows, stats.pk_min, stats.pk_max, type(stats.bloom)(stats.bloom.words | 0xFFFFFFFF))
    assert full.may_contain(pa.array([9, 10, 15, 20, 21])).tolist() == [False, True, True, True, False]


def test_statistics_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError):
        KeyStatsBuilder().finish()


def manifest() -> SegmentManifest:
    file = BinlogFile("insert_log/7/8/9/a.parquet", 2**40, 2**41, Timestamp(2**62), Timestamp(2**62 + 1))
    return SegmentManifest(
        KEY.segment_id,
        KEY.collection_id,
        KEY.partition_id,
        KEY.vchannel,
        insert_logs=(file,),
        stats_logs=("stats_log/7/8/9/a.json",),
        deletes_from=Timestamp(2**62 - 1),
        parents=(SegmentID(3), SegmentID(4)),
    )


def test_a_manifest_comes_back_as_it_was(store: LocalStore) -> None:
    path = write_manifest(store, manifest(), "attempt-1")
    assert path == "manifests/7/9/attempt-1.json"
    assert read_manifest(store, path) == manifest()


def test_a_manifest_is_never_overwritten(store: LocalStore) -> None:
    write_manifest(store, manifest(), "attempt-1")
    with pytest.raises(ObjectExists):
        write_manifest(store, manifest(), "attempt-1")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format_version":1}', b'{"rows":"x"}'])
def test_damaged_json_is_reported_by_path(store: LocalStore, content: bytes) -> None:
    store.put("broken.json", content)
    with pytest.raises(CorruptObject, match=r"broken\.json"):
        read_manifest(store, "broken.json")
    with pytest.raises(CorruptObject, match=r"broken\.json"):
        read_stats_logs(store, ["broken.json"])


def test_a_later_format_is_refused(store: LocalStore) -> None:
    write_stats_log(store, "s.json", stats_of(pa.array([1])))
    for written, later, read in (
        (write_manifest(store, manifest(), "a"), "later-m.json", read_manifest),
        ("s.json", "later-s.json", lambda store, path: read_stats_logs(store, [path])),
    ):
        document = msgspec.json.decode(store.get(written)) | {"format_version": 3}
        store.put(later, msgspec.json.encode(document))
        with pytest.raises(CorruptObject, match=f"{later} has format version 3"):
            read(store, later)


def test_what_is_missing_is_missing(store: LocalStore) -> None:
    with pytest.raises(ObjectMissing):
        read_manifest(store, "manifests/1/2/x.json")
    with pytest.raises(ObjectMissing):
        read_stats_logs(store, ["stats_log/1/2/3/x.json"])
