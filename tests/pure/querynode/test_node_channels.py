"""Several query nodes on one query channel, and a proxy that reads over all of them.

Whatever moves between the nodes (segments, the lead of a vchannel), every read sees each row exactly once:
counts are compared, which no de-duplication can mend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
from node_world import COLLECTION, VCHANNEL, World, breathe, inline

from elanus.core.errors import ChannelLost, CollectionNotLoaded, NotReady, Unavailable
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.proxy import fanout
from elanus.proxy.fanout import FanOut
from elanus.querynode import effort, serving
from elanus.querynode.node import QueryNode
from elanus.rpc.memory_channels import MemoryChannels
from elanus.rpc.querychannel import QueryChannelInfo, SealedSegmentsChangeInfo, encode_message
from elanus.rpc.querycoord import QueryCoordApi
from elanus.rpc.rootcoord import RootCoordApi

A, B = NodeID(11), NodeID(12)


class Cluster(World):
    """Two nodes, a proxy's fan-out, and what querycoord does: it says who serves what."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.channels = MemoryChannels()
        self.nodes = {n: self._cluster_node(n) for n in (A, B)}
        self.sealed: dict[SegmentID, NodeID] = {}
        self.lead = A
        self.channel = "query-1"
        self.proxy = FanOut(
            NodeID(1), "results-1", self.channels, cast(QueryCoordApi, self), cast(RootCoordApi, self), 5.0
        )

    def _cluster_node(self, node_id: NodeID) -> QueryNode:
        return QueryNode(
            node_id,
            self.log,
            self.store,
            inline,
            scratch=self.scratch,
            channels=self.channels,
            proxies=lambda _: self.proxy,
        )

    # what the coordinators answer

    async def query_channels(self, collection_id: CollectionID) -> tuple[QueryChannelInfo, ...]:
        if not self.version:
            raise CollectionNotLoaded("collection not loaded[collection=7]")
        return (self.info(),)

    async def ticks(self) -> Mapping[str, Timestamp]:
        return {VCHANNEL.rsplit("_", 1)[0]: Timestamp(self.tick_ts)}

    def info(self) -> QueryChannelInfo:
        return QueryChannelInfo(
            COLLECTION, 0, self.channel, self.version, dict(self.sealed), {VCHANNEL: self.lead}
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
            COLLECTION, self.version, dict(online), leaving, {VCHANNEL: self.lead}, replaced
        )
        await self.channels.publish(self.channel, encode_message(change))
        await breathe()

    async def end(self) -> None:
        await self.proxy.stop()
        for node in self.nodes.values():
            await node.stop()

    # what a client sees

    async def seen(self, text: str = "") -> list[Any]:
        rows = await asyncio.to_thread(self.proxy.query, self.node_query(text))
        return cast(list[Any], rows["id"].to_pylist())

    async def counted(self) -> int:
        return await asyncio.to_thread(self.proxy.count, self.node_query())

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


async def finished(world: Cluster, *keys: int) -> SegmentID:
    """A segment with these keys whose files are complete; it is served as growing still."""
    await world.insert([(key, key) for key in keys])
    await world.tick()
    world.seal()
    (segment_id,) = world.flush()
    return segment_id


@scenario
async def test_a_segment_handed_off_to_another_node_is_there_once(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2, 3)
    await cluster.check()
    await cluster.load(B, [segment_id])
    await cluster.check()
    await cluster.place({segment_id: B})
    await cluster.check()
    status = await cluster.nodes[A].status()
    assert [s.segment_id for s in status.segments] == []


@scenario
async def test_deletes_reach_a_segment_on_a_node_that_does_not_lead_its_vchannel(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2, 3)
    await cluster.delete([1])
    await cluster.tick()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.delete([2])
    await cluster.insert([(2, 20)])
    await cluster.tick()
    await cluster.check()
    assert await cluster.seen("value == 20") == [2]


@scenario
async def test_a_segment_moves_between_nodes_without_a_gap_or_a_double(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(A, [segment_id])
    await cluster.place({segment_id: A})
    await cluster.load(B, [segment_id])
    await cluster.check()
    await cluster.place({segment_id: B})
    await cluster.check()
    assert (await cluster.nodes[A].status()).loaded == ()


@scenario
async def test_the_lead_of_a_vchannel_moves_with_its_growing_rows(cluster: Cluster) -> None:
    await cluster.insert([(1, 1), (2, 2)])
    await cluster.tick()
    await cluster.watch(B, rows=True)
    assert cluster.nodes[B].count(cluster.node_query()) == 0
    await cluster.check()
    cluster.lead = B
    await cluster.place({})
    await cluster.insert([(3, 3)])
    await cluster.tick()
    await cluster.check()
    assert (await cluster.nodes[A].status()).growing_bytes == 0
    await cluster.nodes[A].unwatch_vchannel(COLLECTION, VCHANNEL)
    await cluster.check()


@scenario
async def test_a_vchannel_that_is_needed_is_not_let_go(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    with pytest.raises(NotReady, match="this node leads it"):
        await cluster.nodes[A].unwatch_vchannel(COLLECTION, VCHANNEL)
    with pytest.raises(NotReady, match=f"segments \\[{segment_id}\\] need its deletes"):
        await cluster.nodes[B].unwatch_vchannel(COLLECTION, VCHANNEL)


@scenario
async def test_reads_before_a_change_are_answered_under_the_version_before_it(cluster: Cluster) -> None:
    """One node waits for a tick, a change comes behind the read: no node answers under the new version."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    ahead = cluster.node_query(ts=cluster.stamp())
    reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead))
    await waiting(cluster.nodes[A])
    await cluster.place({segment_id: B})
    assert [(await n.status()).versions[COLLECTION] for n in cluster.nodes.values()] == [1, 2]
    await cluster.tick()
    assert await reading == 2
    await cluster.check()


@scenario
async def test_rows_that_came_elsewhere_by_compaction_are_not_taken_from_the_log_any_more(
    cluster: Cluster,
) -> None:
    """Of a segment whose successor a version brought online before the node had read that far."""
    behind = cluster.open[1] = SegmentID(77)
    await cluster.place({}, replaced=(behind,))
    await cluster.insert([(1, 1), (2, 2)])
    await cluster.tick()
    assert await cluster.counted() == 0
    for node in cluster.nodes.values():
        node.invariants()


@scenario
async def test_a_version_that_comes_late_is_left_out(cluster: Cluster) -> None:
    """As a coordinator writes it that was replaced meanwhile. Else one node would answer for another."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    for version in (cluster.version, cluster.version - 1):
        late = SealedSegmentsChangeInfo(COLLECTION, version, {segment_id: A}, {}, {VCHANNEL: A})
        await cluster.channels.publish(cluster.channel, encode_message(late))
    slow = cluster.nodes[B]._serving[COLLECTION]

    async def offload(function: Callable[..., bytes], *args: Any) -> bytes:
        await breathe()
        return function(*args)

    slow._offload = offload
    await cluster.check()


@scenario
async def test_a_node_that_lacks_its_segment_fails_the_read_and_never_answers_with_less(
    cluster: Cluster,
) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.place({segment_id: B})
    with pytest.raises(Unavailable, match="query node 12 cannot serve this version"):
        await cluster.counted()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.check()


@scenario
async def test_the_loss_of_a_node_ends_its_reads_at_once_with_its_name(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.nodes[B].stop()
    ahead = cluster.node_query(ts=cluster.now + 100)
    reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead))
    await waiting(cluster.nodes[A])
    cluster.proxy.node_lost(B)
    with pytest.raises(Unavailable, match="query node 12 went away"):
        await reading


@scenario
async def test_a_read_that_comes_to_a_stopped_proxy_fails_at_once(cluster: Cluster) -> None:
    """As one does that was on its way when the proxy's lease was over: nobody would answer it."""
    await cluster.check()
    await cluster.proxy.stop()
    with pytest.raises(Unavailable, match="stopping"):
        await cluster.seen()


@scenario
async def test_the_loss_of_a_node_elsewhere_ends_no_read(cluster: Cluster) -> None:
    """Unless it may have joined the replica since the proxy asked last who is in it."""
    with patch.object(fanout, "_LOOK_S", 0.01):
        await cluster.check()
        for joined in (False, True):
            ahead = cluster.node_query(ts=cluster.now + 100)
            reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead))
            await waiting(cluster.nodes[A])
            cluster.proxy.node_lost(NodeID(13 + joined))
            cluster.version += joined
            if joined:
                with pytest.raises(Unavailable, match="may have been asked"):
                    await reading
            cluster.now += 100
            await cluster.tick()
            if not joined:
                assert await reading == 0


@scenario
async def test_a_node_that_was_replaced_before_anybody_read_fails_no_read(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.check()
    await cluster.nodes[B].stop()
    cluster.proxy.node_lost(B)
    with pytest.raises(Unavailable, match="query node 12 went away, and is not replaced yet"):
        await cluster.counted()
    await cluster.load(A, [segment_id])
    await cluster.place({segment_id: A})
    assert await cluster.counted() == 2
    cluster.proxy.node_lost(NodeID(13))
    assert await cluster.counted() == 2


@scenario
async def test_the_places_of_a_lost_node_are_looked_up_anew(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.check()
    await cluster.load(A, [segment_id])
    await cluster.place({segment_id: A})
    await cluster.nodes[B].stop()
    cluster.proxy.node_lost(B)
    assert await cluster.counted() == 2, "what the proxy knew named the lost node, and what is true does not"


@scenario
async def test_a_lost_channel_is_followed_by_another(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.check()
    await cluster.channels.remove(cluster.channel)
    await breathe()
    assert (await cluster.nodes[A].status()).query_channels == {}
    cluster.channel = "query-2"
    await cluster.channels.create(cluster.channel)
    for node in cluster.nodes.values():
        await node.add_query_channel(cluster.info())
    await cluster.check()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.check()


@scenario
async def test_a_read_on_a_channel_that_is_lost_meanwhile_goes_to_its_successor(cluster: Cluster) -> None:
    """It was written there, and nobody will answer it."""
    ahead = cluster.node_query(ts=cluster.now + 100)
    with patch.object(fanout, "_LOOK_S", 0.01):
        reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead))
        await waiting(cluster.nodes[A])
        await cluster.channels.remove(cluster.channel)
        cluster.channel = "query-2"
        await cluster.channels.create(cluster.channel)
        for node in cluster.nodes.values():
            await node.add_query_channel(cluster.info())
        await waiting(cluster.nodes[A])
        cluster.now += 100
        await cluster.tick()
        assert await reading == 0


@scenario
async def test_a_read_whose_answers_found_no_channel_is_asked_again(cluster: Cluster) -> None:
    ahead = cluster.node_query(ts=cluster.now + 100)
    with patch.object(fanout, "_RETRY_PAUSE_S", 0.05):
        await cluster.channels.remove("results-1")
        await breathe()  # the proxy has noticed, and has not made another yet
        reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead))
        await waiting(cluster.nodes[A])
        cluster.now += 100
        await cluster.tick()
        assert await reading == 0


@scenario
async def test_a_channel_without_a_successor_is_an_error(cluster: Cluster) -> None:
    await cluster.channels.remove(cluster.channel)
    with pytest.raises(ChannelLost, match="query-1 does not exist"):
        await cluster.counted()


@scenario
async def test_large_reads_and_answers_go_beside_the_channel(cluster: Cluster) -> None:
    with patch.object(serving, "PAYLOAD_MAX_BYTES", 10), patch.object(fanout, "PAYLOAD_MAX_BYTES", 10):
        await cluster.insert([(n, n) for n in range(50)])
        await cluster.tick()
        await cluster.check()


@scenario
async def test_only_a_read_that_is_small_is_answered_without_a_thread(cluster: Cluster) -> None:
    await cluster.insert([(n, n) for n in range(10)])
    await cluster.tick()
    offloaded: list[NodeID] = []

    async def offload(node_id: NodeID, function: Callable[..., bytes], *args: Any) -> bytes:
        offloaded.append(node_id)
        return await inline(function, *args)

    for node_id, node in cluster.nodes.items():
        node._serving[COLLECTION]._offload = partial(offload, node_id)
    search = partial(asyncio.to_thread, cluster.proxy.search)
    small = cluster.node_search(4.2, 4)
    hits = await search(small)
    assert hits.ids.tolist() == [4, 5, 3, 6]
    assert offloaded == []
    for large in (
        cluster.node_search(4.2, 4, "value > 0"),
        replace(small, output_fields=("value", "vector")),
    ):
        assert (await search(large)).ids.tolist() == [4, 5, 3, 6]
        assert sorted(offloaded) == [A, B]
        offloaded.clear()
    values = 10 * 2 * len(small.queries)
    for most, expected in ((values, []), (values - 1, [A])):  # B holds no rows
        with patch.object(effort, "SMALL_VALUES_MAX", most):
            await search(small)
        assert offloaded == expected


@scenario
async def test_a_search_over_nodes_finds_what_one_would(cluster: Cluster) -> None:
    first = await finished(cluster, 1, 3, 5)
    second = await finished(cluster, 2, 4, 5)
    await cluster.load(A, [first])
    await cluster.load(B, [second])
    await cluster.place({first: A, second: B})
    await cluster.insert([(6, 6)])
    await cluster.tick()
    hits = await asyncio.to_thread(cluster.proxy.search, cluster.node_search(4.2, 4))
    assert hits.ids.tolist() == [4, 5, 3, 6]
    assert hits.fields["value"].to_pylist() == [4, 5, 3, 6]


@scenario
async def test_a_weak_read_of_a_proxy_that_knows_nothing_yet_sees_what_is_ticked(cluster: Cluster) -> None:
    await cluster.insert([(1, 1)])
    tick = await cluster.tick()
    assert await asyncio.to_thread(cluster.proxy.service_time, COLLECTION) == tick
