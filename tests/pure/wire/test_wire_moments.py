"""Timestamptz fields through the newest client: texts in and out, time zones, parts of moments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pymilvus import DataType, MilvusClient, MilvusException

DIM = 4
VECTOR = [0.0] * DIM


@pytest.fixture
def client(port: int) -> Iterator[MilvusClient]:
    client = MilvusClient(uri=f"http://127.0.0.1:{port}")
    yield client
    client.close()


def made(client: MilvusClient, **properties: str) -> None:
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("t", DataType.TIMESTAMPTZ, nullable=True)
    schema.add_field("made", DataType.TIMESTAMPTZ, default_value="2025-01-01T00:00:00")
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params("vector", index_type="FLAT", metric_type="L2")
    client.create_collection("events", schema=schema, index_params=index, properties=properties)


def test_moments_in_utc(client: MilvusClient) -> None:
    made(client)
    rows = [
        {"id": 1, "t": "2025-05-01T23:59:59+08:00", "vector": VECTOR},
        {"id": 2, "t": None, "vector": VECTOR, "made": "2025-05-01 00:00:00.25"},
    ]
    client.insert("events", rows)
    got = client.query("events", "id > 0", output_fields=["id", "t", "made"])
    assert [dict(row) for row in got] == [
        {"id": 1, "t": "2025-05-01T15:59:59Z", "made": "2025-01-01T00:00:00Z"},
        {"id": 2, "t": None, "made": "2025-05-01T00:00:00.25Z"},
    ]
    fields = {f["name"]: f for f in client.describe_collection("events")["fields"]}
    assert fields["t"]["type"] is DataType.TIMESTAMPTZ
    assert fields["made"]["default_value"].string_data == "2025-01-01T00:00:00Z"
    hits = client.search(
        "events", [VECTOR], limit=1, filter="id == 1", output_fields=["t"], timezone="Asia/Tokyo"
    )
    assert hits[0][0]["entity"]["t"] == "2025-05-02T00:59:59+09:00"


def test_the_zone_of_a_collection_and_of_a_request(client: MilvusClient) -> None:
    made(client, timezone="Asia/Shanghai")
    client.insert("events", [{"id": 1, "t": "2025-01-01T00:00:00", "vector": VECTOR}])

    def asked(**more: str) -> object:
        (row,) = client.query("events", "id == 1", output_fields=["t"], **more)
        return row["t"]

    assert asked() == "2025-01-01T00:00:00+08:00"
    assert list(asked(time_fields="year, month,hour")) == [2025, 1, 0]
    assert list(asked(timezone="UTC", time_fields="year hour")) == [2024, 16]
    fields = {f["name"]: f for f in client.describe_collection("events")["fields"]}
    assert fields["made"]["default_value"].string_data == "2025-01-01T00:00:00+08:00"


@pytest.mark.parametrize("text", ["2025-02-29 00:00:00", "soon", "2025-01-01T00:00:00+24:00"])
def test_a_text_that_is_no_moment_is_refused(client: MilvusClient, text: str) -> None:
    made(client)
    with pytest.raises(MilvusException, match="got invalid timestamptz string") as caught:
        client.insert("events", [{"id": 1, "t": text, "vector": VECTOR}])
    assert caught.value.code == 1100
    assert text in caught.value.message


def test_a_zone_that_does_not_exist_is_refused(client: MilvusClient) -> None:
    with pytest.raises(MilvusException, match="unknown or invalid IANA Time Zone ID: Mars/Base"):
        made(client, timezone="Mars/Base")
    made(client)
    with pytest.raises(MilvusException, match="unknown or invalid IANA Time Zone ID: Mars/Base"):
        client.query("events", "id > 0", timezone="Mars/Base")
    with pytest.raises(MilvusException, match="unsupported time field: century"):
        client.query("events", "id > 0", time_fields="century")
