"""Following a stream from a position, for as long as one likes.

Messages come through a consumer that the server keeps in memory and forgets a while after its reader has
gone. The reader asks for a bounded number of bytes at a time, so a slow one costs the server nothing and
is never flooded. A consumer that is lost, with its server or a connection, is made again from the next
message on: sequences follow each other without a gap, so none can be missed or met twice.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

import msgspec
import structlog
from nats.aio.msg import Msg

from elanus.core.errors import ElanusError, Unavailable
from elanus.log.jetstream.connection import NO_STREAM, Inbox, Interrupted, NatsConnection, Refused
from elanus.log.jetstream.messages import Assembler, IncomingMessage
from elanus.log.port import CorruptLog, LogClosed, LogEntry, Position, TrimmedLog

READ_BYTES_MAX = 32 * 1024 * 1024
_PULL_MESSAGES = 1000
_PULL_BYTES = 8 * 1024 * 1024
_HELD_BYTES_MAX = 16 * 1024 * 1024
"""Read ahead of whoever reads; beyond it nothing more is asked for."""
_PULL_EXPIRES_S = 30.0
_HEARTBEAT_S = 5.0
_SILENCE_S_MAX = 12.0
_FORGOTTEN_AFTER_S = 60.0
_RETRY_S = 0.2
_NS_PER_S = 1_000_000_000
_ENTRY_BYTES = 500
_ENTRIES_PER_READ_MAX = 4096
_HEARTBEAT, _PULL_ENDS, _CONFLICT = "100", frozenset({"404", "408"}), "409"
_FULL = frozenset({"Message Size Exceeds MaxBytes", "Batch Completed"})
_STATUS, _DESCRIPTION = "Status", "Description"
_logger = structlog.get_logger(__name__)


class EndReached(LogClosed):
    """A reader with a ``stop`` has returned everything before it."""


class StreamReader:
    """An `elanus.log.port.LogReader`. Nothing is asked of the server before the first `read`."""

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        start: Position,
        *,
        headers_only: bool = False,
        stop: Position | None = None,
        make_stream: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``stop``: read no entry at or after it; the stream must reach up to there.

        ``make_stream``: what to do about a stream that is not there yet; without it that is an error.
        """
        self._connection = connection
        self._stream = stream
        self._headers_only = headers_only
        self._stop = stop
        self._make_stream = make_stream
        self.position = start
        """Of the next entry that `read` returns, or before it."""
        self._next = max(1, start)
        self._last_seen = 0
        self._has_read = False
        self._gap_at = 0
        self._assembler = Assembler()
        self._entries: deque[LogEntry] = deque()
        self._held_bytes = 0
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def read(self, bytes_max: int = READ_BYTES_MAX) -> Sequence[LogEntry]:
        """As the port says, and `EndReached`. While the servers are away it waits."""
        if self._following is None and self._failure is None:
            self._following = asyncio.create_task(self._follow(), name=f"read {self._stream}")
        while not self._entries:
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()
        return self._take(bytes_max)

    def on(self, connection: NatsConnection, stop: Position) -> StreamReader:
        """One that goes on where this one stands, through another connection, up to ``stop``."""
        return StreamReader(
            connection, self._stream, self.position, headers_only=self._headers_only, stop=stop
        )

    def close(self) -> None:
        self.stop(LogClosed(f"the reader of {self._stream} is closed"))
        self._entries.clear()

    def stop(self, why: Exception) -> None:
        """Ask for nothing more. What has been read ahead can still be read; then `read` raises ``why``."""
        self._failure = self._failure or why
        self._changed.set()
        if self._following is not None:
            self._following.cancel()

    async def stopped(self) -> None:
        """Return when nothing of it runs any more."""
        if self._following is not None:
            await asyncio.gather(self._following, return_exceptions=True)

    def _take(self, bytes_max: int) -> Sequence[LogEntry]:
        taken: list[LogEntry] = []
        size_bytes = 0
        while self._entries and len(taken) < _ENTRIES_PER_READ_MAX:
            size_bytes += 0 if self._headers_only else self._entries[0].payload_bytes
            if taken and size_bytes > bytes_max:
                break
            taken.append(self._entries.popleft())
            self._held_bytes -= _held_bytes(taken[-1])
        self.position = taken[-1].next
        self._taken.set()
        return taken

    async def _follow(self) -> None:
        try:
            while True:
                try:
                    await self._connection.ready(_SILENCE_S_MAX)
                    await self._consume()
                except Interrupted as interruption:
                    _logger.info("reading again", stream=self._stream, reason=str(interruption))
                    await asyncio.sleep(_RETRY_S)
        except (CorruptLog, TrimmedLog, EndReached, ElanusError) as error:
            self._fail(error)
        except Exception as error:
            _logger.exception("a reader met an error it does not know", stream=self._stream)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._changed.set()

    async def _consume(self) -> None:
        """Read through one consumer, until it is lost. Raises `Interrupted` then."""
        consumer = uuid.uuid4().hex
        async with self._connection.inbox() as (subject, inbox):
            try:
                await self._create(consumer)
            except Refused as refusal:
                raise Interrupted(f"no consumer: {refusal}") from None
            for pull in itertools.count():
                await self._room()
                await self._pull(consumer, f"{subject}.{pull}", inbox)

    async def _create(self, consumer: str) -> None:
        """Raises `TrimmedLog` when the next message is not kept any more, `CorruptLog`, `EndReached`."""
        first, last = await self._bounds()
        self._last_seen = last
        if self._next < first and first > 1:
            raise TrimmedLog(f"position {self._next} of {self._stream} is trimmed; the log begins at {first}")
        if self._has_read and self._next > last + 1:
            raise CorruptLog(
                f"{self._stream} ends at {last}, but has been read up to {self._next - 1}: the NATS server "
                "lost messages that it had acknowledged (is its sync_interval always?)"
            )
        if self._stop is not None and last + 1 < self._stop:
            raise CorruptLog(
                f"{self._stream} ends at {last}, before position {self._stop}, up to which it was to be read"
            )
        self._check_end()
        config = {
            "name": consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(_FORGOTTEN_AFTER_S * _NS_PER_S),
            "headers_only": self._headers_only,
        }
        await self._connection.api(
            f"CONSUMER.CREATE.{self._stream}.{consumer}", {"stream_name": self._stream, "config": config}
        )

    async def _bounds(self) -> tuple[int, int]:
        """The first and the last sequence that the stream holds."""
        while True:
            try:
                info = await self._connection.api(f"STREAM.INFO.{self._stream}")
            except Refused as refusal:
                if refusal.code != NO_STREAM or self._make_stream is None or self._has_read:
                    raise Unavailable(f"{self._stream} cannot be read: {refusal}") from None
                await self._make_stream()
            else:
                return info["state"]["first_seq"], info["state"]["last_seq"]

    def _check_end(self) -> None:
        """Raises `EndReached`."""
        if self._stop is None or self._next < self._stop:
            return
        # an entry that begins before the end is read to its own, unless a crash cut it off there
        if not self._assembler.inside or self._next > self._last_seen:
            raise EndReached(f"{self._stream} has been read up to {self._stop}")

    async def _room(self) -> None:
        while self._held_bytes > _HELD_BYTES_MAX:
            self._taken.clear()
            await self._taken.wait()

    async def _pull(self, consumer: str, subject: str, inbox: Inbox) -> None:
        """Ask for messages once, and take what comes. Raises `Interrupted`, `CorruptLog`."""
        due = _PULL_MESSAGES
        if self._stop is not None:
            due = min(due, max(1, self._stop - self._next))
        asked = {
            "batch": due,
            "max_bytes": _PULL_BYTES + self._connection.payload_max_bytes,
            "expires": int(_PULL_EXPIRES_S * _NS_PER_S),
            "idle_heartbeat": int(_HEARTBEAT_S * _NS_PER_S),
        }
        next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"
        await self._connection.publish(next_subject, msgspec.json.encode(asked), reply=subject)
        while due:
            try:
                message = await asyncio.wait_for(inbox.get(), _SILENCE_S_MAX)
            except TimeoutError:
                raise Interrupted(f"no sign of life for {_SILENCE_S_MAX:g} s") from None
            if message is None:
                raise Interrupted("the connection broke")
            status = (message.headers or {}).get(_STATUS)
            if status is None:
                self._arrived(message)
                due -= 1
            elif status != _HEARTBEAT and message.subject == subject:
                description = (message.headers or {}).get(_DESCRIPTION, "")
                if status in _PULL_ENDS or (status == _CONFLICT and description in _FULL):
                    return
                raise Interrupted(f"the consumer is gone: {status} {description}")

    def _arrived(self, message: Msg) -> None:
        sequence = message.metadata.sequence.stream
        if sequence != self._next:
            self._skipped(sequence)
        self._next, self._has_read = sequence + 1, True
        data = None if self._headers_only else message.data
        entry = self._assembler.feed(IncomingMessage(sequence, message.headers or {}, data))
        if entry is not None and (self._stop is None or entry.position < self._stop):
            self._entries.append(entry)
            self._held_bytes += _held_bytes(entry)
            self._changed.set()
        self._check_end()

    def _skipped(self, sequence: int) -> NoReturn:
        """Raises `Interrupted` when looking again may explain it, `CorruptLog` when it did not."""
        if self._gap_at == self._next:
            raise CorruptLog(f"messages {self._next} to {sequence - 1} of {self._stream} are missing")
        self._gap_at = self._next
        raise Interrupted(f"message {sequence} came where {self._next} was due")


def _held_bytes(entry: LogEntry) -> int:
    return _ENTRY_BYTES + (0 if entry.payload is None else entry.payload_bytes)
