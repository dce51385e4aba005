"""Connecting to NATS servers that are away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client

from elanus.core.errors import Unavailable
from elanus.nats.connection import NatsConnection
from elanus.nats.source import NatsSource

SOURCE = NatsSource(("nats://nowhere",), prefix="p")


class Lossy:
    """Connects forever. The first cancellations are lost, as `asyncio.wait_for` loses those that arrive
    together with a refusal of the connection."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.attempts = 0

    async def connect(self, *_args: Any, **_options: Any) -> None:
        while True:
            self.attempts += 1
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                self.lost -= 1
                if self.lost < 0:
                    raise

    async def close(self) -> None: ...


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> Lossy:
    client = Lossy(1)
    for name in ("connect", "close"):
        monkeypatch.setattr(Client, name, getattr(client, name))
    return client


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_it_ends_in_time_though_the_client_loses_cancellations(lossy: Lossy, lost: int) -> None:
    lossy.lost = lost
    with pytest.raises(Unavailable, match="no NATS server answers at nats://nowhere; is it running"):
        await asyncio.wait_for(NatsConnection.open(SOURCE, "test"), 20)
    attempts = lossy.attempts
    await asyncio.sleep(5)
    assert lossy.attempts == attempts


async def test_one_who_gives_up_waiting_leaves_nothing_connecting(lossy: Lossy) -> None:
    opening = asyncio.ensure_future(NatsConnection.open(SOURCE, "test"))
    await asyncio.sleep(1)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    attempts = lossy.attempts
    await asyncio.sleep(5)
    assert lossy.attempts == attempts
