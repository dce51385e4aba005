"""Dynamic keys whose name a field has got since."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.shadowed_keys import unshadowed

ADDED = FieldSchema(FieldID(103), "size", DataType.INT64, nullable=True, is_added=True)
SCHEMA = CollectionSchema(
    "c",
    (
        FieldSchema(FieldID(100), "pk", DataType.INT64, is_primary=True),
        ADDED,
        FieldSchema(FieldID(102), "$meta", DataType.JSON, is_dynamic=True, is_added=True),
    ),
    enable_dynamic=True,
)
DOCUMENTS = [
    '{"size":5,"big":12345678901234567890123,"f":1.0}',
    '{"sizes":1}',
    '{"note":"\\"size\\"","in":{"size":1}}',
    '{"size":NaN}',
    None,
]
COLUMNS = {"size": pa.array([1, None, 3, 4, 5]), "$meta": pa.array(DOCUMENTS)}


def test_an_answer_shows_the_field() -> None:
    shown = unshadowed(COLUMNS, SCHEMA)
    assert shown["size"] is COLUMNS["size"]
    assert shown["$meta"].to_pylist() == ['{"big":12345678901234567890123,"f":1.0}', *DOCUMENTS[1:]]


def test_the_key_is_shown_without_the_field() -> None:
    only = {"$meta": COLUMNS["$meta"]}
    assert unshadowed(only, SCHEMA) is only


def test_answers_that_cannot_have_such_keys_stay_as_they_are() -> None:
    first = replace(SCHEMA, fields=tuple(replace(f, is_added=False) for f in SCHEMA.fields))
    without = {"size": COLUMNS["size"]}
    assert unshadowed(COLUMNS, first) is COLUMNS
    assert unshadowed(without, SCHEMA) is without
    plain = {**COLUMNS, "$meta": pa.array(["{}"] * 5)}
    assert unshadowed(plain, SCHEMA)["$meta"] is plain["$meta"]
