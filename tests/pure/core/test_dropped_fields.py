"""Dropping a field: which may be dropped, and what becomes of rows that still have it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from elanus.core.dropped_fields import with_dropped_field
from elanus.core.errors import InvalidParameter
from elanus.core.field_changes import with_added_field
from elanus.core.functions import Function
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.quarantine import Quarantined, checked
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.log.codec import decode, encode
from elanus.log.memory import MemoryLog

TEXT = {"enable_analyzer": "true"}
OLD = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(102), "n", DataType.INT64),
        FieldSchema(FieldID(103), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)
LESS = with_dropped_field(OLD, "n")
AGAIN = with_added_field(LESS, FieldSchema(FieldID(0), "n", DataType.INT64, nullable=True))
RICH = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "part", DataType.INT64, is_partition_key=True),
        FieldSchema(FieldID(102), "stars", DataType.INT64, is_clustering_key=True),
        FieldSchema(FieldID(103), "text", DataType.VARCHAR, max_length=9, params=TEXT),
        FieldSchema(FieldID(104), "terms", DataType.SPARSE_FLOAT_VECTOR, is_function_output=True),
        FieldSchema(FieldID(105), "c[s]", DataType.ARRAY, element_type=DataType.INT64, max_capacity=4),
        FieldSchema(FieldID(107), "until", DataType.TIMESTAMPTZ, nullable=True),
        FieldSchema(FieldID(108), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
    structs=(StructSchema(FieldID(109), "c"),),
    functions=(Function("bm25", "BM25", ("text",), ("terms",)),),
)


def rows(of: CollectionSchema) -> pa.RecordBatch:
    values = {"id": [1, 2], "v": [[1.0, 2.0]] * 2, "n": [7, 8], "$meta": ["{}"] * 2}
    columns = [pa.array(values[f.name], f.arrow_type) for f in of.fields]
    return pa.RecordBatch.from_arrays(columns, schema=of.arrow_schema)


async def read(batch: pa.RecordBatch, schema: CollectionSchema) -> pa.RecordBatch:
    """The rows as a reader of the log sees them."""
    written = InsertMessage(Timestamp(9), "vc", CollectionID(7), PartitionID(1), SegmentID(3), 0, batch)
    log = MemoryLog()
    await log.append("p", [encode(written)])
    (entry,) = log.read_range("p", 0, log.end("p"))
    message = decode(entry)
    assert isinstance(message, InsertMessage)
    found = checked(message, 0, CollectionID(7), schema)
    assert isinstance(found, InsertMessage), found
    assert found.rows.schema.equals(schema.arrow_schema, check_metadata=True)
    return found.rows


async def test_older_and_newer_rows_fit() -> None:
    assert [f.name for f in LESS.fields] == ["id", "v", "$meta"]
    assert (await read(rows(OLD), LESS)).equals(rows(LESS))
    assert (await read(rows(LESS), LESS)).equals(rows(LESS))
    foreign = replace(LESS, dropped=())
    message = InsertMessage(Timestamp(9), "vc", CollectionID(7), PartitionID(1), SegmentID(3), 0, rows(OLD))
    assert isinstance(checked(message, 0, CollectionID(7), foreign), Quarantined)


async def test_a_field_of_the_same_name_has_none_of_the_old_values() -> None:
    assert (await read(rows(OLD), AGAIN)).column("n").to_pylist() == [None, None]
    assert (await read(rows(LESS), AGAIN)).column("n").to_pylist() == [None, None]
    assert (await read(rows(AGAIN), AGAIN)).column("n").to_pylist() == [7, 8]
    third = with_added_field(with_dropped_field(AGAIN, "n"), AGAIN.field("n"))
    assert (await read(rows(AGAIN), third)).column("n").to_pylist() == [None, None]


def test_the_id_of_a_dropped_field_is_not_used_again() -> None:
    last = with_dropped_field(AGAIN, "n")
    ids = [OLD.field("n").field_id, AGAIN.field("n").field_id]
    assert ids == [102, 104]
    assert with_added_field(last, AGAIN.field("n")).field("n").field_id == 105
    assert with_added_field(RICH, AGAIN.field("n")).field("n").field_id == 110, "a struct has 109"


def test_a_field_is_dropped_by_its_id_and_a_struct_array_as_a_whole() -> None:
    assert "until" not in with_dropped_field(RICH, "", FieldID(107)).by_name
    less = with_dropped_field(RICH, "c")
    assert less.structs == ()
    assert "c[s]" not in less.by_name
    assert {d.field_id for d in less.dropped} == {105, 109}
    with pytest.raises(InvalidParameter, match="field not found: 77"):
        with_dropped_field(RICH, "", FieldID(77))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("", "field name is empty"),
        ("nope", "field not found: nope"),
        ("Timestamp", "cannot drop system field: Timestamp"),
        ("id", "cannot drop primary key field: id"),
        ("part", "cannot drop partition key field: part"),
        ("stars", "cannot drop clustering key field: stars"),
        ("$meta", r"cannot drop dynamic field: \$meta, use AlterCollection to disable dynamic schema"),
        ("text", "field is referenced by function bm25 as input, drop function first"),
        ("terms", "field is referenced by function bm25 as output, drop function first"),
        ("c[s]", "cannot drop sub-field of struct array field: c.s"),
        ("until", "because it is referenced by collection property ttl_field"),
    ],
)
def test_what_cannot_be_dropped(field: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        with_dropped_field(RICH, field, properties={"ttl_field": "until"})


def test_the_last_vectors_stay() -> None:
    with pytest.raises(InvalidParameter, match="cannot drop the last vector field: v"):
        with_dropped_field(OLD, "v")


def test_a_field_that_names_analyzers_stays() -> None:
    params = TEXT | {"multi_analyzer_params": '{"by_field": "n", "analyzers": {"default": {}}}'}
    text = FieldSchema(FieldID(110), "t", DataType.VARCHAR, max_length=9, params=params)
    with pytest.raises(InvalidParameter, match="the multi_analyzer_params of field t name it"):
        with_dropped_field(replace(OLD, fields=(*OLD.fields, text)), "n")
