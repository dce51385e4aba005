"""Geometry fields through the newest client: WKT in and out, nulls, defaults, errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pymilvus import DataType, MilvusClient, MilvusException

VECTOR = [0.0] * 4


@pytest.fixture
def client(port: int) -> Iterator[MilvusClient]:
    client = MilvusClient(uri=f"http://127.0.0.1:{port}")
    yield client
    client.close()


def made(client: MilvusClient, default: str = "POINT (0 0)") -> None:
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("place", DataType.GEOMETRY, nullable=True)
    schema.add_field("home", DataType.GEOMETRY, default_value=default)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=4)
    index = client.prepare_index_params("vector", index_type="FLAT", metric_type="L2")
    client.create_collection("places", schema=schema, index_params=index)


def test_texts_in_and_out(client: MilvusClient) -> None:
    made(client)
    rows = [
        {"id": 1, "place": "POINT(13.403683 52.520711)", "vector": VECTOR},
        {"id": 2, "place": None, "vector": VECTOR, "home": "linestring (0 0, 1e3 -1.5)"},
    ]
    client.insert("places", rows)
    got = client.query("places", "id > 0", output_fields=["id", "place", "home"])
    assert [dict(row) for row in got] == [
        {"id": 1, "place": "POINT (13.403683 52.520711)", "home": "POINT (0 0)"},
        {"id": 2, "place": None, "home": "LINESTRING (0 0, 1000 -1.5)"},
    ]
    fields = {f["name"]: f for f in client.describe_collection("places")["fields"]}
    assert fields["place"]["type"] is DataType.GEOMETRY
    assert fields["home"]["default_value"].string_data == "POINT (0 0)"
    hits = client.search("places", [VECTOR], limit=1, filter="id == 1", output_fields=["place"])
    assert hits[0][0]["entity"]["place"] == "POINT (13.403683 52.520711)"


@pytest.mark.parametrize("text", ["POINT(1", "a place", "", "POLYGON((0 0, 1 1))"])
def test_a_text_that_is_no_geometry_is_refused(client: MilvusClient, text: str) -> None:
    made(client)
    with pytest.raises(MilvusException, match="invalid geometry WKT") as caught:
        client.insert("places", [{"id": 1, "place": text, "vector": VECTOR}])
    assert caught.value.code == 1100
    assert f"'{text}'" in caught.value.message
    assert "field place, row 0" in caught.value.message
    with pytest.raises(
        MilvusException, match=r"invalid default value for geometry field: field home: .*'circle"
    ):
        client.create_collection("more", schema=_with_default(client, "circle(1 2 3)"))


def _with_default(client: MilvusClient, default: str) -> object:
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("home", DataType.GEOMETRY, default_value=default)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=4)
    return schema
