"""The ordinary program that every client generation runs; the rows of the compatibility page.

It is run by the Python of a client's own environment, so it knows pymilvus and nothing of ours. Each
check does one thing the way a user would and looks at the answer. It prints one JSON object: section →
title → ``yes``, ``no: <error>``, or ``absent`` for what the client itself does not have.

    python client_program.py URI
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymilvus
from client_checks_data import FILTERS, INDEXES, TYPES, Program
from pymilvus import (
    Collection,
    CollectionSchema,
    DataType,
    FieldSchema,
    MilvusClient,
    connections,
    db,
    utility,
)

VERSION = tuple(int(part) for part in pymilvus.__version__.split(".")[:2])
DIM = 8
VECTORS = np.random.default_rng(3).random((300, DIM), dtype=np.float32)
L2 = {"metric_type": "L2", "params": {}}
program = Program()
check = program.check


def new_name() -> str:
    program.names += 1
    return f"c{program.names}"


@contextmanager
def collection(
    *fields: FieldSchema, key: FieldSchema | None = None, vector: FieldSchema | None = None, **options: Any
) -> Iterator[Collection]:
    """A collection of a key, a vector and further fields, dropped afterwards."""
    key = key or FieldSchema("key", DataType.INT64, is_primary=True)
    vector = vector or FieldSchema("v", DataType.FLOAT_VECTOR, dim=DIM)
    made = Collection(
        new_name(), CollectionSchema([key, *fields, vector], **options), consistency_level="Strong"
    )
    try:
        yield made
    finally:
        made.drop()


def filled(made: Collection, *columns: Sequence[Any], rows: int = 300) -> Collection:
    """With rows 0, 1, 2 and so on, indexed by FLAT and loaded."""
    made.insert([list(range(rows)), *columns, VECTORS[:rows]])
    made.create_index("v", {"index_type": "FLAT", "metric_type": "L2", "params": {}})
    made.load()
    return made


def keys(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["key"] for row in rows)


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


@check("Collections", "load and release, progress and state")
def _() -> None:
    with collection() as made:
        filled(made)
        assert utility.loading_progress(made.name)["loading_progress"] == "100%"
        assert str(utility.load_state(made.name)) == "Loaded"
        made.release()
        assert str(utility.load_state(made.name)) == "NotLoad"


# writes


@check("Writes", "insert by columns and by rows")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32)) as made:
        assert made.insert([[1, 2], [10, 20], VECTORS[:2]]).insert_count == 2
        made.insert([{"key": 3, "n": 30, "v": VECTORS[2]}])
        made.create_index("v", L2 | {"index_type": "FLAT"})
        made.load()
        assert [row["n"] for row in made.query("key > 0", output_fields=["n"])] == [10, 20, 30]


@check("Writes", "upsert")
def _() -> None:
    with collection(FieldSchema("n", DataType.INT32)) as made:
        filled(made, [0] * 10, rows=10)
        made.upsert([[3], [7], VECTORS[:1]])
        assert made.query("key == 3", output_fields=["n"])[0]["n"] == 7
        assert made.query("", output_fields=["count(*)"])[0]["count(*)"] == 10


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


# types


def scalar_type(name: str, values: Sequence[Any], options: dict[str, Any]) -> Callable[[], None]:
    def round_trip() -> None:
        with collection(FieldSchema("x", getattr(DataType, name), **options)) as made:
            filled(made, list(values), rows=len(values))
            rows = made.query("key >= 0", output_fields=["x"])
            assert [row["x"] for row in rows] == list(values), rows

    return round_trip


for name, values, options in TYPES:
    check("Types", name)(scalar_type(name, values, options))


@check("Types", "FLOAT_VECTOR")
def _() -> None:
    with collection() as made:
        filled(made)
        row = made.query("key == 9", output_fields=["v"])[0]
        assert np.array_equal(np.asarray(row["v"], np.float32), VECTORS[9])


@check("Types", "BINARY_VECTOR")
def _() -> None:
    with collection(vector=FieldSchema("v", DataType.BINARY_VECTOR, dim=16)) as made:
        made.insert([[1, 2], [b"ab", b"cd"]])
        made.create_index("v", {"index_type": "BIN_FLAT", "metric_type": "HAMMING", "params": {}})
        made.load()
        assert made.query("key == 2", output_fields=["v"])[0]["v"] == [b"cd"]


@check("Types", "VARCHAR primary key")
def _() -> None:
    key = FieldSchema("key", DataType.VARCHAR, max_length=20, is_primary=True)
    with collection(key=key) as made:
        made.insert([["a", "b"], VECTORS[:2]])
        made.create_index("v", L2 | {"index_type": "FLAT"})
        made.load()
        assert made.search(VECTORS[1:2], "v", L2, 1)[0].ids == ["b"]
        made.delete('key in ["a"]')
        assert keys(made.query('key != "c"')) == ["b"]


@check("Types", "automatic ids")
def _() -> None:
    with collection(key=FieldSchema("key", DataType.INT64, is_primary=True, auto_id=True)) as made:
        given = list(made.insert([VECTORS[:5]]).primary_keys)
        made.create_index("v", L2 | {"index_type": "FLAT"})
        made.load()
        assert keys(made.query("key > 0")) == sorted(given)
        assert len(set(given)) == 5


@check("Types", "dynamic fields")
def _() -> None:
    with collection(enable_dynamic_field=True) as made:
        made.insert([{"key": n, "v": VECTORS[n], "tone": f"t{n}", "deep": {"n": n}} for n in range(5)])
        made.create_index("v", L2 | {"index_type": "FLAT"})
        made.load()
        assert list(made.query('tone == "t3"', output_fields=["tone"])) == [{"key": 3, "tone": "t3"}]
        assert keys(made.query('deep["n"] > 2')) == [3, 4]


@check("Types", "nullable and default values", needs=VERSION >= (2, 5))
def _() -> None:
    fields = (
        FieldSchema("n", DataType.INT32, nullable=True),
        FieldSchema("s", DataType.VARCHAR, max_length=20, default_value="none"),
    )
    with collection(*fields) as made:
        made.insert([{"key": 1, "v": VECTORS[1]}, {"key": 2, "v": VECTORS[2], "n": 5, "s": "x"}])
        made.create_index("v", L2 | {"index_type": "FLAT"})
        made.load()
        rows = made.query("key > 0", output_fields=["n", "s"])
        assert [(row["n"], row["s"]) for row in rows] == [(None, "none"), (5, "x")]
        assert keys(made.query("n is null")) == [1]


# indexes


def index_of(kind: str, metric: str, params: dict[str, Any], search: dict[str, Any]) -> Callable[[], None]:
    def find() -> None:
        binary = kind.startswith("BIN")
        bits = np.random.default_rng(4).integers(0, 256, (300, 4), np.uint8)
        data = [row.tobytes() for row in bits] if binary else VECTORS
        vector = FieldSchema("v", DataType.BINARY_VECTOR, dim=32) if binary else None
        with collection(vector=vector) as made:
            made.insert([list(range(300)), data])
            made.create_index("v", {"index_type": kind, "metric_type": metric, "params": params})
            assert made.index().params["index_type"] == kind
            made.load()
            asked = {"metric_type": metric, "params": search}
            best = int(np.argmax(VECTORS @ VECTORS[8])) if metric == "IP" else 8
            assert made.search(list(data[8:9]), "v", asked, 1)[0].ids == [best]

    return find


for kind, metric, params, search in INDEXES:
    check("Indexes", f"{kind}, {metric}")(index_of(kind, metric, params, search))


@check("Indexes", "describe, drop")
def _() -> None:
    with collection() as made:
        made.create_index("v", L2 | {"index_type": "HNSW", "params": {"M": 8, "efConstruction": 64}})
        assert [index.field_name for index in made.indexes] == ["v"]
        assert made.has_index()
        made.drop_index()
        assert not made.has_index()


# filters: one collection for all of them


@check("Filters", "")
def _() -> None:
    fields = (
        FieldSchema("n", DataType.INT32),
        FieldSchema("f", DataType.DOUBLE),
        FieldSchema("b", DataType.BOOL),
        FieldSchema("s", DataType.VARCHAR, max_length=20),
        FieldSchema("j", DataType.JSON),
    )
    with collection(*fields, enable_dynamic_field=True) as made:
        made.insert(
            [
                {
                    "key": row,
                    "n": row - 10,
                    "f": row / 4,
                    "b": row % 2 == 0,
                    "s": f"s{row % 7}/{row}",
                    "j": {"a": {"b": row}, "list": [row, row + 1]},
                    "tone": "light" if row % 3 else "dark",
                    "v": VECTORS[row],
                }
                for row in range(20)
            ]
        )
        made.create_index("v", L2 | {"index_type": "FLAT"})
        made.load()
        for text, matches in FILTERS:
            expected = [row for row in range(20) if matches(row)]

            def read(text: str = text, expected: list[int] = expected) -> None:
                found = keys(made.query(text))
                assert found == expected, f"{found} instead of {expected}"

            program.run("Filters", f"`{text}`", read)


# what is refused


def refused(call: Callable[[Collection], object]) -> Callable[[], None]:
    def ask() -> None:
        with collection() as made:
            filled(made, rows=5)
            began = time.monotonic()
            text = "it was not refused"
            try:
                call(made)
            except pymilvus.MilvusException as error:
                text = str(error)
            assert "not supported" in text, text
            assert time.monotonic() - began < 5

    return ask


check("Answered with an error that says so", "compaction")(refused(lambda made: made.compact()))
check("Answered with an error that says so", "replicas")(refused(lambda made: made.get_replicas()))
check("Answered with an error that says so", "users")(
    refused(lambda made: utility.create_user("somebody", "A-password1"))
)
check("Answered with an error that says so", "bulk insert")(
    refused(lambda made: utility.do_bulk_insert(made.name, ["file.json"]))
)


def main() -> None:
    warnings.simplefilter("ignore")  # the newest client deprecates the ORM
    (program.uri,) = sys.argv[1:]
    connections.connect("default", uri=program.uri)
    assert utility.list_collections() == [], "this is somebody's server"
    program.run_all()
    assert utility.list_collections() == [], "a check left something behind"
    json.dump({"pymilvus": pymilvus.__version__, "outcomes": program.outcomes}, sys.stdout)


if __name__ == "__main__":
    main()
