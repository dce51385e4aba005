"""The waits of a read over query channels: for what, how long, and how they are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from channel_world import A, Cluster, scenario, waiting
from node_world import COLLECTION, PCHANNEL

from elanus.core.errors import DeadlineExceeded
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.fanout.deadline import Patience


@scenario
async def test_nothing_is_known_to_be_served_before_the_first_tick(cluster: Cluster) -> None:
    """A root coordinator has only begun: a weak read as of 0 would see no row."""
    ticks, asked = cluster.ticks, 0

    async def none_yet() -> Mapping[str, Timestamp]:
        nonlocal asked
        asked += 1
        return await ticks() if asked > 3 else {PCHANNEL: NO_TIMESTAMP}

    cluster.ticks = none_yet  # type: ignore[method-assign]
    patience = Patience(5.0)
    await asyncio.to_thread(cluster.proxy.wait_service_time, COLLECTION, Timestamp(1), patience)
    assert cluster.proxy.service_time(COLLECTION) == cluster.tick_ts
    assert patience.waited_s > 0


@scenario
async def test_a_tick_that_never_comes_is_waited_for_as_long_as_the_client_does(cluster: Cluster) -> None:
    async def none() -> Mapping[str, Timestamp]:
        return {PCHANNEL: NO_TIMESTAMP}

    cluster.ticks = none  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceeded, match="no time tick within"):
        await asyncio.to_thread(cluster.proxy.wait_service_time, COLLECTION, Timestamp(1), Patience(0.05))


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
    async def silent() -> Mapping[str, Timestamp]:
        await asyncio.Event().wait()
        return {}

    cluster.ticks = silent  # type: ignore[method-assign]
    cluster.proxy._timeout_s = 0.05
    with pytest.raises(DeadlineExceeded, match="no coordinator answered"):
        await asyncio.to_thread(cluster.proxy.service_time, COLLECTION)
