"""Query channels on three NATS servers, as a cluster runs them, one of which is lost.

The servers, the channels, querycoord's fleet and a proxy's fan-out are real; the test plays querycoord and
the one query node.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from elanus.api.query_channel import (
    ChannelReader,
    DqRequest,
    DqResult,
    QueryChannelInfo,
    decode_message,
    encode_result,
)
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import NodeQuery
from elanus.channels.nats import NatsChannels
from elanus.channels.read_codec import encode_answer
from elanus.core.errors import ChannelLost, Unavailable
from elanus.core.ids import CollectionID, FieldID, NodeID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.devcluster.nats import Nats
from elanus.devcluster.process import free_port
from elanus.expr import compile_filter
from elanus.nats.source import NatsSource
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.fanout.deadline import Patience
from elanus.querycoord.fleet import ChannelFleet

pytestmark = pytest.mark.services

PROXY, NODE, COLLECTION = NodeID(1), NodeID(2), CollectionID(7)
SCHEMA = CollectionSchema("things", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),))
COUNT = NodeQuery(COLLECTION, (), compile_filter("", SCHEMA), None, ("id",), None, Timestamp(1))
NEW = QueryChannelInfo(COLLECTION, 0, "", 1, {}, {"v": NODE})
RESULTS = "results-1"
READ_TIMEOUT_S, TIMEOUT_S = 60.0, 200
AGAIN_S = 20.0
"""8 s where nothing else runs, 13 s when the servers have to elect a leader first."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Nats]]:
    """By their names."""
    ports = [free_port() for _ in range(3)]
    routes = [(port, *(p for p in ports if p != port)) for port in ports]
    made = {
        f"n{n}": Nats(tmp_path / f"n{n}", sync_always=False, name=f"n{n}", routes=routes[n]) for n in range(3)
    }
    try:
        for server in made.values():
            server.launch()
        for server in made.values():
            server.wait_ready()
        yield made
    finally:
        for server in made.values():
            server.kill()


class Rest:
    """Querycoord with one channel, and the one node that reads there: it counts 5 rows."""

    def __init__(self, channels: NatsChannels) -> None:
        self.channels = channels
        self.fleet = ChannelFleet(dict, channels, NodeID(3))
        self.info = NEW
        self.serves = asyncio.Event()

    async def query_channels(self, _: CollectionID) -> tuple[QueryChannelInfo, ...]:
        return (self.info,)

    async def holder(self, channel: str) -> str:
        """The server that has it in memory."""
        stream = await self.channels._ask(f"STREAM.INFO.{self.channels._stream(channel)}")
        return str(stream["cluster"]["leader"])

    async def open_at(self, server: str) -> None:
        """Open channels until one is there."""
        while not self.info.channel or await self.holder(self.info.channel) != server:
            self.info = await self.fleet.open_channel(NEW)

    async def serve(self) -> None:
        while True:
            try:
                self.info = await self.fleet.open_channel(self.info)
                reader = await self.channels.open_reader(self.info.channel, self.info.seek_position)
                self.serves.set()
                await self._answer(reader)
            except Unavailable:
                await asyncio.sleep(0.1)

    async def _answer(self, reader: ChannelReader) -> None:
        while True:
            request = cast(DqRequest, decode_message((await reader.next())[1]))
            result = DqResult(request.request_id, NODE, 1, ("v",), (), (), 1, answer=encode_answer(5))
            await self.channels.hand_over(request.results, encode_result(result))


async def again_after_s(proxy: FanOut) -> float:
    """How long it takes until reads work again."""
    begun_s = time.monotonic()
    while True:
        with contextlib.suppress(Unavailable):
            assert await asyncio.to_thread(proxy.count, COUNT, Patience(READ_TIMEOUT_S)) == 5
            return time.monotonic() - begun_s


async def lose_one(servers: Mapping[str, Nats]) -> None:
    channels = await NatsChannels.open(NatsSource(tuple(server.url for server in servers.values())))
    rest = Rest(channels)
    proxy = FanOut(PROXY, RESULTS, channels, cast(QueryCoordApi, rest), READ_TIMEOUT_S)
    await proxy.start()
    holder = await rest.holder(RESULTS)
    await rest.open_at(holder)
    before = rest.info.channel
    serving = asyncio.create_task(rest.serve())
    try:
        await rest.serves.wait()  # what was asked before that is not read
        await again_after_s(proxy)
        servers[holder].kill()
        assert await again_after_s(proxy) < AGAIN_S
        assert rest.info.channel != before
        servers[holder].launch()
        await asyncio.to_thread(servers[holder].wait_ready)
        for replaced in (before, RESULTS):  # they do not come back with the server
            with pytest.raises(ChannelLost):
                await channels.end(replaced)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await proxy.stop()
        await channels.close()


def test_reads_go_on_when_the_server_that_holds_their_channels_is_lost(servers: dict[str, Nats]) -> None:
    asyncio.run(asyncio.wait_for(lose_one(servers), TIMEOUT_S))
