"""The embedded log: append-only files in one directory, written by one process.

The parts: `elanus.log.frames` (the bytes), `layout` (where the files are), `writer` (one pchannel's
files), `commit` (the thread that writes for all of them), `recovery` (after a crash), `reading` (for
every reader). This module combines them behind the `elanus.log.port.Log` protocol.

A position is a byte offset in the pchannel's stream of files. Reopening a log never continues a file: the
next entry begins a new one, above every position the earlier process may have handed out, even if its
directory was replaced by an older copy meanwhile.

Readers are woken through the event loop by the same call that answers the append; patient ones
(`elanus.log.port.PatientReader`) only when a tick comes. They read files, not memory: a reader that lags
costs the writer nothing. Processes that do not write follow the log with `elanus.log.follower` and read
finished ranges with `elanus.log.reading.read_range`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from elanus.log.channel import Channel
from elanus.log.commit import Chore, GroupCommit, Request, WritableChannel, deliver
from elanus.log.disk import Disk
from elanus.log.layout import lock_path, missing_from, pchannel_directory, pchannel_names
from elanus.log.port import (
    START,
    LogClosed,
    LogEntry,
    LogInUse,
    LogReader,
    NewEntry,
    Position,
    RewoundLog,
    rewound_text,
)
from elanus.log.reading import INLINE_READ_BYTES_MAX, READ_BYTES_MAX, Cursor
from elanus.log.writer import PchannelWriter

_READ_THREADS = 2
_UNREAD_BYTES_MAX = INLINE_READ_BYTES_MAX // 2
"""How much a patient reader leaves for later. The rest fits into what it reads without a thread."""


@dataclass(frozen=True, slots=True)
class FileLogOptions:
    """``fsync`` off: acknowledged entries survive a crash of the process, not of the machine.
    ``file_bytes_max``: the size at which a file is closed and the next begun. ``sync_delay_ms``: how long a
    non-durable entry may stay non-durable."""

    fsync: bool = True
    file_bytes_max: int = 64 * 1024 * 1024
    sync_delay_ms: int = 1000


class FileLog:
    """The embedded adapter of `elanus.log.port.Log`. Its methods may be called from any event loop."""

    def __init__(
        self, directory: Path, options: FileLogOptions | None = None, *, disk: Disk | None = None
    ) -> None:
        """Open the log, creating it if necessary, and recover every pchannel.

        Raises `LogInUse`, `elanus.log.port.CorruptLog`, `elanus.log.port.UnknownLogFormat` and
        `OSError`. ``disk`` replaces the file system in tests.
        """
        options = options or FileLogOptions()
        self._directory = directory
        self._disk = disk or Disk(fsync=options.fsync)
        self._disk.make_directories(directory)
        self._file_bytes_max = options.file_bytes_max
        self._lock_fd = _lock(directory)
        try:
            self._channels = {name: self._open_channel(name) for name in pchannel_names(directory)}
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._commit = GroupCommit(options.sync_delay_ms)
        # Not shut down with the log: readers may still read the existing entries. Its threads end with the
        # last reader.
        self._read_threads = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="elanus-log-reader")
        self._changing = threading.Lock()
        self._closed = False

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        """As in the port. Raises `ValueError` for a name or a header value that cannot be stored.

        A caller that is cancelled does not know whether the entries were appended. Payload parts are
        written in place and must not change before this returns.
        """
        target = self._channel(pchannel)
        if not entries:
            return ()
        future: asyncio.Future[Sequence[Position]] = asyncio.get_running_loop().create_future()
        self._submit(Request(target, entries, durable, future))
        return await future

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        cursor = Cursor(start, headers_only=headers_only)
        return _FileReader(self._channel(pchannel).channel, cursor, self._read_threads)

    def end(self, pchannel: str) -> Position:
        known = self._channels.get(pchannel)
        return START if known is None else known.channel.view.end

    def missing_from(self, pchannel: str, position: Position) -> Position | None:
        known = self._channels.get(pchannel)
        return None if known is None else missing_from(known.channel.view.spans, position)

    async def sync(self, pchannel: str) -> Position:
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._submit(Request(self._channel(pchannel), (), durable=True, future=future))
        return await future

    async def trim(self, pchannel: str, before: Position) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._submit(Chore(self._channel(pchannel), lambda writer: writer.trim(before), future))
        await future

    def pchannels(self) -> Sequence[str]:
        return sorted(name for name, known in self._channels.items() if known.channel.view.end > START)

    def size_bytes(self, pchannel: str = "") -> int:
        views = [c.channel.view for name, c in self._channels.items() if pchannel in ("", name)]
        return sum(span.end - span.base for view in views for span in view.spans)

    async def close(self) -> None:
        """Write the queued entries, make everything durable, and release the directory.

        Readers can read up to the end and then get `LogClosed`. Raises `elanus.core.errors.ElanusError` when
        something could not be made durable; the log is closed all the same. Closing twice has no further
        effect.
        """
        with self._changing:
            if self._closed:
                return
            self._closed = True
        loop = asyncio.get_running_loop()
        chores = [Chore(c, PchannelWriter.finish, loop.create_future()) for c in self._channels.values()]
        for chore in chores:
            self._commit.submit(chore)
        outcomes = await asyncio.gather(*(chore.future for chore in chores), return_exceptions=True)
        await asyncio.to_thread(self._commit.stop)
        for known in self._channels.values():
            deliver((bell, None) for bell in known.channel.close())
        os.close(self._lock_fd)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _submit(self, item: Request | Chore) -> None:
        with self._changing:
            if self._closed:
                raise LogClosed(f"the log in {self._directory} is closed")
            self._commit.submit(item)

    def _channel(self, pchannel: str) -> WritableChannel:
        known = self._channels.get(pchannel)
        if known is not None:
            return known
        with self._changing:
            if pchannel not in self._channels:
                self._channels = {**self._channels, pchannel: self._open_channel(pchannel)}
            return self._channels[pchannel]

    def _open_channel(self, pchannel: str) -> WritableChannel:
        directory = pchannel_directory(self._directory, pchannel)
        writer = PchannelWriter(self._disk, directory, self._file_bytes_max)
        return WritableChannel(Channel(pchannel, writer.spans()), writer)


class _FileReader:
    """Follows one pchannel in the writer's process."""

    def __init__(self, channel: Channel, cursor: Cursor, threads: ThreadPoolExecutor) -> None:
        self._channel = channel
        self._cursor = cursor
        self._threads = threads
        self._closed = False

    async def read(self, bytes_max: int = READ_BYTES_MAX) -> Sequence[LogEntry]:
        return await self._read(bytes_max, 0)

    async def read_to_tick(self, bytes_max: int) -> Sequence[LogEntry]:
        """As in `elanus.log.port.PatientReader`."""
        return await self._read(bytes_max, _UNREAD_BYTES_MAX)

    async def _read(self, bytes_max: int, unread_bytes_max: int) -> Sequence[LogEntry]:
        while True:
            if self._closed:
                raise LogClosed(f"the reader of {self._channel.name} is closed")
            view = self._channel.view
            if self._cursor.position > view.end > START:
                raise RewoundLog(rewound_text(self._channel.name, self._cursor.position, view.end))
            await self._channel.wait_beyond(self._cursor.position, unread_bytes_max)
            view = self._channel.view
            # Only a copy moves: a read that is abandoned leaves the reader at its position.
            cursor = copy(self._cursor)
            if min(bytes_max, view.unread_bytes(cursor.position)) <= INLINE_READ_BYTES_MAX:
                entries = cursor.read(view.spans, view.end, bytes_max)
            else:
                loop = asyncio.get_running_loop()
                entries = await loop.run_in_executor(
                    self._threads, cursor.read, view.spans, view.end, bytes_max
                )
            self._cursor = cursor
            if entries:
                return entries

    def close(self) -> None:
        self._closed = True
        self._cursor = Cursor(self._cursor.position)


def _lock(directory: Path) -> int:
    """Become the only writer of the directory. Returns the file descriptor to close to release it."""
    path = lock_path(directory)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode() or "another process"
        os.close(fd)
        raise LogInUse(f"the log in {directory} is being written by process {holder}") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd
