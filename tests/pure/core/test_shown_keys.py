"""The dynamic keys of an answer: those that were named, and none whose name a field has got since."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.shown_keys import unshadowed, with_shown_keys

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


def test_an_answer_has_the_named_keys_only() -> None:
    shown = with_shown_keys({"$meta": COLUMNS["$meta"]}, SCHEMA, ("f", "big", "note"))
    assert shown["$meta"].to_pylist() == [
        '{"f":1.0,"big":12345678901234567890123}',
        "{}",
        '{"note":"\\"size\\""}',
        '{"size":NaN}',  # no JSON: shown as it is
        None,
    ]
    named = with_shown_keys({"$meta": pa.array(['{"a\\"b":1, "c": 2}', "{}"])}, SCHEMA, ('a"b', 'a"b', "k"))
    assert named["$meta"].to_pylist() == ['{"a\\"b":1}', "{}"]


def test_an_answer_that_names_the_dynamic_field_has_all_keys() -> None:
    assert with_shown_keys(COLUMNS, SCHEMA, None)["$meta"].equals(unshadowed(COLUMNS, SCHEMA)["$meta"])
    without = {"size": COLUMNS["size"]}
    assert with_shown_keys(without, SCHEMA, ("f",)) is without
