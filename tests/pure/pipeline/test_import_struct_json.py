"""Struct arrays in JSON files of an import: lists of objects, or the arrays of their fields."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.given_types import check_columns
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.vector_lists import VectorLists
from elanus.pipeline.import_columns import Place, convert
from elanus.pipeline.import_json import batch_of

HERE = Place("a.json", 0, 0)
VECTORS: dict[str, tuple[DataType, list[float]]] = {
    "floats": (DataType.FLOAT_VECTOR, [0.5, 1.5, 2.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
    "half": (DataType.FLOAT16_VECTOR, [0.5, 1.5, 2.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
    "bytes": (DataType.INT8_VECTOR, [1, -128, 127, 0, 1, 2, 3, 4]),
    "bits": (DataType.BINARY_VECTOR, [255]),
}


def member(number: int, name: str, element: DataType, **more: Any) -> FieldSchema:
    data_type = DataType.ARRAY_OF_VECTOR if element.is_vector else DataType.ARRAY
    kinds = {"element_type": element, "max_capacity": 4, "nullable": True}
    return FieldSchema(FieldID(number), f"clips[{name}]", data_type, **kinds, **more)


SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        member(102, "title", DataType.VARCHAR, max_length=9),
        member(103, "seconds", DataType.INT64),
        *(member(104 + n, name, kind, dim=8) for n, (name, (kind, _)) in enumerate(VECTORS.items())),
        FieldSchema(FieldID(120), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
    structs=(StructSchema(FieldID(101), "clips", nullable=True),),
)
CLIP = {"title": "one", "seconds": 3, **{name: vector for name, (_, vector) in VECTORS.items()}}


def imported(rows: list[dict[str, Any]]) -> Any:
    decoded = msgspec.json.decode(json.dumps(rows).encode(), type=list[dict[str, msgspec.Raw]])
    batch = batch_of(decoded, SCHEMA, HERE)
    check_columns(SCHEMA, batch.schema, "a.json")
    return convert(SCHEMA, batch, None, HERE)


def test_lists_of_objects_are_struct_arrays() -> None:
    clips = [[CLIP, {**CLIP, "title": "two"}], [], None]
    found = imported([{"id": n, "clips": value, "more": n} for n, value in enumerate(clips)] + [{"id": 3}])
    assert found.column("clips[title]").to_pylist() == [["one", "two"], [], None, None]
    assert found.column("clips[seconds]").to_pylist() == [[3, 3], [], None, None]
    assert [json.loads(text) for text in found.column("$meta").to_pylist()][:2] == [{"more": 0}, {"more": 1}]
    for name, (_, vector) in VECTORS.items():
        field = SCHEMA.field(f"clips[{name}]")
        lists = VectorLists.from_column(field.vector, field.dim, found.column(field.name))
        assert lists.offsets.tolist() == [0, 2, 2, 2, 2]
        stored = lists.vectors.astype(np.float64) if name != "bits" else lists.vectors
        assert stored.tolist() == [vector, vector]


def test_the_arrays_may_be_given_themselves() -> None:
    arrays = {f"clips[{name}]": [value] for name, value in CLIP.items()}
    assert imported([{"id": 1, **arrays}]).equals(imported([{"id": 1, "clips": [CLIP]}]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("no list", "clips is no list of objects"),
        ([1], "clips is no list of objects"),
        ([CLIP, {"title": "one"}], "clips has a struct with title: give title, seconds"),
        ([{**CLIP, "seconds": "three"}], r"clips\[seconds\]"),
        ([{**CLIP, "floats": [1.0]}], r"clips\[floats\]"),
    ],
)
def test_what_is_no_list_of_structs_is_named_with_its_row(value: object, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text) as refused:
        imported([{"id": 1, "clips": [CLIP]}, {"id": 2, "clips": value}])
    assert "row 1" in refused.value.message
