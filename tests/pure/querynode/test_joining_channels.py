"""A node that joins a query channel while the call is given up or repeated, or its collection is released."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from channel_world import A, Cluster, scenario
from node_world import COLLECTION, breathe

from elanus.api.query_channel import ChannelReader
from elanus.core.errors import CollectionNotLoaded


class Readers:
    """The readers of channels that are open."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.open: list[ChannelReader] = []
        self._open_reader = cluster.channels.open_reader
        cluster.channels.open_reader = self._opened  # type: ignore[method-assign]

    async def _opened(self, channel: str, start: int) -> ChannelReader:
        reader = await self._open_reader(channel, start)
        self.open.append(reader)

        async def close() -> None:
            self.open.remove(reader)

        reader.close = close  # type: ignore[method-assign]
        return reader


class HeldUp:
    """Holds up the versions that a node's collection takes, until `go_on`."""

    def __init__(self, cluster: Cluster) -> None:
        self._collection = cluster.nodes[A]._collections[COLLECTION]
        self._take: Callable[..., Any] = self._collection.take_version
        self._may_go_on, self.began = asyncio.Event(), asyncio.Event()
        self._collection.take_version = self._wait  # type: ignore[method-assign]

    async def _wait(self, change: Any) -> None:
        self.began.set()
        await self._may_go_on.wait()
        await self._take(change)

    def go_on(self) -> None:
        self._may_go_on.set()


async def another_channel(cluster: Cluster) -> None:
    await cluster.channels.remove(cluster.channel)
    await breathe()
    cluster.channel = "query-2"
    cluster.version += 1
    await cluster.channels.create(cluster.channel)


@scenario
async def test_a_call_that_is_given_up_leaves_no_reader_of_the_channel(cluster: Cluster) -> None:
    await another_channel(cluster)
    readers, held_up = Readers(cluster), HeldUp(cluster)
    joining = asyncio.create_task(cluster.nodes[A].add_query_channel(cluster.info()))
    await held_up.began.wait()
    assert len(readers.open) == 1
    joining.cancel()
    await asyncio.wait([joining])
    assert readers.open == []


@scenario
async def test_a_collection_that_is_released_while_it_joins_a_channel_follows_none(cluster: Cluster) -> None:
    await another_channel(cluster)
    readers, held_up, node = Readers(cluster), HeldUp(cluster), cluster.nodes[A]
    joining = asyncio.create_task(node.add_query_channel(cluster.info()))
    await held_up.began.wait()
    await node.release_collection(COLLECTION)
    held_up.go_on()
    with pytest.raises(CollectionNotLoaded):
        await joining
    assert readers.open == []
    assert (await node.status()).query_channels == {}


@scenario
async def test_a_collection_that_leaves_its_channel_joins_no_other(cluster: Cluster) -> None:
    node = cluster.nodes[A]
    readers, serving = Readers(cluster), node._serving[COLLECTION]
    leaving, may_leave, stop = asyncio.Event(), asyncio.Event(), serving.stop

    async def slow_stop() -> None:
        leaving.set()
        await may_leave.wait()
        await stop()

    serving.stop = slow_stop  # type: ignore[method-assign]
    releasing = asyncio.create_task(node.release_collection(COLLECTION))
    await leaving.wait()
    with pytest.raises(CollectionNotLoaded):
        await node.add_query_channel(cluster.info())
    may_leave.set()
    await releasing
    assert readers.open == []
    assert (await node.status()).query_channels == {}


@scenario
async def test_a_call_that_is_repeated_while_it_runs_joins_the_channel_once(cluster: Cluster) -> None:
    await another_channel(cluster)
    readers, held_up, node = Readers(cluster), HeldUp(cluster), cluster.nodes[A]
    joining = [asyncio.create_task(node.add_query_channel(cluster.info())) for _ in range(2)]
    await held_up.began.wait()
    held_up.go_on()
    await asyncio.gather(*joining)
    await breathe()
    assert len(readers.open) == 1
    assert (await node.status()).query_channels == {COLLECTION: "query-2"}


@scenario
async def test_two_loads_with_another_schema_leave_one_collection(cluster: Cluster) -> None:
    node = cluster.nodes[A]
    loaded = node._collections[COLLECTION]
    loaded.written_schema = replace(loaded.written_schema, ttl_field="until")
    serving = node._serving[COLLECTION]
    leaving, may_leave, stop = asyncio.Event(), asyncio.Event(), serving.stop

    async def slow_stop() -> None:
        leaving.set()
        await may_leave.wait()
        await stop()

    serving.stop = slow_stop  # type: ignore[method-assign]
    first = asyncio.create_task(node.load_collection(cluster.load_request()))
    await leaving.wait()
    await node.load_collection(cluster.load_request())
    loaded = node._collections[COLLECTION]
    may_leave.set()
    await first
    assert node._collections[COLLECTION] is loaded
    assert loaded.closed is None
