"""Handoffs that something comes between: a partition is dropped, a load fails, memory runs out.

The bench is that of `test_node_fleet`: a query coordinator over several query nodes, with its real proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from node_world import COLLECTION
from test_node_fleet import Fleet, scenarios_of

from elanus.api.querynode import DamagedFile, LoadSegment
from elanus.api.recovery import RecoveryInfo
from elanus.core.catalog import Collection, Partition
from elanus.core.errors import InsufficientMemory, Unavailable
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.client import FanOut
from elanus.querycoord import replica
from elanus.querycoord.state import LoadState, ReplicaRecord

ONE, TWO = PartitionID(1), PartitionID(2)


class Shared(Fleet):
    """A collection of two partitions. ``gate``: closed, it holds back what nodes are to load; those in
    ``unreadable`` no node can load."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.made = [ONE, TWO]
        self.gate = asyncio.Event()
        self.gate.set()
        self.unreadable: set[SegmentID] = set()
        self.successors: dict[SegmentID, SegmentID] = {}

    async def collection_by_id(self, collection_id: CollectionID) -> Collection:
        partitions = tuple(Partition(p, f"p{p}", Timestamp(0)) for p in self.made)
        return replace(await super().collection_by_id(collection_id), partitions=partitions)

    async def recovery_info(self, collection_id: CollectionID, *asked: Any) -> RecoveryInfo:
        return replace(await super().recovery_info(collection_id, *asked), successors=self.successors)

    async def unbuilt(self, *_: Any) -> tuple[SegmentID, ...]:
        return ()

    def hinder(self, number: int) -> None:
        """The gate and the unreadable segments are for this node."""
        node = self.nodes[NodeID(number)]
        load_segment = node.load_segment

        async def load(request: LoadSegment) -> tuple[DamagedFile, ...]:
            await self.gate.wait()
            if request.manifest.segment_id in self.unreadable:
                raise Unavailable("the object store is away")
            return await load_segment(request)

        node.load_segment = load  # type: ignore[method-assign]

    async def grow(self, keys: range, partition: PartitionID = ONE) -> SegmentID:
        """A segment whose files are complete, which the coordinator does not know yet."""
        await self.insert([(key, key) for key in keys], partition)
        await self.tick()
        self.seal()
        (segment_id,) = self.flush()
        return segment_id

    async def lose_channel(self, number: int = 0) -> None:
        """The channel of a replica; returns when there is another."""
        lost = (await self.coord.query_channels(COLLECTION))[number].channel
        await self.channels.remove(lost)

        async def replaced() -> bool:
            return (await self.coord.query_channels(COLLECTION))[number].channel != lost

        await self.until(replaced)

    async def drop_partition(self, partition: PartitionID) -> None:
        self.made.remove(partition)
        for segment in self.segments.values():
            segment.dropped |= segment.manifest.partition_id == partition
        await self.ddl(MsgKind.DROP_PARTITION, partition)
        await self.tick()
        self.model.rows = [row for row in self.model.rows if row.partition != partition]
        await self.coord.release(COLLECTION, (partition,))


scenario = scenarios_of(Shared)


async def dropped_in_a_handoff(fleet: Shared) -> None:
    """The segment of partition 2 is ready on its node when the partition goes, and that of partition 1 is on
    its way to the other node."""
    await fleet.begin(1, 2)
    await fleet.insert([(key, key) for key in range(50)], ONE)
    await fleet.insert([(100, 100)], TWO)
    await fleet.tick()
    await fleet.check()
    (lead,) = [n for n, node in fleet.nodes.items() if (await node.status()).leads]
    fleet.hinder(3 - lead)
    fleet.gate.clear()
    fleet.seal()
    assert len(fleet.flush()) == 2
    fleet.changes.happened()

    async def staged() -> bool:
        return bool((await fleet.nodes[lead].status()).loaded)

    await fleet.until(staged)
    await fleet.drop_partition(TWO)
    fleet.gate.set()


@scenario
async def test_reads_fail_for_a_moment_only_by_a_version_that_a_node_cannot_take(fleet: Shared) -> None:
    await dropped_in_a_handoff(fleet)

    async def is_whole() -> bool:
        with contextlib.suppress(Unavailable):
            await fleet.check()
            return await fleet.spread() == {1: 0, 2: 1} or await fleet.spread() == {1: 1, 2: 0}
        return False

    await fleet.until(is_whole)
    await fleet.end()


@scenario
async def test_after_a_long_load_no_version_names_what_a_node_has_let_go(fleet: Shared) -> None:
    """Every read under it would fail until the next one."""
    with patch.object(replica, "_FRESH_S", -1.0):
        await dropped_in_a_handoff(fleet)
        while sum((await fleet.spread()).values()) != 1:
            await fleet.check()
        await fleet.check()
    await fleet.end()


@scenario
async def test_what_was_loaded_for_a_version_that_never_came_is_let_go(fleet: Shared) -> None:
    await fleet.begin(1, 2)
    before = await fleet.recovery_info(COLLECTION)
    with patch.object(
        fleet, "recovery_info", AsyncMock(return_value=before)
    ):  # a round may begin at any time
        first, second = await fleet.grow(range(50)), await fleet.grow(range(50, 70))
    fleet.unreadable.add(second)
    for number in fleet.nodes:
        fleet.hinder(number)
    fleet.changes.happened()

    async def staged() -> list[SegmentID]:
        held = [(await node.status()).loaded.get(COLLECTION, ()) for node in fleet.nodes.values()]
        return [s for segment_ids in held for s in segment_ids]

    async def first_is_staged() -> bool:
        return await staged() == [first]

    await fleet.until(first_is_staged)
    output = fleet.compact([first, second])
    fleet.successors = {first: output, second: output}
    fleet.changes.happened()
    await fleet.handed_off()
    await fleet.check()
    assert await staged() == []
    await fleet.end()


@scenario
async def test_a_lost_channel_is_replaced_though_a_segment_finds_no_room(fleet: Shared) -> None:
    await fleet.grow(range(2))
    fleet.capacity_bytes = 20_000
    await fleet.begin(1)
    await fleet.grow(range(100, 2100))
    fleet.changes.happened()
    await fleet.check()
    await fleet.lose_channel()
    await fleet.check()
    assert await fleet.spread() == {1: 1}, "the other is served as it grows"
    await fleet.end()


@scenario
async def test_a_replica_that_cannot_load_keeps_no_other_from_what_it_can(fleet: Shared) -> None:
    await fleet.begin(1, 2, replicas=2)
    segment_id = await fleet.grow(range(5))
    fleet.unreadable.add(segment_id)
    (first, _) = await fleet.coord.query_channels(COLLECTION)
    (failing,) = first.vchannels.values()
    fleet.hinder(failing)
    fleet.changes.happened()

    async def other_serves() -> bool:
        return await fleet.spread() == {failing: 0, 3 - failing: 1}

    await fleet.until(other_serves)
    await fleet.lose_channel(1)
    for _ in range(4):
        await fleet.check()
    await fleet.end()


@scenario
async def test_a_further_partition_that_does_not_fit_is_refused_and_changes_nothing(fleet: Shared) -> None:
    small = await fleet.grow(range(5))
    await fleet.grow(range(100, 2100), TWO)
    fleet.capacity_bytes = 20_000
    await fleet.join(1)
    await fleet.start_coordinator()
    fleet.proxy = FanOut(NodeID(1), "results-1", fleet.channels, fleet.coord, 10.0)
    await fleet.proxy.start()
    await fleet.coord.load(COLLECTION, (ONE,), 1)
    await fleet.loaded()
    with pytest.raises(InsufficientMemory, match=r"the load needs .* in 1 segments"):
        await fleet.coord.load(COLLECTION, (TWO,), 1)
    (load,) = await LoadState(fleet.meta).all()
    assert load.partition_ids == (ONE,)
    (status,) = await fleet.coord.loads()
    assert status.percentages == {ONE: 100}
    (info,) = await fleet.coord.query_channels(COLLECTION)
    assert info.sealed == {small: 1}
    await fleet.end()


@scenario
async def test_an_input_moved_just_before_the_coordinator_died_serves_until_its_output_does(
    fleet: Shared,
) -> None:
    """The version with its new place is in force, but no record names it there."""
    first, second = await fleet.finish(1, 2), await fleet.finish(3, 4)
    await fleet.begin(1, 2)
    (before,) = await fleet.coord.query_channels(COLLECTION)
    source, target = before.sealed[first], before.sealed[second]
    put = LoadState.put_replica

    async def dies_after_the_move(state: LoadState, record: ReplicaRecord) -> None:
        if record.info.sealed.get(first) == target:
            raise Unavailable("the coordinator died")
        await put(state, record)

    async def is_moved() -> bool:
        return first in {s.segment_id for s in (await fleet.nodes[target].status()).segments}

    with (
        patch("elanus.querycoord.moves.balance", lambda *_: []),
        patch.object(LoadState, "put_replica", dies_after_the_move),
    ):
        await fleet.coord.load_balance(COLLECTION, source, (target,), (first,))
        await fleet.until(is_moved)
        await fleet.coord.stop()
    output = fleet.compact([first, second])
    waiting = fleet.segments[output]
    waiting.manifest = replace(waiting.manifest, deletes_from=Timestamp(fleet.tick_ts + 1))
    fleet.successors = {first: output, second: output}
    await fleet.start_coordinator()

    async def is_settled() -> bool:
        (info,) = await fleet.coord.query_channels(COLLECTION)
        return info.version > before.version + 1 and info.sealed == {first: target, second: target}

    await fleet.until(is_settled)
    await fleet.end()
