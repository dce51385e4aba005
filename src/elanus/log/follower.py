"""Following the embedded log from a process that does not write it.

For programs next to a standalone server that follow what its online process writes. A follower sees what
readers in the writer's process see, and nothing more: the writer announces the end of each pchannel in a
small file (`elanus.log.layout`), and up to there every frame must be intact. Entries appended with
``durable`` off are visible before they are durable. A decision that must survive a crash of the machine
requires a `sync` by the writer first.

The announcements are polled by one timer per follower, only while a reader waits. Open the follower
after the log has been opened: recovery is done by the writer, and corrects the announced ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from elanus.log.layout import AnnouncedEnd, list_files, missing_from, pchannel_directory
from elanus.log.port import CorruptLog, LogClosed, LogEntry, LogReader, Position
from elanus.log.reading import INLINE_READ_BYTES_MAX, READ_BYTES_MAX, Cursor, read_errors


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    announced: AnnouncedEnd
    position: Position
    bell: asyncio.Future[None]

    def is_to_look(self) -> bool:
        """Whether there is something to read, or an error that the reader is to get."""
        try:
            return self.announced.read() > self.position
        except OSError:
            return True


class FileLogFollower:
    """The reading half of `elanus.log.port.Log`, for one event loop."""

    def __init__(self, directory: Path, *, poll_ms: float = 10.0) -> None:
        """``poll_ms``: how long an entry may be visible before a waiting reader sees it."""
        self._directory = directory
        self._poll_s = poll_ms / 1000
        self._announced: dict[str, AnnouncedEnd] = {}
        self._waiters: set[_Waiter] = set()
        self._polling: asyncio.Task[None] | None = None
        self._closed = False

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        directory = pchannel_directory(self._directory, pchannel)
        return _FollowingReader(self, directory, Cursor(start, headers_only=headers_only))

    def end(self, pchannel: str) -> Position:
        """Return the position after the last entry that readers can see."""
        if pchannel not in self._announced:
            self._announced[pchannel] = AnnouncedEnd(pchannel_directory(self._directory, pchannel))
        with read_errors(self._directory / pchannel):
            return self._announced[pchannel].read()

    def missing_from(self, pchannel: str, position: Position) -> Position | None:
        """As in `elanus.log.port.Log`."""
        directory = pchannel_directory(self._directory, pchannel)
        with read_errors(directory):
            return missing_from(list_files(directory), position)

    async def sync(self, pchannel: str) -> Position:
        """Return the end. There is nothing to wait for: what was given out is in the files."""
        return self.end(pchannel)

    async def close(self) -> None:
        """Close. Readers that wait, or read again, get `LogClosed`."""
        self._closed = True
        for waiter in self._waiters:
            if not waiter.bell.done():
                waiter.bell.set_result(None)
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def wait_beyond(self, pchannel: str, position: Position) -> Position:
        """Return the announced end, once it is beyond the position. Raises `LogClosed`."""
        while not self._closed:
            end = self.end(pchannel)
            if end > position:
                return end
            bell = asyncio.get_running_loop().create_future()
            waiter = _Waiter(self._announced[pchannel], position, bell)
            self._waiters.add(waiter)
            if self._polling is None or self._polling.done():
                self._polling = asyncio.create_task(self._poll())
            try:
                await bell
            finally:
                self._waiters.discard(waiter)
        raise LogClosed(f"the follower of {self._directory} is closed")

    def poll_now(self) -> None:
        """Implements `elanus.log.port.PollingFollower`."""
        for waiter in self._waiters:
            if not waiter.bell.done() and waiter.is_to_look():
                waiter.bell.set_result(None)

    async def _poll(self) -> None:
        while self._waiters:
            await asyncio.sleep(self._poll_s)
            self.poll_now()


class _FollowingReader:
    def __init__(self, follower: FileLogFollower, directory: Path, cursor: Cursor) -> None:
        self._follower = follower
        self._directory = directory
        self._cursor = cursor
        self._closed = False

    async def read(self, bytes_max: int = READ_BYTES_MAX) -> Sequence[LogEntry]:
        while True:
            if self._closed:
                raise LogClosed(f"the reader of {self._directory.name} is closed")
            # Get the end before the listing: every file that begins before the end is then listed.
            end = await self._follower.wait_beyond(self._directory.name, self._cursor.position)
            # Only a copy moves: a read that is abandoned leaves the reader at its position.
            cursor = copy(self._cursor)
            if min(bytes_max, end - cursor.position) <= INLINE_READ_BYTES_MAX:
                entries = _read(cursor, self._directory, end, bytes_max)
            else:
                entries = await asyncio.to_thread(_read, cursor, self._directory, end, bytes_max)
            self._cursor = cursor
            if entries:
                return entries

    def close(self) -> None:
        self._closed = True
        self._cursor = Cursor(self._cursor.position)


def _read(cursor: Cursor, directory: Path, end: Position, bytes_max: int) -> list[LogEntry]:
    with read_errors(directory):
        spans = list_files(directory)
    entries = cursor.read(spans, end, bytes_max)
    if not entries and cursor.position < end:
        raise CorruptLog(f"{directory} ends at position {cursor.position}, before the announced end {end}")
    return entries
