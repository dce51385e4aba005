"""A reader that waits for ticks is not woken for each write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from elanus.core.packs import ORIGIN
from elanus.log.channel import Channel
from elanus.log.dispatcher import Dispatcher
from elanus.log.files import FileLog
from elanus.log.layout import FileSpan
from elanus.log.port import START, LogClosed, LogEntry, PatientReader, Position
from elanus.log.reading import Cursor
from elanus.log.shared_reader import EntryPack
from tests.pure.log.log_files import CHANNEL, entry, tick, with_log

PATIENCE_BYTES = 1000


def spans(end: int) -> list[FileSpan]:
    return [FileSpan(Path("0.log"), Position(0), Position(end))]


async def waiting(channel: Channel, position: int, unread_bytes_max: int) -> asyncio.Task[None]:
    task = asyncio.create_task(channel.wait_beyond(Position(position), unread_bytes_max))
    await asyncio.sleep(0)
    return task


async def test_writes_wake_only_a_reader_that_wants_them_at_once() -> None:
    channel = Channel(CHANNEL, spans(100))
    patient = await waiting(channel, 100, PATIENCE_BYTES)
    eager = await waiting(channel, 100, 0)
    (bell,) = channel.publish(spans(200), can_wait=True)
    bell.set_result(None)
    await eager
    assert not patient.done()
    (bell,) = channel.publish(spans(300))
    bell.set_result(None)
    await patient


async def test_a_patient_reader_leaves_no_more_than_so_many_bytes() -> None:
    channel = Channel(CHANNEL, spans(100))
    patient = await waiting(channel, 100, PATIENCE_BYTES)
    assert not channel.publish(spans(100 + PATIENCE_BYTES), can_wait=True)
    (bell,) = channel.publish(spans(101 + PATIENCE_BYTES), can_wait=True)
    bell.set_result(None)
    await patient


async def test_a_tick_before_the_last_write_is_not_waited_for_again() -> None:
    channel = Channel(CHANNEL, spans(100))
    channel.publish(spans(200))
    channel.publish(spans(250), can_wait=True)
    await channel.wait_beyond(Position(100), PATIENCE_BYTES)
    behind_the_tick = await waiting(channel, 200, PATIENCE_BYTES)
    assert not behind_the_tick.done()
    behind_the_tick.cancel()


async def test_what_is_there_when_a_log_is_opened_is_read_at_once() -> None:
    channel = Channel(CHANNEL, spans(100))
    await channel.wait_beyond(Position(50), PATIENCE_BYTES)


async def test_the_end_of_a_log_is_read_before_it_is_reported() -> None:
    channel = Channel(CHANNEL, spans(100))
    channel.publish(spans(150), can_wait=True)
    patient = await waiting(channel, 100, PATIENCE_BYTES)
    (bell,) = channel.close()
    bell.set_result(None)
    await patient
    with pytest.raises(LogClosed):
        await channel.wait_beyond(Position(150), PATIENCE_BYTES)


class _Seen:
    def __init__(self) -> None:
        self.packs: list[EntryPack] = []
        self.first = asyncio.Event()

    def take(self, packs: Sequence[EntryPack]) -> None:
        self.packs += packs
        self.first.set()

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)


def test_the_writes_before_a_tick_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = Cursor.read

    def counted(self: Cursor, files: Sequence[FileSpan], stop: Position, bytes_max: int) -> list[LogEntry]:
        found = read(self, files, stop, bytes_max)
        reads.append(len(found))
        return found

    monkeypatch.setattr(Cursor, "read", counted)

    async def use(log: FileLog) -> None:
        seen = _Seen()
        dispatcher = Dispatcher(log)
        dispatcher.follow("dml_0_1v0", ORIGIN, seen)
        for ts in range(10, 20):
            await log.append(CHANNEL, [entry(ts)])
        assert reads == []
        await log.append(CHANNEL, [tick(30)], durable=False)
        await seen.first.wait()
        assert [len(pack.entries) for pack in seen.packs] == [10]
        assert reads == [11]
        await dispatcher.close()

    with_log(tmp_path, use)


def test_a_reader_that_asks_for_entries_gets_each_write_at_once(tmp_path: Path) -> None:
    async def use(log: FileLog) -> None:
        reader = log.open_reader(CHANNEL, START)
        assert isinstance(reader, PatientReader)
        for ts in range(10, 13):
            await log.append(CHANNEL, [entry(ts)])
            assert [e.header.ts for e in await reader.read()] == [ts]
        reader.close()

    with_log(tmp_path, use)
