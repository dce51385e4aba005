"""Handoffs that something comes between: a partition is dropped, a load fails, memory runs out.

The bench is that of `test_node_fleet`: a query coordinator over several query nodes, with its real proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from node_world import COLLECTION
from test_node_fleet import Fleet

from elanus.core.catalog import Collection, Partition
from elanus.core.errors import Unavailable
from elanus.core.ids import CollectionID, NodeID, PartitionID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.querycoord import coord, replica
from elanus.rpc.querynode import LoadSegment

ONE, TWO = PartitionID(1), PartitionID(2)


class Shared(Fleet):
    """A collection of two partitions. ``gate``: closed, it holds back what nodes are to load."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.made = [ONE, TWO]
        self.gate = asyncio.Event()
        self.gate.set()

    async def collection_by_id(self, collection_id: CollectionID) -> Collection:
        partitions = tuple(Partition(p, f"p{p}", Timestamp(0)) for p in self.made)
        return replace(await super().collection_by_id(collection_id), partitions=partitions)

    def hold_back(self, number: int) -> None:
        node = self.nodes[NodeID(number)]
        load_segment = node.load_segment

        async def load(request: LoadSegment) -> None:
            await self.gate.wait()
            await load_segment(request)

        self.gate.clear()
        node.load_segment = load  # type: ignore[method-assign]

    async def drop_partition(self, partition: PartitionID) -> None:
        self.made.remove(partition)
        for segment in self.segments.values():
            segment.dropped |= segment.manifest.partition_id == partition
        await self.ddl(MsgKind.DROP_PARTITION, partition)
        await self.tick()
        self.model.rows = [row for row in self.model.rows if row.partition != partition]
        await self.coord.release(COLLECTION, (partition,))


def scenario(test: Callable[[Shared], Awaitable[None]]) -> Callable[[Path], None]:
    async def play(directory: Path) -> None:
        with patch.object(coord, "_NODE_LOOK_S", 0.02):
            await test(Shared(directory))

    def run(tmp_path: Path) -> None:
        asyncio.run(play(tmp_path))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def dropped_in_a_handoff(fleet: Shared) -> None:
    """The segment of partition 2 is ready on its node when the partition goes, and that of partition 1 is on
    its way to the other node."""
    await fleet.begin(1, 2)
    await fleet.insert([(key, key) for key in range(50)], ONE)
    await fleet.insert([(100, 100)], TWO)
    await fleet.tick()
    await fleet.check()
    (lead,) = [n for n, node in fleet.nodes.items() if (await node.status()).leads]
    fleet.hold_back(3 - lead)
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
