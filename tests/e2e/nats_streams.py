"""Streams of a NATS server, as operators and accidents change them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from elanus.devcluster.nats import Nats
from elanus.nats.connection import NatsConnection
from elanus.nats.source import NatsSource


def purge(nats: Nats, prefix: str, pchannel: str) -> None:
    """Remove all messages but the last: an operator's mistake, or a limit set on the stream by hand."""
    ask(nats, f"STREAM.PURGE.{prefix}-{pchannel}", {"seq": last_of(nats, prefix, pchannel)})


def remove(nats: Nats, prefix: str, pchannel: str) -> None:
    """Remove the whole stream, as the loss of the server's disk does."""
    ask(nats, f"STREAM.DELETE.{prefix}-{pchannel}")


def last_of(nats: Nats, prefix: str, pchannel: str) -> int:
    """Return the sequence of the stream's last message."""
    return int(ask(nats, f"STREAM.INFO.{prefix}-{pchannel}")["state"]["last_seq"])


def ask(nats: Nats, subject: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    async def answered() -> dict[str, Any]:
        connection = await NatsConnection.open(NatsSource((nats.url,)), "operator")
        try:
            return await connection.api(subject, request)
        finally:
            await connection.close()

    return asyncio.run(answered())


@contextlib.contextmanager
def stopped(nats: Nats) -> Iterator[None]:
    nats.stop()
    yield
    nats.start()
