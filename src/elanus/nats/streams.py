"""Whether a stream in the memory of one NATS server exists, even when that server is away.

One of several servers holds the stream. When it is away, nothing reports that: requests about the stream are
not answered, though JetStream answers others, and the stream's name stays taken. Nor does the stream come
back with its messages. Such a stream counts as gone, and another one under a new name can be used
immediately.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from elanus.nats.connection import NO_STREAM, NatsConnection, Refused, Unanswered

REQUEST_TIMEOUT_S = 1.0
"""How long to wait for a stream's answer, in each of two attempts."""
_GONE = {NO_STREAM: "it does not exist", 10118: "the NATS server that holds it is away"}


def very_first(info: dict[str, Any]) -> int:
    """Return the sequence of the first message that a stream ever gets, by its information."""
    return info["config"].get("first_seq") or 1


class Gone(Exception):
    """The stream does not exist, or the server that holds it is away. The text says which."""


async def stream_bounds(connection: NatsConnection, stream: str) -> tuple[int, int]:
    """Return the first and the last sequence of the stream; if it is empty, the first is after the last, or
    is 0.

    Raises `Gone`, `Refused`, and `Interrupted` when nothing is known: JetStream as a whole does not answer.
    """
    try:
        with contextlib.suppress(Unanswered):
            return await _ask(connection, stream)
        await connection.api("INFO", timeout_s=REQUEST_TIMEOUT_S)
        try:
            return await _ask(connection, stream)  # it may just have been slow
        except Unanswered:
            raise Gone("the NATS server that holds it does not answer") from None
    except Refused as refusal:
        if refusal.code not in _GONE:
            raise
        raise Gone(_GONE[refusal.code]) from None


async def stream_pages(
    ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
) -> AsyncGenerator[Sequence[dict[str, Any]], None]:
    """Yield the information of all streams, as many at a time as a server gives.

    ``ask`` calls JetStream's API with a subject and a body.
    """
    offset, total = 0, 1
    while offset < total:
        answer = await ask("STREAM.LIST", {"offset": offset})
        streams = answer["streams"] or []
        offset, total = offset + max(1, len(streams)), answer["total"]
        yield streams


async def _ask(connection: NatsConnection, stream: str) -> tuple[int, int]:
    state = (await connection.api(f"STREAM.INFO.{stream}", timeout_s=REQUEST_TIMEOUT_S))["state"]
    return state["first_seq"], state["last_seq"]
