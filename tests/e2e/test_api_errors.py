"""Bad input and what is not supported: an error at once, a code, a text that helps, and no trace left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import Server
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

Request = Callable[[MilvusClient], object]
NAME = "books"
SOON_S = 30.0
"""An error that takes longer was not given but waited for: the client asks again for minutes when an error
looks like one that passes."""


@pytest.fixture(scope="module")
def collection(shared: Server) -> Iterator[MilvusClient]:
    client = shared.client()
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("n", DataType.INT8)
    schema.add_field("s", DataType.VARCHAR, max_length=5)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    params = client.prepare_index_params()
    params.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 8, "efConstruction": 64})
    client.create_collection(NAME, schema=schema, index_params=params, consistency_level="Strong")
    client.insert(NAME, [row(key) for key in range(10)])
    yield client
    client.drop_collection(NAME)


@pytest.fixture
def books(collection: MilvusClient) -> Iterator[MilvusClient]:
    """The collection; whatever a test asks for, nothing has changed afterwards."""
    client = collection
    yield client
    assert client.list_collections() == [NAME]
    assert client.list_partitions(NAME) == ["_default"]
    assert client.list_indexes(NAME) == ["v"]
    assert client.list_databases() == ["default"]
    found = client.query(NAME, filter="key >= -1000", output_fields=["*"])
    assert [row["key"] for row in found] == list(range(10))
    assert client.query(NAME, output_fields=["count(*)"])[0]["count(*)"] == 10


def row(key: int, **values: Any) -> dict[str, Any]:
    return {"key": key, "n": 1, "s": "abc", "v": [float(key), 0.0], **values}


def search(client: MilvusClient, **options: Any) -> object:
    arguments: dict[str, Any] = {"data": [[0.0, 0.0]], "limit": 3, **options}
    return client.search(NAME, **arguments)


def create_with(client: MilvusClient, **vector: Any) -> None:
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("w", **vector)
    client.create_collection("another", schema=schema)


def index(client: MilvusClient, **index: Any) -> None:
    params = client.prepare_index_params()
    params.add_index(**index)
    client.create_index(NAME, params)


BAD: dict[str, tuple[Request, int | None, str]] = {
    "no such collection": (lambda c: c.query("nobody", filter="key > 1"), 100, "nobody"),
    "no such partition": (lambda c: c.insert(NAME, [row(50)], partition_name="nobody"), 200, "nobody"),
    "no such database": (lambda c: c.describe_database("nobody"), 800, "nobody"),
    "no such alias": (lambda c: c.describe_alias("nobody"), 1600, "nobody"),
    "a value too large": (lambda c: c.insert(NAME, [row(50, n=200)]), None, "n"),
    "a text too long": (lambda c: c.insert(NAME, [row(50), row(51, s="abcdef")]), 1100, "s"),
    "a wrong dimension": (lambda c: c.insert(NAME, [row(50, v=[1.0])]), None, "dim"),
    "a missing field": (lambda c: c.insert(NAME, [{"key": 50, "v": [1.0, 2.0]}]), None, "n"),
    "not a number": (lambda c: c.insert(NAME, [row(50, v=[float("nan"), 1.0])]), 1100, "v"),
    "an unknown field in a filter": (lambda c: c.query(NAME, filter="x > 1"), 1100, "x"),
    "a filter that does not parse": (lambda c: c.query(NAME, filter="n >"), 1100, "position"),
    "a filter of another type": (lambda c: c.query(NAME, filter='n == "abc"'), 1100, "n"),
    "a delete by an unknown field": (lambda c: c.delete(NAME, filter="x > 1"), 1100, "x"),
    "a query of everything": (lambda c: c.query(NAME, filter=""), None, "limit"),
    "an unknown output field": (lambda c: c.query(NAME, filter="n > 0", output_fields=["x"]), None, "x"),
    "top-k too large": (lambda c: search(c, limit=20_000), 1100, "16384"),
    "top-k zero": (lambda c: search(c, limit=0), None, "0"),
    "a query vector of another dimension": (lambda c: search(c, data=[[1.0, 2.0, 3.0]]), 1100, "dim"),
    "another metric": (lambda c: search(c, search_params={"metric_type": "IP"}), 1100, "metric"),
    "ef below top-k": (lambda c: search(c, search_params={"params": {"ef": 1}}), 1100, "ef"),
    "an unknown vector field": (lambda c: search(c, anns_field="w"), 1100, "fieldName.w. not found"),
    "rounding out of range": (lambda c: search(c, round_decimal=9), None, "round_decimal"),
    "an unknown index type": (
        lambda c: index(c, field_name="v", index_name="w", index_type="MAGIC", metric_type="L2"),
        1100,
        "MAGIC",
    ),
    "a second collection of the name": (
        lambda c: c.create_collection(NAME, dimension=7, metric_type="IP"),
        None,
        NAME,
    ),
    "a bad name": (lambda c: c.create_collection("1 2", dimension=4), 1100, "1 2"),
    "dimension 0": (lambda c: create_with(c, datatype=DataType.FLOAT_VECTOR, dim=0), None, "dim"),
    "a bad alias": (lambda c: c.create_alias("nobody", "somebody"), 100, "nobody"),
    "a dropped default database": (lambda c: c.drop_database("default"), None, "default"),
    "a dropped default partition": (lambda c: c.drop_partition(NAME, "_default"), None, "default"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str, books: MilvusClient) -> None:
    request, code, text = BAD[name]
    began = time.monotonic()
    with pytest.raises(Exception, match=f"(?i){text}") as refused:
        request(books)
    assert time.monotonic() - began < SOON_S
    assert isinstance(refused.value, MilvusException) or code is None, "the client itself refused it"
    if code is not None:
        assert refused.value.code == code, refused.value


UNSUPPORTED: dict[str, Request] = {
    "a file resource": lambda c: c.add_file_resource("s1", "words"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_says_so_at_once(name: str, books: MilvusClient) -> None:
    began = time.monotonic()
    with pytest.raises(MilvusException, match="not supported"):
        UNSUPPORTED[name](books)
    assert time.monotonic() - began < SOON_S
