"""Text fields through the newest client: no maximum length, nulls, and what they are not for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pymilvus import DataType, MilvusClient, MilvusException
from wire_messages import field, schema

from elanus.core.errors import InvalidFilter
from elanus.core.schema import DataType as OwnType
from elanus.expr import compile_filter

VECTOR = [0.0] * 4
LONG = "é漢字 " * 40_000


@pytest.fixture
def client(port: int) -> Iterator[MilvusClient]:
    client = MilvusClient(uri=f"http://127.0.0.1:{port}")
    yield client
    client.close()


def test_long_texts_come_back(client: MilvusClient) -> None:
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("body", DataType.TEXT, nullable=True)
    schema.add_field("title", DataType.TEXT)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=4)
    index = client.prepare_index_params("vector", index_type="FLAT", metric_type="L2")
    client.create_collection("pages", schema=schema, index_params=index)
    client.insert(
        "pages",
        [
            {"id": 1, "body": LONG, "vector": VECTOR, "title": "one"},
            {"id": 2, "body": None, "vector": VECTOR, "title": ""},
        ],
    )
    got = client.query("pages", "id > 0", output_fields=["id", "body", "title"])
    assert [dict(row) for row in got] == [
        {"id": 1, "body": LONG, "title": "one"},
        {"id": 2, "body": None, "title": ""},
    ]
    fields = {f["name"]: f for f in client.describe_collection("pages")["fields"]}
    assert fields["body"]["type"] is DataType.TEXT
    hits = client.search("pages", [VECTOR], limit=1, filter="id == 1", output_fields=["body"])
    assert hits[0][0]["entity"]["body"] == LONG


@pytest.mark.parametrize(
    ("filter_", "what"),
    [
        ('body == "a"', "operator =="),
        ('"a" != body', "operator !="),
        ('body >= "b"', "operator >="),
        ('"a" < body < "b"', "operator <"),
        ('body in ["b", "c"]', "operator in"),
        ('body not in ["b"]', "operator in"),
        ('body like "%long%"', "operator like"),
        ('body =~ "^a"', "operator =~"),
        ('body !~ "^a"', "operator !~"),
        ("body is null", "a null test"),
        ("id > 0 and body is not null", "a null test"),
    ],
)
def test_filters_look_for_its_words_only(filter_: str, what: str) -> None:
    match = {"enable_analyzer": "true", "enable_match": "true"}
    of = schema(field("body", OwnType.TEXT, nullable=True, params=match))
    with pytest.raises(InvalidFilter, match=f"{what} is not supported on the TEXT field body"):
        compile_filter(filter_, of)
    columns = {"body": pa.array(["a long one", None])}
    found = compile_filter('text_match(body, "long")', of).evaluate(columns, 2)
    assert found.tolist() == [True, False]


def test_it_has_no_default(client: MilvusClient) -> None:
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=4)
    schema.add_field("body", DataType.TEXT, default_value="none")
    with pytest.raises(MilvusException, match="type not support default_value, type:Text, name:body"):
        client.create_collection("pages", schema=schema)
    schema.fields.pop()
    client.create_collection("pages", schema=schema)
    with pytest.raises(MilvusException, match="default value is not supported when adding TEXT field"):
        client.add_collection_field("pages", "body", DataType.TEXT, nullable=True, default_value="none")
