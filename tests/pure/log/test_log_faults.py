"""The embedded log on a disk that is full, or that fails: nothing of a failed append is ever seen."""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from log_files import CHANNEL, entry, files, read_all, stamps, stamps_after_crash, tick, until, with_log
from structlog.testing import capture_logs

from elanus.core.errors import DiskFull, Internal, Unavailable
from elanus.log.disk import Disk
from elanus.log.files import FileLog
from elanus.log.frames import Part
from elanus.log.port import EntryHeader, NewEntry
from elanus.log.writer import PchannelWriter

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


class FaultyDisk(Disk):
    """Fails the next calls of an operation as the test says. A failing write leaves half its bytes behind."""

    def __init__(self) -> None:
        super().__init__(fsync=False)
        self.faults: dict[str, list[OSError]] = {}
        self.synced: list[int] = []

    def fail(self, operation: str, error: OSError, times: int = 1) -> None:
        self.faults[operation] = [error] * times

    def write(self, fd: int, parts: Sequence[Part], offset: int) -> None:
        if self.faults.get("write"):
            joined = b"".join(parts)
            super().write(fd, [joined[: len(joined) // 2]], offset)
        self._meet("write")
        super().write(fd, parts, offset)

    def sync(self, fd: int) -> None:
        self._meet("sync")
        self.synced.append(fd)

    def create(self, path: Path) -> int:
        self._meet("create")
        return super().create(path)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._meet("truncate")
        super().truncate(fd, size_bytes)

    def unlink(self, path: Path) -> None:
        self._meet("unlink")
        super().unlink(path)

    def _meet(self, operation: str) -> None:
        if self.faults.get(operation):
            raise self.faults[operation].pop()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture(autouse=True)
def messages() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize(("error", "expected"), [(NO_SPACE, DiskFull), (BROKEN, Unavailable)])
def test_of_a_failed_append_nothing_stays(
    tmp_path: Path, disk: FaultyDisk, operation: str, error: OSError, expected: type[Exception]
) -> None:
    async def use(log: FileLog) -> None:
        (first,) = await log.append(CHANNEL, [entry(1)])
        await log.append(CHANNEL, [tick(2)], durable=False)
        end = log.end(CHANNEL)
        reader = log.open_reader(CHANNEL, end)
        waiting = asyncio.ensure_future(reader.read())
        disk.fail(operation, error)
        with pytest.raises(expected):
            await log.append(CHANNEL, [entry(3), entry(4)])
        assert log.end(CHANNEL) == end
        assert await stamps(log) == [1, 2]
        assert await stamps_after_crash(tmp_path / "log", tmp_path / "crashed") == [1, 2]

        (position,) = await log.append(CHANNEL, [entry(5)])
        assert position > end > first
        assert [e.position for e in await waiting] == [position]
        assert await stamps(log) == [1, 2, 5]

    with_log(tmp_path / "log", use, disk=disk)
    assert asyncio.run(stamps_after_crash(tmp_path / "log", tmp_path / "closed")) == [1, 2, 5]


@pytest.mark.parametrize("operation", ["create", "write", "sync"])
def test_a_failed_first_append_leaves_no_file(tmp_path: Path, disk: FaultyDisk, operation: str) -> None:
    async def use(log: FileLog) -> None:
        disk.fail(operation, NO_SPACE)
        with pytest.raises(DiskFull):
            await log.append(CHANNEL, [entry(1)])
        assert files(tmp_path) == []
        assert list(log.pchannels()) == []
        await log.append(CHANNEL, [entry(2)])
        assert await stamps(log) == [2]

    with_log(tmp_path, use, disk=disk)


def test_a_failure_while_a_new_file_is_begun_harms_no_old_one(tmp_path: Path, disk: FaultyDisk) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1, bytes(2000))])
        for _ in range(3):
            disk.fail("create", NO_SPACE)
            with pytest.raises(DiskFull):
                await log.append(CHANNEL, [entry(2)])
        await log.append(CHANNEL, [entry(3)])
        assert await stamps(log) == [1, 3]

    with_log(tmp_path, use, disk=disk, file_bytes_max=1000)


class AlmostFullDisk(FaultyDisk):
    """Has room for the beginning of a file, but not for entries of a kilobyte."""

    def write(self, fd: int, parts: Sequence[Part], offset: int) -> None:
        if sum(memoryview(part).nbytes for part in parts) > 1000:
            raise NO_SPACE
        super().write(fd, parts, offset)


@pytest.mark.parametrize("before", [[], [entry(1)]], ids=["a new log", "a log with an entry"])
def test_failed_appends_on_an_almost_full_disk_leave_no_empty_files(
    tmp_path: Path, before: list[NewEntry]
) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, before)
        reader = log.open_reader(CHANNEL, log.end(CHANNEL))
        for ts in range(2, 12):
            with pytest.raises(DiskFull):
                await log.append(CHANNEL, [entry(ts, bytes(2000))])
            assert len(files(tmp_path / "log")) == len(before)
            assert await log.sync(CHANNEL) == log.end(CHANNEL)
        assert await stamps_after_crash(tmp_path / "log", tmp_path / "crashed") == [1] * len(before)
        await log.append(CHANNEL, [entry(12)])
        assert [e.header.ts for e in await reader.read()] == [12]

    with_log(tmp_path / "log", use, disk=AlmostFullDisk())
    assert asyncio.run(stamps_after_crash(tmp_path / "log", tmp_path / "closed")) == [1] * len(before) + [12]


def test_an_empty_file_that_readers_have_seen_stays_when_an_append_fails(tmp_path: Path) -> None:
    """A reader may wait at its beginning, where the log would otherwise no longer be."""

    async def use(log: FileLog) -> None:
        for ts in range(1, 200):
            await log.append(CHANNEL, [entry(ts, bytes(700))])
        await log.trim(CHANNEL, log.end(CHANNEL))  # now its only file is empty
        reader = log.open_reader(CHANNEL, log.end(CHANNEL))
        for _ in range(3):
            with pytest.raises(DiskFull):
                await log.append(CHANNEL, [entry(500, bytes(2000))])
        assert len(files(tmp_path)) == 1
        await log.append(CHANNEL, [entry(501)])
        assert [e.header.ts for e in await reader.read()] == [501]

    with_log(tmp_path, use, disk=AlmostFullDisk())


def test_while_the_disk_refuses_repair_every_append_fails_and_then_recovers(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        await log.append(CHANNEL, [tick(2)], durable=False)
        disk.fail("sync", BROKEN)
        disk.fail("truncate", BROKEN, times=99)
        for ts in range(3, 6):
            with pytest.raises(Unavailable):
                await log.append(CHANNEL, [entry(ts)])
            assert await stamps(log) == [1, 2]
        disk.faults.clear()
        await log.append(CHANNEL, [entry(6)])
        assert await stamps(log) == [1, 2, 6]

    with_log(tmp_path, use, disk=disk)


def test_sync_fails_when_it_cannot_promise(tmp_path: Path, disk: FaultyDisk) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [tick(1)], durable=False)
        disk.fail("sync", BROKEN)
        with pytest.raises(Unavailable):
            await log.sync(CHANNEL)
        assert await log.sync(CHANNEL) == log.end(CHANNEL)
        assert await stamps(log) == [1]

    with_log(tmp_path, use, disk=disk)


def test_all_of_a_failed_group_fail_and_other_channels_do_not(tmp_path: Path, disk: FaultyDisk) -> None:
    async def use(log: FileLog) -> None:
        await log.append("other", [entry(1)])
        await log.append(CHANNEL, [entry(1)])
        disk.fail("write", NO_SPACE)
        calls = [log.append(CHANNEL, [entry(ts)]) for ts in range(2, 5)]
        outcomes = await asyncio.gather(*calls, log.append("other", [entry(2)]), return_exceptions=True)
        failed = [o for o in outcomes[:3] if isinstance(o, DiskFull)]
        kept = [ts for ts, o in zip(range(2, 5), outcomes, strict=False) if not isinstance(o, DiskFull)]
        assert failed
        assert not isinstance(outcomes[3], BaseException)
        assert await stamps(log) == [1, *kept]

    with_log(tmp_path, use, disk=disk)


def test_a_real_limit_of_the_file_system_is_met_cleanly(tmp_path: Path) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        with file_size_limit(50_000), pytest.raises(Unavailable, match="File too large"):
            await log.append(CHANNEL, [entry(2, bytes(30_000)), entry(3, bytes(30_000))])
        assert await stamps(log) == [1]
        await log.append(CHANNEL, [entry(4, bytes(60_000))])
        assert await stamps(log) == [1, 4]

    with_log(tmp_path / "log", use)
    assert asyncio.run(stamps_after_crash(tmp_path / "log", tmp_path / "again")) == [1, 4]


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_an_entry_that_cannot_be_framed_is_the_callers_error_alone(tmp_path: Path) -> None:
    bad = NewEntry(EntryHeader(entry(1).header.kind, entry(1).header.ts, rows=-1))

    async def use(log: FileLog) -> None:
        calls = [log.append(CHANNEL, entries) for entries in ([entry(1)], [entry(2), bad], [entry(3)])]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(o) for o in outcomes] == [list, ValueError, list]
        assert await stamps(log) == [1, 3]
        with pytest.raises(ValueError, match="pchannel"):
            await log.append("../elsewhere", [entry(4)])

    with_log(tmp_path, use)


def test_an_unknown_error_is_raised_and_the_writer_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        with monkeypatch.context() as patch:
            patch.setattr(PchannelWriter, "show", lambda self: 1 / 0)
            with pytest.raises(Internal, match="ZeroDivisionError"):
                await log.append(CHANNEL, [entry(2)])
        await log.append(CHANNEL, [entry(3)])
        assert await stamps(log) == [1, 3]

    with_log(tmp_path, use)


def test_many_appends_share_a_sync(tmp_path: Path, disk: FaultyDisk) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        before = len(disk.synced)
        await asyncio.gather(*(log.append(CHANNEL, [entry(ts)]) for ts in range(2, 402)))
        assert len(disk.synced) - before <= 50

    with_log(tmp_path, use, disk=disk)


def test_ticks_alone_are_synced_after_the_delay(tmp_path: Path, disk: FaultyDisk) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        before = len(disk.synced)
        await log.append(CHANNEL, [tick(2)], durable=False)
        await until(lambda: len(disk.synced) > before)

    with_log(tmp_path, use, disk=disk, sync_delay_ms=1)


def test_ticks_alone_are_not_synced_before_the_delay(tmp_path: Path, disk: FaultyDisk) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        before = len(disk.synced)
        for ts in range(2, 102):
            await log.append(CHANNEL, [tick(ts)], durable=False)
        assert len(disk.synced) == before
        await log.append(CHANNEL, [entry(102)])
        assert len(disk.synced) == before + 1

    with_log(tmp_path, use, disk=disk)


def test_a_delayed_sync_that_fails_is_made_good(tmp_path: Path, disk: FaultyDisk) -> None:
    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        disk.fail("sync", BROKEN)
        await log.append(CHANNEL, [tick(2)], durable=False)
        await until(lambda: not disk.faults["sync"])
        await log.append(CHANNEL, [tick(3)])
        assert await stamps(log) == [1, 2, 3]

    with_log(tmp_path / "log", use, disk=disk, sync_delay_ms=1)
    assert asyncio.run(stamps_after_crash(tmp_path / "log", tmp_path / "again")) == [1, 2, 3]


def test_much_that_need_not_be_durable_is_synced_before_it_is_seen(tmp_path: Path, disk: FaultyDisk) -> None:
    """So that what can be seen and yet be lost never spans more than the positions a restart leaves out."""

    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [tick(1)])
        before = len(disk.synced)
        await log.append(CHANNEL, [entry(2, bytes(2 << 20))], durable=False)
        assert len(disk.synced) == before + 1

    with_log(tmp_path, use, disk=disk)


def test_closing_reports_what_could_not_be_stored(tmp_path: Path, disk: FaultyDisk) -> None:
    async def run() -> None:
        log = FileLog(tmp_path, disk=disk)
        await log.append(CHANNEL, [tick(1)], durable=False)
        disk.fail("sync", BROKEN)
        with pytest.raises(Unavailable):
            await log.close()
        await log.close()
        reopened = FileLog(tmp_path)
        assert len(await read_all(reopened)) == 1
        await reopened.close()

    asyncio.run(run())
