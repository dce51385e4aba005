"""Nodes that go away: what becomes of reads that need them, whatever the proxy knows of who is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from channel_world import A, B, Cluster, finished, known_to_proxy, scenario, waiting
from fakes import FakeNodes
from node_world import COLLECTION

from elanus.api.query_channel import QueryChannelInfo
from elanus.core.errors import CollectionNotLoaded, Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.proxy.fanout import client as fanout
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode import serving


@scenario
async def test_the_loss_of_a_node_ends_its_reads_at_once_with_its_name(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.nodes[B].stop()
    ahead = cluster.node_query(ts=cluster.now + 100)
    reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
    await waiting(cluster.nodes[A])
    cluster.proxy.node_lost(B)
    with pytest.raises(Unavailable, match="query node 12 went away"):
        await reading


@scenario
async def test_a_node_that_came_and_went_unknown_to_proxy_keeps_no_read_waiting(cluster: Cluster) -> None:
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
    """The answer may be older than the version that the nodes serve by then."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    answer, ask = await cluster.query_channels(COLLECTION), cluster.query_channels

    async def answer_late(_: CollectionID) -> tuple[QueryChannelInfo, ...]:
        cluster.query_channels = ask  # type: ignore[method-assign]
        await cluster.place({segment_id: B})
        await cluster.nodes[B].stop()
        cluster.proxy.node_lost(B)
        return answer

    cluster.query_channels = answer_late  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="query node 12 went away, and is not replaced yet"):
        await cluster.counted()


@scenario
async def test_a_proxy_learns_of_a_new_node_from_the_answers_of_the_others(cluster: Cluster) -> None:
    """So that the loss of that node ends at once what waits for it."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.check()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.nodes[B].stop()
    reading = asyncio.create_task(cluster.counted())
    await known_to_proxy(B, cluster)
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
            reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
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
async def test_the_places_of_a_lost_node_are_looked_up_again(cluster: Cluster) -> None:
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
async def test_a_node_that_was_gone_before_the_proxy_came_keeps_no_read_waiting(cluster: Cluster) -> None:
    """The version names it still, and this proxy has never seen it."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.nodes[B].stop()
    late = cluster.fan_out("results-2", FakeNodes({A: cluster.nodes[A]}))
    await late.start()
    with (
        patch.object(fanout, "_LOOK_S", 0.01),
        pytest.raises(Unavailable, match="query node 12 went away before it had answered"),
    ):
        await asyncio.to_thread(late.count, cluster.node_query(), Patience(5.0))
    await late.stop()


@scenario
async def test_a_release_ends_the_reads_under_way(cluster: Cluster) -> None:
    ahead = cluster.node_query(ts=cluster.now + 100)
    reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
    await waiting(cluster.nodes[A])
    cluster.version = 0
    cluster.proxy.forget(COLLECTION)
    with pytest.raises(CollectionNotLoaded):
        await reading


@scenario
async def test_a_release_that_was_not_announced_ends_the_reads_under_way(cluster: Cluster) -> None:
    ahead = cluster.node_query(ts=cluster.now + 100)
    with patch.object(fanout, "_LOOK_S", 0.01):
        reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
        await waiting(cluster.nodes[A])
        cluster.version = 0
        with pytest.raises(CollectionNotLoaded):
            await reading


@scenario
async def test_a_node_that_leaves_says_so_to_the_reads_it_has(cluster: Cluster) -> None:
    """The proxy looks up the replicas again, and waits only for the end of its session."""
    ahead = cluster.node_query(ts=cluster.now + 100)
    reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
    await waiting(cluster.nodes[A])
    asked = asyncio.Event()
    ask = cluster.query_channels

    async def answer_again(collection_id: CollectionID) -> tuple[QueryChannelInfo, ...]:
        asked.set()
        return await ask(collection_id)

    cluster.query_channels = answer_again  # type: ignore[method-assign]
    await cluster.nodes[A].stop()
    async with asyncio.timeout(5):
        await asked.wait()
    cluster.proxy.node_lost(A)
    with pytest.raises(Unavailable, match="query node 11 went away"):
        await reading


@scenario
async def test_a_node_that_stops_serves_until_what_it_loads_is_loaded(cluster: Cluster) -> None:
    """It cannot be broken off, and the session ends only afterwards: until then reads count on the node."""
    segment_id = await finished(cluster, 1, 2)
    node, loading, loaded = cluster.nodes[A], asyncio.Event(), asyncio.Event()
    offload = node._loading.offload

    async def slow(function: Callable[..., Any], *args: Any) -> Any:
        loading.set()
        await loaded.wait()
        return await offload(function, *args)

    node._loading.offload = slow  # type: ignore[method-assign, assignment]
    load = asyncio.create_task(cluster.load(A, [segment_id]))
    await loading.wait()
    stopping = asyncio.create_task(node.stop())
    assert await cluster.counted() == 2
    loaded.set()
    await stopping
    await load
    assert not node._collections


@scenario
async def test_an_answer_that_cannot_be_given_to_its_proxy_fails_the_read(cluster: Cluster) -> None:
    await cluster.insert([(key, key) for key in range(50)])
    await cluster.tick()
    with (
        patch.object(serving, "PAYLOAD_MAX_BYTES", 100),
        patch.object(FanOut, "give_answer", AsyncMock(side_effect=Unavailable("the connection broke"))),
        pytest.raises(Unavailable, match="the connection broke"),
    ):
        await cluster.seen()
