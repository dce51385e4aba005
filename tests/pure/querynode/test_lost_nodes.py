"""Nodes that go away: what becomes of reads that need them, whatever the proxy knows of who is there."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from channel_world import A, B, Cluster, finished, heard_of, scenario, waiting
from node_world import COLLECTION

from elanus.core.errors import Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.proxy import fanout
from elanus.rpc.querychannel import QueryChannelInfo


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
async def test_a_node_that_came_and_went_unheard_of_keeps_no_read_waiting(cluster: Cluster) -> None:
    """The others answer under a version that names it, and it is gone before the read comes."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.check()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.nodes[B].stop()
    cluster.proxy.node_lost(B)
    with pytest.raises(Unavailable, match="query node 12 went away, and is not replaced yet"):
        await cluster.counted()


@scenario
async def test_a_node_lost_while_a_proxy_asks_who_is_there_is_asked_for_again(cluster: Cluster) -> None:
    """What it is told may be older than what the nodes serve by then."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    told, tell = await cluster.query_channels(COLLECTION), cluster.query_channels

    async def tell_late(_: CollectionID) -> tuple[QueryChannelInfo, ...]:
        cluster.query_channels = tell  # type: ignore[method-assign]
        await cluster.place({segment_id: B})
        await cluster.nodes[B].stop()
        cluster.proxy.node_lost(B)
        return told

    cluster.query_channels = tell_late  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="query node 12 went away, and is not replaced yet"):
        await cluster.counted()


@scenario
async def test_a_proxy_hears_of_a_new_node_by_the_answers_of_the_others(cluster: Cluster) -> None:
    """So that the loss of that node ends at once what waits for it."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.check()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.nodes[B].stop()
    reading = asyncio.create_task(cluster.counted())
    await heard_of(B, cluster)
    cluster.proxy.node_lost(B)
    with pytest.raises(Unavailable, match="query node 12 went away before it had answered"):
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
