"""The contract of every log (`elanus.log.port.Log`), run against every adapter.

An adapter joins with one class: how to open it (again, on the same data, if it keeps any) and how to
read a finished stretch.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import pytest

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.backends import range_reader
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.jetstream.log import NatsLog
from elanus.log.memory import MemoryLog
from elanus.log.port import (
    START,
    EntryHeader,
    Log,
    LogClosed,
    LogEntry,
    LogReader,
    NewEntry,
    Position,
    RangeReader,
    RewoundLog,
    TrimmedLog,
)
from elanus.log.reading import read_range
from elanus.nats.source import NatsSource

CHANNEL = "dml_0"
TIMEOUT_S = 20
FILE_BYTES_MAX = 4096
"""Small, so that every longer test crosses from file to file."""


class Adapter(Protocol):
    keeps: bool
    """Whether a log that was closed can be opened again with what it held."""

    async def open(self) -> Log: ...

    def range_reader(self) -> RangeReader: ...


class InMemory:
    keeps = False

    def __init__(self) -> None:
        self._log = MemoryLog()

    async def open(self) -> Log:
        return self._log

    def range_reader(self) -> RangeReader:
        return self._log.read_range


class InFiles:
    keeps = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "log"

    async def open(self) -> Log:
        return FileLog(self._directory, FileLogOptions(fsync=False, file_bytes_max=FILE_BYTES_MAX))

    def range_reader(self) -> RangeReader:
        return partial(read_range, self._directory)


class InJetStream:
    keeps = True

    def __init__(self, url: str) -> None:
        self._source = NatsSource((url,), prefix=f"contract-{uuid.uuid4().hex}")

    async def open(self) -> Log:
        return await NatsLog.open(self._source)

    def range_reader(self) -> RangeReader:
        return range_reader(self._source.url)


KEPT = ["files", pytest.param("jetstream", marks=pytest.mark.services)]


def make_adapter(request: pytest.FixtureRequest) -> Adapter:
    if request.param == "jetstream":
        return InJetStream(request.getfixturevalue("nats_server").url)
    return InMemory() if request.param == "memory" else InFiles(request.getfixturevalue("tmp_path"))


@pytest.fixture(params=["memory", *KEPT])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return make_adapter(request)


@pytest.fixture(params=KEPT)
def lasting(request: pytest.FixtureRequest) -> Adapter:
    return make_adapter(request)


def with_log(adapter: Adapter, use: Callable[[Log], Awaitable[None]]) -> None:
    """Open the log, use it, close it; nothing may hang."""

    async def run() -> None:
        log = await adapter.open()
        try:
            await asyncio.wait_for(use(log), TIMEOUT_S)
        finally:
            await log.close()

    asyncio.run(run())


def entry(ts: int, size_bytes: int = 20) -> NewEntry:
    header = EntryHeader(MsgKind.INSERT, Timestamp(ts), f"{CHANNEL}_7v0", CollectionID(7), rows=1)
    return NewEntry(header, [bytes([ts % 256]) * size_bytes])


async def fill(log: Log, count: int, size_bytes: int = 20) -> list[Position]:
    positions: list[Position] = []
    for ts in range(1, count + 1):
        positions += await log.append(CHANNEL, [entry(ts, size_bytes)])
    return positions


async def read_all(log: Log, start: Position = START, *, headers_only: bool = False) -> list[LogEntry]:
    """Everything from ``start`` to the end of now."""
    end, found = log.end(CHANNEL), list[LogEntry]()
    reader = log.open_reader(CHANNEL, start, headers_only=headers_only)
    while (found[-1].next if found else start) < end:
        found += await reader.read()
    reader.close()
    return found


def stamps(entries: Sequence[LogEntry]) -> list[int]:
    return [e.header.ts for e in entries]


def test_entries_come_back_whole_and_in_order(adapter: Adapter) -> None:
    headers = [
        EntryHeader(MsgKind.TIME_TICK, Timestamp(2**63 - 1), epoch=3),
        EntryHeader(
            MsgKind.UPSERT,
            Timestamp(5),
            "dml_0_7v1",
            CollectionID(7),
            PartitionID(8),
            SegmentID(9),
            rows=2**32 - 1,
            row_id_start=2**62,
            epoch=1,
        ),
        EntryHeader(MsgKind.DROP_COLLECTION, Timestamp(6), "kanal_ö", CollectionID(-1)),
    ]
    payloads: list[list[bytes | memoryview]] = [[], [b"", b"abc", memoryview(b"defgh")], [b"x" * 100_000]]

    async def use(log: Log) -> None:
        new = [NewEntry(h, p) for h, p in zip(headers, payloads, strict=True)]
        positions = await log.append(CHANNEL, new)
        found = await read_all(log)
        assert [e.header for e in found] == headers
        assert [bytes(e.payload or b"") for e in found] == [b"".join(p) for p in payloads]
        assert [e.payload_bytes for e in found] == [0, 8, 100_000]
        assert [e.position for e in found] == list(positions)

    with_log(adapter, use)


def test_positions_grow_and_next_leads_on(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        positions = await fill(log, 100)
        assert positions == sorted(set(positions))
        assert positions[0] > START
        found = await read_all(log)
        for earlier, later in pairwise(found):
            assert earlier.position < earlier.next <= later.position
        assert found[-1].next == log.end(CHANNEL)

    with_log(adapter, use)


def test_reading_from_any_position_begins_with_the_first_entry_at_or_after_it(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        positions = await fill(log, 40, size_bytes=150)
        for start in (START, *range(positions[0], positions[-1] + 1, 7)):
            reader = log.open_reader(CHANNEL, Position(start))
            first = (await reader.read())[0]
            assert first.position == min(p for p in positions if p >= start)

    with_log(adapter, use)


def test_entries_of_one_append_stand_together(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        async def writer(number: int) -> None:
            for round_ in range(10):
                await log.append(CHANNEL, [entry(number * 100 + round_) for _ in range(3)])

        await asyncio.gather(*(writer(number) for number in range(8)))
        found = stamps(await read_all(log))
        assert len(found) == 8 * 10 * 3
        for at in range(0, len(found), 3):
            assert len(set(found[at : at + 3])) == 1
        for number in range(8):
            own = [ts for ts in found[::3] if ts // 100 == number]
            assert own == sorted(own)

    with_log(adapter, use)


@pytest.mark.parametrize("count", [1001, 2500])
def test_an_append_may_have_any_number_of_entries(adapter: Adapter, count: int) -> None:
    """An insert has one for each partition that its rows fall into."""

    async def use(log: Log) -> None:
        new = [entry(ts) for ts in range(2, 2 + count)]
        calls = [log.append(CHANNEL, entries) for entries in ([entry(1)], new, [entry(2 + count)])]
        positions = [p for appended in await asyncio.gather(*calls) for p in appended]
        found = await read_all(log)
        assert stamps(found) == list(range(1, 3 + count))
        assert [e.position for e in found] == positions == sorted(set(positions))
        assert found[-1].next == log.end(CHANNEL)

    with_log(adapter, use)


def test_appends_keep_the_order_of_their_calls(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        calls = [log.append(CHANNEL, [entry(ts)], durable=ts % 3 == 0) for ts in range(1, 200)]
        positions = [p for batch in await asyncio.gather(*calls) for p in batch]
        assert positions == sorted(positions)
        assert stamps(await read_all(log)) == list(range(1, 200))

    with_log(adapter, use)


def test_channels_do_not_mix(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        await asyncio.gather(*(log.append(f"dml_{n}", [entry(n + 1)]) for n in range(5)))
        for number in range(5):
            found = await log.open_reader(f"dml_{number}", START).read()
            assert stamps(found) == [number + 1]
        assert list(log.pchannels()) == [f"dml_{n}" for n in range(5)]

    with_log(adapter, use)


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_appended_can_be_read_at_once(adapter: Adapter, durable: bool) -> None:
    async def use(log: Log) -> None:
        reader = log.open_reader(CHANNEL, START)
        for ts in range(1, 50):
            (position,) = await log.append(CHANNEL, [entry(ts)], durable=durable)
            assert log.end(CHANNEL) > position
            assert [e.position for e in await reader.read()] == [position]

    with_log(adapter, use)


def test_a_reader_waits_for_what_is_not_there_yet(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        readers = [log.open_reader(CHANNEL, START) for _ in range(3)]
        waiting = [asyncio.ensure_future(reader.read()) for reader in readers]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        await log.append(CHANNEL, [entry(1)])
        assert [stamps(found) for found in await asyncio.gather(*waiting)] == [[1]] * 3

    with_log(adapter, use)


def test_a_read_that_is_given_up_loses_nothing(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        reader = log.open_reader(CHANNEL, START)
        found: list[int] = []

        async def read_in_a_hurry() -> None:
            reading = asyncio.ensure_future(reader.read())
            await asyncio.sleep(0)
            reading.cancel()
            done = (await asyncio.gather(reading, return_exceptions=True))[0]
            found.extend([] if isinstance(done, BaseException) else stamps(done))

        for ts in range(1, 30):
            await read_in_a_hurry()
            await log.append(CHANNEL, [entry(ts, size_bytes=200_000)])
            await read_in_a_hurry()
        while len(found) < 29:
            found += stamps(await reader.read())
        assert found == list(range(1, 30))

    with_log(adapter, use)


def test_a_batch_is_bounded_and_never_empty(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        await fill(log, 20, size_bytes=500)
        reader = log.open_reader(CHANNEL, START)
        sizes = []
        while sum(sizes) < 20:
            sizes.append(len(await reader.read(bytes_max=2000)))
        assert max(sizes) <= 4
        assert len(await log.open_reader(CHANNEL, START).read(bytes_max=1)) == 1

    with_log(adapter, use)


def test_headers_can_be_read_alone(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        positions = await fill(log, 50, size_bytes=3000)
        found = await read_all(log, headers_only=True)
        assert [e.position for e in found] == positions
        assert {e.payload for e in found} == {None}
        assert {e.payload_bytes for e in found} == {3000}
        assert stamps(found) == list(range(1, 51))

    with_log(adapter, use)


def test_sync_returns_the_end(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        assert await log.sync(CHANNEL) == log.end(CHANNEL) == START
        await log.append(CHANNEL, [entry(1)], durable=False)
        assert await log.sync(CHANNEL) == log.end(CHANNEL) > START

    with_log(adapter, use)


def test_an_empty_append_leaves_no_trace(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        assert list(await log.append(CHANNEL, [])) == []
        assert log.end(CHANNEL) == START
        assert list(log.pchannels()) == []

    with_log(adapter, use)


def test_trim_keeps_everything_from_its_position_on(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        positions = await fill(log, 100, size_bytes=500)
        before = log.size_bytes()
        for cut in (positions[30], positions[31], positions[10], positions[70]):
            await log.trim(CHANNEL, cut)
        assert log.size_bytes() < before / 2
        assert [e.position for e in await read_all(log, positions[70])] == positions[70:]
        with pytest.raises(TrimmedLog):
            await log.open_reader(CHANNEL, START).read()

    with_log(adapter, use)


def test_a_log_trimmed_to_its_end_goes_on(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        await fill(log, 50, size_bytes=500)
        end = log.end(CHANNEL)
        await log.trim(CHANNEL, end)
        assert log.end(CHANNEL) == end
        (position,) = await log.append(CHANNEL, [entry(51)])
        assert position >= end
        assert stamps(await read_all(log, end)) == [51]

    with_log(adapter, use)


def test_a_closed_log_is_read_to_its_end_and_takes_nothing_more(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        await fill(log, 100, size_bytes=500)
        behind, waiting = log.open_reader(CHANNEL, START), log.open_reader(CHANNEL, log.end(CHANNEL))
        waits = asyncio.ensure_future(waiting.read())
        await asyncio.sleep(0)
        await log.close()
        with pytest.raises(LogClosed):
            await waits
        found: list[LogEntry] = []
        while len(found) < 100:
            found += await behind.read(bytes_max=5000)
        with pytest.raises(LogClosed):
            await behind.read()
        with pytest.raises(LogClosed):
            await log.append(CHANNEL, [entry(101)])
        await log.close()

    with_log(adapter, use)


def test_a_closed_reader_reads_no_more(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        await fill(log, 1)
        reader: LogReader = log.open_reader(CHANNEL, START)
        reader.close()
        with pytest.raises(LogClosed):
            await reader.read()

    with_log(adapter, use)


def test_a_range_is_read_from_start_up_to_stop(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        positions = await fill(log, 60, size_bytes=300)
        read = adapter.range_reader()

        def between(start: Position, stop: Position) -> Iterator[Position]:
            return (e.position for e in read(CHANNEL, start, stop))

        assert list(between(START, log.end(CHANNEL))) == positions
        assert list(between(positions[7], positions[43])) == positions[7:43]
        assert list(between(positions[7], positions[7])) == []
        assert list(between(Position(positions[7] + 1), Position(positions[9] + 1))) == positions[8:10]

    with_log(adapter, use)


def test_a_range_that_is_trimmed_is_an_error(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        positions = await fill(log, 60, size_bytes=300)
        await log.trim(CHANNEL, positions[50])
        with pytest.raises(TrimmedLog):
            list(adapter.range_reader()(CHANNEL, positions[0], positions[55]))

    with_log(adapter, use)


def test_a_position_that_the_log_has_not_given_is_an_error(adapter: Adapter) -> None:
    async def use(log: Log) -> None:
        await fill(log, 3)
        end = log.end(CHANNEL)
        waiting = asyncio.ensure_future(log.open_reader(CHANNEL, end).read())
        beyond = Position(end + 1)
        assert [log.missing_from(CHANNEL, p) for p in (START, end, beyond)] == [None, None, end]
        assert log.missing_from("dml_9", beyond) is None, "it has no entry"
        text = f"{CHANNEL}: position {beyond} is needed, but the log ends at {end}: an older copy"
        with pytest.raises(RewoundLog, match=text):
            await log.open_reader(CHANNEL, beyond).read()
        with pytest.raises(RewoundLog, match=text):
            list(adapter.range_reader()(CHANNEL, beyond, Position(beyond + 1)))
        assert not waiting.done()
        await log.append(CHANNEL, [entry(4)])
        assert stamps(await waiting) == [4]

    with_log(adapter, use)


def test_what_was_appended_is_there_when_the_log_is_opened_again(lasting: Adapter) -> None:
    seen: list[Position] = []

    async def use(log: Log) -> None:
        old = log.end(CHANNEL)
        assert old >= (seen[-1] if seen else START)
        assert [e.position for e in await read_all(log)] == seen
        new = await log.append(CHANNEL, [entry(len(seen) + n) for n in range(5)], durable=len(seen) % 2 == 0)
        assert all(position >= old for position in new)
        seen.extend(new)
        assert [e.position for e in await read_all(log)] == seen

    for _ in range(6):
        with_log(lasting, use)


def test_trimmed_entries_stay_away_when_the_log_is_opened_again(lasting: Adapter) -> None:
    positions: list[Position] = []

    async def use(log: Log) -> None:
        positions.extend(await fill(log, 100, size_bytes=500))
        await log.trim(CHANNEL, positions[70])

    async def again(log: Log) -> None:
        assert [e.position for e in await read_all(log, positions[70])] == positions[70:]
        with pytest.raises(TrimmedLog):
            await log.open_reader(CHANNEL, START).read()

    with_log(lasting, use)
    with_log(lasting, again)
