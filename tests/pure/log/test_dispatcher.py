"""One reader per pchannel serves all vchannels, wherever they begin: nothing is left out or comes twice."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest
from counting import calls_of
from range_packs import read_packs

from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_name, vchannel_name
from elanus.core.ids import CollectionID
from elanus.core.messages import MsgKind
from elanus.core.packs import ORIGIN
from elanus.core.timestamps import Timestamp
from elanus.log.dispatcher import Dispatcher
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.memory import MemoryLog
from elanus.log.port import EntryHeader, Log, LogEntry, LogReader, NewEntry, Position, TrimmedLog
from elanus.log.shared_reader import EntryPack, Subscription

PCHANNEL = pchannel_name(0)
A, B, C = (vchannel_name(PCHANNEL, CollectionID(n), 0) for n in (1, 2, 3))


def message(ts: int, vchannel: str = A) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(ts), vchannel, rows=2), [b"rows"])


def tick(ts: int, epoch: int = 0) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(ts), epoch=epoch))


class Seen:
    """A listener that keeps what it gets: the messages' timestamps, and the error."""

    def __init__(self) -> None:
        self.stamps: list[int] = []
        self.errors: list[Exception] = []
        self.subscription: Subscription | None = None

    def take(self, packs: Sequence[EntryPack]) -> None:
        for pack in packs:
            assert pack.entries
            assert all(pack.begin_ts < entry.header.ts <= pack.end_ts for entry in pack.entries)
            self.stamps += [entry.header.ts for entry in pack.entries]

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


class CountedLog(MemoryLog):
    """Counts what its readers return. A reader of a position in ``held`` waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Position] = []
        self.entries_read = 0
        self.held: dict[int, asyncio.Event] = {}
        self.open_now = 0

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        reader = super().open_reader(pchannel, start, headers_only=headers_only)
        self.opened.append(start)
        self.open_now += 1
        read, close = reader.read, reader.close

        async def counted(bytes_max: int = 1 << 20) -> Sequence[LogEntry]:
            if start in self.held:
                await self.held[start].wait()
            entries = await read(bytes_max)
            self.entries_read += len(entries)
            return entries

        def closed() -> None:
            self.open_now -= 1
            close()

        reader.read, reader.close = counted, closed  # type: ignore[method-assign]
        return reader


def follow(dispatcher: Dispatcher, vchannel: str = A, start: Checkpoint = ORIGIN) -> Seen:
    seen = Seen()
    seen.subscription = dispatcher.follow(vchannel, start, seen)
    return seen


async def breathe() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def checkpoints(log: MemoryLog, vchannel: str) -> list[Checkpoint]:
    """Where the vchannel can be followed from: its origin, and after each pack."""
    packs = read_packs(log.read_range, PCHANNEL, ORIGIN, log.end(PCHANNEL), [vchannel])
    return [ORIGIN, *(pack.seek for pack in packs)]


async def test_two_vchannels_share_a_reader_and_each_gets_its_messages() -> None:
    log = CountedLog()
    dispatcher = Dispatcher(log)
    a, b = follow(dispatcher, A), follow(dispatcher, B)
    await log.append(PCHANNEL, [message(2), message(1, B), message(9, B), tick(5), message(3), tick(10)])
    await breathe()
    assert (a.stamps, b.stamps) == ([2], [1, 9])
    assert (len(log.opened), log.entries_read) == (1, 6)
    assert a.subscription is not None
    assert (a.subscription.ts, a.subscription.late_messages) == (10, 1)
    await dispatcher.close()
    assert log.open_now == 0


async def test_headers_are_enough_to_follow() -> None:
    log = CountedLog()
    dispatcher = Dispatcher(log, headers_only=True)
    found: list[LogEntry] = []

    class Entries(Seen):
        def take(self, packs: Sequence[EntryPack]) -> None:
            found.extend(entry for pack in packs for entry in pack.entries)

    dispatcher.follow(A, ORIGIN, Entries())
    await log.append(PCHANNEL, [message(1), tick(2)])
    await breathe()
    assert [(e.header.rows, e.payload, e.payload_bytes) for e in found] == [(2, None, 4)]
    await dispatcher.close()


async def test_one_that_begins_earlier_catches_up_and_joins() -> None:
    log = CountedLog()
    dispatcher = Dispatcher(log)
    await log.append(PCHANNEL, [message(1), message(1, B), tick(2), message(3, B), tick(4)])
    a = follow(dispatcher, A)
    await breathe()
    b = follow(dispatcher, B)
    assert dispatcher.readers == 2
    await breathe()
    assert dispatcher.readers == log.open_now == 1
    await log.append(PCHANNEL, [message(5), message(6, B), tick(7)])
    await breathe()
    assert (a.stamps, b.stamps) == ([1, 5], [1, 3, 6])
    assert log.entries_read == 5 + 5 + 3, "after the catch-up each entry is read once"
    await dispatcher.close()


async def test_one_that_is_closed_before_its_start_is_forgotten() -> None:
    log = CountedLog()
    log.held[0] = asyncio.Event()
    await log.append(PCHANNEL, [message(1), tick(2), message(3, B), tick(4)])
    dispatcher = Dispatcher(log)
    a = follow(dispatcher, A)
    b = follow(dispatcher, B, Checkpoint(Timestamp(4), log.end(PCHANNEL), Timestamp(4), 0))
    assert b.subscription is not None
    b.subscription.close()
    kept = weakref.ref(b.subscription)
    del b
    gc.collect()
    assert kept() is None
    log.held[0].set()
    await breathe()
    assert a.stamps == [1]
    await dispatcher.close()


async def test_one_that_begins_ahead_joins_at_once_and_gets_nothing_earlier() -> None:
    log = CountedLog()
    log.held[0] = asyncio.Event()
    await log.append(PCHANNEL, [message(1), message(1, B), message(4, B), message(9, B), tick(2)])
    end = log.end(PCHANNEL)
    dispatcher = Dispatcher(log)
    a, early = follow(dispatcher, A), follow(dispatcher, B)
    b = follow(dispatcher, B, Checkpoint(Timestamp(4), end, Timestamp(2), 0))
    assert b.subscription is not None
    assert (b.subscription.ts, b.subscription.seek.ts, b.subscription.stop) == (4, 4, end)
    log.held[0].set()
    await breathe()
    assert (b.subscription.ts, b.subscription.seek.ts) == (4, 4), "the tick at 2 moves it nowhere"
    await log.append(PCHANNEL, [message(3, B), message(5, B), tick(6)])
    await breathe()
    assert (a.stamps, b.stamps) == ([1], [5])
    await log.append(PCHANNEL, [tick(10)])
    await breathe()
    assert early.stamps == [1, 3, 4, 5, 9]
    assert b.subscription.seek == Checkpoint(Timestamp(10), log.end(PCHANNEL), Timestamp(10), 0)
    assert b.stamps == [5], "one at 9 is before the position where it begins"
    assert len(log.opened) == 1
    await dispatcher.close()


async def test_a_message_that_waits_for_its_tick_goes_along_when_readers_join() -> None:
    log = CountedLog()
    dispatcher = Dispatcher(log)
    await log.append(PCHANNEL, [tick(1), message(8, B), message(9), tick(3)])
    a, other = follow(dispatcher, A), follow(dispatcher, C)
    await breathe()
    b = follow(dispatcher, B)
    await breathe()
    assert dispatcher.readers == 1
    held = b.subscription.seek if b.subscription else ORIGIN
    assert (held.ts, held.tick) == (3, 1), "what waits holds the seek point back"
    again = [p.entries for p in read_packs(log.read_range, PCHANNEL, held, log.end(PCHANNEL), [B])]
    assert again == []
    await log.append(PCHANNEL, [tick(9)])
    await breathe()
    assert (a.stamps, b.stamps, other.stamps) == ([9], [8], [])
    packs = read_packs(log.read_range, PCHANNEL, held, log.end(PCHANNEL), [B])
    assert [e.header.ts for p in packs for e in p.entries] == [8]
    await dispatcher.close()


@pytest.mark.parametrize("seed", range(30))
async def test_whenever_they_begin_each_gets_what_a_reader_of_its_own_would(seed: int) -> None:
    draw = random.Random(seed)
    log = CountedLog()
    dispatcher = Dispatcher(log)
    followers: list[tuple[str, Checkpoint, Seen]] = []
    now, epoch = 10, 1
    for _ in range(60):
        entries = [
            message(now + draw.randint(-6, 12), draw.choice([A, B, C])) for _ in range(draw.randint(0, 3))
        ]
        if draw.random() < 0.1:
            epoch += 1
            entries.append(NewEntry(EntryHeader(MsgKind.EPOCH, Timestamp(now), epoch=epoch)))
        now += draw.randint(0, 8)
        entries.append(tick(now, draw.choice([epoch, epoch, epoch - 1])))
        await log.append(PCHANNEL, entries)
        if draw.random() < 0.3:
            vchannel = draw.choice([A, B, C])
            start = draw.choice(checkpoints(log, vchannel)[-12:])
            log.held.setdefault(start.position, asyncio.Event())
            followers.append((vchannel, start, follow(dispatcher, vchannel, start)))
        if draw.random() < 0.2 and followers:
            followers.pop(draw.randrange(len(followers)))[2].subscription.close()  # type: ignore[union-attr]
        for event in log.held.values():
            if draw.random() < 0.3:
                event.set()
        for _ in range(draw.randint(0, 4)):
            await asyncio.sleep(0)
    for event in log.held.values():
        event.set()
    await log.append(PCHANNEL, [tick(now + 1, epoch)])
    await breathe()
    await breathe()
    for vchannel, start, seen in followers:
        own = list(read_packs(log.read_range, PCHANNEL, start, log.end(PCHANNEL), [vchannel]))
        assert seen.stamps == [entry.header.ts for pack in own for entry in pack.entries]
        assert seen.errors == []
        assert seen.subscription is not None
        assert seen.subscription.ts == own[-1].end_ts
        seek, end = seen.subscription.seek, log.end(PCHANNEL)
        assert (seek.ts, seek.position <= own[-1].seek.position) == (own[-1].end_ts, True)
        assert [p.entries for p in read_packs(log.read_range, PCHANNEL, seek, end, [vchannel])] == []
    assert dispatcher.readers == log.open_now == min(1, len(followers))
    await dispatcher.close()


async def test_a_failed_reader_is_reported_to_each_vchannel_that_it_serves() -> None:
    log = CountedLog()
    await log.append(PCHANNEL, [message(1), message(1, B), tick(2)])
    end = log.end(PCHANNEL)
    await log.trim(PCHANNEL, end)
    dispatcher = Dispatcher(log)
    a, b = follow(dispatcher, A), follow(dispatcher, B)
    c = follow(dispatcher, C, Checkpoint(Timestamp(2), end, Timestamp(2), 0))
    woken: list[int] = []
    assert c.subscription is not None
    c.subscription.watch(lambda: bool(woken.append(1)))
    await breathe()
    for seen in (a, b):
        assert [type(error) for error in seen.errors] == [TrimmedLog]
    await log.append(PCHANNEL, [message(3, C), tick(4)])
    await breathe()
    assert (c.stamps, c.errors, woken) == ([3], [], [1]), "one that began further on is not concerned"
    again = follow(dispatcher, A, Checkpoint(Timestamp(2), end, Timestamp(2), 0))
    await log.append(PCHANNEL, [message(5), tick(6)])
    await breathe()
    assert again.stamps == [5]
    assert a.subscription is not None
    assert a.subscription.ts == 0, "one that failed does not move with the others"
    await dispatcher.close()


async def test_a_vchannel_that_cannot_take_a_message_stops_alone() -> None:
    log = CountedLog()
    dispatcher = Dispatcher(log)
    b = follow(dispatcher, B)

    class Broken(Seen):
        def take(self, packs: Sequence[EntryPack]) -> None:
            raise RuntimeError("a bug")

    broken = Broken()
    broken.subscription = dispatcher.follow(A, ORIGIN, broken)
    await log.append(PCHANNEL, [message(1), message(1, B), tick(2), message(3, B), tick(4)])
    await breathe()
    assert [str(error) for error in broken.errors] == ["a bug"]
    assert (b.stamps, broken.subscription.ts) == ([1, 3], 0)
    await dispatcher.close()


async def test_a_subscription_that_is_closed_gets_nothing_more_and_the_last_closes_the_reader() -> None:
    log = CountedLog()
    dispatcher = Dispatcher(log)
    b = follow(dispatcher, B)

    class Once(Seen):
        def take(self, packs: Sequence[EntryPack]) -> None:
            super().take(packs)
            assert self.subscription is not None
            self.subscription.close()

    once = Once()
    once.subscription = dispatcher.follow(A, ORIGIN, once)
    await log.append(PCHANNEL, [message(1), tick(2)])
    await breathe()
    await log.append(PCHANNEL, [message(3), message(3, B), tick(4)])
    await breathe()
    assert (once.stamps, b.stamps, log.open_now) == ([1], [3], 1)
    assert b.subscription is not None
    b.subscription.close()
    await breathe()
    assert (log.open_now, dispatcher.readers) == (0, 0)


async def test_watchers_are_called_at_each_tick_as_long_as_they_ask_for_it_also_when_readers_join() -> None:
    log = CountedLog()
    dispatcher = Dispatcher(log)
    await log.append(PCHANNEL, [tick(1), tick(2)])
    follow(dispatcher, A)
    follow(dispatcher, C)
    await breathe()
    log.held[0] = asyncio.Event()
    b = follow(dispatcher, B)
    calls: list[int] = []
    assert b.subscription is not None

    def watcher() -> bool:
        assert b.subscription is not None
        calls.append(b.subscription.ts)
        return b.subscription.ts < 4

    b.subscription.watch(watcher)
    b.subscription.watch(watcher)
    log.held[0].set()
    await breathe()
    for ts in (3, 4, 5):
        await log.append(PCHANNEL, [tick(ts)])
        await breathe()
    assert calls == [2, 3, 4]
    await dispatcher.close()


def test_readers_and_open_files_do_not_grow_with_vchannels(tmp_path: Path) -> None:
    asyncio.run(follow_many(tmp_path))


async def follow_many(tmp_path: Path) -> None:
    log = FileLog(tmp_path, FileLogOptions(fsync=False))
    for number in range(16):
        await log.append(pchannel_name(number), [tick(1)])
    files = len(list(Path("/proc/self/fd").iterdir()))
    dispatcher = Dispatcher(log)
    names = [vchannel_name(pchannel_name(n % 16), CollectionID(n), 0) for n in range(800)]
    followed = [follow(dispatcher, name) for name in names]
    for _ in range(100):
        await asyncio.sleep(0)
    assert {seen.subscription.ts for seen in followed if seen.subscription} == {1}
    assert dispatcher.readers == 16
    assert len(list(Path("/proc/self/fd").iterdir())) - files <= 16
    await dispatcher.close()
    await log.close()


async def calls_per_tick(log: Log, vchannels: int) -> int:
    """Python calls from one tick's arrival until everybody is at it."""
    dispatcher = Dispatcher(log)
    names = [vchannel_name(PCHANNEL, CollectionID(n), 0) for n in range(vchannels)]
    followed = [follow(dispatcher, name) for name in names]
    await log.append(PCHANNEL, [tick(1)])
    await breathe()

    async def second() -> None:
        await log.append(PCHANNEL, [tick(2)])
        await breathe()

    calls = await calls_of(second)
    assert {seen.subscription.ts for seen in followed if seen.subscription} == {2}
    await dispatcher.close()
    return calls


async def test_a_tick_costs_the_same_for_1000_vchannels_as_for_16() -> None:
    assert await calls_per_tick(MemoryLog(), 16) == await calls_per_tick(MemoryLog(), 1000)


async def test_others_run_between_the_parts_of_a_large_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.log.shared_reader.ENTRIES_AT_ONCE", 10)
    log = MemoryLog()
    entries = [entry for ts in range(1, 51) for entry in (message(2 * ts), tick(2 * ts + 1))]
    await log.append(PCHANNEL, entries)
    dispatcher, seen, steps = Dispatcher(log), Seen(), list[int]()
    dispatcher.follow(A, ORIGIN, seen)
    while len(seen.stamps) < 50:
        steps.append(len(seen.stamps))
        await asyncio.sleep(0)
    assert seen.stamps == [2 * ts for ts in range(1, 51)]
    assert max(later - earlier for earlier, later in itertools.pairwise([*steps, 50])) == 5
    await dispatcher.close()


async def test_readers_meet_within_a_large_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes twice when one reader catches up with another in the middle of what it has read."""
    monkeypatch.setattr("elanus.log.shared_reader.ENTRIES_AT_ONCE", 3)
    log = MemoryLog()
    for ts in range(2, 62, 2):
        await log.append(PCHANNEL, [message(ts), message(ts, B), tick(ts + 1)])
    dispatcher, first, second = Dispatcher(log), Seen(), Seen()
    dispatcher.follow(A, ORIGIN, first)
    for _ in range(5):
        await asyncio.sleep(0)
    assert 0 < len(first.stamps) < 30
    dispatcher.follow(B, ORIGIN, second)
    await log.append(PCHANNEL, [message(100), message(100, B), tick(101)])
    for _ in range(200):
        await asyncio.sleep(0)
    assert first.stamps == second.stamps == [*range(2, 62, 2), 100]
    assert dispatcher.readers == 1
    await dispatcher.close()
