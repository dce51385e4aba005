"""A partial update reads the rows that are there, and upserts whole ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from fakes import collection
from proxy_bench import Bench, resolved
from test_partition_keys import KEYED

from elanus.api.querynode import NodeQuery
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotLoaded, InvalidParameter, PartitionNotLoaded
from elanus.core.messages import UpsertMessage
from elanus.proxy.api.writes import Update
from elanus.proxy.fanout.deadline import Patience

PLAIN = collection(shards=2)
VECTOR = PLAIN.schema.field("v0").arrow_type


def in_a_thread(work: Callable[[Bench], object], of: Collection = PLAIN) -> None:
    async def run() -> None:
        bench = Bench(of)
        await bench.proxy.start()
        try:
            await asyncio.to_thread(work, bench)
        finally:
            await bench.proxy.stop()

    asyncio.run(run())


def update(*columns: tuple[str, pa.Array], of: Collection = PLAIN) -> Update:
    return Update(resolved(of), "", pa.RecordBatch.from_pydict(dict(columns)))


KEYS = ("pk", pa.array([7, 8], pa.int64()))
PRICES = ("price", pa.array([0.5, 1.5]))
TENANTS = ("tenant", pa.array(["a", "b"]))
VECTORS = ("v0", pa.array([[7.0, 7.0], [8.0, 8.0]], VECTOR))


def test_the_columns_that_are_not_sent_are_read() -> None:
    def work(bench: Bench) -> None:
        bench.nodes.rows = {
            "pk": pa.array([8, 7], pa.int64()),
            "v0": pa.array([[8.0, 8.0], [7.0, 7.0]], VECTOR),
        }
        assert bench.verbs.update(update(KEYS, PRICES)).upsert_count == 2
        (read,) = bench.nodes.asked
        assert read.output_fields == ("pk", "v0")
        assert read.primary_keys.to_pylist() == [7, 8]
        written = pa.Table.from_batches([m.rows for m in bench.messages()]).sort_by("pk").to_pydict()
        assert written == {"pk": [7, 8], "price": [0.5, 1.5], "v0": [[7.0, 7.0], [8.0, 8.0]]}
        assert all(isinstance(m, UpsertMessage) and m.ts > read.read_ts for m in bench.messages())

    in_a_thread(work)


def test_an_update_of_all_columns_reads_nothing() -> None:
    def work(bench: Bench) -> None:
        bench.verbs.update(update(KEYS, PRICES, VECTORS))
        assert bench.nodes.asked == []
        assert sum(m.rows.num_rows for m in bench.messages()) == 2

    in_a_thread(work)


def test_an_update_of_rows_that_cannot_be_read_says_what_it_reads() -> None:
    def work(bench: Bench) -> None:
        def unloaded(*_: object) -> None:
            raise CollectionNotLoaded("collection not loaded[collection=1]")

        bench.nodes.query = unloaded  # type: ignore[method-assign, assignment]
        with pytest.raises(CollectionNotLoaded, match=r"failed to query: collection not loaded\[.*load the"):
            bench.verbs.update(update(KEYS, PRICES))
        assert bench.messages() == []

    in_a_thread(work)


def test_a_refused_update_writes_nothing() -> None:
    def work(bench: Bench) -> None:
        bench.nodes.rows = {"pk": pa.array([], pa.int64()), "v0": pa.array([], VECTOR)}
        with pytest.raises(InvalidParameter, match=r"fieldSchema\(v0\) has no corresponding fieldData"):
            bench.verbs.update(update(KEYS, PRICES))
        assert bench.messages() == []

    in_a_thread(work)


def test_an_update_reads_the_partition_that_it_writes() -> None:
    def work(bench: Bench) -> None:
        bench.nodes.rows = {"pk": pa.array([8, 7], pa.int64()), "v0": VECTORS[1].take(pa.array([1, 0]))}
        bench.verbs.update(update(KEYS, PRICES))
        (read,) = bench.nodes.asked
        assert {read.partition_ids} == {(m.partition_id,) for m in bench.messages()}

        def unloaded(query: NodeQuery, _: Patience) -> Mapping[str, pa.Array]:
            assert query.partition_ids  # a row with that key in another partition is another row
            raise PartitionNotLoaded("partition not loaded[partition=5]; load it first")

        bench.nodes.query = unloaded  # type: ignore[method-assign]
        with pytest.raises(PartitionNotLoaded, match=r"failed to query: partition not.*load the collection"):
            bench.verbs.update(update(KEYS, PRICES))

    in_a_thread(work)


def test_a_row_that_may_be_in_a_partition_that_is_not_loaded_is_not_taken_for_new() -> None:
    """Where a partition key decides, it may be in any."""

    def work(bench: Bench) -> None:
        loaded = bench.nodes.query
        present = {"pk": pa.array([8, 7], pa.int64()), "v0": pa.array([[8.0, 8.0], [7.0, 7.0]], VECTOR)}

        def partly_loaded(query: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
            if query.partition_ids:
                raise PartitionNotLoaded("partition not loaded[partition=5]; load it first")
            return loaded(query, patience)

        bench.nodes.query = partly_loaded  # type: ignore[method-assign]
        bench.nodes.rows = {name: values[:1] for name, values in present.items()}
        with pytest.raises(PartitionNotLoaded, match=r"keys \[7\] are in no loaded .*load the coll"):
            bench.verbs.update(update(KEYS, PRICES, TENANTS, of=KEYED))
        assert bench.messages() == []
        bench.nodes.rows = present
        assert bench.verbs.update(update(KEYS, PRICES, TENANTS, of=KEYED)).upsert_count == 2

    in_a_thread(work, KEYED)
