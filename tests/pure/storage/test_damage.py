"""One changed byte in any object is found when the object is read, and the error names the object."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from insert_log_files import read_vectors, write_insert_log
from samples import EVERY_TYPE, KEY, rows_of_every_type

from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID
from elanus.core.schema import TIMESTAMP_FIELD, DataType, FieldSchema
from elanus.core.segments import BinlogFile, DeltaLog, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.storage import footers
from elanus.storage.binlog import insert_log_schema, read_columns, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer, read_delta_log
from elanus.storage.local import LocalStore
from elanus.storage.manifests import read_delta_list, read_manifest, write_delta_list, write_manifest
from elanus.storage.parquet import BinlogWriter, file_metadata, opened
from elanus.storage.port import CorruptObject
from elanus.storage.snapshots import read_snapshot, write_snapshot
from elanus.storage.stats_log import KeyStatsBuilder, read_stats_logs, write_stats_log

LOG = BinlogFile("insert_log/7/8/9/a.parquet", 10, 2000, Timestamp(1), Timestamp(2))
SNAPSHOTS = msgspec.json.Decoder(dict[str, int])
Read = Callable[[LocalStore, str], object]


def manifest_object(store: LocalStore) -> tuple[str, Read]:
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, (LOG,), ("s",), NO_TIMESTAMP
    )
    return write_manifest(store, manifest, "a"), read_manifest


def delta_list_object(store: LocalStore) -> tuple[str, Read]:
    return write_delta_list(store, CollectionID(7), "v", (DeltaLog("v", LOG),), "a"), read_delta_list


def stats_object(store: LocalStore) -> tuple[str, Read]:
    builder = KeyStatsBuilder()
    builder.add(pa.array(range(100)))
    write_stats_log(store, "stats.json", builder.finish())
    return "stats.json", lambda store, path: read_stats_logs(store, [path])


def snapshot_object(store: LocalStore) -> tuple[str, Read]:
    write_snapshot(store, "snapshot.json", {"a": 1, "b": 2})
    return "snapshot.json", lambda store, path: read_snapshot(store, path, SNAPSHOTS)


def damaged(store: LocalStore, path: str, places: Iterable[int]) -> Iterable[str]:
    """The object with one byte changed, again and again, each time under a new path."""
    data = bytes(store.get(path))
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 0xFF if place % 2 else 0x01
        name = f"damaged/{place}"
        store.put(name, bytes(changed))
        yield name
        store.delete(name)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr("os.fsync", lambda _file: None)
    return LocalStore(tmp_path / "files")


@pytest.mark.parametrize("make", [manifest_object, delta_list_object, stats_object, snapshot_object])
def test_every_byte_of_a_document_is_covered(
    store: LocalStore, make: Callable[[LocalStore], tuple[str, Read]]
) -> None:
    path, read = make(store)
    read(store, path)
    for name in damaged(store, path, range(store.head(path).size_bytes)):
        with pytest.raises(CorruptObject, match=name):
            read(store, name)


def test_lists_of_delta_logs_from_before_the_checksum_are_read(store: LocalStore) -> None:
    store.put("old.json", msgspec.json.encode((DeltaLog("v", LOG),)))
    assert read_delta_list(store, "old.json") == (DeltaLog("v", LOG),)
    store.put("broken.json", b"[1")
    with pytest.raises(CorruptObject, match=r"broken\.json"):
        read_delta_list(store, "broken.json")


def pages(file: Path) -> list[range]:
    """Where each column's pages are in a Parquet file of one row group."""
    found = []
    metadata = pq.read_metadata(file)
    for number in range(metadata.num_columns):
        column = metadata.row_group(0).column(number)
        begin = min(p for p in (column.dictionary_page_offset, column.data_page_offset) if p)
        found.append(range(begin, begin + column.total_compressed_size))
    return found


def places_in(file: Path) -> list[int]:
    drawn = random.Random(1)
    return [drawn.choice(column) for column in pages(file) for _ in range(30)]


def check_never_wrong(
    store: LocalStore, path: str, places: list[int], read: Callable[[str], pa.Table]
) -> None:
    """Damage is reported, or was in a statistic of a page's header, where the rows come out as they were."""
    whole = read(path)
    reports = []
    for name in damaged(store, path, places):
        try:
            assert read(name).equals(whole), name
        except CorruptObject as error:
            reports.append((name, str(error)))
    assert len(reports) > 0.8 * len(places)
    assert all(name in text for name, text in reports)


def test_pages_of_insert_logs_are_covered(store: LocalStore, tmp_path: Path) -> None:
    schema = insert_log_schema(EVERY_TYPE, KEY)
    batch = with_system_columns(rows_of_every_type(2000), 0, Timestamp(5), schema)
    written = write_insert_log(store, "log.parquet", EVERY_TYPE, KEY, [batch], tmp_path)

    def read(name: str) -> pa.Table:
        file = replace(written, path=name)
        columns = [field.name for field in EVERY_TYPE.scalar_fields]
        table = read_columns(store, [file], ["RowID", "Timestamp", *columns])
        for field in EVERY_TYPE.vector_fields:
            vectors = read_vectors(store, [file], field.name)
            table = table.append_column(field.name, field.vector.to_column(vectors))
        return table

    check_never_wrong(store, written.path, places_in(store.local_path(written.path, tmp_path)), read)


def test_damage_of_a_footer_is_always_found(store: LocalStore, tmp_path: Path) -> None:
    """Every byte of it, but those of the checksum's own name, whose damage changes nothing else."""
    schema = insert_log_schema(EVERY_TYPE, KEY)
    batch = with_system_columns(rows_of_every_type(20), 0, Timestamp(5), schema)
    written = write_insert_log(store, "log.parquet", EVERY_TYPE, KEY, [batch], tmp_path)
    content = bytes(store.get(written.path))
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    name_at = content.index(footers.KEY.encode(), begin)
    own_name = range(name_at, name_at + len(footers.KEY))
    places = [at for at in range(begin, len(content)) if at not in own_name]
    for name in damaged(store, written.path, places[:: len(places) // 400]):
        with pytest.raises(CorruptObject, match=name):
            read_columns(store, [replace(written, path=name)], ["RowID", "Timestamp"])


def test_a_footer_longer_than_what_is_fetched_at_once_is_checked(store: LocalStore, tmp_path: Path) -> None:
    fields = [FieldSchema(FieldID(100 + n), f"n{n}", DataType.INT64) for n in range(600)]
    file = wide_file(store, fields, tmp_path)
    assert int.from_bytes(store.get(file.path)[-8:-4], "little") > 64 * 1024
    with opened(store, file.path, "insert_log") as parquet:
        assert parquet.metadata.num_rows == 1
    for broken in damaged(store, file.path, [file.size_bytes - 70 * 1024]):
        with pytest.raises(CorruptObject, match=broken), opened(store, broken, "insert_log"):
            pass


def wide_file(store: LocalStore, fields: list[FieldSchema], scratch: Path) -> BinlogFile:
    columns = {TIMESTAMP_FIELD: pa.array([1], pa.uint64())} | {f.name: pa.array([1]) for f in fields}
    batch = pa.record_batch(columns)
    schema = batch.schema.with_metadata(file_metadata("insert_log", {}))
    with BinlogWriter(store, "wide.parquet", schema, 10, scratch) as writer:
        writer.write(batch.cast(schema))
        return writer.finish()


def test_pages_of_delta_logs_are_covered(store: LocalStore, tmp_path: Path) -> None:
    key = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
    schema = delta_log_schema(key, KEY.collection_id, KEY.vchannel)
    keys = pa.array(random.Random(2).sample(range(10**9), 3000))
    with delta_log_writer(store, "d.parquet", schema, tmp_path) as writer:
        writer.write(delete_rows(keys, Timestamp(20), ALL_PARTITIONS, schema))
        written = writer.finish()
    (column, *_) = pages(store.local_path(written.path, tmp_path))
    places = [random.Random(place).choice(column) for place in range(60)]
    check_never_wrong(
        store, written.path, places, lambda name: read_delta_log(store, replace(written, path=name))
    )
