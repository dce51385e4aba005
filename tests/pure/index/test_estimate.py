"""The bytes of a planned collection: the sums over its segments, and rows as they are really written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log

from elanus.core.errors import InvalidParameter
from elanus.core.estimate import SYSTEM_ROW_BYTES, segment_memory_bytes
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.index import IndexSpec, resolve_index
from elanus.index.estimate import INDEX_ROWS_MIN, SEGMENT_BYTES, Plan, estimate
from elanus.index.sizes import index_size
from elanus.server.settings import Settings
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.local import LocalStore

DIM, ROW_BYTES = 64, 256 + 8 + 16
PLAN = Plan(rows=2500, segment_bytes=1000 * ROW_BYTES)


def index(name: str, data_type: DataType = DataType.FLOAT_VECTOR, **params: str) -> IndexSpec:
    metric = "IP" if data_type is DataType.SPARSE_FLOAT_VECTOR else "L2"
    return resolve_index({"index_type": name, "metric_type": metric} | params, data_type, DIM)


def test_a_collection_is_the_sum_of_its_segments() -> None:
    spec = index("IVF_FLAT", nlist="4")
    found = estimate(spec, PLAN)
    full, last = index_size(spec, 1000), index_size(spec, 500)
    assert (found.rows, found.segments) == (2500, 3)
    assert found.index_memory_bytes == 2 * full.memory_bytes + last.memory_bytes
    assert found.insert_log_bytes == 2500 * ROW_BYTES
    assert found.object_bytes == found.insert_log_bytes + 2 * full.file_bytes + last.file_bytes
    assert found.load_bytes == found.insert_log_bytes + found.index_file_bytes
    assert found.node_disk_bytes == 0


def test_rows_that_fit_one_segment() -> None:
    found = estimate(index("FLAT"), replace(PLAN, rows=1000))
    assert (found.segments, found.index_memory_bytes) == (1, 256_000)
    assert found.load_bytes == 256_000 + 1000 * ROW_BYTES


def test_each_replica_is_loaded_and_stored_once() -> None:
    once, twice = (estimate(index("DISKANN"), replace(PLAN, replicas=n)) for n in (1, 2))
    assert twice.load_bytes == 2 * once.load_bytes
    assert (once.node_disk_bytes, twice.node_disk_bytes) == (2500 * 256, 2 * 2500 * 256)
    assert twice.object_bytes == once.object_bytes
    assert twice.index_memory_bytes == once.index_memory_bytes


def test_codes_do_not_lower_the_sum_for_a_load_below_the_vectors() -> None:
    found = estimate(index("IVF_SQ8", nlist="4"), PLAN)
    assert found.load_bytes == 2500 * 256 + found.insert_log_bytes


def test_segments_that_are_too_small_have_no_index() -> None:
    found = estimate(index("HNSW"), replace(PLAN, index_rows_min=800))
    with_index = estimate(index("HNSW"), replace(PLAN, rows=2000))
    assert found.index_file_bytes == with_index.index_file_bytes
    assert found.index_memory_bytes == with_index.index_memory_bytes + 500 * 256


def test_sparse_vectors_are_as_long_as_is_said() -> None:
    spec = index("SPARSE_INVERTED_INDEX", DataType.SPARSE_FLOAT_VECTOR)
    found = estimate(spec, replace(PLAN, values_per_row=120.0))
    assert found.insert_log_bytes == 2500 * (960 + 8 + 16)
    with pytest.raises(InvalidParameter, match="how many are not zero"):
        estimate(spec, PLAN)


@pytest.mark.parametrize("name", ["rows", "segment_bytes", "replicas"])
def test_nothing_is_estimated_of_nothing(name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"{name} is 0"):
        estimate(index("FLAT"), replace(PLAN, **{name: 0}))


def test_vectors_count_once_and_not_those_on_disk() -> None:
    segment = {"rows": 10, "vector_row_bytes": 100, "insert_log_bytes": 1500}
    assert segment_memory_bytes(**segment) == 2500
    assert segment_memory_bytes(**segment, vector_index_bytes=1200, scalar_index_bytes=7) == 2707
    assert segment_memory_bytes(**segment, vector_index_bytes=1300, index_disk_bytes=1000) == 800


@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.INT8_VECTOR, DataType.BINARY_VECTOR])
def test_rows_take_what_is_estimated_in_an_insert_log(data_type: DataType, tmp_path: Path) -> None:
    rows, dim = 4000, 256
    field = FieldSchema(FieldID(101), "vector", data_type, dim=dim)
    key_field = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
    schema = CollectionSchema("docs", (key_field, field))
    rng = np.random.default_rng(4)
    kind = field.vector
    bits = rng.integers(0, 256, (rows, kind.row_bytes(dim)), dtype=np.uint8)
    vectors = rng.normal(size=(rows, dim)) if data_type is DataType.FLOAT_VECTOR else bits
    vectors = vectors.astype(kind.dtype)
    keys = pa.array(rng.integers(0, 1 << 62, rows))
    batch = pa.record_batch([keys, kind.to_column(vectors)], schema=schema.arrow_schema)
    owner = SegmentKey(CollectionID(7), PartitionID(1), SegmentID(5), "dml_0_7v0")
    logged = with_system_columns(batch, 0, Timestamp(1), insert_log_schema(schema, owner))
    file = write_insert_log(LocalStore(tmp_path / "store"), "a.parquet", schema, owner, [logged], tmp_path)
    spec = resolve_index({}, data_type, dim)
    found = estimate(spec, Plan(rows, 1 << 30))
    system_bytes = rows * SYSTEM_ROW_BYTES  # row ids and equal timestamps shrink to almost nothing here
    assert found.insert_log_bytes - system_bytes <= 1.2 * file.size_bytes
    assert file.size_bytes <= 1.1 * found.insert_log_bytes


def test_the_defaults_are_those_of_the_settings() -> None:
    settings = Settings()
    segments = settings.datacoord
    assert int(segments.segment_size_max_mb * segments.seal_proportion) << 20 == SEGMENT_BYTES
    assert settings.indexcoord.index_rows_min == INDEX_ROWS_MIN
