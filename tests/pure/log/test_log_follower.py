"""Following a log from outside: exactly what the writer shows, promptly, and never what it took back."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from log_files import CHANNEL, entry, files, tick, with_log

from elanus.log.files import FileLog
from elanus.log.follower import FileLogFollower
from elanus.log.layout import AnnouncedEnd
from elanus.log.port import (
    START,
    CorruptLog,
    LogClosed,
    LogEntry,
    LogReader,
    LogUnreadable,
    Position,
    TrimmedLog,
)


def with_follower(
    directory: Path, use: Callable[[FileLog, FileLogFollower], Awaitable[None]], file_bytes_max: int = 1000
) -> None:
    async def run(log: FileLog) -> None:
        follower = FileLogFollower(directory, poll_ms=1)
        await use(log, follower)
        await follower.close()

    with_log(directory, run, file_bytes_max=file_bytes_max)


async def read(reader: LogReader, count: int) -> list[int]:
    found: list[LogEntry] = []
    while len(found) < count:
        found += await reader.read()
    return [e.header.ts for e in found]


def test_it_follows_from_file_to_file(tmp_path: Path) -> None:
    async def use(log: FileLog, follower: FileLogFollower) -> None:
        reader = follower.open_reader(CHANNEL, START)
        headers = follower.open_reader(CHANNEL, START, headers_only=True)
        waiting = asyncio.ensure_future(read(reader, 60))
        for ts in range(1, 61):
            await log.append(CHANNEL, [entry(ts, bytes(200))], durable=ts % 2 == 0)
        assert await waiting == list(range(1, 61))
        assert await read(headers, 60) == list(range(1, 61))
        assert follower.end(CHANNEL) == log.end(CHANNEL)
        assert len(files(tmp_path)) > 10

    with_follower(tmp_path, use)


def test_many_readers_share_the_wait(tmp_path: Path) -> None:
    async def use(log: FileLog, follower: FileLogFollower) -> None:
        readers = [follower.open_reader(f"dml_{n % 3}", START) for n in range(9)]
        waiting = [asyncio.ensure_future(read(reader, 1)) for reader in readers]
        await asyncio.sleep(0)
        polling = [task for task in asyncio.all_tasks() if "_poll" in repr(task.get_coro())]
        assert len(polling) == 1, "one timer for all of them"
        for number in range(3):
            await log.append(f"dml_{number}", [entry(number + 1)])
        assert await asyncio.gather(*waiting) == [[n % 3 + 1] for n in range(9)]

    with_follower(tmp_path, use)


def test_it_looks_at_once_when_it_is_asked_to(tmp_path: Path) -> None:
    """Its timer would look in a day."""

    async def use(log: FileLog, _: FileLogFollower) -> None:
        follower = FileLogFollower(tmp_path, poll_ms=86_400_000)
        waiting = asyncio.ensure_future(follower.open_reader(CHANNEL, START).read())
        await asyncio.sleep(0)
        await log.append(CHANNEL, [entry(1)])
        follower.poll_now()
        assert [e.header.ts for e in await asyncio.wait_for(waiting, 60)] == [1]
        await follower.close()

    with_follower(tmp_path, use)


def test_an_announcement_that_cannot_be_read_for_a_moment_fails_the_waiting_read_and_none_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: AnnouncedEnd) -> Position:
        raise OSError(errno.EIO, "Input/output error")

    async def use(log: FileLog, follower: FileLogFollower) -> None:
        await log.append(CHANNEL, [entry(1)])
        reader = follower.open_reader(CHANNEL, START)
        assert await read(reader, 1) == [1]
        waiting = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        with monkeypatch.context() as broken:
            broken.setattr(AnnouncedEnd, "read", unreadable)
            with pytest.raises(LogUnreadable, match="Input/output error"):
                await asyncio.wait_for(waiting, 20)
        waiting = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        await log.append(CHANNEL, [entry(2)])
        assert [e.header.ts for e in await waiting] == [2]

    with_follower(tmp_path, use)


def test_it_does_not_look_beyond_what_is_announced(tmp_path: Path) -> None:
    """Bytes that are being written, or were taken back, are neither an entry nor an error."""

    async def use(log: FileLog, follower: FileLogFollower) -> None:
        await log.append(CHANNEL, [entry(1)])
        reader = follower.open_reader(CHANNEL, START)
        assert await read(reader, 1) == [1]
        with files(tmp_path)[0].open("ab") as file:
            file.write(b"half a frame")
        waiting = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        follower.poll_now()
        await asyncio.sleep(0)
        assert not waiting.done()
        await log.append(CHANNEL, [entry(2)])
        assert [e.header.ts for e in await waiting] == [2]

    with_follower(tmp_path, use)


def test_damage_before_the_announced_end_is_an_error(tmp_path: Path) -> None:
    async def use(log: FileLog, follower: FileLogFollower) -> None:
        await log.append(CHANNEL, [entry(1)])
        (second,) = await log.append(CHANNEL, [entry(2)])
        content = bytearray(files(tmp_path)[0].read_bytes())
        content[second + 30] ^= 1
        files(tmp_path)[0].write_bytes(content)
        reader = follower.open_reader(CHANNEL, START)
        with pytest.raises(CorruptLog, match=f"position {second}"):
            await read(reader, 2)

    with_follower(tmp_path, use)


def test_what_is_trimmed_cannot_be_followed(tmp_path: Path) -> None:
    async def use(log: FileLog, follower: FileLogFollower) -> None:
        for ts in range(1, 20):
            await log.append(CHANNEL, [entry(ts, bytes(300))])
        await log.trim(CHANNEL, log.end(CHANNEL))
        with pytest.raises(TrimmedLog):
            await follower.open_reader(CHANNEL, START).read()

    with_follower(tmp_path, use)


def test_it_stays_with_a_log_that_is_closed_and_opened_again(tmp_path: Path) -> None:
    follower = FileLogFollower(tmp_path, poll_ms=1)
    reader = follower.open_reader(CHANNEL, START)

    async def run() -> None:
        for ts in range(1, 5):
            log = FileLog(tmp_path)
            await log.append(CHANNEL, [entry(ts)])
            assert await read(reader, 1) == [ts]
            await log.close()
        await follower.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_closing_ends_a_waiting_read(tmp_path: Path) -> None:
    async def use(log: FileLog, follower: FileLogFollower) -> None:
        waiting = asyncio.ensure_future(follower.open_reader(CHANNEL, START).read())
        await asyncio.sleep(0)
        await follower.close()
        with pytest.raises(LogClosed):
            await waiting
        with pytest.raises(LogClosed):
            await follower.open_reader(CHANNEL, START).read()

    with_follower(tmp_path, use)


def test_a_closed_reader_reads_no_more(tmp_path: Path) -> None:
    async def use(log: FileLog, follower: FileLogFollower) -> None:
        await log.append(CHANNEL, [tick(1)])
        reader = follower.open_reader(CHANNEL, Position(0))
        reader.close()
        with pytest.raises(LogClosed):
            await reader.read()

    with_follower(tmp_path, use)
