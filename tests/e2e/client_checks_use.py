"""Checks of `client_program`: connecting, definitions, writes and reads."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from client_base import DIM, FLAT, L2, VECTORS, VERSION, check, collection, filled, keys, new_name, program
from pymilvus import Collection, DataType, FieldSchema, MilvusClient, MilvusException, db, utility

# connecting


@check("Connecting", "`connections.connect`, server version and type")
def _() -> None:
    assert utility.get_server_version()
    assert utility.get_server_type() == "milvus"


@check("Connecting", "`MilvusClient`")
def _() -> None:
    assert client().list_collections() == []


def client() -> MilvusClient:
    return MilvusClient(uri=program.uri)


@check("Databases", "create, list, use, drop")
def _() -> None:
    db.create_database("other")
    assert "other" in db.list_database()
    with collection() as made:
        db.using_database("other")
        assert utility.list_collections() == []
        with collection():
            assert made.name not in utility.list_collections()
        db.using_database("default")
        assert utility.list_collections() == [made.name]
    db.drop_database("other")
    assert "other" not in db.list_database()


@check("Collections", "create, has, describe, list, drop")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32), description="words") as made:
        assert utility.has_collection(made.name)
        assert made.name in utility.list_collections()
        described = made.describe()
        assert described["description"] == "words"
        assert [field["name"] for field in described["fields"]] == ["key", "n", "v"]
    assert not utility.has_collection(made.name)


@check("Collections", "rename")
def _() -> None:
    with collection() as made:
        name = made.name
        utility.rename_collection(name, "renamed")
        assert utility.has_collection("renamed")
        assert not utility.has_collection(name)
        utility.rename_collection("renamed", name)


@check("Collections", "`MilvusClient.create_collection` with a dimension only")
def _() -> None:
    name, c = new_name(), client()
    c.create_collection(name, DIM, metric_type="L2", consistency_level="Strong")
    c.insert(name, [{"id": n, "vector": VECTORS[n].tolist(), "color": "red"} for n in range(10)])
    (hits,) = c.search(name, [VECTORS[4].tolist()], limit=2, output_fields=["color"])
    assert hits[0]["id"] == 4
    assert hits[0]["entity"]["color"] == "red"
    assert [row["id"] for row in c.query(name, "id > 7")] == [8, 9]
    assert [row["id"] for row in c.get(name, [1, 2])] == [1, 2]
    c.drop_collection(name)


@check("Collections", "aliases")
def _() -> None:
    with collection() as made:
        utility.create_alias(made.name, "nick")
        try:
            assert list(utility.list_aliases(made.name)) == ["nick"]
            assert Collection("nick").num_entities == 0
            with collection() as other:
                utility.alter_alias(other.name, "nick")
                assert list(utility.list_aliases(other.name)) == ["nick"]
                utility.alter_alias(made.name, "nick")
        finally:
            utility.drop_alias("nick")


@check("Collections", "partitions: create, has, list, load, release, drop")
def _() -> None:
    with collection() as made:
        filled(made, rows=10)
        made.release()
        part = made.create_partition("part")
        part.insert([[100, 101], VECTORS[:2]])
        part.load()
        assert keys(made.query("key >= 0", partition_names=["part"])) == [100, 101]
        part.release()
        assert [p.name for p in made.partitions] == ["_default", "part"]
        made.drop_partition("part")
        assert not made.has_partition("part")


@check("Collections", "load and release, progress, state, replicas")
def _() -> None:
    with collection() as made:
        filled(made)
        assert utility.loading_progress(made.name)["loading_progress"] == "100%"
        assert str(utility.load_state(made.name)) == "Loaded"
        assert len(made.get_replicas().groups) == 1
        made.load(_refresh=True)
        made.release()
        assert str(utility.load_state(made.name)) == "NotLoad"
        code = 0
        try:
            made.load(_refresh=True)
        except MilvusException as error:
            code = error.code
        assert code == 101
        assert str(utility.load_state(made.name)) == "NotLoad"


# writes


@check("Writes", "insert by columns and by rows")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32)) as made:
        assert made.insert([[1, 2], [10, 20], VECTORS[:2]]).insert_count == 2
        made.insert([{"key": 3, "n": 30, "v": VECTORS[2]}])
        made.create_index("v", FLAT, sync=False)
        made.load()
        assert [row["n"] for row in made.query("key > 0", output_fields=["n"])] == [10, 20, 30]


@check("Writes", "upsert")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32)) as made:
        filled(made, [0] * 10, rows=10)
        made.upsert([[3], [7], VECTORS[:1]])
        assert made.query("key == 3", output_fields=["n"])[0]["n"] == 7
        assert made.query("", output_fields=["count(*)"])[0]["count(*)"] == 10
        made.create_partition("other")  # a row with the same key in another partition is another row
        made.upsert([[3], [8], VECTORS[:1]], partition_name="other")
        made.upsert([[3], [9], VECTORS[:1]])
        for partition, n in (("other", 8), ("_default", 9)):
            found = made.query("key == 3", partition_names=[partition], output_fields=["n"])
            assert [row["n"] for row in found] == [n]


@check("Writes", "delete by key and by expression")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32)) as made:
        filled(made, list(range(10)), rows=10)
        made.delete("key in [1, 2]")
        assert made.delete("n > 6").delete_count == 3
        assert keys(made.query("key >= 0")) == [0, 3, 4, 5, 6]


@check("Writes", "flush, and an index served from files")
def _() -> None:
    with collection() as made:
        filled(made)
        made.flush()
        assert made.num_entities == 300
        utility.wait_for_index_building_complete(made.name)
        assert utility.index_building_progress(made.name)["indexed_rows"] == 300
        wait_until_sealed(made.name)
        assert made.search(VECTORS[7:8], "v", L2, 1)[0].ids == [7]


@check("Writes", "compaction: a request, its state, its plans")
def _() -> None:
    with collection() as made:
        filled(made, rows=100).flush()
        made.insert([list(range(100, 200)), VECTORS[100:200]])
        made.flush()
        made.compact()
        made.wait_for_compaction_completed(timeout=60)
        assert made.get_compaction_state().completed == 1
        (plan,) = made.get_compaction_plans().plans
        assert len(plan.sources) == 2
        assert made.num_entities == 200
        client = MilvusClient(uri=program.uri)
        if hasattr(client, "list_compaction_tasks"):
            (task,) = client.list_compaction_tasks(made.name).plans
            assert (sorted(task.sources), task.targets) == (sorted(plan.sources), [plan.target])
            assert task.state.name == "Completed"


@check("Writes", "bulk insert of Parquet, JSON, CSV and NumPy files: a task, its state, the list of tasks")
def _() -> None:
    with collection() as made:
        files = ["absent.parquet", "rows.json", "rows.jsonl", "rows.csv", "id.npy"]
        task = utility.do_bulk_insert(made.name, files)
        deadline = time.monotonic() + 60
        while utility.get_bulk_insert_state(task).state_name != "Failed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "no such file" in utility.get_bulk_insert_state(task).failed_reason
        assert [t.task_id for t in utility.list_bulk_insert_tasks(collection_name=made.name)] == [task]


def wait_until_sealed(name: str) -> None:
    deadline = time.monotonic() + 60
    while any(segment.state != 3 for segment in utility.get_query_segment_info(name)):
        assert time.monotonic() < deadline, "not handed off"
        time.sleep(0.05)


# reads


@check("Reads", "search: top-k, offset, output fields, `round_decimal`, partitions")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32)) as made:
        filled(made, list(range(300)))
        exact = ((VECTORS - VECTORS[5]) ** 2).sum(axis=1)
        nearest = np.argsort(exact, kind="stable")[:4].tolist()
        (hits,) = made.search(VECTORS[5:6], "v", L2, 4, output_fields=["n"])
        assert list(hits.ids) == nearest
        assert [hit.entity.get("n") for hit in hits] == nearest
        (hits,) = made.search(VECTORS[5:6], "v", L2 | {"offset": 1}, 3, round_decimal=2)
        assert list(hits.ids) == nearest[1:]
        assert np.allclose(hits.distances, np.round(exact[nearest[1:]], 2), rtol=0, atol=1e-6)
        assert list(made.search(VECTORS[5:6], "v", L2, 1, partition_names=["_default"])[0].ids) == [5]


@check("Reads", "a million hits: the property `query_mode=large_topk`")
def _() -> None:
    with collection() as made:
        filled(made, rows=20)
        made.set_properties({"query_mode": "large_topk"})
        (hits,) = made.search(VECTORS[:1], "v", L2, 1_000_000)
        assert len(hits) == len(made.query("", limit=1_000_000)) == 20
        assert not answers(lambda: made.search(VECTORS[:1], "v", L2, 1_000_001))
        made.set_properties({"query_mode": "default"})
        assert not answers(lambda: made.search(VECTORS[:1], "v", L2, 16_385))


def answers(search: Callable[[], object]) -> bool:
    """Whether the server does not refuse it."""
    try:
        search()
    except MilvusException:
        return False
    return True


@check("Reads", "range search")
def _() -> None:
    with collection() as made:
        filled(made)
        exact = ((VECTORS - VECTORS[5]) ** 2).sum(axis=1)
        radius, inner = (float(np.sort(exact)[n : n + 2].mean()) for n in (20, 5))
        params = {"metric_type": "L2", "params": {"radius": radius, "range_filter": inner}}
        (hits,) = made.search(VECTORS[5:6], "v", params, 100)
        assert list(hits.ids) == np.argsort(exact, kind="stable")[6:21].tolist()


@check("Reads", "search with a filter")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32)) as made:
        filled(made, [row % 3 for row in range(300)])
        (hits,) = made.search(VECTORS[5:6], "v", L2, 5, expr="n == 1")
        assert all(key % 3 == 1 for key in hits.ids)
        assert len(hits) == 5


@check("Reads", "query: expression, limit, offset, `count(*)`")
def _() -> None:
    with collection() as made:
        filled(made)
        assert keys(made.query("key in [3, 5]")) == [3, 5]
        assert keys(made.query("key >= 0", limit=2, offset=1)) == [1, 2]
        assert made.query("key < 100", output_fields=["count(*)"]) == [{"count(*)": 100}]


@check("Reads", "query iterator", needs=hasattr(Collection, "query_iterator"))
def _() -> None:
    with collection() as made:
        filled(made)
        iterator = made.query_iterator(batch_size=100, expr="key < 250")
        found = []
        while batch := iterator.next():
            found += keys(batch)
        iterator.close()
        assert found == list(range(250))


@check("Reads", "search iterator", needs=hasattr(Collection, "search_iterator"))
def _() -> None:
    with collection() as made:
        filled(made)
        iterator = made.search_iterator(VECTORS[:1].tolist(), "v", L2, batch_size=50, limit=120)
        found = []
        while batch := iterator.next():
            found += batch.ids()
        iterator.close()
        assert len(set(found)) == len(found) == 120


@check("Reads", "search as of a moment of the past")
def _() -> None:
    with collection() as made:
        filled(made, rows=10)
        moment = made.insert([[50], VECTORS[50:51]]).timestamp
        made.delete("key in [5]")
        params = {"metric_type": "L2", "params": {"travel_timestamp": moment}}
        (then,) = made.search(VECTORS[5:6], "v", params, 1)
        assert list(then.ids) == [5]
        (now,) = made.search(VECTORS[5:6], "v", L2, 1, consistency_level="Strong")
        assert list(now.ids) != [5]


@check("Reads", "query as of a moment of the past", needs=VERSION >= (2, 5))
def _() -> None:
    with collection() as made:
        filled(made, rows=10)
        moment = made.insert([[50], VECTORS[50:51]]).timestamp
        made.delete("key in [5]")
        then = made.query("key < 60", iterator="True", guarantee_timestamp=moment)
        assert keys(then) == [*range(10), 50]
        assert 5 not in keys(made.query("key < 60", consistency_level="Strong"))


def consistency(level: str) -> Callable[[], None]:
    def read() -> None:
        with collection() as made:
            filled(made, rows=10)
            made.insert([[50], VECTORS[:1]])
            rows = made.query("key == 50", consistency_level=level)
            assert level not in ("Strong", "Session") or keys(rows) == [50]

    return read


for level in ("Strong", "Session", "Bounded", "Eventually"):
    check("Reads", f"consistency level {level}")(consistency(level))
