"""A connection to NATS that has gone silent is given up and replaced, whatever waits to be sent on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from elanus.devcluster.nats import Nats
from elanus.nats import connection
from elanus.nats.connection import Interrupted, NatsConnection
from elanus.nats.source import NatsSource
from tests.e2e.relay import Relay

pytestmark = pytest.mark.services

TIMEOUT_S = 30.0
PIECE = bytes(512 * 1024)
PIECES = 64
"""Together more than sockets and the relay hold: the rest stays in the process."""


@pytest.fixture
def relay(nats_server: Nats, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    monkeypatch.setattr(connection, "_PING_EVERY_S", 0.2)
    relay = Relay(nats_server.url.removeprefix("nats://"))
    yield relay
    relay.close()


def run(relay: Relay, body: Callable[[NatsConnection], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        link = await NatsConnection.open(NatsSource((f"nats://{relay.address}",)), "far")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await body(link)
        finally:
            relay.repair()
            await link.close()

    asyncio.run(work())


async def replaced(link: NatsConnection, relay: Relay) -> None:
    """Return when a request ended because the silent connection was given up, and the next is answered."""
    with pytest.raises(Interrupted, match="the connection was lost"):
        await link.request("$JS.API.INFO", b"", None, TIMEOUT_S)
    relay.repair()
    await link.ready(TIMEOUT_S)
    assert "limits" in await link.api("INFO")


def test_a_silent_connection_is_replaced(relay: Relay) -> None:
    async def body(link: NatsConnection) -> None:
        relay.stall()
        await replaced(link, relay)

    run(relay, body)


def test_a_silent_connection_with_much_to_send_is_replaced(relay: Relay) -> None:
    async def body(link: NatsConnection) -> None:
        relay.stall()
        sending = [asyncio.create_task(link.publish("nobody.listens", PIECE)) for _ in range(PIECES)]
        await replaced(link, relay)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    run(relay, body)
