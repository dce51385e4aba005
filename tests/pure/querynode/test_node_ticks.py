"""A tick without messages costs a query node the same, however many collections it has loaded."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting import calls_of, steps_of
from node_rows import schema_of
from node_world import COLLECTION, NODE, VCHANNEL, World, inline, scenario

from elanus.api.querynode import FieldIndexSpec, LoadCollection, SealedSegmentsChange, WatchVchannel
from elanus.core.channels import pchannel_name, pchannel_of, vchannel_name
from elanus.core.errors import DeadlineExceeded
from elanus.core.ids import CollectionID, IndexID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage, TimeTick
from elanus.core.offload import Pools
from elanus.core.packs import ORIGIN
from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.log.codec import encode
from elanus.log.memory import MemoryLog
from elanus.querynode.arrivals import Intake
from elanus.querynode.coverage import Coverage
from elanus.querynode.follower import Follower
from elanus.querynode.interim import Interim, InterimRules
from elanus.querynode.node import QueryNode
from elanus.querynode.recovery import Recovered
from elanus.storage.local import LocalStore

PCHANNELS = [pchannel_name(number) for number in range(16)]


class Loaded:
    """A query node that serves ``collections`` of two (or ``shards``) shards each, all of them empty."""

    def __init__(self, directory: Path, collections: int, shards: int = 2) -> None:
        self.shards = shards
        self.log = MemoryLog()
        self.node = QueryNode(
            NODE, self.log, LocalStore(directory / "store"), Pools.one(inline), scratch=directory / "scratch"
        )
        self.ids = [CollectionID(100 + number) for number in range(collections)]

    async def start(self) -> None:
        await self.node.start()
        for collection_id in self.ids:
            vchannels = tuple(
                vchannel_name(PCHANNELS[(2 * collection_id + shard) % 16], collection_id, shard)
                for shard in range(self.shards)
            )
            vector = FieldIndexSpec(_field_id(), IndexID(1), {"index_type": "FLAT", "metric_type": "L2"})
            await self.node.load_collection(
                LoadCollection(collection_id, schema_of(DataType.INT64), (), (vector,), vchannels, True)
            )
            for vchannel in vchannels:
                await self.node.watch_vchannel(WatchVchannel(collection_id, vchannel, ORIGIN, (), (), ()))
            await self.node.announce(SealedSegmentsChange(collection_id, 1, (), ()))

    async def write(self, collection_id: CollectionID, vchannel: str, number: int, ts: int) -> None:
        """Insert a row into a segment of this number."""
        schema = schema_of(DataType.INT64).arrow_schema
        row = {"id": ts * 1000 + number, "value": 1, "tag": "a", "vector": [1.0, 2.0], "$meta": "{}"}
        rows = pa.RecordBatch.from_pylist([row], schema=schema)
        start = (Timestamp(ts), vchannel, collection_id, PartitionID(1), SegmentID(number + 1), 0)
        await self.log.append(pchannel_of(vchannel), [encode(InsertMessage(*start, rows))])

    async def tick(self, ts: int) -> None:
        for pchannel in PCHANNELS:
            await self.log.append(pchannel, [encode(TimeTick(Timestamp(ts), 1))])
        for _ in range(10):
            await asyncio.sleep(0)

    def served(self) -> set[int]:
        return {self.node.service_time(collection_id) for collection_id in self.ids}


def _field_id() -> Any:
    return schema_of(DataType.INT64).vector_fields[0].field_id


async def test_a_tick_costs_the_same_for_1000_vchannels_as_for_16(tmp_path: Path) -> None:
    calls = []
    for collections in (8, 500):
        loaded = Loaded(tmp_path, collections)
        await loaded.start()
        await loaded.tick(1000)
        assert loaded.served() == {1000}
        calls.append(await calls_of(lambda loaded=loaded: loaded.tick(2000)))  # type: ignore[misc]
        assert loaded.served() == {2000}
        assert loaded.node._dispatcher.readers == 16
        await loaded.node.stop()
    assert calls[0] == calls[1]


async def test_a_read_that_waits_is_woken_when_each_of_its_vchannels_has_ticked(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, 2)
    await loaded.start()
    await loaded.tick(1000)
    clock = loaded.node._loaded(loaded.ids[0]).clock
    reading = asyncio.create_task(clock.reached(Timestamp(2000), 60))
    await asyncio.sleep(0)
    own = [PCHANNELS[(2 * loaded.ids[0] + shard) % 16] for shard in range(2)]
    await loaded.log.append(own[0], [encode(TimeTick(Timestamp(2000), 1))])
    await loaded.tick(1500)
    assert not reading.done()
    assert loaded.served() == {1500}
    await loaded.log.append(own[1], [encode(TimeTick(Timestamp(2500), 1))])
    await asyncio.wait_for(reading, 1)
    assert loaded.node.service_time(loaded.ids[0]) == 2000
    assert loaded.node._loaded(loaded.ids[0]).snapshot.service_ts == 2000
    with pytest.raises(DeadlineExceeded):
        await clock.reached(Timestamp(3000), 1)
    await loaded.node.stop()


async def test_rows_cost_each_of_their_vchannels_the_same_however_many_there_are(tmp_path: Path) -> None:
    steps = []
    for shards in (16, 128):
        loaded = Loaded(tmp_path, 1, shards)
        await loaded.start()
        (collection_id,) = loaded.ids
        collection = loaded.node._loaded(collection_id)
        for ts in (1000, 2000):
            for number, vchannel in enumerate(collection.channels):
                await loaded.write(collection_id, vchannel, number, ts)
            reading = asyncio.create_task(collection.clock.reached(Timestamp(ts), 60))
            steps.append(await steps_of(lambda loaded=loaded, ts=ts: loaded.tick(ts)))  # type: ignore[misc]
            await asyncio.wait_for(reading, 1)
            loaded.node.invariants()
            snapshot = collection.snapshot
            assert snapshot.service_ts == ts
            blocks = [block for segment in snapshot.segments for block in segment.blocks]
            assert sum(block.rows for block in blocks) == shards * (ts // 1000)
        await loaded.node.stop()
    assert steps[3] / 128 < 1.1 * steps[1] / 16, steps


async def test_an_error_at_a_tick_stops_one_vchannel_and_not_its_neighbors(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, 2)
    await loaded.start()
    await loaded.tick(1000)
    first, second = (loaded.node._loaded(collection_id) for collection_id in loaded.ids)
    request = WatchVchannel(first.collection_id, f"{PCHANNELS[8]}_999v0", ORIGIN, (), (), ())

    def broken(follower: Follower, effects: object) -> bool:
        if follower.failure is None:
            raise RuntimeError("a bug")
        return False

    interim = partial(Interim, InterimRules(), inline)
    intake = Intake(inline)
    follower = Follower(request, first.schema, first.specs, Coverage.nothing(), broken, intake, interim)
    follower.start(loaded.node._dispatcher, Recovered(()))
    await loaded.tick(2000)
    assert follower.failure is not None
    await loaded.tick(3000)
    assert (loaded.served(), {c.failure for c in second.channels.values()}) == ({3000}, {None})
    assert follower.tick < 3000
    await loaded.node.stop()


async def test_a_pulse_costs_what_has_changed_since_the_one_before(tmp_path: Path) -> None:
    steps = []
    for collections in (8, 200):
        loaded = Loaded(tmp_path, collections)
        await loaded.start()
        await loaded.tick(1000)
        first = await loaded.node.pulse()
        assert first.versions == dict.fromkeys(loaded.ids, 1)
        await loaded.tick(2000)
        steps.append([await steps_of(loaded.node.pulse)])
        second = await loaded.node.pulse()
        assert second.versions is first.versions
        assert second.positions == (await loaded.node.status()).positions
        assert all(second.positions[pchannel] > first.positions[pchannel] for pchannel in PCHANNELS)
        await loaded.node.announce(SealedSegmentsChange(loaded.ids[0], 2, (), ()))
        await loaded.node.release_collection(loaded.ids[1])
        steps[-1].append(await steps_of(loaded.node.pulse))
        third = await loaded.node.pulse()
        assert third.versions == {c: n for c, n in first.versions.items() if c != loaded.ids[1]} | {
            loaded.ids[0]: 2
        }
        assert second.versions == dict.fromkeys(loaded.ids, 1), "what was handed out stays as it is"
        await loaded.node.stop()
    assert steps[0][0] == steps[1][0]
    assert steps[1][1] < 1.2 * steps[0][1], steps


async def test_a_change_that_the_pulse_misses_breaks_an_invariant(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, 2)
    await loaded.start()
    await loaded.tick(1000)
    await loaded.node.pulse()
    loaded.node.invariants()
    await loaded.node.announce(SealedSegmentsChange(loaded.ids[0], 2, (), ()))
    loaded.node._pulse._changed.clear()
    with pytest.raises(AssertionError, match="the pulse has"):
        loaded.node.invariants()
    await loaded.node.stop()


async def test_growing_bytes_are_known_without_looking_at_every_collection(tmp_path: Path) -> None:
    calls = []
    for collections in (1, 100):
        loaded = Loaded(tmp_path, collections)
        await loaded.start()

        async def look(loaded: Loaded = loaded) -> None:
            assert loaded.node.growing_bytes == 0

        calls.append(await calls_of(look))
        await loaded.node.stop()
    assert calls[0] == calls[1]


@scenario()
async def test_growing_bytes_follow_rows_deletes_and_releases(world: World) -> None:
    def held() -> int:
        return sum(c.growing_bytes for c in world.node._collections.values())

    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    rows_bytes = world.node.growing_bytes
    assert rows_bytes == held() > 0
    await world.delete([1])
    await world.tick()
    with_deletes_bytes = world.node.growing_bytes
    assert with_deletes_bytes == held() > rows_bytes
    await world.node.forget_deletes(COLLECTION, VCHANNEL, Timestamp(world.tick_ts))
    assert world.node.growing_bytes == rows_bytes, "also when no message follows"
    assert (await world.node.status()).growing_bytes == rows_bytes
    await world.node.release_collection(COLLECTION)
    assert world.node.growing_bytes == 0
