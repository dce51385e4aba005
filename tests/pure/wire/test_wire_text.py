"""Text fields through the newest client: no maximum length, nulls, defaults, filters as on VarChar."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pymilvus import DataType, MilvusClient
from wire_messages import field, schema

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
    schema.add_field("title", DataType.TEXT, default_value="untitled " * 20)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=4)
    index = client.prepare_index_params("vector", index_type="FLAT", metric_type="L2")
    client.create_collection("pages", schema=schema, index_params=index)
    client.insert(
        "pages",
        [
            {"id": 1, "body": LONG, "vector": VECTOR, "title": "one"},
            {"id": 2, "body": None, "vector": VECTOR},
        ],
    )
    got = client.query("pages", "id > 0", output_fields=["id", "body", "title"])
    assert [dict(row) for row in got] == [
        {"id": 1, "body": LONG, "title": "one"},
        {"id": 2, "body": None, "title": "untitled " * 20},
    ]
    fields = {f["name"]: f for f in client.describe_collection("pages")["fields"]}
    assert fields["body"]["type"] is DataType.TEXT
    hits = client.search("pages", [VECTOR], limit=1, filter="id == 1", output_fields=["body"])
    assert hits[0][0]["entity"]["body"] == LONG


def test_filters_treat_it_as_varchar() -> None:
    of = schema(field("body", DataType.TEXT, nullable=True))
    columns = {"body": pa.array(["a long one", None, "b"])}

    def rows(text: str) -> list[int]:
        found: list[int] = compile_filter(text, of).evaluate(columns, 3).nonzero()[0].tolist()
        return found

    assert rows('body like "%long%"') == [0]
    assert rows('body >= "b"') == [2]
    assert rows('body in ["b", "c"]') == [2]
    assert rows("body is null") == [1]
