"""A partition key: rows go to partitions by its value, and reads look where its values can be."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from fakes import collection, index, schema
from proxy_bench import Bench, resolved

from elanus.api.rootcoord import NewCollection
from elanus.core.catalog import Collection, Partition
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import (
    CollectionIllegalSchema,
    ImportRefused,
    IndexConflict,
    InvalidFilter,
    InvalidParameter,
)
from elanus.core.ids import ALL_PARTITIONS, FieldID, PartitionID
from elanus.core.messages import UpsertMessage
from elanus.core.partition_keys import checked_partitions, isolates_keys, partition_names
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import compose
from elanus.proxy.api.collections import CreateCollection
from elanus.proxy.api.loading import LoadRequest
from elanus.proxy.api.query import Query
from elanus.proxy.api.search import Search, SearchTemplate
from elanus.proxy.api.writes import Delete, Insert

PARTITIONS = 4
TENANT = FieldSchema(FieldID(150), "tenant", DataType.VARCHAR, max_length=16, is_partition_key=True)


def keyed(shards: int = 2) -> Collection:
    of = schema()
    partitions = tuple(
        Partition(PartitionID(500 + n), name, compose(1))
        for n, name in reversed(list(enumerate(partition_names(PARTITIONS))))
    )
    return replace(collection(replace(of, fields=(*of.fields, TENANT)), shards=shards), partitions=partitions)


KEYED = keyed()


def partition_of(tenant: str) -> PartitionID:
    return PartitionID(500 + zlib.crc32(tenant.encode()) % PARTITIONS)


def rows(tenants: list[str]) -> pa.RecordBatch:
    of = KEYED.schema
    columns = [
        pa.array(range(len(tenants)), pa.int64()),
        pa.array([float(n) for n in range(len(tenants))]),
        pa.array([[1.0, 2.0]] * len(tenants), of.field("v0").arrow_type),
        pa.array(tenants),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=of.arrow_schema)


def in_a_thread(work: Callable[[Bench], object], of: Collection = KEYED) -> None:
    async def run() -> None:
        bench = Bench(of)
        await bench.proxy.start()
        try:
            await asyncio.to_thread(work, bench)
        finally:
            await bench.proxy.stop()

    asyncio.run(run())


def query(text: str, *partitions: str) -> Query:
    consistency = ReadConsistency(ConsistencyLevel.EVENTUALLY)
    return Query(resolved(KEYED), partitions, text, ("pk",), 10, 0, consistency)


@pytest.mark.parametrize("replaces", [False, True])
def test_each_row_is_written_to_the_partition_of_its_key(replaces: bool) -> None:
    tenants = [f"tenant {n % 7}" for n in range(60)]

    def work(bench: Bench) -> None:
        write = bench.verbs.upsert if replaces else bench.verbs.insert
        assert write(Insert(resolved(KEYED), "", rows(tenants))).insert_count == 60
        found = bench.messages()
        assert all(isinstance(m, UpsertMessage) == replaces for m in found)
        written = {pk: m.partition_id for m in found for pk in m.rows.column("pk").to_pylist()}
        assert written == {pk: partition_of(tenant) for pk, tenant in enumerate(tenants)}
        assert len({m.ts for m in found}) == 1
        # a row whose partition changes is there once
        assert {m.deletes_in for m in found if isinstance(m, UpsertMessage)} <= {ALL_PARTITIONS}
        ids = sorted(n for m in found for n in range(m.row_id_start, m.row_id_start + m.rows.num_rows))
        assert len(ids) == len(set(ids)) == 60
        by_segment = {(m.segment_id, m.partition_id) for m in found}
        assert len({segment_id for segment_id, _ in by_segment}) == len(by_segment)

    in_a_thread(work)


@pytest.mark.parametrize(
    ("text", "tenants"),
    [
        ('tenant == "a"', ["a"]),
        ('tenant in ["a", "b"] and price > 1', ["a", "b"]),
        ('tenant == "a" or tenant == "c"', ["a", "c"]),
    ],
)
def test_a_query_looks_at_the_partitions_of_its_keys(text: str, tenants: list[str]) -> None:
    def work(bench: Bench) -> None:
        bench.verbs.query(query(text))
        (asked,) = bench.nodes.asked
        assert set(asked.partition_ids) == {partition_of(tenant) for tenant in tenants}

    in_a_thread(work)


def test_a_query_without_a_key_looks_at_all_partitions_and_one_without_a_possible_key_at_one() -> None:
    def work(bench: Bench) -> None:
        bench.verbs.query(query('tenant != "a"'))
        bench.verbs.query(query('tenant == "a" or price > 1'))
        bench.verbs.query(query("tenant in []"))
        assert [len(asked.partition_ids) for asked in bench.nodes.asked] == [0, 0, 1]

    in_a_thread(work)


def test_a_delete_looks_at_the_partitions_of_its_keys_and_deletes_in_all() -> None:
    def work(bench: Bench) -> None:
        bench.nodes.rows = {"pk": pa.array([5], pa.int64())}
        bench.verbs.delete(Delete(resolved(KEYED), "", 'tenant == "a"'))
        assert bench.nodes.asked[0].partition_ids == (partition_of("a"),)
        (deleted,) = bench.messages()
        assert deleted.partition_id == ALL_PARTITIONS

    in_a_thread(work)


@pytest.mark.parametrize(
    "named",
    [
        lambda b: b.verbs.insert(Insert(resolved(KEYED), "_default_0", rows(["a"]))),
        lambda b: b.verbs.upsert(Insert(resolved(KEYED), "_default_0", rows(["a"]))),
        lambda b: b.verbs.delete(Delete(resolved(KEYED), "_default_0", "pk in [1]")),
        lambda b: b.verbs.query(query("pk > 1", "_default_0")),
    ],
    ids=["insert", "upsert", "delete", "query"],
)
def test_no_request_names_a_partition(named: Callable[[Bench], object]) -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(InvalidParameter, match="not support manually specifying the partition names if"):
            named(bench)

    in_a_thread(work)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda f: f.create_partition("default", "c", "p"), "disable create partition if partition key mode"),
        (lambda f: f.drop_partition("default", "c", "_default_1"), "disable drop partition if partition key"),
        (
            lambda f: f.load(LoadRequest("default", "c", ("_default_1",))),
            "disable load partitions if partition",
        ),
        (lambda f: f.release("default", "c", ["_default_1"]), "disable release partitions if partition key"),
    ],
    ids=["create", "drop", "load", "release"],
)
def test_partitions_are_not_the_users(change: Callable[..., object], text: str) -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(InvalidParameter, match=text):
            change(bench.verbs)

    in_a_thread(work)


def test_an_import_goes_to_the_partitions_of_its_keys() -> None:
    def work(bench: Bench) -> None:
        bench.verbs.start_import("default", "c", "", ["a.parquet"])
        (request,) = bench.data.calls.of("start_import")
        assert (request.partition_id, request.partition) == (ALL_PARTITIONS, "")
        with pytest.raises(ImportRefused, match="not allow to set partition name for collection with"):
            bench.verbs.start_import("default", "c", "p1", ["a.parquet"])

    in_a_thread(work)


@pytest.mark.parametrize(("asked", "given"), [(0, 16), (1, 1), (64, 64), (1024, 1024)])
def test_the_number_of_partitions(asked: int, given: int) -> None:
    assert checked_partitions(KEYED.schema, asked) == given


@pytest.mark.parametrize(
    ("of", "asked", "text"),
    [
        (KEYED.schema, -1, "the specified partitions should be greater than 0 if partition key is used"),
        (KEYED.schema, 1025, r"partition number \(1025\) exceeds max configuration \(1024\)"),
        (schema(), -1, "num_partitions should only be specified with partition key field enabled"),
        (schema(), 4, "num_partitions should only be specified with partition key field enabled"),
    ],
)
def test_a_wrong_number_of_partitions(of: CollectionSchema, asked: int, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        checked_partitions(of, asked)


def test_the_coordinator_gets_the_number_of_partitions() -> None:
    def work(bench: Bench) -> None:
        requests: list[NewCollection] = []

        async def create(request: NewCollection) -> None:
            requests.append(request)

        bench.root.create_collection = create  # type: ignore[attr-defined]
        unnumbered = replace(
            KEYED.schema, fields=tuple(replace(f, field_id=FieldID(0)) for f in KEYED.schema.fields)
        )
        bench.verbs.create_collection(
            CreateCollection("default", unnumbered, 1, ConsistencyLevel.BOUNDED, {}, 8)
        )
        assert [request.key_partitions for request in requests] == [8]

    in_a_thread(work)


def test_isolation_needs_a_partition_key_and_a_truth_value() -> None:
    isolated = {"partitionkey.isolation": "true"}
    assert isolates_keys(isolated, KEYED.schema)
    assert not isolates_keys({"partitionkey.isolation": "False"}, schema())
    with pytest.raises(CollectionIllegalSchema, match="but no partition key field is set"):
        isolates_keys(isolated, schema())
    with pytest.raises(InvalidParameter, match="is 'maybe': give true or false"):
        isolates_keys({"partitionkey.isolation": "maybe"}, KEYED.schema)


def test_isolation_is_not_changed_under_an_index() -> None:
    vector_field = KEYED.schema.field("v0").field_id

    def work(bench: Bench) -> None:
        changes: list[object] = []

        async def alter(*change: object) -> None:
            changes.append(change)

        bench.root.alter_collection = alter  # type: ignore[attr-defined]
        bench.index.defined = [index(field_id=vector_field)]
        with pytest.raises(IndexConflict, match="can not alter partition key isolation mode"):
            bench.verbs.alter_collection("default", "c", {"partitionkey.isolation": "true"}, ())
        bench.verbs.alter_collection("default", "c", {"partitionkey.isolation": "false"}, ())
        assert len(changes) == 1

    in_a_thread(work)


def test_an_isolated_search_names_one_key() -> None:
    isolated = replace(KEYED, properties={"partitionkey.isolation": "true"})

    def work(bench: Bench) -> None:
        vectors = KEYED.schema.field("v0").vector.to_matrix(rows(["a"]).column("v0"))
        template = SearchTemplate(1, vector_field="v0", filter='tenant in ["a"]')
        search = Search(resolved(isolated), template, vectors, ReadConsistency())
        with pytest.raises(InvalidFilter, match="partition key isolation does not support IN"):
            bench.verbs.search(search)

    in_a_thread(work, isolated)
