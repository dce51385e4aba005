"""Appends to the JetStream log that are larger than what the servers take at once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from elanus.core.errors import DiskFull, InvalidParameter, PartlyWritten
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.devcluster.nats import Nats
from elanus.log.jetstream.log import NatsLog
from elanus.log.port import START, EntryHeader, Log, LogEntry, NewEntry, Position
from elanus.nats.connection import Interrupted, NatsConnection, Refused
from elanus.nats.source import NatsSource

pytestmark = pytest.mark.services

CHANNEL = "dml_0"
TIMEOUT_S = 40


@pytest.fixture
def source(nats_server: Nats) -> NatsSource:
    return NatsSource((nats_server.url,), prefix=f"large-{uuid.uuid4().hex}")


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, TIMEOUT_S)

    asyncio.run(bounded())


def entry(number: int, payload: bytes = b"") -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(number), rows=1), [payload])


async def read_until(log: Log, count: int) -> list[LogEntry]:
    reader = log.open_reader(CHANNEL, START)
    found: list[LogEntry] = []
    while len(found) < count:
        found += await reader.read()
    reader.close()
    return found


def stamps(entries: list[LogEntry]) -> list[int]:
    return [e.header.ts for e in entries]


def test_an_append_of_several_batches_whose_answers_are_lost_is_there_once_among_those_of_others(
    source: NatsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of one message and of two; every second answer is dropped after the server has stored it."""
    answers = 0
    ask = NatsConnection.request

    async def forgetful(self: NatsConnection, subject: str, *rest: object) -> Msg:
        nonlocal answers
        answer = await ask(self, subject, *rest)  # type: ignore[arg-type]
        answers += not subject.startswith("$JS")
        if answers % 2 and not subject.startswith("$JS"):
            raise Interrupted("the answer was lost")
        return answer

    async def work() -> None:
        logs = [await NatsLog.open(source) for _ in range(2)]
        size = logs[0]._connection.payload_max_bytes + 1
        monkeypatch.setattr(NatsConnection, "request", forgetful)
        new = [entry(n, bytes(size) if n % 500 == 499 else b"small") for n in range(2500)]
        large = asyncio.ensure_future(logs[0].append(CHANNEL, new))
        others: list[Position] = []
        while not large.done():
            others += await logs[1].append(CHANNEL, [entry(9999), entry(9999)])
        found = await read_until(logs[1], len(new) + len(others))
        mine = [e for e in found if e.header.ts != 9999]
        assert stamps(mine) == list(range(2500))
        assert [e.position for e in mine] == list(large.result())
        assert [e.position for e in found if e.header.ts == 9999] == others
        for log in logs:
            await log.close()

    run(work())


def test_an_append_of_several_batches_says_how_much_of_it_is_stored_when_room_runs_out(
    source: NatsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = NatsConnection.request

    async def full_after_one(self: NatsConnection, subject: str, *rest: object) -> Msg:
        if not subject.startswith("$JS"):
            monkeypatch.setattr(NatsConnection, "request", full)
        return await ask(self, subject, *rest)  # type: ignore[arg-type]

    async def full(self: NatsConnection, subject: str, *rest: object) -> Msg:
        if not subject.startswith("$JS"):
            raise Refused(10047, "insufficient storage resources available")
        return await ask(self, subject, *rest)  # type: ignore[arg-type]

    async def work() -> None:
        log = await NatsLog.open(source)
        monkeypatch.setattr(NatsConnection, "request", full_after_one)
        with pytest.raises(PartlyWritten, match=r"1000 of 1001 entries .* give JetStream more") as refusal:
            await log.append(CHANNEL, [entry(n) for n in range(1001)])
        assert not refusal.value.is_certain
        with pytest.raises(DiskFull):
            await log.append(CHANNEL, [entry(2000)])
        monkeypatch.setattr(NatsConnection, "request", ask)
        (position,) = await log.append(CHANNEL, [entry(3000)])
        found = await read_until(log, 1001)
        assert stamps(found) == [*range(1000), 3000]
        assert found[-1].position == position
        await log.close()

    run(work())


def test_an_append_that_is_too_large_is_refused_alone(tmp_path: Path) -> None:
    async def work() -> None:
        log = await NatsLog.open(NatsSource((server.url,)))
        too_large = log.append(CHANNEL, [entry(1, bytes(5_000_000))])
        fits = log.append(CHANNEL, [entry(2)])
        refused, stored = await asyncio.gather(too_large, fits, return_exceptions=True)
        assert isinstance(refused, InvalidParameter)
        assert "raise max_payload" in refused.message
        assert not isinstance(stored, BaseException)
        assert [e.position for e in await read_until(log, 1)] == list(stored)
        await log.close()

    server = Nats(tmp_path, max_payload_bytes=8192)
    server.start()
    try:
        run(work())
    finally:
        server.kill()
