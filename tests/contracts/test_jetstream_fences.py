"""Fences in the JetStream log: a writer that was counted out stores nothing that counts. And servers that
store nothing at all."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from typing import Any

import pytest

from elanus.core.errors import LeaseLost, NoSession, Unavailable
from elanus.core.ids import NodeID
from elanus.core.messages import MsgKind
from elanus.core.packs import ORIGIN, PackAssembler
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.devcluster.nats import Nats
from elanus.log.jetstream.log import NatsLog
from elanus.log.port import START, EntryHeader, LogEntry, NewEntry, Position
from elanus.nats.connection import NatsConnection, Unanswered
from elanus.nats.source import NatsSource

pytestmark = pytest.mark.services

CHANNEL, OTHER = "dml_0", "dml_1"
ONE, TWO = NodeID(1), NodeID(12)
TIMEOUT_S = 40


@asynccontextmanager
async def log_at(server: Nats, append_timeout_s: float = 30.0) -> AsyncIterator[NatsLog]:
    source = NatsSource((server.url,), prefix=f"fences-{uuid.uuid4().hex}")
    log = await NatsLog.open(source, append_timeout_s=append_timeout_s)
    try:
        yield log
    finally:
        await log.close()


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, TIMEOUT_S)

    asyncio.run(bounded())


def entry(number: int) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(number), "v", rows=1), [b"row"])


def gone(*nodes: NodeID) -> Callable[[NodeID], bool]:
    found: Container[NodeID] = nodes
    return lambda node: node in found


async def entries_of(log: NatsLog, start: Position = START) -> list[LogEntry]:
    end = await log.sync(CHANNEL)
    reader, found = log.open_reader(CHANNEL, start), list[LogEntry]()
    while not found or found[-1].next < end:
        found += await reader.read()
    reader.close()
    return found


async def confirmed() -> None:
    """The session is in place."""


def test_no_append_of_a_writer_is_stored_behind_its_fence(nats_server: Nats) -> None:
    async def work() -> None:
        async with log_at(nats_server) as log:
            one, two = log.appender(ONE, confirmed), log.appender(TWO, confirmed)
            for number, writer in enumerate((one, two, one, two), 1):
                await writer.append(CHANNEL, [entry(number)])
            await one.append(OTHER, [entry(1)])
            await log.fence(CHANNEL, gone(ONE))
            await log.fence(CHANNEL, gone(ONE))  # as another root coordinator does
            for _ in range(2):
                with pytest.raises(NoSession, match="join again"):
                    await one.append(CHANNEL, [entry(5)])
            await two.append(CHANNEL, [entry(6)])
            await log.append(CHANNEL, [entry(7)])
            await one.append(OTHER, [entry(2)])  # each pchannel has its own
            assert [e.header.ts for e in await entries_of(log) if e.header.kind is MsgKind.INSERT] == [
                *(1, 2, 3, 4),
                *(6, 7),
            ]

    run(work())


def test_a_fence_after_a_trim_holds_and_so_does_one_that_was_trimmed_itself(nats_server: Nats) -> None:
    """A writer that finds no message of its own asks whether its session is still in place."""
    asked: list[str] = []

    async def expired() -> None:
        asked.append("confirm")
        raise LeaseLost("its record is gone")

    async def work() -> None:
        async with log_at(nats_server) as log:
            is_over = False

            async def confirm() -> None:
                if is_over:
                    await expired()
                asked.append("in place")

            one = log.appender(ONE, confirm)
            await one.append(CHANNEL, [entry(1)])
            await one.append(CHANNEL, [entry(2)])
            assert asked == ["in place"], "only for the first, which names no message"
            await log.trim(CHANNEL, await log.sync(CHANNEL))
            await one.append(CHANNEL, [entry(3)])
            assert asked == ["in place"] * 2
            is_over = True
            await log.fence(CHANNEL, gone(ONE))
            await log.trim(CHANNEL, await log.sync(CHANNEL))
            with pytest.raises(LeaseLost, match="record is gone"):
                await one.append(CHANNEL, [entry(4)])
            with pytest.raises(LeaseLost, match="record is gone"):
                await one.append(CHANNEL, [entry(5)])

    run(work())


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_writer_without_a_message_stores_nothing_behind_a_fence(
    nats_server: Nats, is_trimmed: bool
) -> None:
    """A fence can only be put where the writer has a message; without one, its session decides."""
    ended = False

    async def confirm() -> None:
        if ended:
            raise LeaseLost("its record is gone")

    async def work() -> None:
        nonlocal ended
        async with log_at(nats_server) as log:
            one, start = log.appender(ONE, confirm), START
            if is_trimmed:
                await one.append(CHANNEL, [entry(1)])
                start = await log.sync(CHANNEL)
                await log.trim(CHANNEL, start)
            ended = True
            await log.fence(CHANNEL, gone(ONE))
            await log.append(CHANNEL, [NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(9), epoch=1))])
            results = await asyncio.gather(
                *(one.append(CHANNEL, [entry(n)]) for n in (2, 3)), return_exceptions=True
            )
            assert [type(result) for result in results] == [LeaseLost] * 2
            kinds = [e.header.kind for e in await entries_of(log, start)]
            assert MsgKind.INSERT not in kinds, "a refused append is behind the fence"
            await log.fence(CHANNEL, gone(ONE))
            with pytest.raises((LeaseLost, NoSession)):
                await one.append(CHANNEL, [entry(4)])

    run(work())


def test_a_first_append_is_refused_if_the_fence_comes_after_its_session_was_confirmed(
    nats_server: Nats,
) -> None:
    async def work() -> None:
        async with log_at(nats_server) as log:

            async def fenced_at_once() -> None:
                await log.fence(CHANNEL, gone(ONE))

            with pytest.raises(NoSession, match="join again"):
                await log.appender(ONE, fenced_at_once).append(CHANNEL, [entry(1)])
            assert MsgKind.INSERT not in [e.header.kind for e in await entries_of(log)]

    run(work())


def test_readers_pass_over_fences(nats_server: Nats) -> None:
    """Those of earlier releases too: a fence is a mark of epoch 0."""

    async def work() -> None:
        async with log_at(nats_server) as log:
            await log.append(CHANNEL, [NewEntry(EntryHeader(MsgKind.EPOCH, Timestamp(1), epoch=3))])
            await log.appender(ONE, confirmed).append(CHANNEL, [entry(10)])
            await log.fence(CHANNEL, gone(ONE))
            tick = EntryHeader(MsgKind.TIME_TICK, Timestamp(20), epoch=3)
            await log.append(CHANNEL, [NewEntry(tick)])
            assembler = PackAssembler[Position](ORIGIN)
            *_, last = [
                assembler.feed(found.header, found.position, found.next, found.position)
                for found in await entries_of(log)
            ]
            assert last is not None
            assert len(last.entries) == 1
            assert assembler.in_force == (20, 3)
            assert assembler.late_rows == 0
            assert await log.newest(CHANNEL) == 20

    run(work())


def test_the_newest_timestamp_is_that_of_the_last_entry_before_fences(nats_server: Nats) -> None:
    async def work() -> None:
        async with log_at(nats_server) as log:
            assert await log.newest(CHANNEL) == NO_TIMESTAMP
            large = NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(30), "v", rows=1), [b"." * 3_000_000])
            await log.appender(ONE, confirmed).append(CHANNEL, [entry(10), large])
            await log.fence(CHANNEL, gone(ONE))
            assert await log.newest(CHANNEL) == 30
            await log.trim(CHANNEL, await log.sync(CHANNEL))
            assert await log.newest(CHANNEL) == NO_TIMESTAMP

    run(work())


def test_servers_that_answer_but_store_nothing_are_named(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose disk was full, also when there is room again."""
    request = NatsConnection.request

    async def unstored(self: NatsConnection, subject: str, *args: Any) -> Any:
        if not subject.startswith("$JS.API."):
            raise Unanswered(f"no answer on {subject}")
        return await request(self, subject, *args)

    async def work() -> None:
        async with log_at(nats_server, append_timeout_s=1.0) as log:
            await log.append(CHANNEL, [entry(1)])
            monkeypatch.setattr(NatsConnection, "request", unstored)
            with pytest.raises(Unavailable, match=r"stores nothing: .* disks .* restarted"):
                await log.append(CHANNEL, [entry(2)])

    run(work())
