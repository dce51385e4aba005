"""The waits of a read over query channels: for what, how long, and how they are reported."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any
from unittest.mock import ANY, patch

import pytest
from channel_world import A, B, Cluster, finished, scenario, waiting
from fake_calls import FakeTicks
from fakes import collection
from node_world import COLLECTION, VCHANNEL

from elanus.api.query_channel import QueryChannelInfo
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import DeadlineExceeded
from elanus.core.ids import CollectionID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, after, compose, minus_ms
from elanus.proxy.fanout import served
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.fanout.membership import KnownReplica
from elanus.proxy.fanout.served import ServiceTimes
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.role.own_writes import OwnWrites
from elanus.proxy.role.queues import DqQueue
from elanus.proxy.role.read_path import ReadPath, ReadPolicy
from elanus.proxy.role.stamps import OwnStamps
from elanus.querynode import serving
from elanus.querynode.serving import ChannelServing

BEHIND_S = 10
NOW = compose(100_000)


def reads_of(cluster: Cluster) -> ReadPath:
    """The reads of a proxy that has just asked for the time. They ask for no ticks: the test writes them."""
    return ReadPath(
        cluster.proxy,
        DqQueue(8),
        OwnStamps(lambda: NOW),
        FakeTicks(),
        NoMeasures(),
        OwnWrites(BEHIND_S * 1000 // 2),
        ReadPolicy(BEHIND_S * 1000 // 2, retention_s=3600.0, timeout_s=5.0),
        time.monotonic,
    )


def read(cluster: Cluster, level: ConsistencyLevel) -> tuple[Timestamp, int, Patience]:
    """Count the rows; returns the read's timestamp, the count, and how long it has waited."""
    with reads_of(cluster).begin() as patience:
        cached = CachedCollection(collection_view("default", collection(collection_id=COLLECTION)), {}, ())
        ts = reads_of(cluster).read_timestamp(cached, ReadConsistency(level), patience)
        return ts, cluster.proxy.count(cluster.node_query(ts=ts), patience), patience


async def behind(cluster: Cluster) -> Timestamp:
    """The nodes serve up to `BEHIND_S` before now, one row more than when the proxy asked last."""
    await cluster.insert([(1, 1)])
    cluster.now = minus_ms(NOW, 1000 * BEHIND_S)
    return Timestamp(await cluster.tick())


@scenario
async def test_an_eventual_read_waits_for_no_node_that_lags(cluster: Cluster) -> None:
    lagging = await behind(cluster)
    ts, rows, patience = await asyncio.to_thread(read, cluster, ConsistencyLevel.EVENTUALLY)
    assert (ts, rows, patience.waited_s) == (lagging, 1, 0)
    await cluster.insert([(2, 2)])
    assert await asyncio.to_thread(read, cluster, ConsistencyLevel.EVENTUALLY) == (lagging, 1, ANY)


@scenario
async def test_a_bounded_read_waits_for_its_bound_and_no_longer(cluster: Cluster) -> None:
    lagging = await behind(cluster)
    bound = minus_ms(NOW, 1000 * BEHIND_S // 2)
    reading = asyncio.create_task(asyncio.to_thread(read, cluster, ConsistencyLevel.BOUNDED))
    await waiting(cluster.nodes[A])
    assert cluster.tick_ts == lagging < bound
    cluster.now = bound
    await cluster.tick()
    ts, rows, patience = await reading
    assert (ts, rows) == (bound, 1)
    assert patience.waited_s > 0


@scenario
async def test_a_weak_read_within_its_bound_is_as_of_what_all_nodes_serve(cluster: Cluster) -> None:
    """B holds a segment, and its deletes lag behind those of A."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    cluster.now = minus_ms(NOW, 1000)
    lagging = Timestamp(await cluster.tick())
    (follower,) = cluster.nodes[B]._collections[COLLECTION].channels[VCHANNEL].followers()
    follower.retire()  # B reads no more of the log
    cluster.now = NOW
    await cluster.tick()
    for level in (ConsistencyLevel.BOUNDED, ConsistencyLevel.EVENTUALLY):
        ts, rows, patience = await asyncio.to_thread(read, cluster, level)
        assert (ts, rows, patience.waited_s) == (lagging, 2, 0)


def test_a_read_goes_to_a_replica_that_is_known_to_serve_its_moment() -> None:
    """The others take their turns after it: their nodes may lag, and may not even have said so."""
    replicas = [
        KnownReplica(
            QueryChannelInfo(COLLECTION, number, name, 1, {}, {VCHANNEL: A}), frozenset({A}), frozenset()
        )
        for number, name in enumerate(("silent", "serving", "lagging"))
    ]
    times = ServiceTimes(time.monotonic)
    times.answered(replicas[1].info, NOW)
    times.answered(replicas[2].info, minus_ms(NOW, 1))

    def asked(turn: int, ts: Timestamp) -> list[str]:
        return [replica.info.channel for replica in times.in_turn(replicas, turn, ts)]

    assert asked(0, NOW) == ["serving", "silent", "lagging"]
    assert asked(2, NOW) == ["serving", "lagging", "silent"]
    assert asked(2, minus_ms(NOW, 1)) == ["lagging", "serving", "silent"], "both serve it: they take turns"
    assert asked(2, after(NOW)) == ["lagging", "silent", "serving"], "none serves it"


def test_an_answer_after_the_release_brings_no_collection_back() -> None:
    info = QueryChannelInfo(COLLECTION, 1, "one", 1, {}, {VCHANNEL: A})
    read_now = {COLLECTION}
    times = ServiceTimes(time.monotonic, read_now.__contains__)
    times.answered(info, NOW)
    assert times.lowest(COLLECTION, ["one"]) == NOW
    read_now.clear()
    times.forget(COLLECTION)
    times.answered(info, NOW)
    assert times._reports == {}


@scenario
async def test_the_nodes_are_asked_once_for_many_weak_reads(cluster: Cluster) -> None:
    began, patience = await cluster.channels.end(cluster.channel), Patience(5.0)
    with patch.object(served, "_FRESH_S", 60.0):
        for _ in range(10):
            known = await asyncio.to_thread(cluster.proxy.service_time, COLLECTION, patience)
            assert known == cluster.tick_ts
    assert await cluster.channels.end(cluster.channel) == began + 1
    with patch.object(served, "_FRESH_S", -1.0):
        await asyncio.to_thread(cluster.proxy.service_time, COLLECTION, patience)
        assert await cluster.channels.end(cluster.channel) == began + 2, "what is known is old"
        await asyncio.to_thread(cluster.proxy.wait_service_time, COLLECTION, NOW, patience)
    assert await cluster.channels.end(cluster.channel) == began + 2, "the nodes wait for it themselves"


@scenario
async def test_nothing_is_known_to_be_served_before_the_first_tick(cluster: Cluster) -> None:
    """A weak read as of 0 would see no row."""
    node, asked = cluster.nodes[A]._serving[COLLECTION], 0
    ready = node._ready

    def none_yet(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        made = ready(*args)
        return made if asked > 3 else replace(made, snapshot=replace(made.snapshot, service_ts=NO_TIMESTAMP))

    node._ready = none_yet  # type: ignore[method-assign]
    patience = Patience(5.0)
    await asyncio.to_thread(cluster.proxy.wait_service_time, COLLECTION, Timestamp(1), patience)
    assert cluster.proxy.service_time(COLLECTION, patience) == cluster.tick_ts
    assert patience.waited_s > 0
    node._ready = ready  # type: ignore[method-assign]


@scenario
async def test_a_tick_that_never_comes_is_waited_for_as_long_as_the_client_does(cluster: Cluster) -> None:
    with (
        patch.object(FanOut, "service_time", return_value=NO_TIMESTAMP),
        pytest.raises(DeadlineExceeded, match="no time tick within"),
    ):
        await asyncio.to_thread(cluster.proxy.wait_service_time, COLLECTION, Timestamp(1), Patience(0.05))


@scenario
async def test_nodes_that_do_not_say_what_they_serve_are_a_deadline_exceeded(cluster: Cluster) -> None:
    with (
        patch.object(ChannelServing, "_begin"),
        pytest.raises(DeadlineExceeded, match="did not report up to which timestamp they serve"),
    ):
        await asyncio.to_thread(cluster.proxy.service_time, COLLECTION, Patience(0.05))


@scenario
async def test_a_read_that_waits_holds_a_version_change_up_for_a_short_time_only(cluster: Cluster) -> None:
    """The read is sent again behind the change; others behind it are answered meanwhile."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    ahead, patience = cluster.node_query(ts=cluster.now + 100), Patience(5.0)
    with patch.object(serving, "_CHANGE_WAIT_S", 0.01):
        reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, patience))
        await waiting(cluster.nodes[A])
        await cluster.place({segment_id: B})
        await cluster.check()
        versions = [(await n.status()).versions[COLLECTION] for n in cluster.nodes.values()]
        assert versions == [cluster.version] * 2
        assert not reading.done()
        cluster.now += 100
        await cluster.tick()
        assert await reading == 2
        assert patience.waited_s > 0


@scenario
async def test_a_read_ends_when_its_client_waits_no_more(cluster: Cluster) -> None:
    """The nodes wait no longer either, and one of them may say so first."""
    ahead = cluster.node_query(ts=cluster.now + 100)
    with pytest.raises(DeadlineExceeded):
        await asyncio.to_thread(cluster.proxy.count, ahead, Patience(0.1))


@scenario
async def test_the_wait_at_the_nodes_is_reported(cluster: Cluster) -> None:
    at_once, ahead = Patience(5.0), Patience(5.0)
    await asyncio.to_thread(cluster.proxy.count, cluster.node_query(), at_once)
    read = cluster.node_query(ts=cluster.now + 100)
    reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, read, ahead))
    await waiting(cluster.nodes[A])
    cluster.now += 100
    await cluster.tick()
    await reading
    assert at_once.waited_s == 0
    assert ahead.waited_s > 0


@scenario
async def test_a_coordinator_that_does_not_answer_is_a_deadline_exceeded(cluster: Cluster) -> None:
    async def silent(_: CollectionID) -> tuple[QueryChannelInfo, ...]:
        await asyncio.Event().wait()
        return ()

    cluster.query_channels = silent  # type: ignore[method-assign]
    cluster.proxy._timeout_s = 0.05
    with pytest.raises(DeadlineExceeded, match="no coordinator answered"):
        await asyncio.to_thread(cluster.proxy.service_time, COLLECTION, Patience(5.0))
