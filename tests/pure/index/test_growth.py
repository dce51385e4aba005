"""A new kind of index takes a class, its `IndexKind`, and an entry in `elanus.index.kinds.KINDS`.

Two toy kinds, of vectors and of scalars, are registered here and go the whole way: a client's parameters,
the build job, the file, the load of a segment, a search with a parameter of the kind's own, a filter. No
other code is changed for them. A shipped kind is a module and a line of `kinds.py`: two source files.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import inline
from insert_log_files import write_insert_log

from elanus.api.querynode import FieldIndexSpec, LoadCollection, LoadSegment
from elanus.core.catalog import Checkpoint, Index
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidParameter
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.lookup import Found, Lookup, OneOf, RowNumbers
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.core.types import Space, vectors_in
from elanus.expr import compile_filter, indexed
from elanus.index import (
    Hits,
    IndexSpec,
    RawVectors,
    RowMask,
    ScalarIndex,
    SearchParams,
    VectorIndex,
    ignored_params,
    resolve_index,
    resolve_search,
)
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.kinds import KINDS
from elanus.index.spec import IndexKind, IntParam
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.proxy.api.collections import CollectionView
from elanus.proxy.role.cache import CachedCollection
from elanus.querynode.delete_applier import DeleteApplier, DeleteLimits
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.sealed import SealedSegment, load_sealed
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectStore

ROWS, DIM = 500, 4
ID, COLOR, SIZE, VECTOR = FieldID(100), FieldID(101), FieldID(102), FieldID(103)
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(ID, "id", DataType.INT64, is_primary=True),
        FieldSchema(COLOR, "color", DataType.VARCHAR, max_length=20, nullable=True),
        FieldSchema(SIZE, "size", DataType.INT64),
        FieldSchema(VECTOR, "v", DataType.FLOAT_VECTOR, dim=DIM),
    ),
)
COLORS = ["red", "green", None, "blue", "white"]


class ToyInverted(ScalarIndex):
    """The rows of each value. ``lookups``: what it was asked."""

    def __init__(self, spec: IndexSpec, codes: np.ndarray, values: pa.Array) -> None:
        super().__init__(spec, len(codes))
        self.lookups: list[Lookup] = []
        self._codes = codes
        self._values = values

    @property
    def memory_bytes(self) -> int:
        return self._codes.nbytes + self._values.nbytes

    def save(self, path: Path) -> None:
        texts = "\n".join(self._values.to_pylist()).encode()
        arrays = {"codes": self._codes, "values": np.frombuffer(texts, np.uint8)}
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> ToyInverted:
        values = content.arrays["values"].tobytes().decode().split("\n")
        return cls(spec, content.arrays["codes"], pa.array(values))

    @classmethod
    def built(cls, spec: IndexSpec, column: pa.Array, progress: Any) -> ToyInverted:
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy().astype(np.int32)
        assert codes.max() < spec.params["values_max"]
        return cls(spec, codes, encoded.dictionary)

    def estimate(self, lookup: Lookup) -> int | None:
        found = self._rows(lookup)
        return None if found is None else len(found)

    def find(self, lookup: Lookup) -> Found | None:
        found = self._rows(lookup)
        self.lookups.append(lookup)
        return None if found is None else RowNumbers(found)

    def _rows(self, lookup: Lookup) -> np.ndarray | None:
        if not isinstance(lookup, OneOf):
            return None
        wanted = [n for n, value in enumerate(self._values.to_pylist()) if value in lookup.values.to_pylist()]
        return np.flatnonzero(np.isin(self._codes, wanted))


class ToyVectors(RawVectors):
    """Sees one row in ``stride`` only: wrong on purpose, so that its answers show who gave them."""

    def _nearest(
        self, queries: Any, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        seen = np.zeros(self.rows, dtype=np.bool_)
        seen[:: params.number("stride", 1)] = True
        return self._exact.nearest(queries, k, RowMask.from_bool(seen), threads)


TOY_INVERTED = IndexKind(
    "TOY_INVERTED",
    frozenset({DataType.VARCHAR}),
    ToyInverted.built,
    ToyInverted.from_file,
    build_params={"values_max": IntParam(1, 100, 50)},
)
TOY_VECTORS = IndexKind(
    "TOY_VECTORS",
    vectors_in(Space.FLOATS),
    lambda spec, vectors, progress: ToyVectors(spec, vectors),
    ToyVectors.from_file,
    search_params={"stride": IntParam(1, 100, 10)},
)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (TOY_INVERTED, TOY_VECTORS):
        monkeypatch.setitem(KINDS, kind.name, kind)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path / 'objects'}")


def written(store: ObjectStore, tmp_path: Path) -> SegmentManifest:
    """A flushed segment of `ROWS` rows: row i has the vector (i, 0, 0, 0)."""
    key = SegmentKey(CollectionID(1), PartitionID(2), SegmentID(3), "c_1v0")
    vectors = np.zeros((ROWS, DIM), np.float32)
    vectors[:, 0] = np.arange(ROWS)
    columns = [
        pa.array(range(ROWS), pa.int64()),
        pa.array([COLORS[n % len(COLORS)] for n in range(ROWS)]),
        pa.array(range(ROWS), pa.int64()),
        SCHEMA.field("v").vector.to_column(vectors),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)
    batch = with_system_columns(rows, 0, Timestamp(5), insert_log_schema(SCHEMA, key))
    file = write_insert_log(store, f"insert_log/{uuid.uuid4().hex}", SCHEMA, key, [batch], tmp_path)
    return SegmentManifest(
        key.segment_id, key.collection_id, key.partition_id, key.vchannel, (file,), (), NO_TIMESTAMP
    )


def built_file(
    store: ObjectStore, tmp_path: Path, manifest: SegmentManifest, field: str, params: dict[str, str]
) -> IndexFile:
    schema = SCHEMA.field(field)
    plan = IndexBuildPlan(
        "a", BuildID(schema.field_id), 1, IndexID(schema.field_id), schema, params, manifest, 1, store.url, ""
    )
    return build_index_file(plan, store, tmp_path, uuid.uuid4().hex)


def loaded(store: ObjectStore, tmp_path: Path, params: dict[str, dict[str, str]]) -> SealedSegment:
    """The segment with these indexes, by field name."""
    manifest = written(store, tmp_path)
    files = tuple(built_file(store, tmp_path, manifest, name, sent) for name, sent in params.items())
    specs = {
        SCHEMA.field(name).field_id: resolve_index(sent, SCHEMA.field(name).data_type, SCHEMA.field(name).dim)
        for name, sent in params.items()
    }
    request = LoadSegment(CollectionID(1), manifest, files, (), Checkpoint(NO_TIMESTAMP, 0, NO_TIMESTAMP, 0))
    return load_sealed(request, SCHEMA, specs, store, DeltaLogs(store, 1), tmp_path)


FLAT = {"index_type": "FLAT", "metric_type": "L2"}
INVERTED = {"index_type": "TOY_INVERTED", "values_max": "20"}


@pytest.mark.usefixtures("toys")
def test_a_toy_kind_of_scalars_is_built_loaded_and_asked_by_filters(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ToyInverted] = []
    monkeypatch.setattr(indexed, "SCAN_COST_MIN", 0)
    monkeypatch.setattr(ToyInverted, "rows_share_max", 1.0)
    init = ToyInverted.__init__
    monkeypatch.setattr(ToyInverted, "__init__", lambda self, *a: (made.append(self), init(self, *a))[1])
    segment = loaded(store, tmp_path, {"v": FLAT, "color": INVERTED})
    plain = loaded(store, tmp_path, {"v": FLAT})
    index = made[-1]
    assert index.spec.params == {"values_max": 20}
    assert len(segment.index_ids) == 2
    assert segment.memory_bytes >= plain.memory_bytes + index.memory_bytes
    for text, lookups in (
        ('color == "red"', 1),
        ('color in ["red", "blue", "none"]', 1),
        ('color != "red"', 1),
        ('color not in ["red", "blue"] and size < 100', 1),
        ('color like "gr%"', 0),  # which the toy does not answer
        ('color > "blue"', 0),
        ("color is null", 0),
        ("size < 7", 0),
    ):
        chosen = compile_filter(text, SCHEMA)
        before = len(index.lookups)
        got = segment.blocks[0].select(MAX_TIMESTAMP, chosen)
        expected = plain.blocks[0].select(MAX_TIMESTAMP, chosen)
        assert 0 < got.count == expected.count
        assert np.array_equal(got.rows(), expected.rows()), text
        assert len(index.lookups) - before == lookups, text


@pytest.mark.usefixtures("toys")
def test_a_toy_kind_of_vectors_answers_searches_with_its_own_parameter(
    store: ObjectStore, tmp_path: Path
) -> None:
    params = {"index_type": "TOY_VECTORS", "metric_type": "L2"}
    segment = loaded(store, tmp_path, {"v": params})
    index = segment.blocks[0].vectors[VECTOR].index
    assert isinstance(index, VectorIndex)
    spec = resolve_index(params, DataType.FLOAT_VECTOR, DIM)
    query = np.zeros((1, DIM), np.float32)
    assert index.search(query, 3, resolve_search(spec, {}, 3)).rows.tolist() == [[0, 10, 20]]
    assert index.search(query, 3, resolve_search(spec, {"stride": "7"}, 3)).rows.tolist() == [[0, 7, 14]]
    with pytest.raises(InvalidParameter, match=r"param 'stride' \(101\) should be in range \[1, 100\]"):
        resolve_search(spec, {"stride": 101}, 3)
    flat = resolve_index(FLAT, DataType.FLOAT_VECTOR, DIM)
    assert resolve_search(flat, {"stride": 7}, 3) == resolve_search(flat, {}, 3), "unknown there: no effect"


@pytest.mark.usefixtures("toys")
async def test_a_scalar_index_is_no_obstacle_to_searching_its_collection(
    store: ObjectStore, tmp_path: Path
) -> None:
    view = CollectionView(
        "default", CollectionID(1), "docs", SCHEMA, (), (), ConsistencyLevel.STRONG, (), {}, 1, NO_TIMESTAMP
    )
    indexes = tuple(
        Index(IndexID(field_id), CollectionID(1), field_id, f"i{field_id}", params, NO_TIMESTAMP)
        for field_id, params in ((VECTOR, FLAT), (COLOR, INVERTED))
    )
    cached = CachedCollection(view, {}, indexes)
    assert cached.index_spec(SCHEMA.field("v")).index_type == "FLAT"
    load = LoadCollection(
        CollectionID(1),
        SCHEMA,
        (),
        tuple(FieldIndexSpec(index.field_id, index.index_id, index.params) for index in indexes),
        ("c_1v0",),
        whole_collection=True,
    )
    collection = LoadedCollection(
        load, DeleteApplier(inline, DeleteLimits()), *(lambda _: None for _ in range(4))
    )
    assert {spec.index_type for spec in collection.specs.values()} == {"FLAT"}, "those of vectors"
    collection.want(load)
    collection.want(replace(load, indexes=load.indexes[:1]))


def test_without_the_toys_there_is_no_such_index() -> None:
    with pytest.raises(InvalidParameter, match="invalid index type: TOY_INVERTED"):
        resolve_index(INVERTED, DataType.VARCHAR, 0)


@pytest.mark.usefixtures("toys")
def test_parameters_of_a_scalar_index() -> None:
    with_metric = INVERTED | {"metric_type": "L2"}
    assert ignored_params(with_metric, resolve_index(with_metric, DataType.VARCHAR, 0)) == ("metric_type",)
    with pytest.raises(InvalidParameter, match="FloatVector can't build with this index TOY_INVERTED"):
        resolve_index(INVERTED, DataType.FLOAT_VECTOR, DIM)
