"""Rows of JSON without any key: rows of defaults and nulls, where the collection asks for no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.pipeline.import_files import fitting, given_rows, survey
from elanus.pipeline.import_sources import tables
from elanus.storage.objects import open_store

KEY = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True, auto_id=True)
NULLABLE = FieldSchema(FieldID(101), "n", DataType.INT64, nullable=True)
DEFAULT = FieldSchema(FieldID(102), "d", DataType.VARCHAR, max_length=9, default_value="x")
META = FieldSchema(FieldID(103), "$meta", DataType.JSON, is_dynamic=True)
MEMBER = FieldSchema(
    FieldID(105), "clips[t]", DataType.ARRAY, element_type=DataType.INT64, max_capacity=9, nullable=True
)
SCHEMAS = {
    "a nullable field": CollectionSchema("c", (KEY, NULLABLE)),
    "a default": CollectionSchema("c", (KEY, DEFAULT, NULLABLE)),
    "a dynamic field": CollectionSchema("c", (KEY, META), enable_dynamic=True),
    "structs": CollectionSchema(
        "c", (KEY, MEMBER), structs=(StructSchema(FieldID(104), "clips", nullable=True),)
    ),
    "the key alone": CollectionSchema("c", (KEY,)),
}
ABSENT = {"n": None, "d": "x", "$meta": "{}", "clips[t]": None}


def imported(directory: Path, name: str, content: bytes, schema: CollectionSchema) -> list[dict[str, object]]:
    (directory / name).write_bytes(content)
    source = open_store(directory.as_uri())
    rows: list[dict[str, object]] = []
    for given in given_rows(survey(source, tables([name]), schema), source, schema, 2):
        for batch, _ in fitting(schema, given.table, given.rows, given.place, 1 + len(rows), None):
            rows += batch.to_pylist()
    return rows


@pytest.mark.parametrize("has", SCHEMAS)
@pytest.mark.parametrize(("name", "content"), [("a.json", b"[{},{},{}]"), ("a.jsonl", b"{}\n{}\n{}\n")])
def test_rows_without_a_key_are_rows(tmp_path: Path, name: str, content: bytes, has: str) -> None:
    schema = SCHEMAS[has]
    others = {field.name: ABSENT[field.name] for field in schema.fields if field is not KEY}
    assert imported(tmp_path, name, content, schema) == [{"id": n, **others} for n in (1, 2, 3)]


def test_rows_without_a_key_lack_what_the_collection_needs(tmp_path: Path) -> None:
    needed = FieldSchema(FieldID(101), "n", DataType.INT64)
    with pytest.raises(InvalidParameter, match=r"a\.json has no column n, which collection c needs"):
        imported(tmp_path, "a.json", b"[{}]", CollectionSchema("c", (KEY, needed)))
