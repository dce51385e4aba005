"""Scalar indexes of a segment: built by the job, loaded with the segment, left out where damaged."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log
from test_growth import ROWS as FEW_ROWS

from elanus.api.querynode import LoadSegment
from elanus.core.catalog import Checkpoint
from elanus.core.geometry import wkb_of_texts
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.index_properties import altered
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.expr import compile_filter, indexed
from elanus.index import mapped_params
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.querynode import sealed
from elanus.querynode.block import Block
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.first_keys import rows_of_smallest_keys
from elanus.querynode.sealed import SealedSegment, load_sealed
from elanus.querynode.warming import warm_file
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.local import LocalStore
from elanus.storage.objects import open_store

ROWS = 10 * FEW_ROWS
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "color", DataType.VARCHAR, max_length=20, nullable=True),
        FieldSchema(FieldID(102), "meta", DataType.JSON),
        FieldSchema(FieldID(103), "vector", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(104), "$meta", DataType.JSON, is_dynamic=True),
        FieldSchema(FieldID(105), "place", DataType.GEOMETRY, nullable=True),
        FieldSchema(FieldID(106), "at", DataType.TIMESTAMPTZ, nullable=True),
    ),
    enable_dynamic=True,
)
COLOR = {"index_type": "BITMAP"}
META_A = {"index_type": "INVERTED", "params": '{"json_path": "meta[\\"a\\"]", "json_cast_type": "double"}'}
META_B = {"index_type": "INVERTED", "json_path": "meta['b']", "json_cast_type": "varchar"}
YEAR = {"index_type": "AUTOINDEX", "json_path": "year", "json_cast_type": "double"}
INDEXES = (
    ("color", COLOR),
    ("meta", META_A),
    ("meta", META_B),
    ("$meta", YEAR),
    ("place", {"index_type": "RTREE"}),
    ("at", {"index_type": "STL_SORT"}),
)
NEAR = "st_dwithin(place, 'POINT (7 7)', 100000)"
DAY = "at == ISO '1970-01-08T00:00:00Z'"
FILTERS = (
    'color == "red"',
    'color != "red"',
    'meta["a"] == 7',
    'meta["b"] == "b9"',
    "year == 1999",
    "id < 9",
    NEAR,
    DAY,
    f"{DAY} and not {NEAR}",
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    opened = open_store(f"file://{tmp_path / 'objects'}")
    assert isinstance(opened, LocalStore)
    return opened


@pytest.fixture
def manifest(store: LocalStore, tmp_path: Path) -> SegmentManifest:
    key = SegmentKey(CollectionID(1), PartitionID(2), SegmentID(3), "c_1v0")
    columns = [
        pa.array(range(ROWS), pa.int64()),
        pa.array([None if n % 5 == 4 else ("red", "green", "blue", "white")[n % 5] for n in range(ROWS)]),
        pa.array([json.dumps({"a": n % 500, "b": f"b{n}"}) for n in range(ROWS)]),
        SCHEMA.field("vector").vector.to_column(np.zeros((ROWS, 2), np.float32)),
        pa.array([json.dumps({"year": 1900 + n % 200}) for n in range(ROWS)]),
        wkb_of_texts(pa.array([f"POINT ({n % 100} {n % 70})" for n in range(ROWS)])),
        pa.array([None if n % 9 == 8 else n % 30 * 86_400_000_000 for n in range(ROWS)]),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)
    batch = with_system_columns(rows, 0, Timestamp(5), insert_log_schema(SCHEMA, key))
    file = write_insert_log(store, f"insert_log/{uuid.uuid4().hex}", SCHEMA, key, [batch], tmp_path)
    return SegmentManifest(
        key.segment_id, key.collection_id, key.partition_id, key.vchannel, (file,), (), NO_TIMESTAMP
    )


@pytest.fixture
def files(store: LocalStore, tmp_path: Path, manifest: SegmentManifest) -> list[IndexFile]:
    built = []
    for number, (name, params) in enumerate(INDEXES):
        plan = IndexBuildPlan(
            "a",
            BuildID(number),
            1,
            IndexID(number),
            SCHEMA.field(name),
            params,
            manifest,
            1,
            store.url,
            "",
        )
        built.append(build_index_file(plan, store, tmp_path, uuid.uuid4().hex))
    return built


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares any scan with an index, however cheap it is."""
    monkeypatch.setattr(indexed, "SCAN_COST_MIN", 0)


def loaded(
    store: LocalStore,
    tmp_path: Path,
    manifest: SegmentManifest,
    files: Sequence[IndexFile],
    warmed: Collection[IndexID] = (),
) -> SealedSegment:
    request = LoadSegment(
        CollectionID(1), manifest, tuple(files), (), Checkpoint(NO_TIMESTAMP, 0, NO_TIMESTAMP, 0)
    )
    return load_sealed(request, SCHEMA, {}, store, DeltaLogs(store, 1), tmp_path, warmed)


def explained(block: Block, text: str) -> str:
    return compile_filter(text, SCHEMA).explain_indexes(block._filtered_columns, block.rows, block._indexes)


def check_answers(segment: SealedSegment, plain: SealedSegment) -> None:
    for text in FILTERS:
        chosen = compile_filter(text, SCHEMA)
        found, expected = (s.blocks[0].select(MAX_TIMESTAMP, chosen) for s in (segment, plain))
        assert 0 < found.count == expected.count
        assert np.array_equal(found.rows(), expected.rows()), text


def test_filters_use_the_indexes_of_their_segment(
    store: LocalStore, tmp_path: Path, manifest: SegmentManifest, files: list[IndexFile]
) -> None:
    segment, plain = (loaded(store, tmp_path, manifest, some) for some in (files, []))
    assert sorted(segment.index_ids) == [0, 1, 2, 3, 4, 5]
    assert segment.memory_bytes > plain.memory_bytes
    block = segment.blocks[0]
    assert explained(block, 'color == "red"').startswith("index color (BITMAP)")
    assert explained(block, 'meta["a"] == 7').startswith("index meta['a'] (INVERTED): at most 10 of 5,000")
    assert explained(block, 'meta["b"] == "b9"').startswith("index meta['b'] (INVERTED): at most 1 of")
    assert explained(block, "year == 1999").startswith("index $meta['year'] (HYBRID): at most 25 of")
    assert explained(block, NEAR).startswith("index place (RTREE): at most ")
    assert explained(block, DAY) == "index at (STL_SORT): at most 167 of 5,000 rows"
    assert explained(plain.blocks[0], "year == 1999") == "scan: no index"
    check_answers(segment, plain)


def test_mapped_files_of_warmed_indexes_are_read_at_load(
    store: LocalStore,
    tmp_path: Path,
    manifest: SegmentManifest,
    files: list[IndexFile],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: dict[str, int] = {}
    monkeypatch.setattr(sealed, "warm_file", lambda path: read.update({path.name: warm_file(path)}))
    unmapped = {"mmap.enabled": "false"}
    files = [
        replace(f, params=mapped_params(f.params, unmapped if n == 1 else {})) for n, f in enumerate(files)
    ]
    segment = loaded(store, tmp_path, manifest, files, {IndexID(0), IndexID(1), IndexID(3)})
    assert read == {Path(files[n].path).name: files[n].size_bytes for n in (0, 3)}
    assert sorted(segment.index_ids) == [0, 1, 2, 3, 4, 5]


def test_a_query_with_a_limit_finds_few_rows_by_their_index(
    store: LocalStore,
    tmp_path: Path,
    manifest: SegmentManifest,
    files: list[IndexFile],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = loaded(store, tmp_path, manifest, files).blocks[0]
    narrowed: list[int] = []
    narrow = Block.narrow

    def narrowing(self: Block, read_ts: Timestamp, rows: Any, *more: Any) -> Any:
        narrowed.append(len(rows))
        return narrow(self, read_ts, rows, *more)

    monkeypatch.setattr(Block, "narrow", narrowing)
    chosen = compile_filter('meta["a"] == 499', SCHEMA)
    found = rows_of_smallest_keys([block], MAX_TIMESTAMP, chosen, 3)
    assert found.rows.tolist() == [499, 999, 1499]
    assert sum(narrowed) == ROWS // 500


def test_a_damaged_index_costs_only_itself(
    store: LocalStore, tmp_path: Path, manifest: SegmentManifest, files: list[IndexFile]
) -> None:
    plain = loaded(store, tmp_path, manifest, [])
    path = store.local_path(files[1].path, tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.unlink()
    path.write_bytes(content)
    store.delete(files[2].path)
    segment = loaded(store, tmp_path, manifest, files)
    assert sorted(segment.index_ids) == [0, 3, 4, 5]
    assert sorted(file.path for file in segment.damaged) == sorted(f.path for f in files[1:3])
    check_answers(segment, plain)


@pytest.mark.parametrize("mapped", ["true", "false"])
def test_an_index_is_mapped_or_read_as_it_is_altered(
    mapped: str, store: LocalStore, tmp_path: Path, manifest: SegmentManifest, files: list[IndexFile]
) -> None:
    params = mapped_params(files[0].params, altered(COLOR, {"mmap.enabled": mapped}, ()))
    file = IndexFile(**{name: getattr(files[0], name) for name in IndexFile.__slots__} | {"params": params})
    segment = loaded(store, tmp_path, manifest, [file])
    (index,) = segment.blocks[0]._indexes.values()
    assert index.spec.memory_mapped is (mapped == "true")
