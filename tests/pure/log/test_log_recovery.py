"""Opening a log after a crash: every torn tail is cut, no other damage is taken for one."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from log_files import CHANNEL, entry, files, read_all, stamps, tick, with_log
from structlog.testing import capture_logs

from elanus.log.files import FileLog, FileLogOptions
from elanus.log.frames import FILE_HEADER_BYTES, pack_file_header
from elanus.log.port import (
    CorruptLog,
    LogEntry,
    LogInUse,
    NewEntry,
    Position,
    TrimmedLog,
    UnknownLogFormat,
)
from elanus.log.writer import RESTART_GAP_BYTES, TRIM_CLOSES_BYTES


@dataclass(frozen=True)
class Crashed:
    """A log as a killed process left it: one file, whose entries were appended one by one."""

    directory: Path
    entries: list[LogEntry]

    @property
    def file(self) -> Path:
        return files(self.directory)[-1]

    def copy(self, name: str) -> Crashed:
        shutil.copytree(self.directory, self.directory.parent / name)
        return Crashed(self.directory.parent / name, self.entries)

    def damage(self, position: int) -> None:
        content = bytearray(self.file.read_bytes())
        content[position] ^= 0xFF
        self.file.write_bytes(content)

    def open_and(self, use: Callable[[FileLog], Awaitable[None]]) -> None:
        with_log(self.directory, use)

    def stamps(self) -> list[int]:
        found: list[int] = []

        async def use(log: FileLog) -> None:
            found.extend(await stamps(log))

        self.open_and(use)
        return found


def crash(tmp_path: Path, *appends: list[NewEntry]) -> Crashed:
    entries: list[LogEntry] = []

    async def use(log: FileLog) -> None:
        for append in appends:
            await log.append(CHANNEL, append)
        entries.extend(await read_all(log))
        shutil.copytree(tmp_path / "log", tmp_path / "crashed")

    with_log(tmp_path / "log", use)
    return Crashed(tmp_path / "crashed", entries)


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    return crash(tmp_path, *([entry(ts)] for ts in range(1, 6)))


def test_without_damage_nothing_is_cut(crashed: Crashed) -> None:
    with capture_logs() as messages:
        assert crashed.stamps() == [1, 2, 3, 4, 5]
    assert messages == []


@pytest.mark.slow
def test_a_last_frame_torn_at_any_byte_is_cut(crashed: Crashed) -> None:
    last = crashed.entries[-1]
    for size in range(last.position, last.next):
        torn = crashed.copy(f"torn_{size}")
        with torn.file.open("rb+") as file:
            file.truncate(size)
        with capture_logs() as messages:
            assert torn.stamps() == [1, 2, 3, 4]
        cut = [m["cut_bytes"] for m in messages]
        assert cut == ([size - last.position] if size > last.position else [])
        assert all(m["log_level"] == "warning" for m in messages)


@pytest.mark.slow
def test_a_last_frame_with_any_byte_wrong_is_cut(crashed: Crashed) -> None:
    last = crashed.entries[-1]
    assert last.payload is not None
    padding = -len(last.payload) % 8
    for position in range(last.position, last.next - padding):
        torn = crashed.copy(f"wrong_{position}")
        torn.damage(position)
        with capture_logs() as messages:
            assert torn.stamps() == [1, 2, 3, 4]
        assert [m["cut_bytes"] for m in messages] == [last.next - last.position]


def test_zeros_behind_the_last_frame_are_cut(crashed: Crashed) -> None:
    with crashed.file.open("ab") as file:
        file.write(bytes(100_000))
    with capture_logs() as messages:
        assert crashed.stamps() == [1, 2, 3, 4, 5]
    assert [m["cut_bytes"] for m in messages] == [100_000]


def test_positions_after_a_crash_are_above_all_that_were_written(crashed: Crashed) -> None:
    with crashed.file.open("ab") as file:
        file.write(b"torn" * 1000)
    physical_end = crashed.file.stat().st_size
    positions: list[Position] = []

    async def use(log: FileLog) -> None:
        assert log.end(CHANNEL) == crashed.entries[-1].next
        positions.extend(await log.append(CHANNEL, [entry(6)]))
        assert await stamps(log) == [1, 2, 3, 4, 5, 6]

    crashed.open_and(use)
    assert positions[0] >= physical_end + RESTART_GAP_BYTES
    assert crashed.stamps() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("where", ["header", "payload"])
def test_damage_before_a_later_commit_is_no_torn_tail(crashed: Crashed, where: str) -> None:
    damaged = crashed.entries[2]
    crashed.damage(damaged.position + 20 if where == "header" else damaged.next - 8)
    with pytest.raises(CorruptLog, match=f"position {damaged.position}") as raised:
        crashed.stamps()
    assert str(crashed.file) in str(raised.value)


def test_a_hole_in_an_unfinished_commit_is_a_torn_tail(tmp_path: Path) -> None:
    """Pages of one write reach the disk in any order: what is intact behind the hole was never stored."""
    crashed = crash(tmp_path, [entry(1)], [entry(2), entry(3), entry(4)])
    crashed.damage(crashed.entries[2].position + 30)
    with capture_logs() as messages:
        assert crashed.stamps() == [1, 2]
    assert len(messages) == 1


def test_frames_inside_a_payload_are_no_evidence(crashed: Crashed, tmp_path: Path) -> None:
    """A payload may hold a copy of a log file; damage before it is judged as if it held anything else."""
    copied = crashed.file.read_bytes()
    other = crash(tmp_path / "other", [entry(1)], [entry(2, b"x" * 50 + copied)])
    other.damage(other.entries[1].position + 100)
    assert other.stamps() == [1]


def test_an_unfinished_first_file_is_as_none(tmp_path: Path) -> None:
    for size in range(FILE_HEADER_BYTES):
        directory = tmp_path / str(size)
        (directory / CHANNEL).mkdir(parents=True)
        (directory / CHANNEL / f"{0:020d}.log").write_bytes(pack_file_header(Position(0))[:size])

        async def use(log: FileLog) -> None:
            await log.append(CHANNEL, [entry(1)])
            assert await stamps(log) == [1]

        with_log(directory, use)


def test_an_unfinished_later_file_is_as_none(crashed: Crashed) -> None:
    base = crashed.entries[-1].next
    (crashed.file.parent / f"{base:020d}.log").write_bytes(b"EL")
    assert crashed.stamps() == [1, 2, 3, 4, 5]


def test_a_damaged_file_header_is_corruption(crashed: Crashed) -> None:
    crashed.damage(12)
    with pytest.raises(CorruptLog, match="file header"):
        crashed.stamps()


def test_another_format_version_is_refused(crashed: Crashed) -> None:
    import xxhash

    body = bytearray(pack_file_header(Position(0))[8:])
    body[8] += 1
    with crashed.file.open("rb+") as file:
        file.write(xxhash.xxh3_64_intdigest(body).to_bytes(8, "little") + body)
    with pytest.raises(UnknownLogFormat, match="2"):
        crashed.stamps()


def test_a_file_under_another_name_is_corruption(crashed: Crashed) -> None:
    crashed.file.rename(crashed.file.with_name(f"{4096:020d}.log"))
    with pytest.raises(CorruptLog, match="file header"):
        crashed.stamps()


def test_a_log_that_was_closed_trusts_no_damaged_byte(tmp_path: Path) -> None:
    """Closed properly, even the very last entry is protected: nothing is cut, reading it is an error."""

    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1)])
        await log.append(CHANNEL, [entry(2)])

    async def look(log: FileLog) -> None:
        reader = log.open_reader(CHANNEL, Position(0))
        with pytest.raises(CorruptLog, match=str(files(tmp_path)[0])):
            await reader.read()

    with_log(tmp_path, use)
    content = bytearray(files(tmp_path)[0].read_bytes())
    content[-20] ^= 1
    files(tmp_path)[0].write_bytes(content)
    with_log(tmp_path, look)


def test_opening_and_closing_without_a_write_adds_no_files(crashed: Crashed) -> None:
    before = files(crashed.directory)
    for _ in range(3):
        crashed.stamps()
    assert files(crashed.directory) == before


def test_a_trim_survives_and_never_takes_the_last_file(tmp_path: Path) -> None:
    async def use(log: FileLog) -> None:
        for ts in range(1, 20):
            await log.append(CHANNEL, [entry(ts, bytes(300))])
        await log.trim(CHANNEL, log.end(CHANNEL))
        assert len(files(tmp_path)) == 1
        (kept,) = await log.append(CHANNEL, [tick(20)])
        with pytest.raises(TrimmedLog):
            await log.open_reader(CHANNEL, Position(0)).read()
        assert (await read_all(log, kept))[0].header.ts == 20

    with_log(tmp_path, use, file_bytes_max=1000)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    import os

    async def use(log: FileLog) -> None:
        with pytest.raises(LogInUse, match=f"{tmp_path}.*{os.getpid()}"):
            FileLog(tmp_path)

    with_log(tmp_path, use)
    with_log(tmp_path, lambda log: asyncio.sleep(0))


def test_a_log_that_cannot_be_opened_is_not_left_locked(crashed: Crashed) -> None:
    crashed.damage(12)
    for _ in range(2):
        with pytest.raises(CorruptLog):
            FileLog(crashed.directory, FileLogOptions(fsync=False))


def test_a_trim_closes_a_file_that_would_never_fill(tmp_path: Path) -> None:
    """Entries of a quiet pchannel that binlogs hold are trimmed, though its file is far from full."""

    async def use(log: FileLog) -> None:
        large = b"x" * TRIM_CLOSES_BYTES
        await log.append(CHANNEL, [entry(1, large), entry(2, large)])
        (old,) = files(tmp_path)
        await log.trim(CHANNEL, Position(log.end(CHANNEL) - 8))
        assert old in files(tmp_path), "something in it is still needed"
        await log.append(CHANNEL, [entry(3)])
        await log.trim(CHANNEL, log.end(CHANNEL))
        assert old not in files(tmp_path)
        assert log.size_bytes() < TRIM_CLOSES_BYTES
        last = await log.append(CHANNEL, [entry(4)])
        assert [e.header.ts for e in await read_all(log, Position(last[0]))] == [4]

    with_log(tmp_path, use)

    async def again(log: FileLog) -> None:
        begin = Position(int(files(tmp_path)[0].stem))
        assert [e.header.ts for e in await read_all(log, begin)] == [3, 4]

    with_log(tmp_path, again)


def several_files(tmp_path: Path) -> list[Path]:
    """A log of one entry a file, closed."""

    async def use(log: FileLog) -> None:
        for ts in (1, 2, 3, 4):
            await log.append(CHANNEL, [entry(ts, b"x" * 100)])

    with_log(tmp_path / "log", use, file_bytes_max=64)
    return files(tmp_path / "log")


@pytest.mark.parametrize("damage", ["cut", "cut to its header", "gone"])
@pytest.mark.parametrize("number", [1, 3])
def test_what_is_missing_at_the_end_of_a_finished_file_is_noticed(
    tmp_path: Path, number: int, damage: str
) -> None:
    """Even when nothing follows but the empty file that a clean stop leaves, or what a later start writes."""
    paths = several_files(tmp_path)
    assert len(paths) == 5
    if damage == "gone":
        paths[number].unlink()
    else:
        size = FILE_HEADER_BYTES if damage == "cut to its header" else paths[number].stat().st_size - 8
        paths[number].write_bytes(paths[number].read_bytes()[:size])

    async def use(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(5)])
        with pytest.raises(CorruptLog):
            await read_all(log)

    with_log(tmp_path / "log", use)


def test_files_of_releases_that_did_not_note_where_the_file_before_ended_are_read(tmp_path: Path) -> None:
    for path in several_files(tmp_path):
        content = pack_file_header(Position(int(path.stem))) + path.read_bytes()[FILE_HEADER_BYTES:]
        path.write_bytes(content)

    async def use(log: FileLog) -> None:
        assert await stamps(log) == [1, 2, 3, 4]

    with_log(tmp_path / "log", use)
