"""Insert logs: rows are read back whole, by column and as a matrix; damage is reported by name."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from insert_log_files import read_vectors, write_insert_log
from samples import DIM, EVERY_TYPE, KEY, rows_of_every_type, vector_column

from elanus.core.errors import DiskFull, FieldNotFound, Internal
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.core.types import KINDS
from elanus.storage import parquet
from elanus.storage.binlog import insert_log_schema, insert_log_writer, read_columns, with_system_columns
from elanus.storage.local import LocalStore
from elanus.storage.port import CorruptObject, ObjectMissing

FILE_SCHEMA = insert_log_schema(EVERY_TYPE, KEY)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


def stamped(count: int, first: int, ts: int) -> pa.RecordBatch:
    rows = rows_of_every_type(count, first)
    return with_system_columns(rows, row_id_start=1000 + first, ts=Timestamp(ts), file_schema=FILE_SCHEMA)


def written(store: LocalStore, path: str, *batches: pa.RecordBatch) -> BinlogFile:
    scratch = Path(store.url.removeprefix("file://")).parent
    return write_insert_log(store, path, EVERY_TYPE, KEY, batches, scratch)


def test_every_type_comes_back_as_it_was(store: LocalStore) -> None:
    file = written(store, "insert_log/7/8/9/a.parquet", stamped(3, 0, 50), stamped(2, 3, 60))
    table = read_columns(store, [file], FILE_SCHEMA.names)
    assert table.select(EVERY_TYPE.arrow_schema.names).to_batches() == [rows_of_every_type(5)]
    assert table["RowID"].to_pylist() == [1000, 1001, 1002, 1003, 1004]
    assert table["Timestamp"].to_pylist() == [50, 50, 50, 60, 60]


def test_a_manifest_may_say_from_when_all_its_rows_count(store: LocalStore) -> None:
    file = written(store, "insert_log/7/8/9/a.parquet", stamped(3, 0, 50), stamped(2, 3, 60))
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, (file,), (), Timestamp(0)
    )
    later = dataclasses.replace(manifest, commit_ts=Timestamp(70))
    assert read_columns(store, manifest, ["Timestamp"])["Timestamp"].to_pylist() == [50, 50, 50, 60, 60]
    assert read_columns(store, later, ["RowID", "Timestamp"])["Timestamp"].to_pylist() == [70] * 5
    assert read_columns(store, later, ["RowID"]).column_names == ["RowID"]


def test_a_file_is_accounted_for(store: LocalStore, tmp_path: Path) -> None:
    file = written(store, "insert_log/7/8/9/a.parquet", stamped(3, 0, 50), stamped(2, 3, 60))
    size = store.head(file.path).size_bytes
    assert file == BinlogFile("insert_log/7/8/9/a.parquet", 5, size, Timestamp(50), Timestamp(60), True)
    assert list(tmp_path.glob("*.parquet")) == [], "the scratch file is gone"


def test_files_are_read_in_the_order_of_the_manifest(store: LocalStore) -> None:
    files = (written(store, "b.parquet", stamped(2, 7, 1)), written(store, "a.parquet", stamped(2, 0, 2)))
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, files, (), Timestamp(0)
    )
    assert read_columns(store, manifest, ["i32", "id"]).to_pydict() == {
        "i32": [7, 8, 0, 1],
        "id": [7, 8, 0, 1],
    }
    assert read_vectors(store, manifest, "vector")[:, 0].tolist() == [7, 8, 0, 1]


def test_vectors_come_as_one_contiguous_matrix(store: LocalStore) -> None:
    files = [written(store, "a.parquet", stamped(3, 0, 1)), written(store, "b.parquet", stamped(4, 3, 2))]
    vectors = read_vectors(store, files, "vector")
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    np.testing.assert_array_equal(vectors, np.arange(7)[:, None] + np.arange(DIM) / 8)
    bits = read_vectors(store, files, "bits")
    assert bits.dtype == np.uint8
    assert bits.tolist() == [[0, n] for n in range(7)]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    group_rows=st.integers(1, 50),
)
def test_row_groups_hold_every_row_whatever_the_batches(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], group_rows: int
) -> None:
    directory = tmp_path_factory.mktemp("groups")
    store = LocalStore(directory / "files")
    with parquet.BinlogWriter(store, "a.parquet", FILE_SCHEMA, group_rows, directory) as writer:
        first = 0
        for turn, size in enumerate(sizes):
            writer.write(stamped(size, first, turn + 1))
            first += size
        file = writer.finish()
    assert read_columns(store, [file], ["id"])["id"].to_pylist() == list(range(first))
    np.testing.assert_array_equal(read_vectors(store, [file], "vector")[:, 0], np.arange(first))
    metadata = pq.read_metadata(store.local_path("a.parquet", directory))
    assert all(metadata.row_group(i).num_rows == group_rows for i in range(metadata.num_row_groups - 1))


def test_row_groups_hold_about_eight_mebibytes() -> None:
    assert parquet.rows_per_group(16) == 16_384
    assert parquet.rows_per_group(4096) == 2048
    assert parquet.rows_per_group(100_000_000) == 1


def test_vectors_are_split_into_byte_planes_without_dictionary_or_statistics(store: LocalStore) -> None:
    file = written(store, "a.parquet", stamped(100, 0, 1))
    group = pq.read_metadata(store.local_path(file.path, Path())).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    vector = columns["vector.list.element"]
    assert "BYTE_STREAM_SPLIT" in vector.encodings
    assert "RLE_DICTIONARY" not in vector.encodings
    assert vector.compression == "ZSTD"
    assert not vector.is_stats_set
    assert columns["id"].statistics.max == 99


def test_a_slice_of_a_column_is_a_matrix_that_shares_its_memory() -> None:
    column = vector_column(np.arange(12).reshape(4, 3))
    floats, bits = (KINDS[t].vector for t in (DataType.FLOAT_VECTOR, DataType.BINARY_VECTOR))
    assert floats is not None
    assert bits is not None
    view = floats.to_matrix(column.slice(1, 2))
    assert view.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert np.shares_memory(view, floats.to_matrix(column))
    binary = pa.array([b"ab", b"cd", b"ef"], pa.binary(2))
    assert bytes(bits.to_matrix(binary.slice(1, 1))[0]) == b"cd"


def test_rows_must_come_in_the_order_of_time(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(Internal, match="order of their timestamps"):
        written(store, "a.parquet", stamped(1, 0, 50), stamped(1, 1, 49))
    assert list(store.list("")) == []
    assert list(tmp_path.glob("*.parquet")) == []


def test_rows_that_do_not_fit_the_schema_are_refused(store: LocalStore) -> None:
    with pytest.raises(Internal, match=r"without .*'vector'"):
        with_system_columns(rows_of_every_type(1).select(["id"]), 0, Timestamp(1), FILE_SCHEMA)
    with pytest.raises(Internal, match="columns"):
        written(store, "a.parquet", rows_of_every_type(1))


def test_a_writer_that_is_left_without_finish_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    with insert_log_writer(store, "a.parquet", EVERY_TYPE, KEY, tmp_path) as writer:
        writer.write(stamped(5, 0, 1))
        assert list(tmp_path.glob("*.parquet")) == [], "the first row group is not full"
        writer.close()
        assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert list(store.list("")) == []
    assert list(tmp_path.glob("*.parquet")) == []


def test_a_full_disk_under_the_scratch_file_is_a_clear_error(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", refuse)
    with pytest.raises(DiskFull, match=r"a\.parquet"):
        written(store, "a.parquet", stamped(5, 0, 1))
    assert list(tmp_path.glob("*.parquet")) == []


def damaged(store: LocalStore, at: int) -> BinlogFile:
    file = written(store, "whole.parquet", stamped(200, 0, 1))
    content = bytearray(store.get(file.path).to_pybytes())
    content[at] ^= 0xFF
    store.put("broken.parquet", bytes(content))
    return dataclasses.replace(file, path="broken.parquet")


@pytest.mark.parametrize("at", [300, 2000, -1, -20], ids=["page", "later page", "end", "footer"])
def test_damage_is_found_and_reported_by_path(store: LocalStore, at: int) -> None:
    file = damaged(store, at)
    with pytest.raises(CorruptObject, match=r"broken\.parquet"):
        read_columns(store, [file], FILE_SCHEMA.names)


def test_files_that_are_not_insert_logs_are_refused(store: LocalStore, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "foreign")
    store.put_file("foreign.parquet", tmp_path / "foreign")
    store.put("text.parquet", b"not parquet at all")
    store.put("empty.parquet", b"")
    for path in ("foreign.parquet", "text.parquet", "empty.parquet"):
        with pytest.raises(CorruptObject, match=path):
            read_columns(store, [BinlogFile(path, 1, 1, Timestamp(1), Timestamp(1))], ["id"])


def test_another_row_count_than_the_manifest_says_is_damage(store: LocalStore) -> None:
    file = dataclasses.replace(written(store, "a.parquet", stamped(3, 0, 1)), rows=4)
    with pytest.raises(CorruptObject, match=r"3 rows.*says 4"):
        read_vectors(store, [file], "vector")


def test_missing_files_columns_and_sources_are_named(store: LocalStore) -> None:
    file = written(store, "a.parquet", stamped(3, 0, 1))
    with pytest.raises(ObjectMissing, match="gone"):
        read_columns(store, [dataclasses.replace(file, path="gone")], ["id"])
    with pytest.raises(FieldNotFound, match="nothing"):
        read_columns(store, [file], ["id", "nothing"])
    with pytest.raises(FieldNotFound, match="nothing"):
        read_vectors(store, [file], "nothing")
    with pytest.raises(ValueError, match="without insert logs"):
        read_columns(store, [], ["id"])


def test_a_plain_parquet_reader_sees_the_same_rows(store: LocalStore, tmp_path: Path) -> None:
    file = written(store, "a.parquet", stamped(3, 0, 50))
    table = pq.read_table(store.local_path(file.path, tmp_path))
    assert table.schema.field("vector").type == EVERY_TYPE.field("vector").arrow_type
    assert table["vector"].to_pylist()[2] == [2.0, 2.125, 2.25, 2.375]
    ids = {field.name: field.metadata[b"PARQUET:field_id"] for field in table.schema}
    assert ids["RowID"] == b"0"
    assert ids["Timestamp"] == b"1"
    assert ids["$meta"] == b"110"


def test_vectors_of_wide_dimensions(store: LocalStore, tmp_path: Path) -> None:
    wide = CollectionSchema(
        "wide",
        (
            FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
            FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=32_768),
        ),
    )
    matrix = np.random.default_rng(1).standard_normal((70, 32_768), dtype=np.float32)
    rows = pa.record_batch([pa.array(np.arange(70)), vector_column(matrix)], schema=wide.arrow_schema)
    batch = with_system_columns(rows, 0, Timestamp(1), insert_log_schema(wide, KEY))
    file = write_insert_log(store, "a.parquet", wide, KEY, [batch], tmp_path)
    np.testing.assert_array_equal(read_vectors(store, [file], "v"), matrix)


def test_files_may_lack_fields_that_were_added_later(store: LocalStore) -> None:
    file = written(store, "insert_log/7/8/9/a.parquet", stamped(3, 0, 50))
    added = (
        FieldSchema(FieldID(900), "extra", DataType.INT64, nullable=True, is_added=True),
        FieldSchema(
            FieldID(901),
            "word",
            DataType.VARCHAR,
            max_length=9,
            nullable=True,
            default_value="w",
            is_added=True,
        ),
    )
    key = EVERY_TYPE.primary_field.name
    table = read_columns(store, [file], ["extra", key, "word"], added)
    assert table.schema.names == ["extra", key, "word"]
    assert table["extra"].to_pylist() == [None] * 3
    assert table["word"].to_pylist() == ["w"] * 3
    assert [table["extra"].type, table["word"].type] == [pa.int64(), pa.string()]
    with pytest.raises(FieldNotFound, match="has no column other"):
        read_columns(store, [file], ["other"], added)


def test_a_column_of_another_type_or_id_than_the_added_field_has_no_values(store: LocalStore) -> None:
    file = written(store, "insert_log/7/8/9/a.parquet", stamped(2, 0, 50))
    known = next(f for f in EVERY_TYPE.fields if f.data_type is DataType.VARCHAR)
    name, number = known.name, known.field_id
    retyped = FieldSchema(number, name, DataType.INT64, nullable=True, is_added=True)
    assert read_columns(store, [file], [name], (retyped,))[name].to_pylist() == [None, None]
    same = FieldSchema(number, name, DataType.VARCHAR, max_length=9, nullable=True, is_added=True)
    stored = read_columns(store, [file], [name])[name].to_pylist()
    assert read_columns(store, [file], [name], (same,))[name].to_pylist() == stored
    later = replace(same, field_id=FieldID(900))  # the former field of this name was dropped
    assert read_columns(store, [file], [name], (later,))[name].to_pylist() == [None, None]
