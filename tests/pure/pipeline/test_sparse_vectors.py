"""Sparse vectors and vectors of bytes in files: imported, written, merged, indexed, served, read by Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from insert_log_files import read_vectors, write_insert_log
from vector_files import KEY, compacted, imported, index_files, loaded, of_field, read_by_spark, written

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.sparse import SparseRows, padded, paired
from elanus.core.timestamps import Timestamp
from elanus.index import Hits, IndexSpec, resolve_index, resolve_search
from elanus.pipeline.ordering import OpenRows, scalar_columns
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.querynode.vectors import VectorColumn
from elanus.storage import parquet
from elanus.storage.binlog import insert_log_schema, with_system_columns
from elanus.storage.insert_logs import InsertLogs
from elanus.storage.local import LocalStore

ROWS = 300
ID, SPARSE, SIGNED, EMPTY = FieldID(100), FieldID(101), FieldID(102), FieldID(103)
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(ID, "id", DataType.INT64, is_primary=True),
        FieldSchema(SPARSE, "sparse", DataType.SPARSE_FLOAT_VECTOR),
        FieldSchema(SIGNED, "signed", DataType.INT8_VECTOR, dim=4),
        FieldSchema(EMPTY, "empty", DataType.SPARSE_FLOAT_VECTOR),
    ),
)
RNG = np.random.default_rng(0)
SIGNED_ROWS = RNG.integers(-128, 128, (ROWS, 4)).astype(np.int8)
SPARSE_ROWS = [
    {int(t): float(v) for t, v in zip(np.unique(RNG.integers(0, 40, n % 7)), RNG.random(7), strict=False)}
    for n in range(ROWS)
]


def packed(row: dict[int, float]) -> bytes:
    return np.array(sorted(row.items()), dtype=[("index", "<u4"), ("value", "<f4")]).tobytes()


PACKED = [packed(row) for row in SPARSE_ROWS]


def rows() -> pa.RecordBatch:
    columns = [
        pa.array(range(ROWS)),
        pa.array(PACKED, pa.binary()),
        SCHEMA.field("signed").vector.to_column(SIGNED_ROWS),
        pa.array([b""] * ROWS, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def manifest(store: LocalStore, tmp_path: Path) -> SegmentManifest:
    return written(store, SCHEMA, rows(), tmp_path, cut_at=200)


@pytest.mark.parametrize("mapped", [False, True])
def test_vectors_are_read_as_they_were_written(
    mapped: bool, store: LocalStore, manifest: SegmentManifest, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = read_vectors(store, manifest, "sparse", scratch if mapped else None)
    assert isinstance(found, SparseRows)
    assert found.to_column().to_pylist() == PACKED
    none = read_vectors(store, manifest, "empty", scratch if mapped else None)
    assert (len(none), len(none.pairs)) == (ROWS, 0)
    assert list(scratch.iterdir()) == [], "the file is mapped, and its name is gone"
    signed = read_vectors(store, manifest, "signed", scratch if mapped else None)
    assert np.array_equal(signed, SIGNED_ROWS)


@pytest.mark.parametrize("name", ["sparse", "signed", "empty"])
def test_single_rows_are_read_in_the_order_of_the_request(
    name: str, store: LocalStore, manifest: SegmentManifest
) -> None:
    column = VectorColumn.filed(SCHEMA.field(name), None, store, manifest.insert_logs)
    for wanted in ([7, 299, 0, 200, 199], [250], []):
        taken = column.take(np.array(wanted, np.int64))
        assert taken.type == SCHEMA.field(name).arrow_type
        assert taken.to_pylist() == rows().column(name).take(pa.array(wanted, pa.int64())).to_pylist()


def test_compaction_keeps_them(store: LocalStore, manifest: SegmentManifest, tmp_path: Path) -> None:
    assert compacted(store, SCHEMA, manifest, tmp_path).equals(pa.Table.from_batches([rows()]))


def test_long_vectors_make_small_row_groups(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row group ends when it has many bytes, also where its rows are much longer than estimated."""
    long = np.arange(3000, dtype=np.uint32)
    pairs = paired(long, np.ones(3000)).tobytes()
    few = rows()[:12].set_column(1, SCHEMA.arrow_schema.field("sparse"), pa.array([pairs] * 12, pa.binary()))
    batch = with_system_columns(few, 0, Timestamp(5), insert_log_schema(SCHEMA, KEY))
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES_MAX", 3 * len(pairs))
    parts = [batch[n : n + 1] for n in range(12)]
    file = write_insert_log(store, "insert_log/long.parquet", SCHEMA, KEY, parts, tmp_path)
    with pq.ParquetFile(store.open(file.path)) as written:
        assert [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)] == [3] * 4
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 2 * len(pairs))
    order = np.arange(12)[::-1].copy()
    with InsertLogs(store, [[file]], SCHEMA, tmp_path) as logs:
        opened = OpenRows(logs.columns(scalar_columns(SCHEMA)), logs, SCHEMA)
    batches = list(opened.batches(order, KEY))
    assert [b.num_rows for b in batches] == [1] * 12
    assert [key for b in batches for key in b["id"].to_pylist()] == order.tolist()


def test_spark_reads_structs_and_lists(store: LocalStore, manifest: SegmentManifest) -> None:
    table = read_by_spark(store, SCHEMA, manifest, ("id", "sparse", "signed", "empty"))
    for row, found in zip(SPARSE_ROWS, table.column("sparse").to_pylist(), strict=True):
        assert found["indices"] == sorted(row)
        assert found["values"] == [float(np.float32(row[t])) for t in sorted(row)]
    assert table.column("signed").to_pylist() == SIGNED_ROWS.astype(float).tolist()


PARAMS = {
    "sparse": {"index_type": "SPARSE_WAND", "metric_type": "IP"},
    "signed": {"index_type": "FLAT", "metric_type": "L2"},
}


def served(
    store: LocalStore, manifest: SegmentManifest, tmp_path: Path, files: tuple[IndexFile, ...]
) -> dict[str, VectorColumn]:
    block = loaded(store, SCHEMA, manifest, specs_of(), files, tmp_path)
    return {name: block.vectors[SCHEMA.field(name).field_id] for name in (*PARAMS, "empty")}


def specs_of() -> dict[FieldID, IndexSpec]:
    return {
        SCHEMA.field(name).field_id: resolve_index(p, SCHEMA.field(name).data_type, SCHEMA.field(name).dim)
        for name, p in PARAMS.items()
    }


def found_in(column: VectorColumn, name: str, queries: np.ndarray) -> Hits:
    assert column.index is not None
    return column.index.search(queries, 5, resolve_search(specs_of()[SCHEMA.field(name).field_id], {}, 5))


def test_growing_rows_rows_without_an_index_and_an_index_answer_alike(
    store: LocalStore, manifest: SegmentManifest, tmp_path: Path
) -> None:
    segment = GrowingSegment(KEY.segment_id, KEY.partition_id, SCHEMA, specs_of())
    segment.append([NewRows(rows(), np.full(ROWS, 5, np.uint64))])
    params = {SCHEMA.field(name).field_id: given for name, given in PARAMS.items()}
    files = index_files(store, SCHEMA, manifest, params, tmp_path)
    assert [file.has_raw_vectors for file in files] == [False, True]
    plain = served(store, manifest, tmp_path, ())
    indexed = served(store, manifest, tmp_path, files)
    queries = {"sparse": padded(PACKED[1:40]), "signed": SIGNED_ROWS[1:40].astype(np.float32)}
    wanted = np.array([299, 3, 200, 3])
    for name in PARAMS:
        grown = segment.blocks[0].vectors[SCHEMA.field(name).field_id]
        hits = [found_in(column, name, queries[name]) for column in (grown, plain[name], indexed[name])]
        for other in hits[1:]:
            assert np.array_equal(hits[0].distances, other.distances), name
        for column in (grown, plain[name], indexed[name]):
            assert column.take(wanted).to_pylist() == rows().column(name).take(wanted).to_pylist()
    assert plain["empty"].index is None, "a field without an index is not searched, and its vectors are read"
    assert plain["empty"].take(wanted).to_pylist() == [b""] * 4


def taken_in(name: str, values: pa.Array) -> pa.Array:
    return imported(of_field(SCHEMA, name), {name: values}).column(name)


def structs(rows: list[dict[int, float]], indices: pa.DataType, values: pa.DataType) -> pa.Array:
    """Pairs in descending order: a file need not have them sorted."""
    found = [
        {"indices": sorted(r, reverse=True), "values": [r[t] for t in sorted(r, reverse=True)]} for r in rows
    ]
    return pa.array(found, pa.struct([("indices", pa.list_(indices)), ("values", pa.large_list(values))]))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(PACKED, pa.large_binary()),
        structs(SPARSE_ROWS, pa.int64(), pa.float64()),
        structs(SPARSE_ROWS, pa.uint32(), pa.float32()),
        pa.array([list(row.items()) for row in SPARSE_ROWS], pa.map_(pa.int32(), pa.float32())),
    ],
)
@pytest.mark.parametrize("start", [0, 130])
def test_sparse_imports_of_every_form(values: pa.Array, start: int) -> None:
    assert taken_in("sparse", values.slice(start)).to_pylist() == PACKED[start:]


@pytest.mark.parametrize("form", [pa.list_(pa.int64()), pa.list_(pa.int8(), 4), pa.binary(), pa.binary(4)])
def test_imports_of_bytes(form: pa.DataType) -> None:
    given = SIGNED_ROWS.tolist() if pa.types.is_nested(form) else [row.tobytes() for row in SIGNED_ROWS]
    found = taken_in("signed", pa.array(given, form))
    assert np.array_equal(SCHEMA.field("signed").vector.to_matrix(found), SIGNED_ROWS)


def test_imports_that_do_not_fit() -> None:
    two = pa.struct([("indices", pa.list_(pa.int64())), ("values", pa.list_(pa.float64()))])

    def refused(values: list[object], text: str) -> None:
        with pytest.raises(InvalidParameter, match=text):
            taken_in("sparse", pa.array(values, two))

    fine = {"indices": [1], "values": [0.5]}
    refused(
        [fine, {"indices": [1, 2], "values": [0.5]}], "row 101: field sparse has indices and values of diff"
    )
    refused(
        [fine, {"indices": [1, -2], "values": [0.5, 1]}], r"row 101.*holds the index -2: indices are in \[0"
    )
    refused([{"indices": [2**32 - 1], "values": [0.5]}], "row 100.*holds the index 4294967295")
    refused(
        [fine, {"indices": [3, 3], "values": [1, 1]}], "row 101.*no sparse vector: unsorted or same indices"
    )
    refused([fine, {"indices": [3], "values": [-1]}], "row 101.*negative value in sparse float vector")
    refused([fine, {"indices": [3], "values": [1e300]}], r"row 101.*value '\+Inf' is not a number")
    refused([fine, {"indices": [None], "values": [1]}], "row 101.*holds a null among its numbers")
    refused([fine, {"indices": None, "values": [1]}], "row 101.*holds a null instead of a list")
    with pytest.raises(InvalidParameter, match="does not fit field sparse of type SPARSE_FLOAT_VECTOR"):
        taken_in("sparse", pa.array([[0.5]]))
    with pytest.raises(
        InvalidParameter, match=r"row 101: field signed holds 200 at position 1: values are whole"
    ):
        taken_in("signed", pa.array([[1, 2, 3, 4], [1, 200, 3, 4]]))
