"""The node's account of its memory: what is not rows counts too."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from node_world import COLLECTION, NODE, PCHANNEL, World, breathe, inline, scenario
from test_big_deletes import Threads

from elanus.core.offload import Pools
from elanus.expr.identity_cache import IdentityCache
from elanus.expr.jsonpath import KEPT_PATHS_MAX, JsonColumn
from elanus.index import load
from elanus.index.spec import IndexSpec
from elanus.querynode import growth
from elanus.querynode.arrivals import Intake
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.growth import weight_bytes
from elanus.querynode.node import QueryNode, QueryNodePolicy
from elanus.querynode.pack_absorber import PackAbsorber
from elanus.querynode.recall import RecallSampler

ROWS = [(key, key) for key in range(100)]
HNSW = {"index_type": "HNSW", "metric_type": "L2", "M": "8", "efConstruction": "64"}


async def sealed(world: World) -> None:
    await world.insert(ROWS)
    await world.tick()
    world.seal()
    await world.hand_off([world.flush()[0]])


@scenario()
async def test_what_filters_cache_counts_as_used(world: World) -> None:
    await sealed(world)
    before = (await world.node.status()).used_bytes
    world.count("value > 5")
    one = (await world.node.status()).used_bytes
    bits_bytes = (len(ROWS) + 7) // 8
    assert one - before == bits_bytes  # all rows are visible, so one mask says which match and are visible
    world.count("value > 5")
    assert (await world.node.status()).used_bytes == one
    world.count('$meta["half"] > 5')
    assert (await world.node.status()).used_bytes - one >= bits_bytes + 8 * len(ROWS)


@scenario()
async def test_what_filters_cache_moves_no_segment(world: World) -> None:
    """Placement moves segments by their own size, which does not depend on what is asked."""
    await sealed(world)
    before = (await world.node.status()).segments
    world.count("value > 5")
    assert (await world.node.status()).segments == before


@scenario()
async def test_delta_logs_that_are_kept_count_as_used(world: World) -> None:
    await world.insert(ROWS)
    await world.tick()
    world.seal()
    [segment_id] = world.flush()
    await world.delete(range(50))
    await world.tick()
    world.flush()
    assert world.node._loading.delta_logs.memory_bytes == 0
    await world.hand_off([segment_id])
    kept_bytes = world.node._loading.delta_logs.memory_bytes
    status = await world.node.status()
    assert kept_bytes > 0
    assert status.used_bytes >= kept_bytes + sum(segment.memory_bytes for segment in status.segments)
    await world.node.release_collection(COLLECTION)
    assert world.node._loading.delta_logs.memory_bytes == 0


@scenario()
async def test_what_was_measured_of_a_collection_goes_with_it(world: World) -> None:
    world.node._recall = sampler = RecallSampler(0.01, 0.9)
    with patch.object(sampler, "forget") as forget:
        await world.node.release_collection(COLLECTION)
    forget.assert_called_with(COLLECTION)


@scenario()
async def test_messages_that_wait_for_their_tick_count_as_growing(world: World) -> None:
    assert world.node.growing_bytes == 0
    await world.insert(ROWS)
    await breathe()
    [entry] = [e for e in world.log._streams[PCHANNEL].entries if e.header.rows]
    assert world.node.growing_bytes == entry.payload_bytes > 100
    assert (await world.node.status()).growing_bytes == entry.payload_bytes
    used_bytes = (await world.node.status()).used_bytes
    assert used_bytes == entry.payload_bytes
    await world.tick()
    collection = world.node._collections[COLLECTION]
    assert world.node.growing_bytes == collection.growing_bytes > 0
    assert world.node._dispatcher.waiting_bytes == 0


@scenario()
async def test_nothing_waits_once_the_collection_is_released(world: World) -> None:
    await world.insert(ROWS)
    await breathe()
    assert world.node.growing_bytes > 0
    await world.node.release_collection(COLLECTION)
    await breathe()
    assert world.node.growing_bytes == 0


@scenario()
async def test_packs_that_wait_for_those_before_them_count_as_growing(world: World) -> None:
    threads = Threads()
    follower = next(iter(world.node._collections[COLLECTION].channels.values())).follower
    assert follower is not None
    follower._intake = Intake(threads, inline_rows_max=0)
    threads.go_on.clear()
    await world.insert(ROWS)
    await world.tick()
    one = world.node.growing_bytes
    await world.insert([(1000 + key, key) for key, _ in ROWS])
    await world.tick()
    assert world.node.growing_bytes >= 2 * one > 0
    threads.go_on.set()
    for _ in range(20):
        await breathe()
    rows_bytes = sum(b.batch_bytes for s in follower.growing.values() for b in s.blocks)
    assert world.node.growing_bytes == rows_bytes == follower.growing.batch_bytes


@scenario()
async def test_packs_of_one_vchannel_are_weighed_without_the_others(world: World) -> None:
    collection = world.node._collections[COLLECTION]
    (channel,) = collection.channels.values()
    assert channel.follower is not None
    collection.channels |= {name: FollowedVchannel(name) for name in ("idle 1", "idle 2")}
    weighed: list[str] = []

    def counted(channel: FollowedVchannel) -> int:
        weighed.append(channel.vchannel)
        return weight_bytes(channel)

    absorber = PackAbsorber(collection)
    with patch.object(growth, "weight_bytes", counted):
        absorber.queued(channel.follower)
        absorber.absorbed(channel.follower)
    assert weighed == [channel.vchannel] * 2


@scenario()
async def test_the_bytes_of_a_collection_are_those_of_its_vchannels_after_each_write(world: World) -> None:
    collection = world.node._collections[COLLECTION]
    for key in range(5):
        await world.insert([(key, key), (key + 10, key)])
        await world.delete([key])
        await world.tick()
        expected_bytes = sum(weight_bytes(channel) for channel in collection.channels.values())
        assert world.node.growing_bytes == collection.growing_bytes == expected_bytes > 0


def test_a_json_column_knows_what_it_caches() -> None:
    column = JsonColumn(pa.array(['{"a":1,"b":[1,2]}', '{"a":2}'] * 50))
    assert column.cached_bytes == 0
    column.values(("a",))
    one = column.cached_bytes
    column.values(("a",))
    assert column.cached_bytes == one >= 8 * 100
    column.values(("b",))
    assert column.cached_bytes > one + 50 * 8
    for number in range(KEPT_PATHS_MAX):
        column.values((f"missing-{number}",))
    assert column.cached_bytes == KEPT_PATHS_MAX * column.values(("missing-0",)).memory_bytes


def test_a_cache_gives_what_it_holds() -> None:
    cache: IdentityCache[object, int] = IdentityCache(2)
    keys = [object() for _ in range(3)]
    assert cache.values() == []
    for number, key in enumerate(keys):
        cache.put(key, number)
    assert sorted(cache.values()) == [1, 2]


class Mapping(World):
    """A node next to others that map the same index files."""

    def _new_node(self) -> QueryNode:
        policy = QueryNodePolicy(shared=self.scratch)
        return QueryNode(NODE, self.log, self.store, Pools.one(inline), scratch=self.scratch, policy=policy)


@pytest.mark.parametrize("world_type", [World, Mapping])
async def test_several_processes_have_an_index_in_memory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_type: type[World]
) -> None:
    """Each maps the file, whatever the collection's index says."""
    mapped: list[bool] = []

    def load_noted(path: Path, spec: IndexSpec, stays: bool = False) -> object:
        mapped.append(spec.memory_mapped)
        return load(path, spec, stays)

    monkeypatch.setattr("elanus.querynode.sealed.load", load_noted)
    world = world_type(tmp_path, index=HNSW)
    await world.start()
    await world.insert(ROWS)
    await world.tick()
    world.seal()
    [segment_id] = world.flush()
    world.build_index(segment_id)
    await world.hand_off([segment_id])
    assert mapped == [world_type is Mapping]
    assert len(world.nearest(5.0, 3)) == 3
    await world.node.stop()
