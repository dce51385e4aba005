"""A stream that was put back to an older copy: it is not written to, and what it lacks is refused."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from pathlib import Path

import pytest

from elanus.core.errors import ChannelRewound
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.devcluster.nats import Nats
from elanus.log.jetstream.log import NatsLog
from elanus.log.port import REWOUND_REMEDY, START, EntryHeader, NewEntry, Position, RewoundLog
from elanus.nats.connection import NatsConnection
from elanus.nats.source import NatsSource

pytestmark = pytest.mark.services

CHANNEL, OTHER = "dml_0", "dml_1"
TIMEOUT_S = 60


class Store:
    """A NATS server whose streams can be copied and put back."""

    def __init__(self, directory: Path) -> None:
        self.nats = Nats(directory)
        self._files, self._copy = directory / "nats", directory / "copy"
        self.source = NatsSource((self.nats.url,))

    async def copy(self) -> None:
        await asyncio.to_thread(self._replace, self._files, self._copy)

    async def put_back(self) -> None:
        await asyncio.to_thread(self._replace, self._copy, self._files)

    def _replace(self, origin: Path, target: Path) -> None:
        self.nats.stop()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(origin, target)
        self.nats.start()

    @contextlib.asynccontextmanager
    async def log(self, held: Mapping[str, int] | None = None) -> AsyncIterator[NatsLog]:
        async def positions() -> Mapping[str, int]:
            return held or {}

        log = await NatsLog.open(self.source, held=positions)
        try:
            yield log
        finally:
            await log.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path)
    found.nats.start()
    yield found
    found.nats.stop()


def entry(number: int) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(number), rows=1), [b"row"])


def refusal(position: int, end: int) -> str:
    return f"nothing is written to {CHANNEL}: position {position} is needed, but the log ends at {end}: "


async def stamps(log: NatsLog, start: Position, count: int) -> list[int]:
    reader, found = log.open_reader(CHANNEL, start), list[int]()
    while len(found) < count:
        found += [e.header.ts for e in await reader.read()]
    reader.close()
    return found


def test_a_process_that_starts_compares_the_end_with_the_metadata(store: Store) -> None:
    async def work() -> None:
        async with store.log() as log:
            for channel in (CHANNEL, OTHER):
                await log.append(channel, [entry(1), entry(2)])
            end, other_end = log.end(CHANNEL), log.end(OTHER)
        await store.copy()
        async with store.log() as log:
            lost = await log.append(CHANNEL, [entry(3), entry(4)])
            held = {CHANNEL: log.end(CHANNEL), OTHER: other_end}
        await store.put_back()
        async with store.log(held) as log:
            for _ in range(2):
                with pytest.raises(ChannelRewound, match=refusal(held[CHANNEL], end)) as refused:
                    await log.append(CHANNEL, [entry(5)])
                assert REWOUND_REMEDY in refused.value.message
            assert await log.sync(CHANNEL) == end
            assert await stamps(log, START, 2) == [1, 2]
            with pytest.raises(RewoundLog, match=f"position {lost[1]} is needed, but the log ends at {end}"):
                await log.open_reader(CHANNEL, lost[1]).read()
            assert list(await log.append(OTHER, [entry(5)])) == [other_end]
            await remove(store, CHANNEL)
            (after,) = await log.append(CHANNEL, [entry(6)])
            assert after > held[CHANNEL]

    run(work())


def test_processes_that_were_there_know_how_far_the_stream_had_come(store: Store) -> None:
    """One has written since the copy; another has not, but knows that there was more. One reads."""

    async def work() -> None:
        async with store.log() as active, store.log() as idle:
            await idle.append(CHANNEL, [entry(1)])
            await active.append(CHANNEL, [entry(2)])
            end = active.end(CHANNEL)
            await store.copy()
            await active.append(CHANNEL, [entry(3)])
            known = active.end(CHANNEL)
            assert await idle.sync(CHANNEL) == known
            reader = active.open_reader(CHANNEL, known)
            reading = asyncio.ensure_future(reader.read())
            await store.put_back()
            for log in (active, idle):
                with pytest.raises(ChannelRewound, match=refusal(known, end)):
                    await log.append(CHANNEL, [entry(4)])
            with pytest.raises(RewoundLog, match=f"position {known} is needed, but the log ends at {end}"):
                await reading

    run(work())


def test_an_empty_copy_counts_as_older_too(store: Store) -> None:
    """The stream had been made when it was copied, but nothing had been written to it."""

    async def work() -> None:
        async with store.log() as log:
            await log._make_stream(CHANNEL)
        await store.copy()
        async with store.log() as log:
            (position,) = await log.append(CHANNEL, [entry(1)])
        await store.put_back()
        async with store.log({CHANNEL: position + 1}) as log:
            with pytest.raises(ChannelRewound, match=refusal(position + 1, position)):
                await log.append(CHANNEL, [entry(2)])

    run(work())


async def remove(store: Store, pchannel: str) -> None:
    connection = await NatsConnection.open(store.source, "operator")
    await connection.api(f"STREAM.DELETE.{store.source.prefix}-{pchannel}")
    await connection.close()


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, TIMEOUT_S)

    asyncio.run(bounded())
