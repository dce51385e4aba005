"""Search, query and count: what they return, what they refuse, and what they do not do twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from node_rows import VECTOR
from node_world import COLLECTION, World, breathe, inline, scenario

from elanus.api.querynode import LoadCollection
from elanus.core.errors import (
    CollectionNotLoaded,
    FieldNotFound,
    IndexNotFound,
    InvalidDimension,
    InvalidParameter,
    PartitionNotLoaded,
)
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.offload import Pools
from elanus.core.schema import DataType
from elanus.expr import BoundFilter
from elanus.querynode import memory
from elanus.querynode.node import QueryNode


async def written(world: World, *pairs: tuple[int, int], seal: bool = False, index: bool = False) -> None:
    """Rows (key, value), served as growing, or sealed, or sealed and indexed."""
    await world.insert(pairs)
    await world.tick()
    if seal or index:
        world.seal()
        done = world.flush()
        if index:
            for segment_id in done:
                world.build_index(segment_id)
        await world.hand_off(done)


@scenario()
async def test_an_empty_collection_has_no_hits(world: World) -> None:
    hits = world.node.search(world.node_search(1, 10, queries=np.zeros((3, 2), np.float32)))
    assert (hits.offsets.tolist(), hits.ids.dtype, len(hits.ids)) == ([0, 0, 0, 0], np.int64, 0)
    assert hits.fields["value"].type == pa.int64()
    rows = world.node.query(world.node_query())
    assert [(name, column.type, len(column)) for name, column in rows.items()] == [
        ("id", pa.int64(), 0),
        ("value", pa.int64(), 0),
        ("vector", world.schema.field("vector").arrow_type, 0),
    ]
    assert world.count() == 0


@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize("index", ["FLAT", "HNSW", "IVF_SQ8"])
def test_hits_of_growing_and_sealed_rows_merge(metric: str, index: str, tmp_path) -> None:
    @scenario(index={"index_type": index, "metric_type": metric})
    async def test(world: World) -> None:
        await written(world, (1, 1), (2, 2), index=True)
        await written(world, (3, 3), (4, 4))
        queries = np.array([[1, -1], [4, -4], [0, 1]], dtype=np.float32)
        hits = world.node.search(world.node_search(0, 3, queries=queries))
        assert hits.metric_type == metric
        assert hits.offsets.tolist() == [0, 3, 6, 9]
        best = {"L2": [1, 4, 1], "IP": [4, 4, 1], "COSINE": [1, 1, 1]}[metric]
        assert hits.ids.tolist()[::3] == best
        sign = 1 if metric == "L2" else -1
        for query in np.split(hits.scores, 3):
            assert (np.diff(sign * query) >= 0).all()

    test(tmp_path)


@scenario(key_type=DataType.VARCHAR)
async def test_string_keys_search_and_query(world: World) -> None:
    await written(world, (1, 1), (2, 2), seal=True)
    await written(world, (3, 3), (2, 9))
    assert world.nearest(2, 10) == ["key-0002", "key-0001", "key-0003"]
    assert world.keys('id == "key-0002"') == ["key-0002"]
    assert world.count('id in ["key-0002", "key-0003"]') == 3


@scenario()
async def test_rows_hidden_behind_duplicates_get_their_place(world: World) -> None:
    """One block's three nearest rows have one key; its fourth is nearer than the other block's rows."""
    await written(world, (1, 0), (1, 0), (1, 1), (2, 2), (3, 3), seal=True)
    await written(world, (8, 8), (9, 9))
    assert world.nearest(0, 3) == [1, 2, 3]
    assert world.nearest(0, 5) == [1, 2, 3, 8, 9]


@scenario()
async def test_equal_scores_stand_in_the_order_of_keys(world: World) -> None:
    await written(world, (5, 1), (3, 1), (4, 1), seal=True)
    assert world.nearest(0, 3) == [3, 4, 5]
    await written(world, (1, 1), (6, 1))
    assert world.nearest(0, 5) == [1, 3, 4, 5, 6]


@scenario()
async def test_a_range_search_keeps_to_its_range(world: World) -> None:
    await written(world, (1, 1), (2, 2), (3, 3), seal=True)
    await written(world, (4, 4))
    assert world.nearest(0, 10, params={"radius": 33.0, "range_filter": 8.0}) == [2, 3, 4]


@scenario()
async def test_growing_rows_may_be_ignored(world: World) -> None:
    await written(world, (1, 1), seal=True)
    await written(world, (2, 2))
    assert world.nearest(2, 10, ignore_growing=True) == [1]
    assert world.keys(ignore_growing=True) == [1]
    assert world.count(ignore_growing=True) == 1


@pytest.mark.parametrize("index", ["FLAT", "HNSW", "IVF_FLAT", "IVF_SQ8"])
@pytest.mark.parametrize("metric", ["L2", "COSINE"])
def test_vectors_come_back_as_they_were_sent(index: str, metric: str, tmp_path) -> None:
    @scenario(index={"index_type": index, "metric_type": metric})
    async def test(world: World) -> None:
        await written(world, *((key, key * 7) for key in range(40)), index=True)
        await written(world, (50, 3))
        [segment] = [s for s in (await world.node.status()).segments if s.sealed]
        assert segment.index_id == 5
        hits = world.node.search(world.node_search(70, 5, output_fields=("vector", "tag", "$meta")))
        keys = hits.ids.tolist()
        values = [3 if key == 50 else key * 7 for key in keys]
        assert hits.fields["vector"].to_pylist() == [[v, -v] for v in values]
        assert hits.fields["vector"].type == world.schema.field("vector").arrow_type
        assert hits.fields["tag"].to_pylist() == [None if v % 5 == 4 else "abc"[v % 3] for v in values]
        assert hits.fields["tag"].type == pa.string()
        rows = world.node.query(world.node_query("value >= 21"))
        assert rows["vector"].to_pylist() == [[v, -v] for v in rows["value"].to_pylist()]

    test(tmp_path)


@scenario()
async def test_a_repeated_filter_is_not_evaluated_again(world: World) -> None:
    await written(world, *((key, key) for key in range(20)), seal=True)
    await written(world, *((key, key) for key in range(20, 30)))
    evaluated = []
    find = BoundFilter.find

    def counting(self, columns, rows, *indexes):
        evaluated.append(rows)
        return find(self, columns, rows, *indexes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundFilter, "find", counting)
        for _ in range(3):
            assert world.count("value >= 5") == 25
        assert evaluated == [20, 10]
        await world.delete([6])
        await world.tick()
        assert world.nearest(6, 1, "value >= 5") == [5]
        assert evaluated == [20, 10]  # a delete changes who is visible, not what matches
        await written(world, (30, 30))
        assert world.count("value >= 5") == 25
        assert evaluated in ([20, 10, 1], [20, 10, 11])  # new rows only, and what they were merged with


@scenario()
async def test_a_filter_that_a_segments_bounds_rule_out_is_not_evaluated(world: World) -> None:
    await written(world, (1, 1), (2, 2), seal=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundFilter, "evaluate", None)
        assert world.count("value > 2") == 0


@scenario()
async def test_an_unknown_metric_field_or_partition_is_refused(world: World) -> None:
    await written(world, (1, 1))
    with pytest.raises(InvalidParameter, match="expected=L2"):
        world.nearest(1, 1, metric_type="IP")
    with pytest.raises(InvalidDimension):
        world.nearest(1, 1, queries=np.zeros((1, 3), np.float32))
    with pytest.raises(FieldNotFound):
        world.nearest(1, 1, output_fields=("nothing",))
    with pytest.raises(CollectionNotLoaded):
        world.nearest(1, 1, collection_id=CollectionID(8))
    await world.node.load_collection(world.load_request((1,)))
    await world.node.set_partitions(COLLECTION, [PartitionID(1)])
    with pytest.raises(PartitionNotLoaded):
        world.nearest(1, 1, partition_ids=(PartitionID(2),))


@scenario()
async def test_a_field_that_had_no_index_cannot_be_searched_but_read(world: World) -> None:
    await world.node.release_collection(COLLECTION)
    request = world.load_request()
    await world.node.load_collection(
        LoadCollection(COLLECTION, request.schema, (), (), request.vchannels, True)
    )
    await world.node.watch_vchannel(world.watch_request())
    world.version = 0
    await world.announce()
    await written(world, (1, 1), seal=True)
    await written(world, (2, 2))
    with pytest.raises(IndexNotFound, match="release and load"):
        world.nearest(1, 1)
    assert world.node.query(world.node_query())["vector"].to_pylist() == [[1, -1], [2, -2]]
    assert VECTOR not in world.snapshot.specs


@scenario()
async def test_a_large_release_returns_memory_once_nobody_reads_it(world: World) -> None:
    returned = []

    async def offload(function, /, *args):
        if function is memory.return_free_memory:
            returned.append(function)
        return await inline(function, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "WORTH_RETURNING_BYTES", 1)
        patch.setattr("elanus.querynode.memory._DELAY_S", 0)
        world.node._memory.offload = offload
        await written(world, (1, 1), (2, 2))
        reading = world.snapshot
        await world.announce(offline=list(world.segments))
        await breathe()
        assert returned == []
        del reading
        await breathe()
        assert returned == [memory.return_free_memory]


@scenario()
async def test_large_loads_return_the_memory_of_what_they_read(world: World) -> None:
    returned = []

    async def offload(function, /, *args):
        if function is memory.return_free_memory:
            returned.append(function)
        return await inline(function, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elanus.querynode.memory._LOADS_DELAY_S", 0)
        world.node._memory.offload = offload
        await written(world, (1, 1), seal=True)
        await breathe()
        assert returned == []  # a small one leaves little behind
        [segment] = (await world.node.status()).segments
        patch.setattr(memory, "WORTH_RETURNING_BYTES", 2 * segment.memory_bytes)
        await written(world, (2, 2), seal=True)
        await breathe()
        assert returned == [memory.return_free_memory]  # together they are large
        await written(world, (3, 3), seal=True)
        await breathe()
        assert returned == [memory.return_free_memory]  # counted from the last return on


@scenario()
async def test_large_writes_return_the_memory_of_their_requests_when_no_more_come(world: World) -> None:
    returned = []

    async def offload(function, /, *args):
        if function is memory.return_free_memory:
            returned.append(function)
        return await inline(function, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "WORTH_RETURNING_BYTES", 1)
        world.node._memory.offload = offload
        for key in range(3):
            await written(world, (key, key))
            await asyncio.sleep(0.8 * memory._QUIET_S)
            assert returned == []  # the next write uses it
        await asyncio.sleep(2 * memory._QUIET_S)
        assert returned == [memory.return_free_memory]
        await asyncio.sleep(10 * memory._QUIET_S)
        assert returned == [memory.return_free_memory]


def test_returning_memory_works_on_this_system() -> None:
    memory.return_free_memory()


@scenario()
async def test_the_node_stops_with_work_under_way_and_starts_again(world: World) -> None:
    await written(world, (1, 1))
    await world.node.stop()
    assert (await world.node.status()).segments == ()
    world.node = QueryNode(
        world.node._node_id, world.log, world.store, Pools.one(inline), scratch=world.scratch
    )
    world.version = 0
    await world.start()
    assert world.keys() == [1]
    assert world.node.growing_bytes > 0


@scenario()
async def test_query_by_keys_also_applies_the_filter(world: World) -> None:
    await written(world, (1, 1), (2, 2), (3, 3), seal=True)
    await written(world, (4, 4))
    request = world.node_query("value < 4", primary_keys=pa.array([4, 3, 1]))
    assert world.node.query(request)["id"].to_pylist() == [1, 3]
    assert world.node.count(request) == 2
    none = replace(request, primary_keys=pa.array([], pa.int64()))
    assert world.node.query(none)["id"].to_pylist() == []


@scenario()
async def test_output_vectors_that_take_too_much_are_not_fetched(world: World) -> None:
    await written(world, *((n, n) for n in range(10)), seal=True)
    row_bytes = world.schema.field("vector").row_bytes_estimate
    fits, large = world.node_query(answer_bytes_max=10 * row_bytes), world.node_query(answer_bytes_max=9)
    assert len(world.node.query(fits)["vector"]) == 10
    with pytest.raises(InvalidParameter, match=r"10 rows take .* proxy\.answer_max_mb"):
        world.node.query(large)
    assert len(world.node.query(replace(large, output_fields=("value",)))["value"]) == 10
    search = world.node_search(3, 5, output_fields=("vector",), answer_bytes_max=5 * row_bytes)
    assert len(world.node.search(search).fields["vector"]) == 5
    with pytest.raises(InvalidParameter, match="5 rows take"):
        world.node.search(replace(search, answer_bytes_max=5 * row_bytes - 1))
