"""Checks of `client_program`: partition keys, clustering keys, and what changes in a collection."""

from __future__ import annotations

from collections import Counter

import numpy as np
from client_base import DIM, FLAT, L2, VECTORS, VERSION, check, collection, filled, keys, program
from pymilvus import DataType, FieldSchema, MilvusClient, MilvusException

ROWS = 300


def refused(text: str, work: object) -> None:
    """The server refuses it, and says why."""
    assert callable(work)
    try:
        work()
    except MilvusException as error:
        reason = error.message
    else:
        reason = "it was not refused"
    assert text in reason, reason


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


@check("Collections", "clustering key: declared, compaction by it", needs=VERSION >= (2, 4))
def _() -> None:
    stars = FieldSchema("stars", DataType.INT32, is_clustering_key=True)
    with collection(stars) as made:
        described = {field["name"]: field for field in made.describe()["fields"]}
        assert described["stars"]["is_clustering_key"]
        filled(made, [n % 5 for n in range(ROWS)])
        made.compact(is_clustering=True)
        made.wait_for_compaction_completed(is_clustering=True)
        assert keys(made.query("stars == 3")) == list(range(3, ROWS, 5))


@check("Collections", "clustering key: a vector", needs=VERSION >= (2, 4))
def _() -> None:
    by_vector = FieldSchema("v", DataType.FLOAT_VECTOR, dim=DIM, is_clustering_key=True)
    with collection(FieldSchema("n", DataType.INT32), vector=by_vector) as made:
        described = {field["name"]: field for field in made.describe()["fields"]}
        assert described["v"]["is_clustering_key"]
        filled(made, [n % 5 for n in range(ROWS)])
        made.compact(is_clustering=True)
        made.wait_for_compaction_completed(is_clustering=True)
        assert made.get_compaction_state(is_clustering=True).state_name == "Completed"
        nearest = np.argsort(((VECTORS - VECTORS[7]) ** 2).sum(axis=1))[:5].tolist()
        for params in ({}, {"segment_filter_ratio": 50}):
            hits = made.search(VECTORS[7:8], "v", L2 | {"params": params}, 5)[0]
            assert list(hits.ids) == nearest


def client() -> MilvusClient:
    return MilvusClient(uri=program.uri)


@check("Writes", "partial update: some fields of rows, dynamic keys", needs=VERSION >= (2, 6))
def _() -> None:
    fields = (FieldSchema("n", DataType.INT32), FieldSchema("s", DataType.VARCHAR, max_length=9))
    with collection(*fields, enable_dynamic_field=True) as made:
        made.create_index("v", FLAT, sync=False)
        made.load()
        rows = [{"key": k, "n": k, "s": f"s{k}", "v": VECTORS[k], "x": k, "y": 0} for k in range(5)]
        made.insert(rows)
        client().upsert(made.name, [{"key": 2, "n": 22}, {"key": 3, "n": 33}], partial_update=True)
        client().upsert(made.name, [{"key": 3, "x": "new"}], partial_update=True)
        found = made.query("key in [2, 3]", output_fields=["n", "s", "x", "y", "v"])
        seen = {row["key"]: (row["n"], row["s"], row["x"], row["y"]) for row in found}
        assert seen == {2: (22, "s2", 2, 0), 3: (33, "s3", "new", 0)}
        assert [np.allclose(row["v"], VECTORS[row["key"]]) for row in found] == [True, True]
        refused("has no corresponding", lambda: client().upsert(made.name, [{"key": 9}], partial_update=True))


@check("Writes", "partial update: elements appended to arrays and removed", needs=VERSION >= (3, 0))
def _() -> None:
    tags = FieldSchema("tags", DataType.ARRAY, element_type=DataType.INT64, max_capacity=4)
    with collection(tags) as made:
        made.insert([[1, 2], [[1, 2], [3]], VECTORS[:2]])
        made.create_index("v", FLAT, sync=False)
        made.load()
        data = [{"key": 1, "tags": [5]}, {"key": 2, "tags": [3]}]
        client().upsert(made.name, data, field_ops={"tags": "array_append"})
        client().upsert(made.name, [{"key": 2, "tags": [3]}], field_ops={"tags": "array_remove"})
        found = made.query("key > 0", output_fields=["tags"])
        assert {row["key"]: list(row["tags"]) for row in found} == {1: [1, 2, 5], 2: []}


@check("Collections", "alter a field: `max_length`, `max_capacity`", needs=VERSION >= (2, 6))
def _() -> None:
    text = FieldSchema("s", DataType.VARCHAR, max_length=4)
    with collection(text) as made:
        client().alter_collection_field(made.name, "s", {"max_length": 10})
        described = {f["name"]: f for f in client().describe_collection(made.name)["fields"]}
        assert described["s"]["params"]["max_length"] == 10
        client().insert(made.name, [{"key": 1, "s": "longer", "v": VECTORS[0]}])


@check("Collections", "truncate", needs=VERSION >= (3, 0))
def _() -> None:
    with collection() as made:
        filled(made)
        client().truncate_collection(made.name)
        assert made.query("", output_fields=["count(*)"])[0]["count(*)"] == 0
        assert client().get_collection_stats(made.name)["row_count"] == 0
        made.insert([[3], VECTORS[3:4]])
        assert keys(made.query("key >= 0")) == [3]
        assert list(made.search(VECTORS[:1], "v", L2, 5)[0].ids) == [3]


@check("Collections", "load some fields, time-to-live, properties of databases", needs=VERSION >= (2, 6))
def _() -> None:
    with collection(FieldSchema("n", DataType.INT64)) as made:
        filled(made, list(range(ROWS)))
        made.release()
        client().load_collection(made.name, load_fields=["key", "v"])
        (hits,) = made.search(VECTORS[:1], "v", L2, 5, output_fields=["*"])
        assert (len(hits), set(hits[0].fields)) == (5, {"key", "v"})
        refused("field n is not loaded", lambda: made.query("key > 0", output_fields=["n"], limit=1))
        refused("is not loaded", lambda: made.query("n > 0", output_fields=["key"], limit=1))
        refused("can't change the load field list", lambda: client().load_collection(made.name))
        client().alter_collection_properties(made.name, {"collection.ttl.seconds": 3600})
        assert client().describe_collection(made.name)["properties"]["collection.ttl.seconds"] == "3600"
        client().drop_collection_properties(made.name, ["collection.ttl.seconds"])
        assert "collection.ttl.seconds" not in client().describe_collection(made.name)["properties"]
    client().alter_database_properties("default", {"database.replica.number": 1})
    assert client().describe_database("default")["database.replica.number"] == "1"
    client().drop_database_properties("default", ["database.replica.number"])
    assert "database.replica.number" not in client().describe_database("default")


@check("Collections", "add a field: older rows have null or the default", needs=VERSION >= (2, 6))
def _() -> None:
    with collection() as made:
        filled(made, rows=20)
        client().add_collection_field(made.name, "n", DataType.INT64, nullable=True)
        text = {"nullable": True, "default_value": "old", "max_length": 9}
        client().add_collection_field(made.name, "s", DataType.VARCHAR, **text)
        assert client().describe_collection(made.name).get("schema_version", 2) == 2
        client().insert(made.name, [{"key": 99, "v": VECTORS[0], "n": 5, "s": "new"}])
        assert keys(client().query(made.name, filter="n is null")) == list(range(20))
        assert keys(client().query(made.name, filter='n > 4 and s == "new"')) == [99]
        (row,) = client().query(made.name, filter="key == 3", output_fields=["n", "s"])
        assert (row["n"], row["s"]) == (None, "old")
        refused(
            "added field must be nullable",
            lambda: client().add_collection_field(made.name, "m", DataType.INT64, nullable=False),
        )


@check("Collections", "drop a field, and add one of the same name", needs=VERSION >= (3, 0))
def _() -> None:
    with collection(FieldSchema("n", DataType.INT64)) as made:
        filled(made, list(range(20)), rows=20)
        client().drop_collection_field(made.name, "n")
        assert "n" not in {f["name"] for f in client().describe_collection(made.name)["fields"]}
        refused("not exist", lambda: client().query(made.name, filter="n > 3"))
        assert keys(client().query(made.name, filter="key >= 0")) == list(range(20))
        client().add_collection_field(made.name, "n", DataType.INT64, nullable=True)
        client().insert(made.name, [{"key": 99, "v": VECTORS[0], "n": 5}])
        assert keys(client().query(made.name, filter="n is null")) == list(range(20))
        refused("cannot drop the last vector field", lambda: client().drop_collection_field(made.name, "v"))


@check("Collections", "add a nullable vector field; rows that expire by a field", needs=VERSION >= (3, 0))
def _() -> None:
    with collection(FieldSchema("until", DataType.TIMESTAMPTZ, nullable=True)) as made:
        past, future = "2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
        filled(made, [(past, future, None)[n % 3] for n in range(21)], rows=21)
        client().alter_collection_properties(made.name, {"ttl_field": "until"})
        assert keys(client().query(made.name, filter="key >= 0")) == [n for n in range(21) if n % 3]
        client().add_collection_field(made.name, "w", DataType.FLOAT_VECTOR, dim=2, nullable=True)
        client().insert(made.name, [{"key": 99, "v": VECTORS[0], "until": future, "w": [1.0, 0.0]}])
        made.create_index("w", FLAT, sync=False)
        made.release()
        made.load()
        (hits,) = client().search(made.name, data=[[1.0, 0.0]], anns_field="w", limit=9)
        assert [hit["key"] for hit in hits] == [99]
        assert len(client().query(made.name, filter="w is null")) == 14


@check("Collections", "add a BM25 function with its field, and drop them", needs=VERSION >= (3, 0))
def _() -> None:
    from pymilvus import Function, FunctionType  # older releases have neither

    with collection(FieldSchema("text", DataType.VARCHAR, max_length=40, enable_analyzer=True)) as made:
        filled(made, [f"word{n % 4}" for n in range(20)], rows=20)
        index = client().prepare_index_params()
        index.add_index("terms", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        client().add_function_field(
            made.name,
            FieldSchema("terms", DataType.SPARSE_FLOAT_VECTOR),
            Function("bm25", FunctionType.BM25, ["text"], ["terms"]),
            index,
        )
        (hits,) = client().search(made.name, data=["word3"], anns_field="terms", limit=20)
        assert sorted(hit["key"] for hit in hits) == [3, 7, 11, 15, 19]
        client().drop_function_field(made.name, "bm25")
        assert client().list_indexes(made.name) == ["v"]


@check("Collections", "turn dynamic fields on; properties of an index", needs=VERSION >= (2, 6))
def _() -> None:
    with collection() as made:
        filled(made, rows=5)
        client().alter_collection_properties(made.name, {"dynamicfield.enabled": True})
        client().insert(made.name, [{"key": 99, "v": VECTORS[0], "extra": 5}])
        assert keys(client().query(made.name, filter="extra == 5")) == [99]
        assert keys(client().query(made.name, filter="key >= 0")) == [0, 1, 2, 3, 4, 99]
        changed = {"mmap.enabled": True}
        refused("please release", lambda: client().alter_index_properties(made.name, "v", changed))
        made.release()
        client().alter_index_properties(made.name, "v", changed)
        assert client().describe_index(made.name, "v")["mmap.enabled"] == "True"
        client().drop_index_properties(made.name, "v", ["mmap.enabled"])
        assert "mmap.enabled" not in client().describe_index(made.name, "v")
