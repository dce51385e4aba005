"""Whether a stream in the memory of one NATS server is there, also when that server is not.

Of several servers one holds the stream. When it is away nobody says so: questions about the stream are not
answered, though JetStream answers others, and the stream's name stays taken. Nor does the stream come
back with what it held. Such a stream is gone for whoever needs it, and another under a new name is at hand
at once.
"""

from __future__ import annotations

import contextlib

from elanus.log.jetstream.connection import NO_STREAM, NatsConnection, Refused, Unanswered

LOOK_S = 1.0
"""How long a stream has to answer, twice."""
_GONE = {NO_STREAM: "it does not exist", 10118: "the NATS server that holds it is away"}


class Gone(Exception):
    """There is no such stream, or the server that holds it is away. The text says which."""


async def stream_bounds(connection: NatsConnection, stream: str) -> tuple[int, int]:
    """The first and the last sequence of the stream; the first is behind the last, or 0, when it is empty.

    Raises `Gone`, `Refused`, and `Interrupted` when nothing is known: JetStream as a whole does not answer.
    """
    try:
        with contextlib.suppress(Unanswered):
            return await _ask(connection, stream)
        await connection.api("INFO", timeout_s=LOOK_S)
        try:
            return await _ask(connection, stream)  # it may only have been slow
        except Unanswered:
            raise Gone("the NATS server that holds it does not answer") from None
    except Refused as refusal:
        if refusal.code not in _GONE:
            raise
        raise Gone(_GONE[refusal.code]) from None


async def _ask(connection: NatsConnection, stream: str) -> tuple[int, int]:
    state = (await connection.api(f"STREAM.INFO.{stream}", timeout_s=LOOK_S))["state"]
    return state["first_seq"], state["last_seq"]
