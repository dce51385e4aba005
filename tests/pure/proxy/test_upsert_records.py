"""An upsert into a collection with automatic keys, over log files that fail in the middle of it.

Each row's ``price`` is the key that it replaces. After any failure, the deleted keys must be the prices of
the rows that are there.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from fakes import (
    CID,
    DEFAULT,
    FakeData,
    FakeLease,
    FakeRoot,
    collection,
    inline,
    pchannels_of,
    schema,
    settle,
)
from proxy_bench import resolved

from elanus.core.catalog import Collection
from elanus.core.errors import PartlyWritten
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.log.codec import decode
from elanus.log.disk import Disk
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.frames import Part
from elanus.log.port import START, NewEntry, Position
from elanus.log.reading import read_range
from elanus.proxy.role.queues import DmQueue
from elanus.proxy.role.segments import SegmentAssigner
from elanus.proxy.role.stamps import OwnStamps
from elanus.proxy.role.writes import LogWriter
from elanus.proxy.verbs.row_writes import row_write

AUTO = collection(schema(auto_id=True), shards=2)
ONE_SHARD = collection(schema(auto_id=True))
FIRST, SECOND = pchannels_of(AUTO)
OPTIONS = FileLogOptions(fsync=False)


class OnePchannelFull(Disk):
    """Has no room for the files of one pchannel."""

    def __init__(self, full: str) -> None:
        super().__init__(fsync=False)
        self._full = full
        self._paths: dict[int, Path] = {}

    def create(self, path: Path) -> int:
        fd = super().create(path)
        self._paths[fd] = path
        return fd

    def write(self, fd: int, parts: Sequence[Part], offset: int) -> None:
        if self._full in self._paths[fd].parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, parts, offset)


class KilledBetween(FileLog):
    """Appends to one pchannel only, as when the process is killed before it comes to the others."""

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        if pchannel != FIRST:
            await asyncio.Event().wait()
        return await super().append(pchannel, entries, durable=durable)


async def upsert(log: FileLog, keys: range, of: Collection = AUTO, rows_granted_max: int = 2**31) -> None:
    data = FakeData()
    data.rows_granted_max = rows_granted_max
    writer = LogWriter(log, SegmentAssigner(data, 1), inline, FakeLease())
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int64()),
            pa.array([float(key) for key in keys]),
            pa.array([[1.0, 2.0]] * len(keys), schema().field("v0").arrow_type),
        ],
        schema=schema(auto_id=True).arrow_schema,
    )
    ids = itertools.count(10_000, 1000)
    _, write = row_write(resolved(of), DEFAULT, rows, lambda _: next(ids), replaces=True)
    queue = DmQueue(OwnStamps(FakeRoot().stamp), 10)
    await queue.run("upsert", pchannels_of(of), partial(writer.write_rows, write))


def messages(log: FileLog, directory: Path) -> list[WriteMessage]:
    entries = [e for p in log.pchannels() for e in read_range(directory, p, START, log.end(p))]
    return [m for m in map(decode, entries) if isinstance(m, InsertMessage | UpsertMessage | DeleteMessage)]


def replaced_rows(found: Sequence[WriteMessage]) -> set[int]:
    """The keys of which there is a new row. Asserts that exactly these are deleted, each where it was."""
    deleted: list[int] = []
    stored: list[int] = []
    for message in found:
        assert message.collection_id == CID
        if isinstance(message, DeleteMessage):
            deleted += message.primary_keys.to_pylist()
            continue
        stored += [int(price) for price in message.rows.column("price").to_pylist()]
        if isinstance(message, UpsertMessage):
            assert message.deletes_in == message.partition_id
            deleted += message.deleted_keys("pk").to_pylist()
    assert sorted(deleted) == sorted(stored), "an upsert's delete without its row, or the other way round"
    assert len(set(stored)) == len(stored)
    return set(stored)


def on_files(directory: Path, use: Callable[[FileLog], Awaitable[None]], disk: Disk | None = None) -> None:
    async def run() -> None:
        log = FileLog(directory, OPTIONS, disk=disk)
        try:
            await asyncio.wait_for(use(log), 20)
        finally:
            await log.close()

    asyncio.run(run())


def after_restart(directory: Path) -> set[int]:
    found: list[WriteMessage] = []

    async def use(log: FileLog) -> None:
        found.extend(messages(log, directory))

    on_files(directory, use)
    return replaced_rows(found)


@pytest.mark.parametrize("full", [FIRST, SECOND])
def test_without_room_on_one_pchannel_every_row_is_replaced_or_untouched(tmp_path: Path, full: str) -> None:
    async def use(log: FileLog) -> None:
        with pytest.raises(PartlyWritten) as refused:
            await upsert(log, range(40))
        assert refused.value.pchannels == {FIRST, SECOND} - {full}
        replaced = replaced_rows(messages(log, tmp_path))
        assert 0 < len(replaced) < 40

    on_files(tmp_path, use, OnePchannelFull(full))


def test_a_proxy_killed_between_two_appends_leaves_every_row_replaced_or_untouched(tmp_path: Path) -> None:
    async def run() -> None:
        log = KilledBetween(tmp_path / "log", OPTIONS)
        running = asyncio.ensure_future(upsert(log, range(40)))
        while FIRST not in log.pchannels() or not log.end(FIRST):
            await settle()
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await log.close()

    asyncio.run(run())
    assert 0 < len(after_restart(tmp_path / "killed")) < 40


def test_a_torn_tail_leaves_every_row_replaced_or_untouched(tmp_path: Path) -> None:
    """Ten records of one upsert, and a crash that tears the file at any byte of them."""

    async def use(log: FileLog) -> None:
        await upsert(log, range(40), ONE_SHARD, rows_granted_max=4)
        shutil.copytree(tmp_path / "log", tmp_path / "crashed")

    on_files(tmp_path / "log", use)
    whole = (tmp_path / "crashed").rglob("*.log")
    (file,) = (path.relative_to(tmp_path / "crashed") for path in whole)
    content = (tmp_path / "crashed" / file).read_bytes()
    chance = random.Random(7)
    outcomes = set()
    for number in range(25):
        torn = tmp_path / f"torn_{number}"
        shutil.copytree(tmp_path / "crashed", torn)
        (torn / file).write_bytes(content[: chance.randrange(100, len(content))])
        outcomes.add(len(after_restart(torn)))
    assert outcomes <= set(range(0, 41, 4))
    assert len(outcomes) > 5
    assert after_restart(tmp_path / "crashed") == set(range(40))
