"""A schema is checked below every front: what one that never saw the wire is refused for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elanus.core.errors import ElanusError, InvalidDimension, InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.schema_rules import check_schema, declaration_of, declared_field, with_dynamic_field
from elanus.core.types import DataType

KEY = FieldSchema(FieldID(0), "id", DataType.INT64, is_primary=True)
VECTOR = FieldSchema(FieldID(0), "v", DataType.FLOAT_VECTOR, dim=4)
TEXT = FieldSchema(FieldID(0), "s", DataType.VARCHAR, max_length=4)

ARRAY = FieldSchema(
    FieldID(0), "a", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=4, max_length=4
)


def schema(*fields: FieldSchema, name: str = "books") -> CollectionSchema:
    return CollectionSchema(name, fields)


@pytest.mark.parametrize(
    "valid",
    [
        schema(KEY, VECTOR),
        schema(KEY, VECTOR, replace(TEXT, nullable=True)),
        schema(KEY, replace(VECTOR, nullable=True)),
        schema(KEY, VECTOR, replace(TEXT, default_value="anon")),
        schema(KEY, VECTOR, ARRAY),
        schema(KEY, VECTOR, replace(ARRAY, nullable=True, max_capacity=4096)),
        CollectionSchema("books", with_dynamic_field((KEY, VECTOR)), enable_dynamic=True),
    ],
)
def test_a_valid_schema_passes(valid: CollectionSchema) -> None:
    check_schema(valid)


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (schema(KEY, VECTOR, name="a b"), InvalidParameter, "Invalid collection name: a b"),
        (schema(VECTOR), InvalidParameter, "primary key is not specified"),
        (schema(KEY), InvalidParameter, "schema does not contain vector field"),
        (schema(KEY, KEY, VECTOR), InvalidParameter, "duplicated field name id"),
        (schema(KEY, replace(VECTOR, dim=0)), InvalidDimension, "dimension is not defined"),
        (schema(KEY, replace(VECTOR, dim=1)), InvalidDimension, "invalid dimension: 1"),
        (schema(replace(KEY, data_type=DataType.INT8), VECTOR), InvalidParameter, "should be Int64 or"),
        (schema(replace(KEY, default_value=1), VECTOR), InvalidParameter, "not support default_value"),
        (schema(KEY, VECTOR, replace(TEXT, max_length=0)), InvalidParameter, "max_length"),
        (schema(KEY, VECTOR, replace(ARRAY, max_capacity=0)), InvalidParameter, "max_capacity"),
        (schema(KEY, VECTOR, replace(ARRAY, max_capacity=4097)), InvalidParameter, "(0, 4096]"),
        (schema(KEY, VECTOR, replace(ARRAY, element_type=DataType.NONE)), InvalidParameter, "element data"),
        (schema(KEY, VECTOR, replace(ARRAY, max_length=0)), InvalidParameter, "max_length"),
        (schema(KEY, VECTOR, replace(ARRAY, default_value=1)), InvalidParameter, "type:Array, name:a"),
        (schema(KEY, VECTOR, replace(TEXT, name="like")), ElanusError, "keyword"),
        (
            schema(KEY, VECTOR, replace(TEXT, name="RowID")),
            InvalidParameter,
            "schema contains system field: RowID, Timestamp, $meta, $namespace_id: invalid parameter[",
        ),
        (schema(KEY, VECTOR, replace(TEXT, default_value="ééé")), InvalidParameter, "exceeds max length"),
        (replace(schema(KEY, VECTOR), enable_dynamic=True), InvalidParameter, "enable_dynamic_field"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(
    wrong: CollectionSchema, kind: type[ElanusError], text: str
) -> None:
    with pytest.raises(kind) as refusal:
        check_schema(wrong)
    assert text in refusal.value.message


@pytest.mark.parametrize("text", [" 5", "5 ", "1_0", "٥", "", "9" * 20])
@pytest.mark.parametrize(("of", "name"), [(TEXT, "max_length"), (ARRAY, "max_capacity"), (VECTOR, "dim")])
def test_a_number_in_a_field_has_digits_only(of: FieldSchema, name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=of.name):
        declared_field(declaration_of(of, {name: text}), "books")


def test_a_field_has_a_thousand_parameters_at_most() -> None:
    declared = replace(declaration_of(KEY), params={f"p{n}": "1" for n in range(1024)})
    assert len(declared_field(declared, "c").params) == 1024
    more = replace(declared, params={**declared.params, "more": "1"})
    with pytest.raises(InvalidParameter, match="has 1025 parameters, and at most 1024 are allowed"):
        declared_field(more, "c")
