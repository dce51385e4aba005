"""Several query nodes on one query channel, and a proxy that reads over all of them; for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from node_world import COLLECTION, VCHANNEL, World, breathe, inline

from elanus.api.query_channel import QueryChannelInfo, SealedSegmentsChangeInfo, encode_message
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import QueryNodeApi
from elanus.channels.memory import MemoryChannels
from elanus.core.errors import CollectionNotLoaded
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.nodes import Nodes
from elanus.core.offload import Pools
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode.node import ChannelReads, QueryNode

A, B = NodeID(11), NodeID(12)


class Cluster(World):
    """Two nodes, a proxy's fan-out, and what querycoord does: it says who serves what."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.channels = MemoryChannels()
        self.nodes = {n: self._cluster_node(n) for n in (A, B)}
        self.sealed: dict[SegmentID, NodeID] = {}
        self.visible_from: dict[SegmentID, Timestamp] = {}
        self.lead = A
        self.channel = "query-1"
        self.proxy = self.fan_out("results-1")

    def fan_out(self, results: str, nodes: Nodes[QueryNodeApi] | None = None) -> FanOut:
        """A proxy's, with ``results`` as its channel of answers."""
        return FanOut(NodeID(1), results, self.channels, cast(QueryCoordApi, self), 5.0, nodes)

    def _cluster_node(self, node_id: NodeID) -> QueryNode:
        return QueryNode(
            node_id,
            self.log,
            self.store,
            Pools.one(inline),
            scratch=self.scratch,
            channel_reads=ChannelReads(self.channels, lambda _: self.proxy, inline),
        )

    # what the coordinators answer

    async def query_channels(self, collection_id: CollectionID) -> tuple[QueryChannelInfo, ...]:
        if not self.version:
            raise CollectionNotLoaded("collection not loaded[collection=7]")
        return (self.info(),)

    def info(self) -> QueryChannelInfo:
        return QueryChannelInfo(
            COLLECTION,
            0,
            self.channel,
            self.version,
            dict(self.sealed),
            {VCHANNEL: self.lead},
            visible_from=dict(self.visible_from),
        )

    # what querycoord does

    async def begin(self) -> None:
        await self.channels.create(self.channel)
        await self.proxy.start()
        self.version = 1
        self.sealed = dict.fromkeys(self.finished(), A)
        for node_id, node in self.nodes.items():
            await node.start()
            await node.load_collection(self.load_request())
            await self.watch(node_id, rows=node_id == self.lead)
        await self.load(A, list(self.sealed))
        for node in self.nodes.values():
            await node.add_query_channel(self.info())
        await self.tick()

    async def watch(self, node_id: NodeID, *, rows: bool) -> None:
        request = self.watch_request()
        object.__setattr__(request, "rows", rows)
        await self.nodes[node_id].watch_vchannel(request)

    async def load(self, node_id: NodeID, segment_ids: list[SegmentID]) -> None:
        for segment_id in segment_ids:
            await self.nodes[node_id].load_segment(self.segment_request(segment_id))

    async def place(
        self,
        online: Mapping[SegmentID, NodeID],
        *,
        offline: tuple[SegmentID, ...] = (),
        replaced: tuple[SegmentID, ...] = (),
    ) -> None:
        """A new version on the channel, in order with the reads."""
        self.version += 1
        leaving = {s: self.sealed[s] for s in (*online, *offline) if s in self.sealed}
        self.sealed = {s: n for s, n in (self.sealed | dict(online)).items() if s not in offline}
        change = SealedSegmentsChangeInfo(
            COLLECTION,
            self.version,
            dict(online),
            leaving,
            {VCHANNEL: self.lead},
            replaced,
            {s: moment for s, moment in self.visible_from.items() if s in online},
        )
        await self.channels.publish(self.channel, encode_message(change))
        await breathe()

    async def end(self) -> None:
        await self.proxy.stop()
        for node in self.nodes.values():
            await node.stop()

    # what a client sees

    async def seen(self, text: str = "") -> list[Any]:
        rows = await asyncio.to_thread(self.proxy.query, self.node_query(text), Patience(5.0))
        return cast(list[Any], rows["id"].to_pylist())

    async def counted(self) -> int:
        return await asyncio.to_thread(self.proxy.count, self.node_query(), Patience(5.0))

    async def check(self) -> None:
        visible = self.model.visible(self.tick_ts)
        assert await self.counted() == len(visible)
        assert await self.seen() == sorted(row.key for row in visible)
        for node in self.nodes.values():
            node.invariants()


def scenario(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[Path], None]:
    """Makes a test of a coroutine over a cluster that serves an empty collection."""

    async def play(directory: Path) -> None:
        cluster = Cluster(directory)
        await cluster.begin()
        await test(cluster)
        for node in cluster.nodes.values():
            node.invariants()
        await cluster.end()

    def run(tmp_path: Path) -> None:
        asyncio.run(play(tmp_path))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def waiting(node: QueryNode) -> None:
    """Until a read has come to the node, and waits for its timestamp."""
    for _ in range(5000):
        if node._serving[COLLECTION]._waiting:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the read has not come to the node")


async def known_to_proxy(node_id: NodeID, cluster: Cluster) -> None:
    """Until the proxy knows that the node belongs to the replica."""
    for _ in range(5000):
        if any(node_id in replica.nodes for replica in cluster.proxy._replicas.known(COLLECTION) or ()):
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the proxy has not asked again")


async def finished(world: Cluster, *keys: int) -> SegmentID:
    """A segment with these keys whose files are complete; it is served as growing still."""
    await world.insert([(key, key) for key in keys])
    await world.tick()
    world.seal()
    (segment_id,) = world.flush()
    return segment_id
