"""Vectors in struct arrays, of every type: in files, merged, indexed, searched, returned, read by Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from vector_files import KEY, compacted, imported, index_files, loaded, read_by_spark, written

from elanus.api.querynode import NodeSearch
from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.core.vector_lists import VectorLists, list_column, packed
from elanus.expr import compile_filter
from elanus.index import IndexSpec, resolve_field_index, resolve_search
from elanus.pipeline.ordering import scalar_columns
from elanus.querynode.block import Block
from elanus.querynode.found import Found
from elanus.querynode.grouped_search import grouped
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.querynode.ranking import Ranking
from elanus.storage.local import LocalStore

DIM, ROWS = 8, 120
TYPES = {
    "floats": DataType.FLOAT_VECTOR,
    "half": DataType.FLOAT16_VECTOR,
    "brain": DataType.BFLOAT16_VECTOR,
    "bytes": DataType.INT8_VECTOR,
    "bits": DataType.BINARY_VECTOR,
    "lists": DataType.FLOAT_VECTOR,
}
METRICS = {"bits": "HAMMING", "lists": "MAX_SIM_L2"}


def member(number: int, name: str, element: DataType, **more: Any) -> FieldSchema:
    data_type = DataType.ARRAY_OF_VECTOR if element.is_vector else DataType.ARRAY
    return FieldSchema(
        FieldID(number),
        f"clips[{name}]",
        data_type,
        element_type=element,
        max_capacity=6,
        nullable=True,
        **more,
    )


SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        member(102, "seconds", DataType.INT64),
        *(member(103 + n, name, element, dim=DIM) for n, (name, element) in enumerate(TYPES.items())),
    ),
    structs=(StructSchema(FieldID(101), "clips", nullable=True),),
)
NAMES = [f"clips[{name}]" for name in TYPES]
RNG = np.random.default_rng(3)
LENGTHS = RNG.integers(0, 5, ROWS)
NULL = RNG.random(ROWS) < 0.1
LENGTHS[NULL] = 0
OFFSETS = np.concatenate(([0], np.cumsum(LENGTHS))).astype(np.int64)
ELEMENTS = int(OFFSETS[-1])


def with_nulls(column: pa.Array) -> pa.Array:
    return column.take(pa.array(np.arange(ROWS), mask=NULL))


def _values(field: FieldSchema) -> pa.Array:
    if not field.has_vector_lists:
        seconds = pa.array(np.arange(ELEMENTS) % 10)
        return with_nulls(pa.ListArray.from_arrays(pa.array(OFFSETS.astype(np.int32)), seconds))
    width, dtype = field.vector.width(DIM), field.vector.dtype
    whole = dtype.kind in "iu"
    numbers = RNG.integers(0, 100, (ELEMENTS, width)) if whole else RNG.normal(size=(ELEMENTS, width))
    return with_nulls(list_column(field.vector, numbers.astype(dtype), OFFSETS))


VALUES = {field.name: _values(field).cast(field.arrow_type) for field in SCHEMA.fields[1:]}


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
    return written(store, SCHEMA, rows(), scratch, cut_at=70)


def specs() -> dict[FieldID, IndexSpec]:
    return {
        field.field_id: resolve_field_index(
            {"index_type": "AUTOINDEX", "metric_type": METRICS.get(name, "L2")}, field
        )
        for name, field in zip(TYPES, SCHEMA.searched_fields, strict=True)
    }


@pytest.fixture(scope="module")
def blocks(store: LocalStore, manifest: SegmentManifest, scratch: Path) -> dict[str, list[Block]]:
    """The same rows growing in two blocks, sealed without indexes, and with."""
    growing = GrowingSegment(KEY.segment_id, KEY.partition_id, SCHEMA, specs())
    growing.append([NewRows(rows()[:110], np.full(110, 5, np.int64))])
    growing.append([NewRows(rows()[110:], np.full(10, 5, np.int64))])
    params = {field_id: spec.flattened() for field_id, spec in specs().items()}
    files = index_files(store, SCHEMA, manifest, params, scratch)
    assert [file.rows for file in files] == [ROWS] * len(files)

    def sealed(indexes: tuple[IndexFile, ...]) -> list[Block]:
        return [loaded(store, SCHEMA, manifest, specs(), indexes, scratch)]

    assert len(growing.blocks) == 2
    return {"growing": list(growing.blocks), "sealed": sealed(()), "indexed": sealed(files)}


def search(
    blocks: list[Block], name: str, k: int, text: str = "", grouping: Grouping | None = None
) -> tuple[Found, VectorLists]:
    """Search for the first vectors of the field; under a metric of lists for the first three as one list."""
    field = SCHEMA.field(f"clips[{name}]")
    lists = VectorLists.from_column(field.vector, DIM, VALUES[field.name])
    single = field.vector.compared(lists.vectors[:2])
    queries = packed(field.vector, [lists.vectors[:3]]) if name == "lists" else single
    request = NodeSearch(
        KEY.collection_id,
        (),
        field.field_id,
        queries,
        k,
        "",
        {},
        compile_filter(text, SCHEMA),
        (),
        Timestamp(9),
        grouping=grouping,
        candidates_max=10_000,
    )
    spec = specs()[field.field_id]
    ranking = Ranking(request, spec, resolve_search(spec, {}, k), 1)
    if grouping is not None:
        return grouped(ranking, blocks, SCHEMA), lists
    return ranking.rank(blocks), lists


@pytest.mark.parametrize("name", [name for name in TYPES if name != "lists"])
@pytest.mark.parametrize("text", ["", "id % 2 == 1", "id > 5 and element_filter(clips, $[seconds] >= 5)"])
def test_the_nearest_elements_are_found(name: str, text: str, blocks: dict[str, list[Block]]) -> None:
    found = {place: search(of, name, 12, text)[0] for place, of in blocks.items()}
    lists = search(blocks["sealed"], name, 1)[1]
    seconds = np.arange(ELEMENTS) % 10
    row_of = lists.row_of(np.arange(ELEMENTS))
    visible = {"": np.ones(ELEMENTS, np.bool_), "id % 2 == 1": row_of % 2 == 1}.get(
        text, (row_of > 5) & (seconds >= 5)
    )
    for query in range(2):
        if name == "bits":
            apart = np.unpackbits(lists.vectors, axis=1) != np.unpackbits(lists.vectors[query])
            distances = apart.sum(axis=1).astype(np.float64)
        else:
            wide = lists.vectors.astype(np.float64)
            distances = ((wide - wide[query]) ** 2).sum(axis=1)
        best = np.sort(distances[visible])[:12]
        for place, hits in found.items():
            part = slice(hits.offsets[query], hits.offsets[query + 1])
            assert hits.elements is not None
            elements = OFFSETS[hits.numbers[part]] + hits.elements[part]
            assert visible[elements].all(), place
            assert len(set(elements.tolist())) == 12, "each element once, rows as often as they have some"
            np.testing.assert_allclose(hits.scores[part], distances[elements], rtol=2e-2, atol=1e-2)
            np.testing.assert_allclose(hits.scores[part], best, rtol=2e-2, atol=1e-2)


def test_rows_are_found_by_lists(blocks: dict[str, list[Block]]) -> None:
    for text, rest in (("", 1), ("id % 2 == 1", 2)):
        for place, of in blocks.items():
            hits, lists = search(of, "lists", 10, text)
            assert hits.elements is None
            wide = lists.vectors.astype(np.float64)
            apart = ((wide[:3, None] - wide[None]) ** 2).sum(axis=2)
            scores = {
                row: apart[:, OFFSETS[row] : OFFSETS[row + 1]].min(axis=1).sum()
                for row in range(ROWS)
                if LENGTHS[row] and (rest == 1 or row % 2 == 1)
            }
            expected = sorted(scores, key=lambda row: scores[row])[:10]
            assert hits.numbers is not None
            assert hits.numbers.tolist() == expected, place


def test_one_element_of_each_row(blocks: dict[str, list[Block]]) -> None:
    plain, _ = search(blocks["sealed"], "floats", ROWS * 5)
    firsts = list(dict.fromkeys(plain.numbers[: plain.offsets[1]].tolist()))[:6]
    for of in blocks.values():
        hits, _ = search(of, "floats", 6, grouping=Grouping(("id",), 1, False))
        assert hits.numbers[: hits.offsets[1]].tolist() == firsts
        best = {}
        for row, element in zip(plain.numbers.tolist(), plain.elements.tolist(), strict=True):
            best.setdefault(row, element)
        assert hits.elements[: hits.offsets[1]].tolist() == [best[row] for row in firsts]


def test_every_row_with_elements_is_a_group(blocks: dict[str, list[Block]]) -> None:
    """There are more elements than rows, and the search looks at all of them."""
    for of in blocks.values():
        hits, _ = search(of, "floats", ROWS, grouping=Grouping(("id",), 1, False))
        assert sorted(hits.numbers[: hits.offsets[1]].tolist()) == np.flatnonzero(LENGTHS).tolist()


def test_more_than_all_elements_are_asked_for(blocks: dict[str, list[Block]]) -> None:
    for of in blocks.values():
        hits, _ = search(of, "floats", ROWS * 5)
        assert np.diff(hits.offsets).tolist() == [ELEMENTS, ELEMENTS]


@pytest.mark.parametrize("name", NAMES)
def test_values_are_returned_with_their_nulls(name: str, blocks: dict[str, list[Block]]) -> None:
    chosen = np.array([7, 69, 0, 70, 7])
    for place in ("sealed", "indexed"):
        taken = blocks[place][0].take(name, chosen)
        assert taken.type == SCHEMA.field(name).arrow_type
        assert taken.to_pylist() == VALUES[name].take(pa.array(chosen)).to_pylist()
        null = compile_filter(f'clips["{name[6:-1]}"] is null', SCHEMA)
        assert np.array_equal(blocks[place][0].evaluate(null).to_bool(), NULL)


def test_the_memory_of_an_index_counts(blocks: dict[str, list[Block]]) -> None:
    columns = sum(column.nbytes for column in VALUES.values())
    assert blocks["sealed"][0].memory_bytes < 2 * columns, "rows are searched in their columns"
    copied = sum(index.memory_bytes for v in blocks["indexed"][0].vectors.values() if (index := v.index))
    assert blocks["indexed"][0].memory_bytes >= blocks["sealed"][0].memory_bytes + copied * 0.9


def test_compaction_keeps_them(store: LocalStore, manifest: SegmentManifest, tmp_path: Path) -> None:
    assert compacted(store, SCHEMA, manifest, tmp_path).to_pydict() == rows().to_pydict()
    assert scalar_columns(SCHEMA)[2:] == ["id", "clips[seconds]"], "vectors go through a mapped file"
    assert not list(tmp_path.glob("*.vectors"))


def test_spark_reads_them(store: LocalStore, manifest: SegmentManifest) -> None:
    table = read_by_spark(store, SCHEMA, manifest, ("id", *NAMES), "id >= 0")
    lists = VectorLists.from_column(SCHEMA.field(NAMES[0]).vector, DIM, VALUES[NAMES[0]])
    found = table.column("clips[floats]").to_pylist()
    for row in range(ROWS):
        expected = lists.vectors[OFFSETS[row] : OFFSETS[row + 1]].tolist()
        assert found[row] == (None if NULL[row] else expected)
    assert table.column("clips[bits]").null_count == int(NULL.sum())


def test_imports_of_lists_of_structs() -> None:
    part = replace(SCHEMA, fields=(*SCHEMA.fields[:3], SCHEMA.field("clips[bits]")))
    numbers = [[{"seconds": 1, "floats": [float(n)] * DIM, "bits": bytes([n])}] * (n % 3) for n in range(5)]
    kind = pa.list_(pa.struct({"seconds": pa.int32(), "floats": pa.list_(pa.float64()), "bits": pa.binary()}))
    found = imported(part, {"clips": pa.array([*numbers[:4], None], kind)})
    field = part.field("clips[floats]")
    lists = VectorLists.from_column(field.vector, DIM, found.column("clips[floats]"))
    assert lists.offsets.tolist() == [0, 0, 1, 3, 3, 3]
    assert lists.vectors.tolist() == [[1.0] * DIM, [2.0] * DIM, [2.0] * DIM]
    assert found.column("clips[bits]").to_pylist() == [[], [b"\1"], [b"\2"] * 2, [], None]


@pytest.mark.parametrize(
    ("vectors", "why"),
    [
        ([[[0.0] * DIM], [[0.0] * DIM, [0.0] * 3]], r"row 101: .*in its element 1"),
        ([[[0.0] * DIM], [None]], r"row 101: .*holds a null, in its element 0"),
        ([[[0.0] * DIM] * 7], "has 7 elements, its max_capacity is 6"),
        ([[[0.0] * (DIM - 1) + [float("nan")]]], "row 100: .*holds nan at position 7"),
    ],
)
def test_a_wrong_vector_of_a_file_is_named(vectors: Any, why: str) -> None:
    part = replace(SCHEMA, fields=(SCHEMA.fields[0], SCHEMA.field("clips[floats]")))
    column = pa.array(vectors, pa.list_(pa.list_(pa.float32())))
    with pytest.raises(InvalidParameter, match=why):
        imported(part, {"clips[floats]": column})
