"""Query channels on NATS: each is a JetStream stream in memory, volatile as its port says.

A channel lives as long as the server that holds it, or until it is removed. One whose owner was killed, or
could not reach the server to remove it, is removed once nobody has used it for a while. One of several
servers holds it; a channel whose server is away is lost. Each published message carries an id of its own, so
it can be sent again when its answer was lost, and it appears in the channel once.

Messages are kept for `KEPT_S`, and for each channel the last `KEPT_MAX_MESSAGES`; no space is reserved for
them, because most channels are idle. A reader that was away so long that messages it needs are no longer kept
gets an error: the channel is lost to it, and it asks querycoord for the version in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections import deque
from typing import Any, Self
from urllib.parse import quote

import structlog

from elanus.api.query_channel import ChannelReader, Handed
from elanus.channels.memory import KEPT_MAX_MESSAGES
from elanus.core.errors import ChannelLost, InvalidParameter, Unavailable
from elanus.nats.connection import (
    NO_STREAM,
    Interrupted,
    NatsConnection,
    Refused,
    client_error,
    decoded,
)
from elanus.nats.follower import FORGOTTEN_AFTER_S, PULL_MESSAGES_MAX, Done, Loss, StreamFollower
from elanus.nats.messages import HEADERS_MAX_BYTES, IncomingMessage
from elanus.nats.source import NatsSource
from elanus.nats.streams import REQUEST_TIMEOUT_S, Gone, stream_bounds, stream_pages

KEPT_S = 2 * FORGOTTEN_AFTER_S
"""Longer than a server remembers a reader's consumer: a consumer silently skips messages that are no longer
kept, while a new one begins by checking which messages are kept."""
_UNUSED_LOOK_S = 600.0
"""How often every process looks for channels that nobody uses. One that it finds twice is removed."""
_RETRY_S = 0.1
_HANDED_KEPT_S = 5.0
_HANDED_KEPT_BYTES = 16 * 1024 * 1024
"""How long, and how many bytes of, handed-over messages are kept in case the connection breaks."""
_NAME_IN_USE = 10058
_NS_PER_S = 1_000_000_000
_logger = structlog.get_logger(__name__)


class NatsChannels:
    """Implements `elanus.api.query_channel.QueryChannels`. Created with `open`, for one event loop."""

    def __init__(self, connection: NatsConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._handed: deque[tuple[float, Handed]] = deque()
        """Messages that were handed over recently, each with its time."""
        self._handed_bytes = 0
        self._marks = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._unused: dict[str, Any] = {}
        """The streams without messages and readers when they were last looked for, each with its creation
        and its last position."""
        self._removing: asyncio.Task[None] | None = None
        connection.when_connected_again(self._hand_over_again)

    @classmethod
    async def open(cls, source: NatsSource, *, timeout_s: float = 5.0, name: str = "elanus channels") -> Self:
        """``timeout_s``: how long a call waits for a server that is away before it is `Unavailable`.

        Raises `Unavailable`, `InvalidParameter`.
        """
        self = cls(await NatsConnection.open(source, name), timeout_s)
        self._removing = asyncio.create_task(self._keep_removing_unused(), name="unused query channels")
        return self

    async def create(self, channel: str) -> None:
        stream = self._stream(channel)
        config = {
            "name": stream,
            "subjects": [stream],
            "storage": "memory",
            "num_replicas": 1,
            "discard": "old",
            "max_msgs": KEPT_MAX_MESSAGES,
            "max_age": int(KEPT_S * _NS_PER_S),
        }
        try:
            await self._ask(f"STREAM.CREATE.{stream}", config)
        except Refused as refusal:
            if refusal.code != _NAME_IN_USE:
                raise client_error(refusal, f"query channel {channel}") from None

    async def remove(self, channel: str) -> None:
        try:
            await self._ask(f"STREAM.DELETE.{self._stream(channel)}")
        except Refused as refusal:
            if refusal.code != NO_STREAM:
                raise client_error(refusal, f"the removal of query channel {channel}") from None

    async def publish(self, channel: str, message: bytes) -> int:
        """See the port. Raises `InvalidParameter` for a message too large for the server to take."""
        return await self.confirm(self._marked(channel, message))

    async def hand_over(self, channel: str, message: bytes) -> Handed:
        """See the port. Raises `InvalidParameter` for a message too large for the server to take."""
        handed = self._marked(channel, message)
        self._handed.append((time.monotonic(), handed))
        self._handed_bytes += len(message)
        self._forget_handed()
        await self._send(handed)
        return handed

    async def confirm(self, handed: Handed) -> int:
        deadline_s = time.monotonic() + self._timeout_s
        stream, headers = self._stream(handed.channel), _once(handed)
        while True:
            try:
                answer = await self._connection.request(stream, handed.message, headers, REQUEST_TIMEOUT_S)
                return int(decoded(answer.data)["seq"])
            except Refused as refusal:
                raise client_error(refusal, f"a message on query channel {handed.channel}") from None
            except Interrupted as interruption:
                await self._check(handed.channel)
                await self._wait(deadline_s, interruption)

    async def _hand_over_again(self) -> None:
        self._forget_handed()
        for _, handed in tuple(self._handed):
            await self._send(handed)

    def _forget_handed(self) -> None:
        kept_from_s = time.monotonic() - _HANDED_KEPT_S
        while self._handed and (self._handed[0][0] < kept_from_s or self._handed_bytes > _HANDED_KEPT_BYTES):
            _, handed = self._handed.popleft()
            self._handed_bytes -= len(handed.message)

    async def _send(self, handed: Handed) -> None:
        with contextlib.suppress(Interrupted):  # then it is sent on the next connection
            await self._connection.publish(self._stream(handed.channel), handed.message, _once(handed))

    async def end(self, channel: str) -> int:
        _, last = await self._check(channel)
        return last + 1

    async def open_reader(self, channel: str, start: int) -> ChannelReader:
        first, last = await self._check(channel)
        reader = _Reader(self._connection, self._stream(channel), start or max(1, first), channel, last)
        reader.begin()
        return reader

    async def close(self) -> None:
        """Disconnect. Close readers first: open readers would wait forever."""
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.gather(self._removing, return_exceptions=True)
        await self._connection.close()

    async def _check(self, channel: str) -> tuple[int, int]:
        """Return the channel's first and last position. Raises `ChannelLost`, `Unavailable`."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                await self._connection.ready(max(0.0, deadline_s - time.monotonic()))
                return await stream_bounds(self._connection, self._stream(channel))
            except Gone as gone:
                raise _lost(channel, str(gone)) from None
            except Refused as refusal:
                raise client_error(refusal, f"a lookup of query channel {channel}") from None
            except Interrupted as interruption:
                await self._wait(deadline_s, interruption)

    async def _keep_removing_unused(self) -> None:
        while True:
            await asyncio.sleep(_UNUSED_LOOK_S)
            try:
                await self._remove_unused()
            except (Refused, Unavailable) as error:
                _logger.info("unused query channels not removed; trying again", error=str(error))

    async def _remove_unused(self) -> None:
        """Remove the channels that are as they were the last time, without messages and readers.

        If somebody still wants one of them, it is lost like one whose server is away. Raises `Refused`,
        `Unavailable`.
        """
        unused: dict[str, Any] = {}
        async for page in stream_pages(self._ask):
            for info in page:
                state, name = info["state"], info["config"]["name"]
                if name.startswith(self._stream("")) and not state["messages"] + state["consumer_count"]:
                    unused[name] = info["created"], state["last_seq"]
        left, self._unused = [name for name, seen in unused.items() if self._unused.get(name) == seen], unused
        for name in left:
            try:
                await self._ask(f"STREAM.DELETE.{name}")
            except Refused as refusal:
                if refusal.code != NO_STREAM:  # else another process has removed it
                    raise
            else:
                _logger.info("unused query channel removed", stream=name)

    def _marked(self, channel: str, message: bytes) -> Handed:
        if len(message) > self._connection.payload_max_bytes - HEADERS_MAX_BYTES:
            raise InvalidParameter(
                f"a message of {len(message)} bytes is too large for query channel {channel}: send it by RPC"
            )
        return Handed(channel, message, f"{self._marks}-{next(self._numbers)}")

    async def _ask(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Repeat a request until it is answered. If an earlier attempt took effect without confirmation, a
        later one reports it as done. For example, a stream whose server is away is removed without an answer.

        Raises `Refused`, `Unavailable`.
        """
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                await self._connection.ready(max(0.0, deadline_s - time.monotonic()))
                return await self._connection.api(subject, body, REQUEST_TIMEOUT_S)
            except Interrupted as interruption:
                await self._wait(deadline_s, interruption)

    async def _wait(self, deadline_s: float, interruption: Interrupted) -> None:
        """Pause before another attempt. Raises `Unavailable` when it is too late for one."""
        if time.monotonic() + _RETRY_S > deadline_s:
            raise Unavailable(f"NATS did not answer within {self._timeout_s:g} s: {interruption}") from None
        await asyncio.sleep(_RETRY_S)

    def _stream(self, channel: str) -> str:
        """Return a stream name that no stream of the log has. Querycoord and proxies make the channel
        names."""
        plain = quote(channel, safe="").replace(".", "%2E").replace("%", "=")
        return f"{self._connection.source.prefix}_query-{plain}"


class _Reader(StreamFollower):
    """``last``: the channel's last position."""

    heartbeat_s = 1.0
    silence_s_max = 3.0
    may_begin_beyond = True

    def __init__(self, connection: NatsConnection, stream: str, start: int, channel: str, last: int) -> None:
        super().__init__(connection, stream, start)
        self._channel = channel
        self._last = last
        self._messages: deque[tuple[int, bytes]] = deque()

    async def next(self) -> tuple[int, bytes]:
        while not self._messages:
            if self.failure is not None:
                raise self.failure
            self.changed.clear()
            await self.changed.wait()
        position, data = self._messages.popleft()
        self.release(len(data))
        return position, data

    async def close(self) -> None:
        self.stop(ChannelLost(f"the reader of query channel {self._channel} is closed"))
        await self.stopped()

    def accept(self, message: IncomingMessage) -> int:
        data = message.data or b""
        self._messages.append((message.sequence, data))
        return len(data)

    def due(self) -> int:
        return PULL_MESSAGES_MAX

    async def _ask_bounds(self) -> tuple[int, int]:
        try:
            first, last = await stream_bounds(self._connection, self.stream)
        except Gone as gone:
            raise Done(self.loss(Loss.GONE, str(gone))) from None
        if last < self._last:  # a server restarted among others creates its streams again, empty
            raise Done(self.loss(Loss.SHRUNK, f"its server lost all messages up to {self._last}"))
        self._last = last
        return first, last

    def loss(self, loss: Loss, text: str) -> ChannelLost:
        return _lost(self._channel, text)


def _once(handed: Handed) -> dict[str, str]:
    """Return the header that makes a server store a message once, however often it is sent."""
    return {"Nats-Msg-Id": handed.mark}


def _lost(channel: str, why: str) -> ChannelLost:
    return ChannelLost(f"query channel {channel} is lost ({why}): ask querycoord for its successor")
