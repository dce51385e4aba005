"""A query coordinator over several query nodes: spread, balance, replicas, and what is lost with a node.

The nodes, the coordinator and the proxy's fan-out are the real ones, on channels in memory; the rest of the
system is `node_world`. Every check compares counts too, which no de-duplication can correct.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest.mock import patch

import pytest
from channel_world import waiting
from fakes import collection as fake_collection
from node_world import COLLECTION, VCHANNEL, World, breathe, inline
from structlog.testing import capture_logs

from elanus.api.query_channel import QueryChannelInfo, SealedSegmentsChangeInfo, encode_message
from elanus.api.querynode import QueryNodeApi
from elanus.api.recovery import LogHold, RecoveryInfo, VchannelRecovery
from elanus.channels import memory as memory_channels
from elanus.channels.memory import MemoryChannels
from elanus.core.catalog import Collection, Index, Partition
from elanus.core.change import Changes
from elanus.core.errors import (
    ChannelLost,
    CollectionNotLoaded,
    InsufficientMemory,
    InvalidParameter,
    NodeNotFound,
    NodesNotEnough,
)
from elanus.core.ids import CollectionID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.offload import Pools
from elanus.core.segments import IndexFile
from elanus.core.timestamps import Timestamp
from elanus.meta.memory import MemoryMeta
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.fanout.deadline import Patience
from elanus.querycoord import node_watch
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import ChannelFleet
from elanus.querycoord.loader import QueryDependencies
from elanus.querycoord.state import LoadState
from elanus.querynode.node import ChannelReads, QueryNode, QueryNodePolicy

W = TypeVar("W")


class Fleet(World):
    """Plays the other coordinators for a query coordinator, and keeps the nodes that are alive."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.channels = MemoryChannels()
        self.meta = MemoryMeta()
        self.nodes: dict[NodeID, QueryNode] = {}
        self.changes = Changes(1)
        self.capacity_bytes = 0
        self.sessions = itertools.count(100)

    # nodes come and go

    async def join(self, *numbers: int) -> None:
        for number in numbers:
            node = QueryNode(
                NodeID(number),
                self.log,
                self.store,
                Pools.one(inline),
                scratch=self.scratch,
                policy=QueryNodePolicy(capacity_bytes=self.capacity_bytes),
                channel_reads=ChannelReads(self.channels, lambda _: self.proxy, inline),
            )
            await node.start()
            self.nodes[NodeID(number)] = node

    async def kill(self, number: int) -> None:
        """Its session ends, and it answers nobody any more."""
        node = self.nodes.pop(NodeID(number))
        await node.stop()
        self.proxy.node_lost(NodeID(number))

    async def begin(self, *numbers: int, replicas: int = 1) -> None:
        await self.join(*numbers)
        await self.start_coordinator()
        self.proxy = FanOut(NodeID(1), "results-1", self.channels, self.coord, 10.0)
        await self.proxy.start()
        await self.tick()
        await self.coord.load(COLLECTION, (), replicas)
        await self.loaded()

    async def start_coordinator(self) -> None:
        nodes = lambda: cast(Mapping[NodeID, QueryNodeApi], self.nodes)  # noqa: E731 - a view of those alive
        fleet = ChannelFleet(nodes, self.channels, NodeID(next(self.sessions)))
        peers = QueryDependencies(self, self, self, fleet, {})  # type: ignore[arg-type]
        self.coord = QueryCoord(LoadState(self.meta), peers, balance_interval_s=0.05)
        await self.coord.start()

    async def loaded(self) -> None:
        await self.until(self._is_loaded)

    async def _is_loaded(self) -> bool:
        await self.stamp_and_tick()
        return all(p == 100 for s in await self.coord.loads() for p in s.percentages.values())

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(3000):
            if await holds():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it does not come to pass")

    async def end(self) -> None:
        await self.proxy.stop()
        await self.coord.stop()
        for node in self.nodes.values():
            node.invariants()
            await node.stop()

    # what the other coordinators answer

    async def alloc_timestamp(self, count: int) -> Timestamp:
        return Timestamp(self.tick_ts)

    async def tick_now(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        """The test ticks."""

    async def collection_by_id(self, collection_id: CollectionID) -> Collection:
        made = fake_collection()
        return replace(
            made,
            collection_id=COLLECTION,
            schema=self.schema,
            vchannels=(VCHANNEL,),
            partitions=(Partition(PartitionID(1), "_default", Timestamp(0)),),
        )

    async def indexes(self, collection_id: CollectionID) -> tuple[Index, ...]:
        (spec,) = self.load_request().indexes
        return (Index(IndexID(5), COLLECTION, spec.field_id, "i", spec.params, Timestamp(1)),)

    async def index_files(self, collection_id: CollectionID) -> tuple[IndexFile, ...]:
        return tuple(f for s in self.segments.values() for f in s.indexes)

    async def recovery_info(self, collection_id: CollectionID, *_: Any) -> RecoveryInfo:
        watch = self.watch_request()
        vchannel = VchannelRecovery(
            VCHANNEL, watch.checkpoint, watch.delta_logs, watch.growing, watch.excluded
        )
        flushed = tuple(self.segments[s].manifest for s in self.finished())
        return RecoveryInfo(COLLECTION, (vchannel,), flushed)

    async def hold_log(self, holds: tuple[LogHold, ...]) -> None:
        """The log is never trimmed."""

    async def wait_change(self, since: int, timeout_s: float) -> int:
        return await self.changes.wait_change(since, timeout_s)

    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        return await self.changes.changed_since(since)

    # what happens meanwhile

    async def finish(self, *keys: int) -> SegmentID:
        await self.insert([(key, key) for key in keys])
        await self.tick()
        self.seal()
        (segment_id,) = self.flush()
        self.changes.happened()
        return segment_id

    async def spread(self) -> dict[int, int]:
        """How many sealed segments each node serves."""
        return {n: sum(s.sealed for s in (await node.status()).segments) for n, node in self.nodes.items()}

    async def handed_off(self) -> None:
        async def all_sealed() -> bool:
            return sum((await self.spread()).values()) == len(self.finished())

        await self.until(all_sealed)

    async def check(self) -> None:
        request, keys = self.node_query(), sorted(r.key for r in self.model.visible(self.tick_ts))
        assert await asyncio.to_thread(self.proxy.count, request, Patience(10.0)) == len(keys)
        rows = await asyncio.to_thread(self.proxy.query, request, Patience(10.0))
        assert rows["id"].to_pylist() == keys


def scenarios_of(
    make: Callable[[Path], W],
) -> Callable[[Callable[[W], Awaitable[None]]], Callable[[Path], None]]:
    """Makes tests of what plays in a world, where nodes are looked at often."""

    def scenario(test: Callable[[W], Awaitable[None]]) -> Callable[[Path], None]:
        async def play(directory: Path) -> None:
            with patch.object(node_watch, "_LOOK_S", 0.02):
                await test(make(directory))

        def run(tmp_path: Path) -> None:
            asyncio.run(play(tmp_path))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return scenario


scenario = scenarios_of(Fleet)


def test_a_channel_whose_holder_is_away_is_replaced_and_does_not_come_back() -> None:
    class Channels(MemoryChannels):
        async def end(self, channel: str) -> int:
            raise ChannelLost("its server is away")

    async def work() -> None:
        fleet = ChannelFleet(dict, channels, NodeID(3))
        first = await fleet.open_channel(QueryChannelInfo(COLLECTION, 0, "", 0, {}, {}))
        second = await fleet.open_channel(first)
        assert set(channels._channels) == {second.channel} != {first.channel}
        assert (first.seek_position, second.seek_position) == (1, 1)

    channels = Channels()
    asyncio.run(work())


def test_a_later_coordinator_numbers_its_versions_higher() -> None:
    """The previous one, which does not know that it was replaced, still announces versions."""
    former, later = (ChannelFleet(dict, MemoryChannels(), NodeID(n)) for n in (20, 21))
    number = former.version_after(7)
    latest = later.version_after(number)
    for _ in range(1000):
        assert number < former.version_after(number) < latest
        number = former.version_after(number)
    assert later.version_after(latest) == latest + 1


@scenario
async def test_segments_are_spread_and_every_row_is_there_once(fleet: Fleet) -> None:
    for n in range(6):
        await fleet.finish(2 * n, 2 * n + 1)
    await fleet.insert([(100, 100)])
    await fleet.begin(1, 2, 3)
    assert await fleet.spread() == {1: 2, 2: 2, 3: 2}
    await fleet.check()
    await fleet.finish(50, 51)
    await fleet.handed_off()
    await fleet.delete([0, 50])
    await fleet.tick()
    await fleet.check()
    await fleet.end()


@scenario
async def test_what_a_lost_node_served_is_served_by_the_others(fleet: Fleet) -> None:
    for n in range(4):
        await fleet.finish(2 * n, 2 * n + 1)
    await fleet.insert([(100, 100)])
    await fleet.begin(1, 2)
    await fleet.delete([1])
    await fleet.tick()
    leads = [n for n, node in fleet.nodes.items() if (await node.status()).leads]
    for lost in leads:
        await fleet.kill(lost)
    await fleet.join(3)
    await fleet.handed_off()
    await fleet.loaded()
    await fleet.check()
    await fleet.insert([(101, 101)])
    await fleet.tick()
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_node_that_joins_takes_its_share_while_reads_go_on(fleet: Fleet) -> None:
    for n in range(8):
        await fleet.finish(2 * n, 2 * n + 1)
    await fleet.begin(1)

    async def read_on() -> None:
        while True:
            await fleet.check()

    reading = asyncio.create_task(read_on())
    await fleet.join(2)

    async def even() -> bool:
        return await fleet.spread() == {1: 4, 2: 4}

    await fleet.until(even)
    assert not reading.done()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await fleet.check()
    await fleet.end()


@scenario
async def test_with_two_replicas_the_loss_of_a_node_fails_no_read_but_those_under_way(fleet: Fleet) -> None:
    for n in range(3):
        await fleet.finish(2 * n, 2 * n + 1)
    await fleet.begin(1, 2, replicas=2)
    assert await fleet.spread() == {1: 3, 2: 3}
    assert len(await fleet.coord.query_channels(COLLECTION)) == 2
    for _ in range(4):
        await fleet.check()
    await fleet.kill(2)
    for _ in range(4):
        await fleet.check()
    await fleet.join(3)
    await fleet.loaded()
    assert await fleet.spread() == {1: 3, 3: 3}
    await fleet.check()
    await fleet.end()


@scenario
async def test_with_two_replicas_reads_under_way_in_a_node_that_dies_are_answered_by_the_other(
    fleet: Fleet,
) -> None:
    """The proxy's view of the replicas is old then, of the one that can answer too."""
    await fleet.finish(0, 1)
    await fleet.begin(1, 2, replicas=2)
    await fleet.check()
    ahead = fleet.node_query(ts=fleet.now + 100)
    readings = [
        asyncio.create_task(asyncio.to_thread(fleet.proxy.count, ahead, Patience(10.0))) for _ in range(2)
    ]
    for node in fleet.nodes.values():
        await waiting(node)
    await fleet.kill(1)
    fleet.now += 100
    await fleet.tick()
    assert await asyncio.gather(*readings) == [2, 2]
    await fleet.end()


@scenario
async def test_a_coordinator_that_takes_over_leaves_everything_in_its_place(fleet: Fleet) -> None:
    for n in range(4):
        await fleet.finish(2 * n, 2 * n + 1)
    await fleet.begin(1, 2)
    before = await fleet.coord.query_channels(COLLECTION)
    await fleet.coord.stop()
    await fleet.start_coordinator()
    await fleet.loaded()
    assert await fleet.coord.query_channels(COLLECTION) == before
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_replica_that_was_not_persisted_is_made_by_the_next_coordinator(fleet: Fleet) -> None:
    """The coordinator died after the second replica was ready, and before the first one was."""
    await fleet.finish(1, 2)
    await fleet.begin(1, 2, replicas=2)
    await fleet.coord.stop()
    state = LoadState(fleet.meta)
    first, _ = await state.replicas(COLLECTION)
    await state.remove_replica(first)
    await fleet.start_coordinator()

    async def both_are_there() -> bool:
        infos = await fleet.coord.query_channels(COLLECTION)
        return [info.replica for info in infos] == [0, 1] and await fleet.spread() == {1: 1, 2: 1}

    await fleet.until(both_are_there)
    await fleet.end()


@scenario
async def test_a_move_that_was_planned_goes_on_under_the_next_coordinator(fleet: Fleet) -> None:
    """It dies between the plan and the version: the next one loads to the same node."""
    first = await fleet.finish(1, 2)
    await fleet.finish(3, 4)
    await fleet.begin(1, 2)
    await fleet.coord.stop()
    state = LoadState(fleet.meta)
    (record,) = await state.replicas(COLLECTION)
    target = NodeID(3 - record.info.sealed[first])
    await state.put_replica(replace(record, plan={first: target}))
    await fleet.start_coordinator()

    async def moved() -> bool:
        (info,) = await fleet.coord.query_channels(COLLECTION)
        return info.sealed[first] == target

    with patch("elanus.querycoord.moves.balance", lambda *_: []):
        await fleet.until(moved)
        await fleet.check()
    await fleet.end()


@scenario
async def test_a_node_that_missed_messages_takes_the_version_from_querycoord(fleet: Fleet) -> None:
    """So much passes on the channel at once that what they had still to read is not kept."""
    await fleet.finish(1, 2)
    await fleet.finish(3, 4)
    with patch.object(memory_channels, "KEPT_MAX_MESSAGES", 3):
        await fleet.begin(1, 2)
    (info,) = await fleet.coord.query_channels(COLLECTION)
    missed = SealedSegmentsChangeInfo(COLLECTION, info.version + 1, {}, info.sealed, info.vchannels)

    async def all_are_on_it() -> bool:
        statuses = [await node.status() for node in fleet.nodes.values()]
        return all(s.query_channels.get(COLLECTION) == info.channel for s in statuses)

    assert await all_are_on_it()
    with capture_logs() as logged:
        for _ in range(4):
            await fleet.channels.publish(info.channel, encode_message(missed))
        await breathe()
    assert "query channel lost" in {line["event"] for line in logged}
    await fleet.until(all_are_on_it)
    await fleet.loaded()
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_lost_channel_is_replaced_under_another_name(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    await fleet.begin(1, 2)
    (before,) = await fleet.coord.query_channels(COLLECTION)
    await fleet.channels.remove(before.channel)

    async def replaced() -> bool:
        (info,) = await fleet.coord.query_channels(COLLECTION)
        return info.channel != before.channel

    await fleet.until(replaced)
    await fleet.loaded()
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_balance_by_hand_moves_what_it_names(fleet: Fleet) -> None:
    segment_id = await fleet.finish(1, 2)
    with patch("elanus.querycoord.moves.balance", lambda *_: []):
        await fleet.begin(1, 2)
        (info,) = await fleet.coord.query_channels(COLLECTION)
        source = info.sealed[segment_id]
        with pytest.raises(InvalidParameter, match=r"segments \[99\] are not on query node"):
            await fleet.coord.load_balance(COLLECTION, source, (), (SegmentID(99),))
        with pytest.raises(NodeNotFound, match="query node 77 serves no replica"):
            await fleet.coord.load_balance(COLLECTION, NodeID(77), (), ())
        with pytest.raises(NodeNotFound, match=r"not to \[78\]"):
            await fleet.coord.load_balance(COLLECTION, source, (NodeID(78),), ())
        await fleet.coord.load_balance(COLLECTION, source, (), (segment_id,))

        async def moved() -> bool:
            (now,) = await fleet.coord.query_channels(COLLECTION)
            return now.sealed[segment_id] == 3 - source

        await fleet.until(moved)
        await fleet.check()
    await fleet.end()


@scenario
async def test_a_load_that_does_not_fit_is_refused_and_leaves_nothing(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    fleet.capacity_bytes = 10
    with pytest.raises(
        InsufficientMemory, match=r"the load needs .* in 1 segments.* free in resource group __"
    ):
        await fleet.begin(1)
    assert await fleet.coord.loads() == ()
    with pytest.raises(NodesNotEnough, match="2 replicas need"):
        await fleet.coord.load(COLLECTION, (), 2)
    assert await LoadState(fleet.meta).all() == []
    await fleet.end()


@scenario
async def test_a_release_frees_every_node_and_closes_the_channel(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    await fleet.begin(1, 2)
    (info,) = await fleet.coord.query_channels(COLLECTION)
    with pytest.raises(InvalidParameter, match="can't change the replica number"):
        await fleet.coord.load(COLLECTION, (), 2)
    await fleet.coord.release(COLLECTION, ())
    assert await fleet.spread() == {1: 0, 2: 0}
    with pytest.raises(CollectionNotLoaded):
        await fleet.coord.query_channels(COLLECTION)
    assert await LoadState(fleet.meta).replicas(COLLECTION) == []
    assert info.channel not in fleet.channels._channels
    await fleet.end()
