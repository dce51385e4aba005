"""Embedded logs for tests: opened on a directory, looked at, broken on purpose."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.disk import Disk
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.port import START, EntryHeader, LogEntry, NewEntry, Position

CHANNEL = "dml_0"
TIMEOUT_S = 20


def entry(ts: int, payload: bytes = b"some payload") -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(ts), "dml_0_1v0", rows=1), [payload])


def tick(ts: int) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(ts)))


def with_log(
    directory: Path,
    use: Callable[[FileLog], Awaitable[None]],
    *,
    disk: Disk | None = None,
    file_bytes_max: int = 1 << 20,
    sync_delay_ms: int = 60_000,
) -> None:
    """Open, use, close; nothing may hang."""

    async def run() -> None:
        log = FileLog(directory, FileLogOptions(False, file_bytes_max, sync_delay_ms), disk=disk)
        try:
            await asyncio.wait_for(use(log), TIMEOUT_S)
        finally:
            await log.close()

    asyncio.run(run())


async def read_all(log: FileLog, start: Position = START) -> list[LogEntry]:
    end, found = log.end(CHANNEL), list[LogEntry]()
    reader = log.open_reader(CHANNEL, start)
    while (found[-1].next if found else start) < end:
        found += await reader.read()
    return found


async def stamps(log: FileLog) -> list[int]:
    return [e.header.ts for e in await read_all(log)]


async def stamps_after_crash(directory: Path, copy: Path) -> list[int]:
    """The content of a log whose process were killed now."""
    shutil.copytree(directory, copy)
    log = FileLog(copy, FileLogOptions(fsync=False))
    found = await stamps(log)
    await log.close()
    return found


def files(directory: Path) -> list[Path]:
    return sorted((directory / CHANNEL).glob("*.log"))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(TIMEOUT_S * 1000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come about in time")
