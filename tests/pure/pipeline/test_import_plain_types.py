"""Parquet files with columns in Arrow's types that stand for plain ones: views, extension types, and
dictionaries in lists."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_plain_types import plain_rows
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.import_sources import tables
from elanus.storage.local import LocalStore


def field(number: int, name: str, data_type: DataType, **options: Any) -> FieldSchema:
    return FieldSchema(FieldID(100 + number), name, data_type, **options)


TEXTS: dict[str, Any] = {"max_capacity": 5, "max_length": 9}
SCHEMA = CollectionSchema(
    "docs",
    (
        field(0, "id", DataType.VARCHAR, is_primary=True, max_length=20),
        field(1, "name", DataType.VARCHAR, nullable=True, max_length=40),
        field(2, "doc", DataType.JSON),
        field(3, "bits", DataType.BINARY_VECTOR, dim=16),
        field(4, "since", DataType.TIMESTAMPTZ),
        field(5, "tags", DataType.ARRAY, element_type=DataType.VARCHAR, **TEXTS),
        field(6, "clips[title]", DataType.ARRAY, element_type=DataType.VARCHAR, **TEXTS),
        field(7, "$meta", DataType.JSON, is_dynamic=True),
    ),
    structs=(StructSchema(FieldID(110), "clips"),),
    enable_dynamic=True,
)


def columns(text: pa.DataType, content: pa.DataType) -> pa.Table:
    """Columns of a file, with these types for texts and bytes."""
    numbers = range(10)
    known = pa.array([f"color {n % 2}" for n in numbers], text)
    places = pa.array([n % 2 for n in numbers], pa.uint32())
    return pa.table(
        {
            "id": pa.array([f"key {n}" for n in numbers], text),
            "name": pa.array([None if n % 3 == 0 else f"a name of some length {n}" for n in numbers], text),
            "doc": pa.array([f'{{"n": {n}}}' for n in numbers], text),
            "bits": pa.array([bytes([n, 255]) for n in numbers], content),
            "since": pa.array([f"2026-01-0{n % 9 + 1}T00:00:00Z" for n in numbers], text),
            "tags": pa.array([[f"t{n}"] * (n % 3) for n in numbers], pa.large_list(text)),
            "clips": pa.array([[{"title": f"c{n}"}] for n in numbers], pa.list_(pa.struct({"title": text}))),
            "color": pa.DictionaryArray.from_arrays(places, known.slice(0, 2)),
            "counts": pa.array([[("n", n)] for n in numbers], pa.map_(text, pa.int64())),
            "pair": pa.array([["x", f"{n}"] for n in numbers], pa.list_(text, 2)),
        }
    )


def imported(directory: Path, types: pa.Schema) -> pa.Table:
    """Import a file that says that its columns have these types.

    pyarrow itself does not write lists of views.
    """
    directory.mkdir()
    table, path = columns(pa.string(), pa.binary()), directory / "rows.parquet"
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table, row_group_size=4)
        noted = base64.b64encode(types.serialize().to_pybytes()).decode()
        writer.add_key_value_metadata({"ARROW:schema": noted})
    assert pq.read_schema(path).field("id").type == types.field("id").type
    return rows_of_file(directory, SCHEMA)


def rows_of_file(directory: Path, schema: CollectionSchema) -> pa.Table:
    source = LocalStore(directory)
    parts = tuple(survey(source, tables(["rows.parquet"]), schema))
    numbers = (1000, 10_000, 2**30, Timestamp(99))
    owner = (5, CollectionID(7), PartitionID(8))
    plan = ImportPlan(*owner, schema, ("v0",), parts, *numbers, source.url, "", "")
    return pa.Table.from_batches(import_rows(plan, source), schema.arrow_schema)


def test_views_are_imported_as_plain_texts_and_bytes_are(tmp_path: Path) -> None:
    views = columns(pa.string_view(), pa.binary_view()).schema
    plain = columns(pa.string(), pa.binary()).schema
    assert imported(tmp_path / "views", views).equals(imported(tmp_path / "plain", plain))


def test_some_rows_of_a_batch_have_their_own_values() -> None:
    (views,) = columns(pa.string_view(), pa.binary_view()).combine_chunks().to_batches()
    (plain,) = columns(pa.string(), pa.binary()).combine_chunks().to_batches()
    for first, count in ((0, 10), (1, 3), (6, 4), (9, 1), (4, 0)):
        some = plain_rows(views.slice(first, count))
        assert some.schema == plain.schema
        assert some.to_pylist() == plain.slice(first, count).to_pylist()
    assert plain_rows(plain) is plain


EXTENDED = CollectionSchema(
    "docs",
    (
        field(0, "id", DataType.INT64, is_primary=True),
        field(1, "doc", DataType.JSON, nullable=True),
        field(2, "is_new", DataType.BOOL, nullable=True),
        field(3, "flags", DataType.ARRAY, element_type=DataType.BOOL, max_capacity=4),
        field(4, "v", DataType.FLOAT_VECTOR, dim=2),
        field(5, "tags", DataType.ARRAY, element_type=DataType.VARCHAR, **TEXTS),
        field(6, "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)


def extended(directory: Path, **changed: pa.Array) -> pa.Table:
    """Import a file of two rows in types that Arrow extends."""
    booleans = pa.array([1, None], pa.int8())
    tags = pa.array([["a", "b"], ["a"]])
    columns = {
        "id": pa.array([1, 2]),
        "doc": documents('{"n": [1]}', None),
        "is_new": pa.ExtensionArray.from_storage(pa.bool8(), booleans),
        "flags": pa.ListArray.from_arrays(
            [0, 2, 2], pa.ExtensionArray.from_storage(pa.bool8(), pa.array([7, 0], pa.int8()))
        ),
        "v": tensors((2,)),
        "tags": pa.ListArray.from_arrays(tags.offsets, tags.values.dictionary_encode()),
        "more": documents('{"b": 1.0}', None),
        "new": pa.ExtensionArray.from_storage(pa.bool8(), booleans),
    }
    pq.write_table(pa.table(columns | changed), directory / "rows.parquet")
    return rows_of_file(directory, EXTENDED)


def documents(*texts: str | None) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(texts, pa.string()))


def tensors(shape: tuple[int, ...]) -> pa.Array:
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), shape), vectors)


def test_documents_bytes_of_booleans_tensors_and_dictionaries_in_lists(tmp_path: Path) -> None:
    first, second = extended(tmp_path).to_pylist()
    assert (json.loads(first["doc"]), second["doc"]) == ({"n": [1]}, None)
    assert (first["is_new"], second["is_new"]) == (True, None)
    assert (first["flags"], second["flags"]) == ([True, False], [])
    assert (first["v"], second["v"]) == ([1.0, 2.0], [3.0, 4.0])
    assert (first["tags"], second["tags"]) == (["a", "b"], ["a"])
    assert (json.loads(first["$meta"]), json.loads(second["$meta"])) == (
        {"more": {"b": 1.0}, "new": True},
        {},
    )


@pytest.mark.parametrize(
    ("name", "column", "why"),
    [
        ("doc", documents("{}", "{"), "row 1"),
        ("more", documents("{}", '1,"new":2'), "row 1: field more holds no JSON: "),
        ("more", documents("{}", ""), "row 1: field more holds no JSON: "),
        ("v", tensors((2, 1)), "column v has type extension.*give lists of 2 floats"),
        ("tags", documents("[]", "[]"), "column tags has type extension<arrow.json>.*give lists"),
        ("more", tensors((1, 2)), "column more of type extension.* has no form in JSON"),
    ],
)
def test_extended_types_that_do_not_fit(tmp_path: Path, name: str, column: pa.Array, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        extended(tmp_path, **{name: column})
