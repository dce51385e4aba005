"""Rows of every type go in, are found and come back as they were: growing, from files, after a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

NAME = "everything"

ROWS: list[dict[str, Any]] = [
    {
        "key": "first",
        "flag": True,
        "i8": -128,
        "i16": -(2**15),
        "i32": -(2**31),
        "i64": -(2**63),
        "f": 0.5,
        "d": 1e300,
        "s": "é 漢字 \"'\\",
        "j": {"a": {"b": [1, 2.5, None, "x"]}, "empty": {}},
        "nullable": 7,
        "default": "given",
        "v": [1.0, 2.0],
        "b": b"\x01\xff",
        "tone": "light",
        "deep": {"n": [1, {"m": 2}]},
    },
    {
        "key": "second",
        "flag": False,
        "i8": 127,
        "i16": 2**15 - 1,
        "i32": 2**31 - 1,
        "i64": 2**63 - 1,
        "f": -1.5,
        "d": -0.1,
        "s": "",
        "j": [1, "two", {"three": 3}],
        "nullable": None,
        "v": [0.0, -1.0],
        "b": b"\x00\x00",
    },
]
EXPECTED = [{**ROWS[0]}, {**ROWS[1], "default": "unset"}]


def create(client: MilvusClient) -> None:
    schema = client.create_schema(enable_dynamic_field=True)
    schema.add_field("key", DataType.VARCHAR, max_length=20, is_primary=True)
    schema.add_field("flag", DataType.BOOL)
    for name, kind in (("i8", "INT8"), ("i16", "INT16"), ("i32", "INT32"), ("i64", "INT64")):
        schema.add_field(name, DataType[kind])
    schema.add_field("f", DataType.FLOAT)
    schema.add_field("d", DataType.DOUBLE)
    schema.add_field("s", DataType.VARCHAR, max_length=100)
    schema.add_field("j", DataType.JSON)
    schema.add_field("nullable", DataType.INT64, nullable=True)
    schema.add_field("default", DataType.VARCHAR, max_length=20, default_value="unset")
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    schema.add_field("b", DataType.BINARY_VECTOR, dim=16)
    params = client.prepare_index_params()
    params.add_index("v", index_type="FLAT", metric_type="L2")
    params.add_index("b", index_type="BIN_FLAT", metric_type="HAMMING")
    client.create_collection(NAME, schema=schema, index_params=params, consistency_level="Strong")


def check(client: MilvusClient) -> None:
    found = client.query(NAME, filter='key >= ""', output_fields=["*"])
    assert sorted(map(plain, found), key=lambda row: row["key"]) == EXPECTED
    (hits,) = client.search(NAME, [[0.0, -1.0]], anns_field="v", limit=1, output_fields=["*"])
    assert plain(hits[0]["entity"]) | {"key": hits[0]["key"]} == EXPECTED[1]
    (hits,) = client.search(NAME, [b"\x01\xff"], anns_field="b", limit=2)
    assert [(hit["key"], hit["distance"]) for hit in hits] == [("first", 0.0), ("second", 9.0)]
    assert client.query(NAME, filter="nullable is null", output_fields=["s"])[0]["key"] == "second"
    (row,) = client.query(NAME, filter='deep["n"][1]["m"] == 2', output_fields=["tone"])
    assert row == {"key": "first", "tone": "light"}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it was put in: vectors as lists and bytes."""
    v, b = row["v"], row["b"]
    binary = b[0] if isinstance(b, list) else b
    return {**row, "v": [float(x) for x in v], "b": binary}


def test_every_type_comes_back_as_it_was(shared: Server, client: MilvusClient) -> None:
    create(client)
    assert client.insert(NAME, ROWS)["insert_count"] == 2
    check(client)
    client.flush(NAME)
    wait_until_sealed(shared, client)
    check(client)
    shared.restart_role("querynode")
    client.load_collection(NAME)
    check(client)


def wait_until_sealed(server: Server, client: MilvusClient) -> None:
    until(
        lambda: {s.state_name for s in client.list_loaded_segments(NAME)} == {"Sealed"},
        60,
        "it is served from files",
    )


@pytest.fixture
def ints(client: MilvusClient) -> Iterator[MilvusClient]:
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("n", DataType.INT64)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    params = client.prepare_index_params()
    params.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection("ints", schema=schema, index_params=params, consistency_level="Strong")
    rows = [{"key": key, "n": key % 10, "v": [key, 0.0]} for key in range(100)]
    client.insert("ints", rows)
    return client


def keys(client: MilvusClient, filter: str = "key >= 0", **options: Any) -> list[int]:  # noqa: A002
    return sorted(row["key"] for row in client.query("ints", filter=filter, **options))


def test_upsert_replaces_and_adds(ints: MilvusClient) -> None:
    answer = ints.upsert("ints", [{"key": key, "n": 50, "v": [0.0, 9.0]} for key in (3, 4, 1000)])
    assert answer["upsert_count"] == 3
    assert keys(ints, "n == 50") == [3, 4, 1000]
    assert ints.query("ints", output_fields=["count(*)"])[0]["count(*)"] == 101
    assert [hit["key"] for hit in ints.search("ints", [[3.0, 0.0]], limit=1)[0]] == [2]


def test_an_upsert_has_one_row_of_each_key(ints: MilvusClient) -> None:
    with pytest.raises(MilvusException, match="several rows have the key 3"):
        ints.upsert("ints", [{"key": 3, "n": n, "v": [0.0, 0.0]} for n in (60, 61, 62)])
    ints.upsert("ints", [{"key": 3, "n": 62, "v": [0.0, 0.0]}])
    assert [row["n"] for row in ints.query("ints", ids=[3], output_fields=["n"])] == [62]
    assert ints.query("ints", output_fields=["count(*)"])[0]["count(*)"] == 100


def test_delete_by_key_and_by_expression(ints: MilvusClient) -> None:
    assert ints.delete("ints", ids=[1, 2])["delete_count"] == 2
    assert ints.delete("ints", filter="n == 5 and key > 50")["delete_count"] == 5
    left = [k for k in range(100) if k not in (1, 2) and not (k % 10 == 5 and k > 50)]
    assert keys(ints) == left
    ints.insert("ints", [{"key": 1, "n": 0, "v": [0.0, 0.0]}])
    assert keys(ints, "key <= 3") == [0, 1, 3]


def test_a_row_deleted_from_files_stays_deleted(ints: MilvusClient) -> None:
    ints.flush("ints")
    ints.delete("ints", ids=[7])
    ints.flush("ints")
    ints.release_collection("ints")
    ints.load_collection("ints")
    assert keys(ints, "key in [6, 7, 8]") == [6, 8]
    assert ints.get_collection_stats("ints")["row_count"] == 100, "deletes are not subtracted"


def test_query_limits_ids_and_partitions(ints: MilvusClient) -> None:
    ints.create_partition("ints", "other")
    ints.insert("ints", [{"key": 500, "n": 1, "v": [0.0, 0.0]}], partition_name="other")
    assert keys(ints, partition_names=["other"]) == [500]
    assert len(keys(ints, partition_names=["_default"])) == 100
    assert keys(ints, limit=3, offset=5) == [5, 6, 7]
    assert keys(ints, "", limit=2) == [0, 1]
    assert [row["key"] for row in ints.get("ints", [500, 12345])] == [500]
    assert ints.query("ints", filter="n == 1", output_fields=["count(*)"])[0]["count(*)"] == 11


def test_search_offset_rounding_partitions_and_range(ints: MilvusClient) -> None:
    def found(**options: Any) -> list[tuple[int, float]]:
        (hits,) = ints.search("ints", [[10.26, 0.0]], **options)
        return [(hit["key"], hit["distance"]) for hit in hits]

    near = [10, 11, 9, 12, 8]
    assert [key for key, _ in found(limit=5)] == near
    assert [key for key, _ in found(limit=3, search_params={"offset": 2})] == near[2:]
    assert [key for key, _ in found(limit=3, offset=2)] == near[2:]
    rounded = found(limit=2, round_decimal=1)
    assert all(math.isclose(d, e, abs_tol=1e-6) for (_, d), e in zip(rounded, (0.1, 0.5), strict=True))
    bounds = {"params": {"radius": 4.0, "range_filter": 0.5}}
    assert [key for key, _ in found(limit=50, search_params=bounds)] == [11, 9, 12]
    assert [key for key, _ in found(limit=2, filter="n == 3")] == [13, 3]
    assert len(ints.search("ints", [[0.0, 0.0]] * 7, limit=4)) == 7
    with pytest.raises(MilvusException, match="no_such"):
        found(limit=2, partition_names=["no_such"])


@pytest.mark.parametrize("level", ["Strong", "Session"])
def test_a_read_sees_the_write_before_it(level: str, ints: MilvusClient) -> None:
    for key in range(1000, 1020):
        ints.insert("ints", [{"key": key, "n": 0, "v": [0.0, 0.0]}])
        assert keys(ints, f"key == {key}", consistency_level=level) == [key]
        ints.upsert("ints", [{"key": key, "n": 77, "v": [5000.0, 0.0]}])
        (hits,) = ints.search("ints", [[5000.0, 0.0]], limit=1, consistency_level=level)
        assert hits[0]["key"] == key
        ints.delete("ints", ids=[key])
        assert keys(ints, f"key == {key}", consistency_level=level) == []


@pytest.mark.parametrize("level", ["Bounded", "Eventually"])
def test_a_weaker_read_sees_the_write_at_last(level: str, ints: MilvusClient) -> None:
    ints.insert("ints", [{"key": 2000, "n": 0, "v": [0.0, 0.0]}])
    until(lambda: keys(ints, "key == 2000", consistency_level=level) == [2000], 10, "it is seen")


def test_flush_states_are_seen(ints: MilvusClient) -> None:
    assert ints.list_persistent_segments("ints") == [], "a growing segment is not persistent"
    until(lambda: ints.get_collection_stats("ints")["row_count"] == 100, 10, "growing rows are counted")
    ints.flush("ints")
    (flushed,) = ints.list_persistent_segments("ints")
    assert flushed.state_name == "Flushed"
    assert flushed.num_rows == 100


def test_automatic_ids_are_new_and_returned(client: MilvusClient) -> None:
    client.create_collection("auto", dimension=2, auto_id=True, metric_type="L2", consistency_level="Strong")
    first = client.insert("auto", [{"vector": [n, 0.0], "n": n} for n in range(50)])["ids"]
    second = client.insert("auto", [{"vector": [n, 0.0], "n": n} for n in range(50, 99)])["ids"]
    assert len(set(first) | set(second)) == 99
    rows = client.get("auto", [first[3], second[0]], output_fields=["n"])
    assert sorted(row["n"] for row in rows) == [3, 50]
