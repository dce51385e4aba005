"""A connection that its NATS server ends with an error, as when credentials expire, is made again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from elanus.devcluster.nats import Nats
from elanus.nats.connection import NatsConnection
from elanus.nats.source import NatsSource

pytestmark = pytest.mark.services

TIMEOUT_S = 30.0
REFUSED_MAX = 3


class Front:
    """In front of a NATS server: reports errors to clients in its place, and ends connections."""

    def __init__(self, server: Nats) -> None:
        self._host, _, self._port = server.url.removeprefix("nats://").rpartition(":")
        self._clients: list[asyncio.StreamWriter] = []
        self._open: list[asyncio.StreamWriter] = []
        self._refusal = ""
        self.refused = 0
        self.enough = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[NatsSource]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        async with server:
            yield NatsSource(("nats://{}:{}".format(*server.sockets[0].getsockname()),))
        for writer in self._open:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def refuse(self, error: str) -> None:
        """From now on, and those that are connected."""
        self._refusal = error
        for client in self._clients:
            self._report(client)

    def end(self) -> None:
        """End the connections without a word."""
        for client in self._clients:
            client.close()

    def accept(self) -> None:
        self._refusal = ""

    def _report(self, client: asyncio.StreamWriter) -> None:
        client.write(f"-ERR '{self._refusal}'\r\n".encode())
        client.close()

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._open.append(client)
        if self._refusal:
            self.refused += 1
            if self.refused >= REFUSED_MAX:
                self.enough.set()
            self._report(client)
            return
        self._clients.append(client)
        answers, server = await asyncio.open_connection(self._host, int(self._port))
        self._open.append(server)
        await asyncio.gather(_carry(reader, server), _carry(answers, client))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@pytest.mark.parametrize("error", ["User Authentication Expired", "Authorization Violation"])
def test_a_connection_that_the_server_ended_with_an_error_is_made_again(
    nats_server: Nats, error: str
) -> None:
    async def body() -> None:
        front = Front(nats_server)
        async with asyncio.timeout(TIMEOUT_S), front.listening() as source:
            link = await NatsConnection.open(source, "refused")
            try:
                broken = asyncio.Event()
                async with link.inbox(lambda message: broken.set() if message is None else None):
                    front.refuse(error)
                    await broken.wait()
                    await front.enough.wait()
                    front.accept()
                    await link.ready(TIMEOUT_S)
                assert "limits" in await link.api("INFO")
            finally:
                await link.close()

    with capture_logs() as logs:
        asyncio.run(body())
    said = [entry.get("error") for entry in logs if entry["event"] != "NATS connection lost; reconnecting"]
    assert len(said) == len(set(said)), "each error once, however long it lasts"


def test_an_attempt_to_connect_again_may_fail_for_any_reason(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        front = Front(nats_server)
        async with asyncio.timeout(TIMEOUT_S), front.listening() as source:
            link = await NatsConnection.open(source, "half a file")
            greet = link._client._process_connect_init
            errors = [ValueError("no seed in the file of credentials"), IndexError("no line")]

            async def fails_at_first() -> None:
                if errors:
                    raise errors.pop()
                await greet()

            monkeypatch.setattr(link._client, "_process_connect_init", fails_at_first)
            try:
                broken = asyncio.Event()
                async with link.inbox(lambda message: broken.set() if message is None else None):
                    front.end()
                    await broken.wait()
                    await link.ready(TIMEOUT_S)
                assert "limits" in await link.api("INFO")
                assert not errors
            finally:
                await link.close()

    asyncio.run(body())
