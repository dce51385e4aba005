"""A request that names a collection by its id is about that one, whatever the request's database is."""

from __future__ import annotations

import pytest
from fake_verbs import FakeVerbs
from rest_client import RestClient, rest_front
from wire_messages import Call, key_message, schema_bytes, vector_message

NAMED = "books"


@pytest.fixture
def ids(call: Call, verbs: FakeVerbs) -> dict[str, int]:
    """The collections ``books`` of two databases; only that of the database shop is loaded."""
    verbs.create_database("shop", {})
    found = {}
    for database in ("default", "shop"):
        schema = schema_bytes(key_message(), vector_message())
        assert call("CreateCollection", db_name=database, collection_name=NAMED, schema=schema).code == 0
        found[database] = verbs.describe_collection(database, NAMED).collection_id
    verbs.create_partition("shop", NAMED, "used")
    verbs.held["shop", NAMED].loaded.add("used")
    return found


def test_replicas_and_partitions_are_those_of_the_id(call: Call, ids: dict[str, int]) -> None:
    assert call("DescribeCollection", collectionID=ids["shop"]).db_name == "shop"
    assert list(call("ShowPartitions", collectionID=ids["shop"]).partition_names) == ["_default", "used"]
    assert list(call("ShowPartitions", collectionID=ids["default"]).partition_names) == ["_default"]
    replicas = call("GetReplicas", collectionID=ids["shop"]).replicas
    assert {replica.collectionID for replica in replicas} == {ids["shop"]}
    assert call("GetReplicas", collectionID=ids["default"]).status.code == 101, "it is not loaded"


def test_segments_are_those_of_the_id(
    verbs: FakeVerbs, ids: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def segments(database: str, collection: str) -> list[object]:
        asked.append((database, collection))
        return []

    monkeypatch.setattr(verbs, "persistent_segments", segments)
    RestClient(rest_front(verbs)).data("segments/describe", collectionID=ids["shop"])
    assert asked == [("shop", NAMED)]
