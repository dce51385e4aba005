"""A process keeps its knowledge of the streams on NATS while it lists them."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from elanus.log.jetstream.log import NatsLog
from elanus.log.port import START
from elanus.nats.connection import NO_STREAM, NatsConnection, Refused
from elanus.nats.source import NatsSource

LISTED_AFTER_S = 11


class Server:
    """A connection to streams with these numbers of messages. A listing waits until ``answers``, after it was
    made up."""

    def __init__(self, **streams: int) -> None:
        self.source = NatsSource(("nats://nowhere",), prefix="p")
        self.streams = streams
        self.answers = asyncio.Event()
        self.answers.set()

    async def api(self, subject: str, body: Any = None, timeout_s: float = 0) -> dict[str, Any]:
        if subject == "STREAM.LIST":
            streams = [self._info(name) for name in self.streams]
            await self.answers.wait()
            return {"streams": streams, "total": len(streams)}
        name = subject.removeprefix("STREAM.INFO.p-")
        if name not in self.streams:
            raise Refused(NO_STREAM, "stream not found")
        return self._info(name)

    def _info(self, name: str) -> dict[str, Any]:
        return {"config": {"name": f"p-{name}"}, "state": {"last_seq": self.streams[name], "bytes": 1}}

    async def ready(self, timeout_s: float) -> None: ...

    def when_connected_again(self, work: Any) -> None: ...

    async def close(self) -> None: ...


async def open_log(server: Server) -> NatsLog:
    async def connected(source: NatsSource, name: str) -> Any:
        return server

    with patch.object(NatsConnection, "open", connected):
        return await NatsLog.open(server.source)


async def test_a_stream_that_was_made_during_a_listing_stays_known() -> None:
    server = Server(a=1, b=2)
    log = await open_log(server)
    server.answers.clear()
    await asyncio.sleep(LISTED_AFTER_S)
    server.streams["c"] = 3
    assert await log.sync("c") == 4
    server.answers.set()
    await asyncio.sleep(1)
    assert list(log.pchannels()) == ["a", "b", "c"]
    assert log.end("c") == 4
    await log.close()


async def test_a_stream_that_is_gone_is_forgotten_at_the_next_listing() -> None:
    server = Server(a=1, b=2)
    log = await open_log(server)
    del server.streams["b"]
    await asyncio.sleep(LISTED_AFTER_S)
    assert list(log.pchannels()) == ["a"]
    assert log.end("b") == START
    await log.close()
