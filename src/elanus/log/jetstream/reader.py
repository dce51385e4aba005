"""Reading a pchannel's stream: entries assembled from messages, in batches, up to an end or forever."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from elanus.core.errors import Unavailable
from elanus.log.jetstream.messages import Assembler
from elanus.log.port import CorruptLog, LogClosed, LogEntry, Position, RewoundLog, TrimmedLog
from elanus.nats.connection import NatsConnection
from elanus.nats.follower import PULL_MESSAGES_MAX, Done, Loss, StreamFollower
from elanus.nats.messages import IncomingMessage

READ_BYTES_MAX = 32 * 1024 * 1024
_ENTRY_BYTES = 500
_ENTRIES_PER_READ_MAX = 4096
_FAULTS = {Loss.TRIMMED: TrimmedLog, Loss.SHRUNK: RewoundLog, Loss.MISSING: CorruptLog}


class EndReached(LogClosed):
    """A reader with a ``stop`` has returned everything before it."""


class StreamReader(StreamFollower):
    """An `elanus.log.port.LogReader`. Sends nothing to the server before the first `read`."""

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
        """``stop``: read no entry at or after this position; the stream must extend up to it."""
        super().__init__(
            connection, stream, max(1, start), headers_only=headers_only, make_stream=make_stream
        )
        self.position = start
        """The position of the next entry that `read` returns, or a smaller one."""
        self._stop_at = stop
        self._assembler = Assembler()
        self._entries: deque[LogEntry] = deque()

    async def read(self, bytes_max: int = READ_BYTES_MAX) -> Sequence[LogEntry]:
        """As in the port; also raises `EndReached`. Waits while the servers are unavailable."""
        self.begin()
        while not self._entries:
            if self.failure is not None:
                raise self.failure
            self.changed.clear()
            await self.changed.wait()
        return self._take(bytes_max)

    def on(self, connection: NatsConnection, stop: Position) -> StreamReader:
        """Return a reader that continues at this one's position, through another connection, up to
        ``stop``."""
        return StreamReader(
            connection, self.stream, self.position, headers_only=self._headers_only, stop=stop
        )

    def close(self) -> None:
        self.stop(LogClosed(f"the reader of {self.stream} is closed"))
        self._entries.clear()

    def accept(self, message: IncomingMessage) -> int:
        entry = self._assembler.feed(message)
        if entry is None or (self._stop_at is not None and entry.position >= self._stop_at):
            return 0
        self._entries.append(entry)
        return _held_bytes(entry)

    def due(self) -> int:
        if self._stop_at is None:
            return PULL_MESSAGES_MAX
        if self.last_seen + 1 < self._stop_at:
            raise CorruptLog(
                f"{self.stream} ends at {self.last_seen}, before position {self._stop_at}, up to which it "
                "was to be read"
            )
        left = self._stop_at - self.next_sequence
        # an entry that begins before the stop is read to its own end, unless a crash cut it off there
        if left <= 0 and not (self._assembler.inside and self.next_sequence <= self.last_seen):
            raise Done(EndReached(f"{self.stream} has been read up to {self._stop_at}"))
        return min(PULL_MESSAGES_MAX, max(1, left))

    def loss(self, loss: Loss, text: str) -> Exception:
        if loss is Loss.GONE:
            return Unavailable(f"{self.stream} cannot be read: {text}")
        return _FAULTS[loss](f"{self.stream}: {text}")

    def _take(self, bytes_max: int) -> Sequence[LogEntry]:
        taken: list[LogEntry] = []
        size_bytes = 0
        while self._entries and len(taken) < _ENTRIES_PER_READ_MAX:
            size_bytes += 0 if self._headers_only else self._entries[0].payload_bytes
            if taken and size_bytes > bytes_max:
                break
            taken.append(self._entries.popleft())
            self.release(_held_bytes(taken[-1]))
        self.position = taken[-1].next
        return taken


def _held_bytes(entry: LogEntry) -> int:
    return _ENTRY_BYTES + (0 if entry.payload is None else entry.payload_bytes)
