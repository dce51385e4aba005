"""Jobs and loads open each insert log once, and one at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from opened_files import OpenedFiles
from test_merge import deletes, order, segment
from vector_files import KEY, index_files, loaded, written

from elanus.core.field_changes import with_added_field
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.index import resolve_index
from elanus.pipeline.merge import merge_segments
from elanus.pipeline.ordering import rewritten_by_key
from elanus.storage.binlog import (
    insert_log_schema,
    insert_log_writer,
    read_columns,
    with_system_columns,
)
from elanus.storage.local import LocalStore
from elanus.storage.objects import open_store

SCHEMA = with_added_field(
    CollectionSchema(
        "docs",
        (
            FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
            FieldSchema(FieldID(101), "one", DataType.FLOAT_VECTOR, dim=4),
            FieldSchema(FieldID(102), "other", DataType.FLOAT_VECTOR, dim=4),
        ),
    ),
    FieldSchema(FieldID(0), "later", DataType.FLOAT_VECTOR, dim=4, nullable=True),
)
VECTORS = ("one", "other", "later")
PARAMS = {"index_type": "HNSW", "metric_type": "L2", "M": "8", "efConstruction": "64"}
SPECS = {SCHEMA.field(name).field_id: resolve_index(PARAMS, DataType.FLOAT_VECTOR, 4) for name in VECTORS}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


def rows(keys: list[int]) -> pa.RecordBatch:
    matrix = np.repeat(np.array(keys, dtype=np.float32)[:, None], 4, axis=1)
    vectors = [SCHEMA.field(name).vector.to_column(matrix) for name in VECTORS]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), *vectors], schema=SCHEMA.arrow_schema)


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("indexed", [(), ("one",), VECTORS])
def test_a_load_opens_each_insert_log_once(
    files: int, indexed: tuple[str, ...], store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = written(store, SCHEMA, rows([3, 1, 2, 5]), tmp_path, None if files == 1 else 3)
    params = {SCHEMA.field(name).field_id: PARAMS for name in indexed}
    built = index_files(store, SCHEMA, manifest, params, tmp_path)
    counts = OpenedFiles(monkeypatch)
    block = loaded(store, SCHEMA, manifest, SPECS, built, tmp_path)
    assert counts.times == dict.fromkeys((file.path for file in manifest.insert_logs), 1)
    assert (counts.open_max, counts.open) == (1, 0)
    assert block.rows == 4


@pytest.mark.parametrize("name", VECTORS)
def test_an_index_build_opens_each_insert_log_once(
    name: str, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = written(store, SCHEMA, rows([3, 1, 2, 5]), tmp_path, 3)
    counts = OpenedFiles(monkeypatch)
    index_files(store, SCHEMA, manifest, {SCHEMA.field(name).field_id: PARAMS}, tmp_path)
    assert counts.times == dict.fromkeys((file.path for file in manifest.insert_logs), 1)
    assert (counts.open_max, counts.open) == (1, 0)


def test_a_merge_opens_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store((tmp_path / "store").as_uri())
    inputs = [segment(store, tmp_path, n, [(10, [n, 10 * n])]) for n in (1, 2, 3)]
    delta = deletes(store, tmp_path, "d", (20, [10], 8))
    counts = OpenedFiles(monkeypatch)
    output = merge_segments(order(inputs, delta), store, tmp_path, "merged")
    named = [file.path for manifest in inputs for file in manifest.insert_logs]
    assert counts.times == dict.fromkeys([*named, delta.path], 1)
    assert counts.open == 0
    assert read_columns(store, output.insert_logs, ["id"])["id"].to_pylist() == [1, 2, 3, 20, 30]


def test_rows_that_are_sorted_after_the_flush_are_read_from_a_file_that_is_opened_once(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = with_system_columns(rows([3, 1, 2]), 0, 5, insert_log_schema(SCHEMA, KEY))
    with insert_log_writer(store, "unsorted", SCHEMA, KEY, tmp_path) as writer:
        writer.write(batch)
        unsorted = writer.close()
        counts = OpenedFiles(monkeypatch)
        file = rewritten_by_key(unsorted, store, "sorted", SCHEMA, KEY, tmp_path)
    assert counts.times == {unsorted.path: 1}
    assert counts.open == 0
    assert read_columns(store, [file], ["id"])["id"].to_pylist() == [1, 2, 3]
