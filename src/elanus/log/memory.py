"""The log in memory: for tests and the simulator. No threads, no clock, no files.

It keeps the port's promises except the one it cannot keep, that entries outlive the process. Every call
is done when it returns, so a run on a seeded event loop is the same every time. Positions have gaps, as in
a log of files.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from elanus.log.port import (
    START,
    LogClosed,
    LogEntry,
    LogReader,
    NewEntry,
    Position,
    RewoundLog,
    TrimmedLog,
    rewound_text,
)

_HEADER_SIZE = 8


@dataclass(slots=True)
class _Stream:
    """``entries`` in order, and their ``positions``; everything before ``begin`` is trimmed."""

    pchannel: str
    entries: list[LogEntry] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    begin: Position = START
    end: Position = START
    bells: list[asyncio.Future[None]] = field(default_factory=list)

    def add(self, new: NewEntry) -> Position:
        payload = b"".join(new.payload)
        position = Position(self.end + _HEADER_SIZE)
        self.end = Position(position + _HEADER_SIZE + len(payload))
        self.entries.append(LogEntry(position, self.end, new.header, memoryview(payload), len(payload)))
        self.positions.append(position)
        return position

    def trim(self, before: Position) -> None:
        """Forget everything before the position."""
        self.begin = min(before, self.end)
        gone = self.index(self.begin)
        del self.entries[:gone], self.positions[:gone]

    def cut(self, end: Position) -> None:
        """Forget everything from the position on, as if it had never been written."""
        kept = bisect_left(self.positions, end)
        del self.entries[kept:], self.positions[kept:]
        self.end = max(end, self.begin)

    def wake(self) -> None:
        for bell in self.bells:
            if not bell.done():
                bell.set_result(None)

    def index(self, position: Position) -> int:
        """Return the index of the first entry at or after the position. Raises `TrimmedLog`, `RewoundLog`."""
        if position < self.begin:
            raise TrimmedLog(f"position {position} is trimmed; the log begins at {self.begin}")
        if position > self.end > START:
            raise RewoundLog(rewound_text(self.pchannel, position, self.end))
        return bisect_left(self.positions, position)


class MemoryLog:
    """The in-memory adapter of `elanus.log.port.Log`, for one event loop."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._closed = False

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        """As in the port. ``durable`` makes no difference: nothing here outlives the process."""
        self._check_open()
        stream = self._stream(pchannel)
        positions = [stream.add(new) for new in entries]
        stream.wake()
        return positions

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        return _MemoryReader(self, self._stream(pchannel), start, headers_only)

    def read_range(self, pchannel: str, start: Position, stop: Position) -> Iterator[LogEntry]:
        """Entries with start ≤ position < stop: an `elanus.log.port.RangeReader`."""
        stream = self._stream(pchannel)
        yield from stream.entries[stream.index(start) : bisect_left(stream.positions, stop)]

    def end(self, pchannel: str) -> Position:
        return self._streams[pchannel].end if pchannel in self._streams else START

    def missing_from(self, pchannel: str, position: Position) -> Position | None:
        end = self.end(pchannel)
        return end if position > end > START else None

    async def sync(self, pchannel: str) -> Position:
        self._check_open()
        return self.end(pchannel)

    async def trim(self, pchannel: str, before: Position) -> None:
        self._check_open()
        stream = self._stream(pchannel)
        if before > stream.begin:
            stream.trim(before)

    def pchannels(self) -> Sequence[str]:
        return sorted(name for name, stream in self._streams.items() if stream.end > START)

    def size_bytes(self, pchannel: str = "") -> int:
        streams = [stream for name, stream in self._streams.items() if pchannel in ("", name)]
        return sum(entry.payload_bytes for stream in streams for entry in stream.entries)

    async def close(self) -> None:
        self._closed = True
        for stream in self._streams.values():
            stream.wake()

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed")

    def _stream(self, pchannel: str) -> _Stream:
        return self._streams.setdefault(pchannel, _Stream(pchannel))


def _without_payload(entry: LogEntry) -> LogEntry:
    return LogEntry(entry.position, entry.next, entry.header, None, entry.payload_bytes)


class _MemoryReader:
    def __init__(self, log: MemoryLog, stream: _Stream, start: Position, headers_only: bool) -> None:
        self._log = log
        self._stream = stream
        self._position = start
        self._headers_only = headers_only
        self._closed = False

    async def read(self, bytes_max: int = 32 * 1024 * 1024) -> Sequence[LogEntry]:
        while not self._closed:
            batch = self._batch(bytes_max)
            if batch:
                self._position = batch[-1].next
                return [_without_payload(entry) for entry in batch] if self._headers_only else batch
            if self._log.closed:
                break
            bell = asyncio.get_running_loop().create_future()
            self._stream.bells.append(bell)
            try:
                await bell
            finally:
                self._stream.bells.remove(bell)
        raise LogClosed("the log or its reader is closed; there is nothing more to read")

    def close(self) -> None:
        self._closed = True
        self._stream.wake()

    def _batch(self, bytes_max: int) -> Sequence[LogEntry]:
        entries, first = self._stream.entries, self._stream.index(self._position)
        last, size_bytes = first, 0
        while last < len(entries):
            size_bytes += entries[last].payload_bytes
            if last > first and size_bytes > bytes_max:
                break
            last += 1
        return entries[first:last]
