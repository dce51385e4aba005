"""Nullable vectors of every type: in files, merged, indexed, searched, returned, tested for null."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from vector_files import KEY, compacted, imported, index_files, loaded, of_field, read_by_spark, written

from elanus.core.ids import FieldID
from elanus.core.nullable import spread
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.sparse import padded
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.index import Hits, IndexSpec, NullableIndex, RowMask, resolve_index, resolve_search
from elanus.querynode.block import Block
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.storage.local import LocalStore

DIM, ROWS, BARE = 8, 300, "bare"
DENSE = {
    "floats": DataType.FLOAT_VECTOR,
    "half": DataType.FLOAT16_VECTOR,
    "brain": DataType.BFLOAT16_VECTOR,
    "bytes": DataType.INT8_VECTOR,
    "bits": DataType.BINARY_VECTOR,
    "never": DataType.FLOAT_VECTOR,
    BARE: DataType.FLOAT_VECTOR,
}
"""``never`` has no vectors at all, ``bare`` no index."""
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        *(
            FieldSchema(FieldID(101 + n), name, data_type, dim=DIM, nullable=True)
            for n, (name, data_type) in enumerate(DENSE.items())
        ),
        FieldSchema(FieldID(120), "sparse", DataType.SPARSE_FLOAT_VECTOR, nullable=True),
    ),
)
NAMES = [field.name for field in SCHEMA.vector_fields]
SEARCHED = [name for name in NAMES if name != BARE]
RNG = np.random.default_rng(3)
VALID = {name: RNG.random(ROWS) < 0.6 for name in NAMES} | {"never": np.zeros(ROWS, np.bool_)}


def _values(field: FieldSchema, rows: int) -> pa.Array:
    if field.name == "sparse":
        pairs = np.zeros((rows, 2), [("index", "<u4"), ("value", "<f4")])
        pairs["index"], pairs["value"] = [1, 5], RNG.random((rows, 2)) + 0.1
        return pa.array([row.tobytes() for row in pairs], pa.binary())
    width, dtype = field.vector.width(DIM), field.vector.dtype
    numbers = RNG.integers(0, 100, (rows, width)) if dtype.kind in "iu" else RNG.normal(size=(rows, width))
    return field.vector.to_column(numbers.astype(dtype))


VALUES = {
    name: spread(_values(SCHEMA.field(name), int(VALID[name].sum())), VALID[name])
    if VALID[name].any()
    else pa.nulls(ROWS, SCHEMA.field(name).arrow_type)
    for name in NAMES
}


def rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(ROWS)), *VALUES.values()], schema=SCHEMA.arrow_schema)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    return LocalStore(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def manifest(store: LocalStore, scratch: Path) -> SegmentManifest:
    return written(store, SCHEMA, rows(), scratch, cut_at=170)


def specs() -> dict[FieldID, IndexSpec]:
    found = {}
    for name in SEARCHED:
        field = SCHEMA.field(name)
        params = {"index_type": "HNSW", "metric_type": "L2"} if name in ("floats", "never") else {}
        found[field.field_id] = resolve_index(params, field.data_type, field.dim)
    return found


def built(store: LocalStore, manifest: SegmentManifest, scratch: Path) -> tuple[IndexFile, ...]:
    params = {field_id: spec.flattened() for field_id, spec in specs().items()}
    return index_files(store, SCHEMA, manifest, params, scratch)


@pytest.fixture(scope="module")
def blocks(store: LocalStore, manifest: SegmentManifest, scratch: Path) -> dict[str, Block]:
    """The same rows growing, sealed without indexes, and with."""
    growing = GrowingSegment(KEY.segment_id, KEY.partition_id, SCHEMA, specs())
    growing.append([NewRows(rows(), np.full(ROWS, 5, np.int64))])
    files = built(store, manifest, scratch)
    assert [file.rows for file in files] == [ROWS] * len(files)
    return {
        "growing": growing.blocks[0],
        "sealed": loaded(store, SCHEMA, manifest, specs(), (), scratch),
        "indexed": loaded(store, SCHEMA, manifest, specs(), files, scratch),
    }


def searched(block: Block, name: str, mask: RowMask | None = None) -> Hits:
    field = SCHEMA.field(name)
    column = VALUES["floats"].drop_null()[:5] if name == "never" else VALUES[name].drop_null()[:5]
    if name == "sparse":
        queries = padded(column.to_pylist())
    else:
        form = SCHEMA.field("floats" if name == "never" else name).vector
        queries = form.compared(form.to_matrix(column))
    index = block.vectors[field.field_id].index
    assert index is not None
    return index.search(queries, ROWS, resolve_search(specs()[field.field_id], {}, ROWS), mask)


@pytest.mark.parametrize("name", SEARCHED)
def test_rows_without_a_vector_are_never_hits(name: str, blocks: dict[str, Block]) -> None:
    some = RNG.random(ROWS) < 0.3
    for place, block in blocks.items():
        for visible, mask in ((np.ones(ROWS, np.bool_), None), (some, RowMask.from_bool(some))):
            found = searched(block, name, mask)
            expected = set(np.flatnonzero(VALID[name] & visible).tolist())
            for hits in found.rows:
                assert set(hits[hits >= 0].tolist()) == expected, (place, name)
            again = searched(block, name, mask)
            assert np.array_equal(found.rows, again.rows)


def test_hits_are_those_of_an_exact_comparison(blocks: dict[str, Block]) -> None:
    matrix = np.array(VALUES["floats"].drop_null().to_pylist(), np.float32)
    expected = np.flatnonzero(VALID["floats"])[
        np.argsort(((matrix - matrix[0]) ** 2).sum(axis=1), kind="stable")
    ]
    for block in blocks.values():
        assert np.array_equal(searched(block, "floats").rows[0][: len(expected)], expected)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_returned_with_their_nulls(name: str, blocks: dict[str, Block]) -> None:
    wanted = np.array([7, 299, 0, 169, 170, 7])
    for place, block in blocks.items():
        for chosen in (wanted, wanted[:0], np.flatnonzero(~VALID[name]), np.flatnonzero(VALID[name])):
            taken = block.take(name, chosen)
            assert taken.type == SCHEMA.field(name).arrow_type, place
            assert taken.to_pylist() == VALUES[name].take(pa.array(chosen)).to_pylist(), place


@pytest.mark.parametrize("name", NAMES)
def test_filters_test_them_for_null(name: str, blocks: dict[str, Block]) -> None:
    every = np.arange(ROWS)
    for block in blocks.values():
        null = compile_filter(f"{name} is null", SCHEMA)
        assert np.array_equal(block.narrow(Timestamp(9), every, null), np.flatnonzero(~VALID[name]))
        assert np.array_equal(block.evaluate(null).to_bool(), ~VALID[name])
        some = compile_filter(f"{name} is not null and id < 100", SCHEMA)
        assert np.array_equal(block.evaluate(some).to_bool(), VALID[name] & (every < 100))


def test_an_index_of_rows_that_all_have_a_vector_is_the_plain_one(store: LocalStore, tmp_path: Path) -> None:
    full = np.flatnonzero(VALID["floats"])[:20]
    segment = written(store, SCHEMA, rows().take(pa.array(full)), tmp_path)
    files = built(store, segment, tmp_path)[:1]
    block = loaded(store, SCHEMA, segment, specs(), files, tmp_path)
    index = block.vectors[SCHEMA.field("floats").field_id].index
    assert not isinstance(index, NullableIndex)


def test_the_copies_of_growing_vectors_count(blocks: dict[str, Block]) -> None:
    block = blocks["growing"]
    copied = sum(VALUES[name].drop_null().nbytes for name in SEARCHED)
    assert block.memory_bytes >= copied + sum(column.nbytes for column in VALUES.values()) * 0.9


def test_compaction_keeps_them(store: LocalStore, manifest: SegmentManifest, tmp_path: Path) -> None:
    assert compacted(store, SCHEMA, manifest, tmp_path).to_pydict() == rows().to_pydict()


def test_spark_reads_them(store: LocalStore, manifest: SegmentManifest) -> None:
    table = read_by_spark(store, SCHEMA, manifest, ("id", *NAMES), "floats is not null")
    there = pa.array(VALID["floats"])
    for name in NAMES:
        found = table.column(name).combine_chunks()
        assert found.is_null().equals(VALUES[name].filter(there).is_null())
    assert table.column("floats").to_pylist() == VALUES["floats"].filter(there).to_pylist()


@pytest.mark.parametrize("name", NAMES)
def test_imports(name: str) -> None:
    for values in (VALUES[name], pa.nulls(ROWS)):
        found = imported(of_field(SCHEMA, name), {name: values})
        assert found.column(name).to_pylist() == values.to_pylist()
