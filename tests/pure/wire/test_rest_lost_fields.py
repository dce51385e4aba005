"""A value that an endpoint would not use is refused, never dropped."""

from __future__ import annotations

from typing import Any

import pytest
from fake_verbs import FakeVerbs
from msgspec import structs
from rest_client import RestClient, rest_front

from elanus.proxy.rest.table import TABLE

FIELDS = [
    {"fieldName": "id", "dataType": "Int64", "isPrimary": True},
    {"fieldName": "v", "dataType": "FloatVector", "elementTypeParams": {"dim": 4}},
]
SCHEMA = {"fields": FIELDS}
INDEX = {"fieldName": "vector", "metricType": "L2"}
FUNCTION = {"name": "f", "type": "BM25"}
NEXT_TO_A_SCHEMA: list[tuple[dict[str, Any], str]] = [
    ({"dimension": 8}, "elementTypeParams.dim"),
    ({"idType": "VarChar"}, "dataType of the primary field"),
    ({"autoID": True}, "schema.autoId"),
    ({"autoId": True}, "schema.autoId"),
    ({"metricType": "L2"}, "indexParams"),
    ({"metric_type": "L2"}, "indexParams"),
    ({"primaryFieldName": "pk"}, "fieldName of the primary field"),
    ({"vectorFieldName": "w"}, "fieldName of the vector field"),
    ({"params": {"max_length": 9}}, "elementTypeParams.max_length"),
    ({"params": {"enableDynamicField": True}}, "schema.enableDynamicField"),
    ({"enableDynamicField": True}, "schema.enableDynamicField"),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *(("collections/create", {"schema": SCHEMA, **body}, where) for body, where in NEXT_TO_A_SCHEMA),
    ("collections/create", {"dimension": 4, "indexParams": [INDEX]}, "send metricType"),
    ("collections/create", {"dimension": 4, "schema": {"functions": [FUNCTION]}}, "schema has no fields"),
    ("privilege_groups/create", {"privilegeGroupName": "g", "privileges": ["Search"]}, "privileges"),
    ("privilege_groups/drop", {"privilegeGroupName": "g", "privileges": ["Search"]}, "privileges"),
    ("roles/describe", {"roleName": "r", "description": "x"}, "description"),
    ("resource_groups/drop", {"name": "g", "config": {"requests": {}}}, "config"),
    ("resource_groups/describe", {"name": "g", "config": {"requests": {}}}, "config"),
]


def made(path: str, body: dict[str, Any]) -> dict[str, Any]:
    named = {"collectionName": "c"} if path.startswith("collections") else {}
    return RestClient(rest_front(FakeVerbs())).post(path, **named, **body)


@pytest.mark.parametrize(("path", "body", "text"), REFUSED)
def test_a_value_that_would_be_lost_is_refused(path: str, body: dict[str, Any], text: str) -> None:
    answer = made(path, body)
    assert answer["code"] != 0, answer
    assert text in answer["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"idType": "Int64", "autoID": False, "params": {"enableDynamicField": "false"}, "dimension": 0},
        {"schema": {"fields": FIELDS, "autoId": True}, "autoID": True},
        {"schema": {"fields": FIELDS, "enableDynamicField": True}, "params": {"enableDynamicField": True}},
        {"schema": {"fields": FIELDS, "enableDynamicField": True}, "enableDynamicField": True},
        {"schema": {}, "dimension": 4, "indexParams": []},
        # what the HttpClient of Node.js adds to every body
        {"metricType": "COSINE", "primaryFieldName": "id", "vectorFieldName": "vector", "dbName": "default"},
    ],
)
def test_a_value_that_the_schema_repeats_is_accepted(body: dict[str, Any]) -> None:
    assert made("collections/create", {"schema": SCHEMA, **body})["code"] == 0


def test_a_database_is_accepted_by_what_is_in_none() -> None:
    client = RestClient(rest_front(FakeVerbs()))
    for path, endpoint in TABLE.items():
        if path.startswith(("users", "roles", "databases", "resource_groups")):
            assert "dbName" in {field.encode_name for field in structs.fields(endpoint.body)}, path
    client.data("users/create", userName="u", password="password", dbName="default")
    assert client.data("users/drop", userName="u", dbName="default") == {}
