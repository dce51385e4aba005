"""Parquet files with texts and bytes in Arrow's view types, as Polars writes them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.import_sources import tables
from elanus.pipeline.import_views import plain_rows
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
    source = LocalStore(directory)
    parts = tuple(survey(source, tables(["rows.parquet"]), SCHEMA))
    numbers = (1000, 10_000, 2**30, Timestamp(99))
    owner = (5, CollectionID(7), PartitionID(8))
    plan = ImportPlan(*owner, SCHEMA, ("v0",), parts, *numbers, source.url, "", "")
    return pa.Table.from_batches(import_rows(plan, source), SCHEMA.arrow_schema)


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
