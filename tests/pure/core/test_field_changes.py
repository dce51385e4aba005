"""Which parameters of a field can change, and to what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elanus.core.errors import FieldNotFound, InvalidParameter
from elanus.core.field_changes import (
    asks_for_dynamic_field,
    field_needs_release,
    param_name,
    with_added_field,
    with_added_struct,
    with_altered_field,
)
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.schema_rules import with_dynamic_field
from elanus.core.structs import StructSchema

TEXTS = FieldSchema(
    FieldID(102), "texts", DataType.ARRAY, element_type=DataType.VARCHAR, max_length=8, max_capacity=4
)
SCHEMA = CollectionSchema(
    "books",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(
            FieldID(101), "s", DataType.VARCHAR, max_length=8, is_partition_key=True, description="d"
        ),
        TEXTS,
        FieldSchema(FieldID(103), "v", DataType.FLOAT_VECTOR, dim=4),
    ),
)
ANALYZED = {"enable_analyzer": "true", "enable_match": "true"}
MATCHED = FieldSchema(FieldID(104), "matched", DataType.VARCHAR, max_length=8, params=ANALYZED)


def test_the_bounds_of_values_change_and_nothing_else_does() -> None:
    longer = with_altered_field(SCHEMA, "s", {"max_length": "16"}, ())
    assert longer.field("s").max_length == 16
    assert longer.field("s").is_partition_key
    assert longer.field("s").description == "d"
    assert [f.field_id for f in longer.fields] == [100, 101, 102, 103]
    assert longer.arrow_schema.equals(SCHEMA.arrow_schema)
    wider = with_altered_field(SCHEMA, "texts", {"max_capacity": "9", "max_length": "3"}, ()).field("texts")
    assert (wider.max_capacity, wider.max_length, wider.element_type) == (9, 3, DataType.VARCHAR)


def test_parameters_that_change_no_answer_are_kept_and_taken_away() -> None:
    mapped = with_altered_field(SCHEMA, "v", {"mmap.enabled": "True"}, ())
    assert dict(mapped.field("v").params) == {"mmap.enabled": "True"}
    assert mapped.field("v").dim == 4
    assert dict(with_altered_field(mapped, "v", {}, ("mmap.enabled",)).field("v").params) == {}


@pytest.mark.parametrize(
    ("field", "params", "deleted", "text"),
    [
        ("id", {"max_length": "9"}, (), "can not modify the maxlength for non-string types"),
        ("s", {"max_capacity": "9"}, (), "can not modify the maxcapacity for non-array types"),
        ("s", {"max_length": "0"}, (), r"should be in \(0, 65535\], but got 0"),
        ("s", {"max_length": "x"}, (), "max_length should be an integer, but got string"),
        ("texts", {"max_capacity": "4097"}, (), r"should be in \(0, 4096\]"),
        ("v", {"dim": "9"}, (), "dim does not allow update in collection field param"),
        ("v", {"mmap.enabled": "maybe"}, (), "invalid mmap.enabled value: maybe, expected: true, false"),
        ("s", {}, ("max_length",), "max_length is not allowed to drop in collection field param"),
        ("v", {"enable_analyzer": "true"}, (), "can not alter analyzer params for non-string field v"),
        ("s", {"enable_analyzer": "maybe"}, (), "enable_analyzer should be a boolean, but got maybe"),
        ("s", {"enable_match": "true"}, (), "enable_match does not allow update in collection field param"),
        ("matched", {"enable_analyzer": "false"}, (), "field matched after text match is enabled or a BM25"),
        ("matched", {}, ("analyzer_params",), "field matched after text match is enabled or a BM25"),
        ("s", {}, (), "no property of field s to alter"),
    ],
)
def test_what_cannot_change(field: str, params: dict[str, str], deleted: tuple[str, ...], text: str) -> None:
    schema = replace(SCHEMA, fields=(*SCHEMA.fields, MATCHED))
    with pytest.raises(InvalidParameter, match=text):
        with_altered_field(schema, field, params, deleted)


def test_a_field_gets_another_description_and_another_analyzer() -> None:
    described = with_altered_field(SCHEMA, "s", {"field.description": "titles"}, ()).field("s")
    assert (described.description, dict(described.params)) == ("titles", {})
    params = {"enable_analyzer": "true", "analyzer_params": '{"type": "english"}'}
    analyzed = with_altered_field(SCHEMA, "s", params, ())
    assert dict(analyzed.field("s").params) == params
    assert dict(with_altered_field(analyzed, "s", {}, tuple(params)).field("s").params) == {}


def test_a_parameter_is_known_by_the_name_that_clients_show_too() -> None:
    assert [param_name(name) for name in ("mmap_enabled", "mmap.enabled", "max_length")] == [
        "mmap.enabled",
        "mmap.enabled",
        "max_length",
    ]


@pytest.mark.parametrize(
    ("params", "deleted", "change"),
    [
        ({"mmap.enabled": "true"}, (), "alter collection field properties"),
        ({"warmup": "sync"}, (), "alter warmup"),
        ({}, ("mmap.enabled",), "drop collection field properties"),
        ({}, ("warmup",), "drop collection field properties"),
        ({"max_length": "9"}, (), None),
        ({}, ("analyzer_params",), None),
    ],
)
def test_which_changes_of_a_field_need_a_release(
    params: dict[str, str], deleted: tuple[str, ...], change: str | None
) -> None:
    assert field_needs_release(params, deleted) == change


def test_a_field_that_is_not_there() -> None:
    with pytest.raises(FieldNotFound, match="field not found"):
        with_altered_field(SCHEMA, "other", {"max_length": "9"}, ())


def test_dynamic_fields_are_turned_on_and_stay_on() -> None:
    on, off = {"dynamicfield.enabled": "True"}, {"dynamicfield.enabled": "false"}
    turned_on = with_added_field(SCHEMA, with_dynamic_field(())[-1])
    assert asks_for_dynamic_field(SCHEMA, on, ()) is True
    assert asks_for_dynamic_field(SCHEMA, {"mmap.enabled": "true"}, ("a",)) is None
    assert asks_for_dynamic_field(turned_on, on, ()) is asks_for_dynamic_field(SCHEMA, off, ()) is False
    for properties, deleted in ((off, ()), ({}, ("dynamicfield.enabled",))):
        with pytest.raises(InvalidParameter, match="dynamic schema cannot supported to be disabled"):
            asks_for_dynamic_field(turned_on, properties, deleted)
    for more in ({**on, "a": "b"}, {**off, "a": "b"}):
        with pytest.raises(InvalidParameter, match="with other properties at the same time"):
            asks_for_dynamic_field(SCHEMA, more, ())
    assert turned_on.enable_dynamic
    assert turned_on.dynamic_field is turned_on.fields[-1]
    assert (turned_on.fields[-1].field_id, turned_on.fields[-1].is_added) == (104, True)


CLIPS = StructSchema(FieldID(0), "clips", nullable=True)


def member(name: str, element: DataType = DataType.INT64, **more: int) -> FieldSchema:
    kind = DataType.ARRAY_OF_VECTOR if element.is_vector else DataType.ARRAY
    return FieldSchema(
        FieldID(0), f"clips[{name}]", kind, element_type=element, max_capacity=4, nullable=True, **more
    )


TITLES, VECTORS = member("title", DataType.VARCHAR, max_length=8), member("v", DataType.FLOAT_VECTOR, dim=4)


def test_a_struct_array_is_added_with_all_its_arrays() -> None:
    dynamic = with_added_field(SCHEMA, with_dynamic_field(())[-1])
    schema = with_added_struct(dynamic, CLIPS, (TITLES, VECTORS))
    assert [f.name for f in schema.fields] == ["id", "s", "texts", "v", "clips[title]", "clips[v]", "$meta"]
    assert [(s.name, s.field_id) for s in schema.structs] == [("clips", 105)]
    assert [(f.field_id, f.is_added) for f in schema.members("clips")] == [(106, True), (107, True)]
    assert schema.next_field_id == 108


def test_a_struct_array_that_cannot_be_added_is_refused() -> None:
    for struct, members, text in (
        (StructSchema(FieldID(0), "clips"), (TITLES,), "added struct field must be nullable"),
        (
            StructSchema(FieldID(0), "s", nullable=True),
            (TITLES,),
            "duplicated field name s: .* duplicate field",
        ),
        (CLIPS, (TITLES, TITLES), r"duplicated field name in struct array field clips: clips\[title\]"),
        (CLIPS, tuple(member(f"v{n}", DataType.FLOAT_VECTOR, dim=4) for n in range(10)), "limited to 10"),
        (CLIPS, tuple(member(f"n{n}") for n in range(61)), "reached the maximum value 64"),
    ):
        with pytest.raises(InvalidParameter, match=text):
            with_added_struct(SCHEMA, struct, members)
    added = with_added_struct(SCHEMA, CLIPS, (TITLES,))
    with pytest.raises(InvalidParameter, match="duplicated field name clips"):
        with_added_struct(added, CLIPS, (VECTORS,))


def test_a_struct_array_is_altered_as_a_whole() -> None:
    schema = with_added_struct(SCHEMA, CLIPS, (TITLES, VECTORS))
    wider = with_altered_field(schema, "clips", {"max_capacity": "9"}, ())
    assert [f.max_capacity for f in wider.members("clips")] == [9, 9]
    mapped = with_altered_field(schema, "clips", {"mmap.enabled": "true"}, ())
    assert dict(mapped.structs[0].params) == {"mmap.enabled": "true"}
    assert not with_altered_field(mapped, "clips", {}, ("mmap.enabled",)).structs[0].params
    assert (
        with_altered_field(schema, "clips[title]", {"max_length": "20"}, ()).field("clips[title]").max_length
        == 20
    )
    with pytest.raises(InvalidParameter, match="can not modify the maxlength for non-string types"):
        with_altered_field(schema, "clips", {"max_length": "20"}, ())
