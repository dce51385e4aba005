"""Struct arrays in JSON: declared, written, answered and searched."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import orjson
import pytest
from fake_verbs import FakeVerbs
from google.protobuf.json_format import MessageToDict
from msgspec import convert
from rest_client import RestClient, rest_front

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.core.vector_lists import is_packed
from elanus.proxy.api.search import SearchResult
from elanus.proxy.rest.bodies import CreateCollection
from elanus.proxy.rest.entity_bodies import Search
from elanus.proxy.rest.rows import batch_of
from elanus.proxy.rest.schemas import custom_schema, schema_shown
from elanus.proxy.rest.searches import search_request
from elanus.proxy.rest.values import Integers, encoded, rows_of
from elanus.proxy.wire.query_vectors import decode_queries


def member(number: int, name: str, element: DataType, **more: Any) -> FieldSchema:
    data_type = DataType.ARRAY_OF_VECTOR if element.is_vector else DataType.ARRAY
    kinds = {"element_type": element, "max_capacity": 3, "nullable": True}
    return FieldSchema(FieldID(number), f"clips[{name}]", data_type, **kinds, **more)


SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        member(102, "title", DataType.VARCHAR, max_length=9),
        member(103, "seconds", DataType.INT64),
        member(104, "score", DataType.FLOAT),
        member(105, "v", DataType.FLOAT_VECTOR, dim=2),
        member(106, "half", DataType.FLOAT16_VECTOR, dim=2),
    ),
    structs=(StructSchema(FieldID(101), "clips", nullable=True),),
)
HALF = base64.b64encode(np.array([0.5, 2], np.float16).tobytes()).decode()
CLIPS = [
    {"title": "one", "seconds": 2**53 + 1, "score": 0.1, "v": [0.5, 1.0], "half": HALF},
    {"title": "two", "seconds": 2, "score": 3.0, "v": [2.0, -1.0], "half": HALF},
]

STRUCT = {
    "fieldName": "clips",
    "elementTypeParams": {"max_capacity": 3},
    "fields": [
        {
            "fieldName": "title",
            "dataType": "Array",
            "elementDataType": "VarChar",
            "elementTypeParams": {"max_length": 9},
        },
        {
            "fieldName": "v",
            "dataType": "ArrayOfVector",
            "elementDataType": "FloatVector",
            "elementTypeParams": {"dim": 2, "max_capacity": 2},
        },
    ],
}


def answered(*values: Any, names: tuple[str, ...] = (), integers: Integers = Integers.NUMBERS) -> list[Any]:
    sent = orjson.loads(json.dumps([{"id": n, "clips": value} for n, value in enumerate(values)]))
    batch = batch_of(SCHEMA, sent, with_auto_key=False)
    columns = {name: batch.column(name) for name in names or batch.schema.names if name != "id"}
    rows = rows_of(columns, SCHEMA, batch.num_rows, None, integers)
    return [row["clips"] for row in json.loads(encoded({"rows": rows}))["rows"]]


def test_structs_there_and_back() -> None:
    assert answered(CLIPS, [], None, CLIPS[1:]) == [CLIPS, [], None, CLIPS[1:]]
    assert answered(json.dumps(CLIPS)) == [CLIPS]
    assert answered([], None) == [[], None]


def test_some_fields_of_structs_and_large_numbers() -> None:
    (clips,) = answered(CLIPS, names=("clips[seconds]",), integers=Integers.QUOTED_IF_LARGE)
    assert clips == [{"seconds": str(2**53 + 1)}, {"seconds": 2}]


def test_the_arrays_may_be_sent_themselves_if_they_have_one_length() -> None:
    arrays = {f"clips[{name}]": [clip[name] for clip in CLIPS] for name in CLIPS[0]}
    batch = batch_of(SCHEMA, [{"id": 1, **arrays}], with_auto_key=False)
    assert batch.column("clips[title]").to_pylist() == [["one", "two"]]
    with pytest.raises(InvalidParameter, match="inconsistent array length in struct array field clips"):
        batch_of(SCHEMA, [{"id": 1, **arrays, "clips[title]": ["one"]}], with_auto_key=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("no list", "does not fit its type: send a list of objects"),
        ({"title": "one"}, "does not fit its type: send a list of objects"),
        ([1], r"struct 0 of struct array field clips has \[1\]: send an object with title, seconds"),
        ([{"title": "one"}], r"struct 0 of struct array field clips has \[title\]"),
        ([*CLIPS, {**CLIPS[0], "more": 1}], "struct 2 of struct array field clips"),
        ([{**CLIPS[0], "seconds": "many"}], r"field clips\[seconds\] does not fit its type"),
        (CLIPS * 2, "exceeds max capacity"),
    ],
)
def test_what_is_no_list_of_structs_is_refused(value: object, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        answered(value)


def test_a_vector_in_a_struct_has_the_fields_dimension() -> None:
    with pytest.raises(InvalidDimension, match="is not equal to schema dim"):
        answered([{**CLIPS[0], "v": [1]}])


def test_a_struct_array_is_declared_and_described() -> None:
    body = {
        "collectionName": "docs",
        "schema": {
            "fields": [{"fieldName": "id", "dataType": "Int64", "isPrimary": True}],
            "structFields": [STRUCT],
        },
    }
    create = convert(body, CreateCollection)
    assert create.schema is not None
    message = custom_schema(create, create.schema)
    (struct,) = message.struct_array_fields
    assert [field["name"] for field in MessageToDict(struct)["fields"]] == ["title", "v"]
    params = [{pair.key: pair.value for pair in field.type_params} for field in struct.fields]
    assert params == [{"max_capacity": "3", "max_length": "9"}, {"max_capacity": "2", "dim": "2"}]
    (shown,) = schema_shown(message)["structFields"]  # type: ignore[misc]
    assert [(field["name"], field["elementType"]) for field in shown["fields"]] == [
        ("title", "VarChar"),
        ("v", "FloatVector"),
    ]


@pytest.mark.parametrize(("data", "are_lists"), [([[0.5, 1]], False), ([[[0.5, 1], [2, 3]], [[1, 1]]], True)])
def test_searches_of_elements_and_with_lists(data: list[Any], are_lists: bool) -> None:
    body = Search(collection_name="docs", data=data, anns_field="clips[v]")
    request = search_request(body, SCHEMA)
    queries = decode_queries(request.placeholder_group, request.nq, SCHEMA.field("clips[v]"))
    assert (len(queries), is_packed(queries)) == (len(data), are_lists)


def test_a_collection_with_structs_is_created_written_read_and_searched(
    verbs: FakeVerbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = RestClient(rest_front(verbs))
    key = {"fieldName": "id", "dataType": "Int64", "isPrimary": True}
    schema = {"fields": [key], "structFields": [STRUCT]}
    index = {"fieldName": "clips[v]", "metricType": "L2"}
    client.data("collections/create", collectionName="docs", schema=schema, indexParams=[index])
    described = client.data("collections/describe", collectionName="docs")
    assert [field["name"] for field in described["structFields"][0]["fields"]] == ["title", "v"]
    more = {**STRUCT, "fieldName": "cuts", "nullable": True}
    client.data("collections/struct_fields/add", collectionName="docs", schema=more)
    described = client.data("collections/describe", collectionName="docs")
    assert [struct["name"] for struct in described["structFields"]] == ["clips", "cuts"]
    dropped = {"collectionName": "docs", "fieldName": "cuts"}
    client.data("collections/fields/drop", **dropped)
    rows = [{"id": n, "clips": [{"title": "one", "v": [float(n), 1.0]}]} for n in range(2)]
    client.data("entities/insert", collectionName="docs", data=rows)
    assert client.data("entities/query", collectionName="docs", filter="id > -1", outputFields=["*"]) == rows
    wrong = [{"id": 1, "clips": [{"v": [1, 0]}]}]
    refused = client.post("entities/insert", collectionName="docs", data=wrong)
    assert (refused["code"], "send an object with title, v" in refused["message"]) == (1804, True)
    found = SearchResult(
        offsets=np.array([0, 2]),
        ids=np.array([1, 0]),
        scores=np.array([0.5, 0.25], np.float32),
        fields={},
        output_fields=(),
        dynamic_fields=(),
        schema=SCHEMA,
        ts=Timestamp(1),
        elements=np.array([3, 0]),
    )
    monkeypatch.setattr(verbs, "search", lambda _: found)
    hits = client.data("entities/search", collectionName="docs", data=[[0.5, 1]], annsField="clips[v]")
    assert [(hit["id"], hit["offset"]) for hit in hits] == [(1, 3), (0, 0)]
