"""Insert, upsert, delete and flush as a client's thread calls them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from fakes import CID, DEFAULT, OTHER, collection, schema
from proxy_bench import Bench, resolved
from pymilvus import build_bloom_filter

from elanus.core.catalog import Collection
from elanus.core.errors import (
    CollectionNotFound,
    DeadlineExceeded,
    InvalidParameter,
    MemoryFull,
    NotReady,
    PartitionNotFound,
    SchemaMismatch,
)
from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.writes import Delete, Insert, MutationResult

PLAIN = collection(shards=2, partitions=(DEFAULT, OTHER))
AUTO = collection(schema(auto_id=True), shards=2)
COLOURED = replace(
    collection(),
    collection_id=CollectionID(777),
    schema=replace(
        schema(),
        fields=(
            *(f for f in schema().fields if f.name != "price"),
            FieldSchema(FieldID(150), "colour", DataType.VARCHAR, max_length=16),
        ),
    ),
)
"""With a column that the others lack, and without one that they have."""
AUTO_STRING = collection(schema(key=DataType.VARCHAR, auto_id=True))


def rows(keys: list[int], of: CollectionSchema | None = None, *, with_key: bool = True) -> pa.RecordBatch:
    of = of or schema()
    columns = {
        "pk": pa.array(keys, pa.int64()),
        "price": pa.array([float(n) for n in range(len(keys))]),
        "v0": pa.array([[1.0, 2.0]] * len(keys), of.field("v0").arrow_type),
    }
    return pa.RecordBatch.from_pydict({n: c for n, c in columns.items() if with_key or n != "pk"})


def in_a_thread(of: Collection, work: Callable[[Bench], object]) -> Bench:
    """Run ``work`` in a thread next to a proxy's event loop, as gRPC would."""

    async def run() -> Bench:
        bench = Bench(of)
        await bench.proxy.start()
        await asyncio.to_thread(work, bench)
        await bench.proxy.stop()
        return bench

    return asyncio.run(run())


def insert(keys: list[int], partition: str = "", *, of: Collection = PLAIN, with_key: bool = True) -> Insert:
    return Insert(resolved(of), partition, rows(keys, with_key=with_key))


def delete(text: str, partition: str = "") -> Delete:
    return Delete(resolved(PLAIN), partition, text)


# insert


def test_an_insert_is_in_the_log_when_it_is_acknowledged() -> None:
    results: list[MutationResult] = []
    seen: list[object] = []

    def work(bench: Bench) -> None:
        results.append(bench.verbs.insert(insert([5, 6, 7], "p1")))
        seen.extend(bench.messages())

    in_a_thread(PLAIN, work)
    (result,) = results
    assert result.primary_keys.to_pylist() == [5, 6, 7]
    assert (result.insert_count, result.delete_count, result.upsert_count) == (3, 0, 0)
    assert all(isinstance(m, InsertMessage) and m.ts == result.ts for m in seen)
    assert {m.partition_id for m in seen} == {OTHER}  # type: ignore[attr-defined]
    assert sorted(k for m in seen for k in m.rows.column("pk").to_pylist()) == [5, 6, 7]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("of", "kind"), [(AUTO, pa.int64()), (AUTO_STRING, pa.string())])
def test_automatic_keys_are_unique_and_what_the_log_has(of: Collection, kind: pa.DataType) -> None:
    keys: list[object] = []

    def work(bench: Bench) -> None:
        for _ in range(3):
            result = bench.verbs.insert(insert([0] * 40, of=of, with_key=False))
            assert result.primary_keys.type == kind
            keys.extend(result.primary_keys.to_pylist())

    bench = in_a_thread(of, work)
    assert len(set(keys)) == 120
    logged = [k for m in bench.messages() for k in m.rows.column("pk").to_pylist()]
    assert sorted(logged) == sorted(keys)  # type: ignore[type-var]
    assert len(bench.root.calls.of("alloc_ids")) == 1, "ids come in batches"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (insert([1], "nope"), PartitionNotFound),
        (Insert(resolved(COLOURED), "", rows([1])), SchemaMismatch),
        (insert([]), InvalidParameter),
    ],
)
def test_a_write_that_cannot_be_leaves_no_trace(request_: Insert, error: type[Exception]) -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(error):
            bench.verbs.insert(request_)

    assert in_a_thread(PLAIN, work).messages() == []


def test_pressure_holds_rows_back_and_lets_deletes_through() -> None:
    def work(bench: Bench) -> None:
        bench.growing_bytes = 1 << 50
        for write in (bench.verbs.insert, bench.verbs.upsert):
            with pytest.raises(MemoryFull):
                write(insert([1]))
        bench.verbs.delete(delete("pk in [1]"))

    (message,) = in_a_thread(PLAIN, work).messages()
    assert isinstance(message, DeleteMessage)


@pytest.mark.parametrize("verb", ["insert", "upsert"])
def test_rows_go_to_the_collection_they_were_decoded_for_when_the_alias_switches_meanwhile(verb: str) -> None:
    """Resolving a second time, after the decoding, would find the other collection."""
    before = replace(PLAIN, aliases=("alias",))
    after = replace(COLOURED, name="d", aliases=("alias",))

    def work(bench: Bench) -> None:
        meant = bench.verbs.collection("default", "alias")
        decoded = Insert(meant, "", rows([1, 2], meant.view.schema))
        bench.root.collections = {
            before.collection_id: replace(before, aliases=()),
            after.collection_id: after,
        }
        for switched in (before, after):
            bench.proxy.call(bench.proxy.invalidate_collection(switched.collection_id))
        assert bench.verbs.collection("default", "alias").collection_id == after.collection_id
        assert getattr(bench.verbs, verb)(decoded).insert_count == 2

    messages = in_a_thread(before, work).messages()
    assert {m.collection_id for m in messages} == {before.collection_id}
    assert sorted(k for m in messages for k in m.rows.column("pk").to_pylist()) == [1, 2]


def test_an_insert_into_a_collection_that_was_dropped_meanwhile_is_refused() -> None:
    """Also by a proxy that had an allocation left for it."""

    def work(bench: Bench) -> None:
        meant = bench.verbs.collection("default", "c")
        bench.verbs.insert(Insert(meant, "", rows([1])))
        bench.data.dropped.add(meant.collection_id)
        bench.proxy.call(bench.proxy.invalidate_collection(meant.collection_id))
        with pytest.raises(CollectionNotFound):
            bench.verbs.insert(Insert(meant, "", rows([2])))

    (message,) = in_a_thread(PLAIN, work).messages()
    assert message.rows.column("pk").to_pylist() == [1]


# upsert


@pytest.mark.parametrize("of", [PLAIN, AUTO])
def test_an_upsert_has_one_row_of_each_key(of: Collection) -> None:
    def work(bench: Bench) -> None:
        refused = "duplicate primary keys are not allowed in the same batch: several rows have the pk 6"
        with pytest.raises(InvalidParameter, match=refused):
            bench.verbs.upsert(insert([5, 6, 7, 6, 7], of=of))

    assert in_a_thread(of, work).messages() == []


def test_an_upsert_into_automatic_keys_gives_new_ones_and_deletes_the_old() -> None:
    results: list[MutationResult] = []

    def work(bench: Bench) -> None:
        results.append(bench.verbs.upsert(insert([5, 6], of=AUTO)))

    messages = in_a_thread(AUTO, work).messages()
    assert {type(m) for m in messages} == {UpsertMessage}, "one record deletes and inserts"
    deleted = [k for m in messages for k in m.replaced.to_pylist()]
    inserted = [k for m in messages for k in m.rows.column("pk").to_pylist()]
    assert sorted(deleted) == [5, 6]
    assert sorted(inserted) == sorted(results[0].primary_keys.to_pylist())
    assert not set(inserted) & {5, 6}
    assert len({m.ts for m in messages}) == 1


@pytest.mark.parametrize("kind", [DataType.INT64, DataType.VARCHAR])
def test_the_new_key_of_an_upsert_is_in_the_shard_of_the_old_one(kind: DataType) -> None:
    """So a delete by the new key goes where the row is."""
    of = collection(schema(key=kind, auto_id=True), shards=4)

    def work(bench: Bench) -> None:
        keys = bench.verbs.insert(insert([0] * 30, of=of, with_key=False)).primary_keys
        for _ in range(3):
            again = rows([0] * 30).set_column(0, "pk", keys)
            keys = bench.verbs.upsert(Insert(resolved(of), "", again)).primary_keys
        text = f"pk in {keys.to_pylist()}".replace("'", '"')
        bench.verbs.delete(Delete(resolved(of), "", text))

    messages = in_a_thread(of, work).messages()
    where = {
        k: m.vchannel for m in messages if not isinstance(m, DeleteMessage) for k in m.rows["pk"].to_pylist()
    }
    gone = {
        k: m.vchannel for m in messages if isinstance(m, DeleteMessage) for k in m.primary_keys.to_pylist()
    }
    replaced = {
        k: m.vchannel for m in messages if isinstance(m, UpsertMessage) for k in m.replaced.to_pylist()
    }
    assert len(gone) == 30
    assert len(replaced) == 90
    assert replaced.items() <= where.items()
    assert gone.items() <= where.items()
    assert not replaced.keys() & gone.keys()


# delete


@pytest.mark.parametrize("text", ["1 == 1", "not false", "1 == 1 or pk == 1"])
def test_a_delete_of_everything_is_refused(text: str) -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(InvalidParameter, match="delete plan can't be empty or always true"):
            bench.verbs.delete(delete(text))

    assert in_a_thread(PLAIN, work).messages() == []


def test_a_bloom_filter_does_not_choose_what_to_delete() -> None:
    def work(bench: Bench) -> None:
        chosen = replace(
            delete("membership_match(pk, {set})"), filter_values={"set": build_bloom_filter([1, 2])}
        )
        with pytest.raises(InvalidParameter, match="a Bloom filter also finds rows that are not in its set"):
            bench.verbs.delete(chosen)

    assert in_a_thread(PLAIN, work).messages() == []


def test_a_delete_by_key_asks_no_query_node() -> None:
    results: list[MutationResult] = []

    def work(bench: Bench) -> None:
        results.append(bench.verbs.delete(delete("pk in [3, 4, 5]")))
        results.append(bench.verbs.delete(delete("pk == 9", "p1")))

    bench = in_a_thread(PLAIN, work)
    deletes = {(m.partition_id, k) for m in bench.messages() for k in m.primary_keys.to_pylist()}
    assert deletes == {(ALL_PARTITIONS, 3), (ALL_PARTITIONS, 4), (ALL_PARTITIONS, 5), (OTHER, 9)}
    assert [r.delete_count for r in results] == [3, 1]
    assert bench.nodes.asked == []


def test_a_delete_by_filter_deletes_the_keys_it_finds() -> None:
    def work(bench: Bench) -> None:
        bench.nodes.rows = {"pk": pa.array([11, 12])}
        assert bench.verbs.delete(delete("price > 3")).delete_count == 2

    bench = in_a_thread(PLAIN, work)
    assert sorted(k for m in bench.messages() for k in m.primary_keys.to_pylist()) == [11, 12]
    assert bench.nodes.asked[0].output_fields == ("pk",)


def test_a_delete_that_finds_nothing_writes_nothing() -> None:
    def work(bench: Bench) -> None:
        assert bench.verbs.delete(delete("price > 3")).delete_count == 0

    assert in_a_thread(PLAIN, work).messages() == []


def test_a_delete_without_a_filter_is_refused() -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(InvalidParameter, match="empty"):
            bench.verbs.delete(delete("  "))

    assert in_a_thread(PLAIN, work).messages() == []


# flush


def test_a_flush_returns_what_it_sealed_and_what_was_flushed_before() -> None:
    def work(bench: Bench) -> None:
        result = bench.verbs.flush("default", ["c"])
        assert result.segment_ids == {"c": (7,)}
        assert result.flushed_segment_ids == {"c": (5, 6)}
        assert bench.verbs.flush_state([7, 5], "default", "c", result.flush_ts["c"])

    bench = in_a_thread(PLAIN, work)
    assert bench.data.calls.of("flush") == [CID]
    ((collection_id, segment_ids, flush_ts),) = bench.data.calls.of("flush_finished")
    assert (collection_id, segment_ids) == (CID, (7, 5))
    assert flush_ts > 0


def test_flushing_all_waits_for_nothing_that_was_written_since_it_began() -> None:
    def work(bench: Bench) -> None:
        other = CollectionID(CID + 50)
        bench.root.collections[other] = collection(schema("d"), other)
        before = bench.root.stamp()
        moments: list[Timestamp] = []
        bench.data.when_flushed = lambda: moments.append(bench.root.stamp())
        flush_ts = bench.verbs.flush_all("")
        assert before < flush_ts < min(moments)
        assert bench.verbs.flush_all_state("", flush_ts)
        bench.root.collections.clear()
        assert bench.verbs.flush_all("") > flush_ts, "without any collection it is just now"

    bench = in_a_thread(PLAIN, work)
    assert bench.data.calls.of("flush") == [CID, CID + 50]
    ((collection_id, segment_ids, _),) = bench.data.calls.of("flush_finished")
    assert (collection_id, segment_ids) == (0, ())


def test_of_a_database_that_was_flushed_the_state_is_asked_for_its_collections_alone() -> None:
    def work(bench: Bench) -> None:
        assert bench.verbs.flush_all_state("books", bench.verbs.flush_all("books"))

    bench = in_a_thread(PLAIN, work)
    assert bench.root.calls.of("list_collections") == ["books", "books"]
    ((collection_id, _, _),) = bench.data.calls.of("flush_finished")
    assert collection_id == CID


def test_a_collection_that_is_dropped_while_all_are_flushed_is_no_error() -> None:
    def work(bench: Bench) -> None:
        def gone() -> None:
            raise CollectionNotFound("collection not found")

        bench.data.when_flushed = gone
        assert bench.verbs.flush_all("") > 0

    assert in_a_thread(PLAIN, work).data.calls.of("flush") == [CID]


# the thread and the loop


def test_a_call_that_takes_too_long_ends_with_an_error_and_is_given_up() -> None:
    given_up: list[bool] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append(True)

    def work(bench: Bench) -> None:
        bench.proxy._policy = replace(bench.proxy._policy, call_timeout_s=0.01)
        with pytest.raises(DeadlineExceeded):
            bench.proxy.call(forever())

    in_a_thread(PLAIN, work)
    assert given_up == [True]


def test_a_thread_whose_task_is_given_up_at_the_end_gets_an_error() -> None:
    async def run() -> None:
        bench = Bench(PLAIN)
        cancelled = asyncio.get_running_loop().create_future()
        call = asyncio.create_task(asyncio.to_thread(bench.proxy.call, cancelled))
        cancelled.cancel()
        with pytest.raises(NotReady):
            await call

    asyncio.run(run())
