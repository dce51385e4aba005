"""Checks of `client_program`: partition keys, clustering keys, and what changes in a collection."""

from __future__ import annotations

from collections import Counter

from client_base import L2, VECTORS, check, collection, filled, keys
from pymilvus import DataType, FieldSchema, MilvusException

ROWS = 300


def refused(text: str, work: object) -> None:
    """The server refuses it, and says why."""
    assert callable(work)
    try:
        work()
    except MilvusException as error:
        assert text in error.message, error.message
    else:
        raise AssertionError("it was not refused")


@check("Collections", "partition key: routed writes, filters, upsert that changes the key")
def _() -> None:
    tenant = FieldSchema("tenant", DataType.VARCHAR, max_length=20, is_partition_key=True)
    names = [f"t{n % 10}" for n in range(ROWS)]
    with collection(tenant) as made:
        filled(made, names)
        assert [p.name for p in made.partitions] == [f"_default_{n}" for n in range(16)]
        described = {field["name"]: field for field in made.describe()["fields"]}
        assert described["tenant"]["is_partition_key"]
        assert keys(made.query('tenant == "t3"')) == list(range(3, ROWS, 10))
        found = made.query('tenant in ["t1", "t2"] and key < 50')
        assert keys(found) == [n for n in range(50) if n % 10 in (1, 2)]
        assert keys(made.query('tenant == "t1" or key == 5')) == sorted([5, *range(1, ROWS, 10)])
        hits = made.search(VECTORS[:1], "v", L2, 5, expr='tenant == "t7"', output_fields=["tenant"])[0]
        assert [hit.entity.get("tenant") for hit in hits] == ["t7"] * 5
        made.upsert([[3], ["t4"], VECTORS[3:4]])
        assert keys(made.query('tenant == "t3"')) == list(range(13, ROWS, 10))
        assert 3 in keys(made.query('tenant == "t4"'))
        made.delete('tenant == "t5"')
        assert Counter(row["tenant"] for row in made.query("key >= 0", output_fields=["tenant"]))["t5"] == 0
        refused("partition key mode", lambda: made.query("key > 1", partition_names=["_default_1"]))
        refused("partition key mode", lambda: made.create_partition("another"))


@check("Collections", "partition key: number of partitions, isolation")
def _() -> None:
    tenant = FieldSchema("tenant", DataType.INT64, is_partition_key=True)
    with collection(tenant, made_with={"num_partitions": 4}) as made:
        assert len(made.partitions) == 4
        made.set_properties({"partitionkey.isolation": "true"})
        filled(made, [n % 5 for n in range(ROWS)])
        assert len(made.search(VECTORS[:1], "v", L2, 3, expr="tenant == 2")[0]) == 3
        refused("does not support IN", lambda: made.search(VECTORS[:1], "v", L2, 3, expr="tenant in [2]"))
        refused("partition key not found", lambda: made.search(VECTORS[:1], "v", L2, 3))
