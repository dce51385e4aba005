"""A log of which all files were lost begins again, and is not taken for the one that its readers know."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from log_files import CHANNEL, entry, read_all, stamps, tick, with_log

from elanus.log.files import FileLog
from elanus.log.frames import begins_log, pack_file_header
from elanus.log.port import START, Position, TrimmedLog
from elanus.log.reading import read_range

pytestmark = pytest.mark.usefixtures("real_positions")


def test_positions_of_a_lost_log_are_refused_and_those_of_the_new_one_are_read(tmp_path: Path) -> None:
    known: list[Position] = []

    async def write(log: FileLog) -> None:
        known.extend(await log.append(CHANNEL, [entry(ts) for ts in range(1, 6)]))
        assert await stamps(log) == [1, 2, 3, 4, 5]

    async def begin_again(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(6), tick(7)])
        for position in known:
            with pytest.raises(
                TrimmedLog, match=f"{CHANNEL}: position {position} is trimmed; the log begins"
            ):
                await log.open_reader(CHANNEL, position).read()
        assert await stamps(log) == [6, 7]
        positions = [e.position for e in await read_all(log)]
        assert positions[0] > known[-1]
        found = read_range(tmp_path / "log", CHANNEL, START, log.end(CHANNEL))
        assert [e.position for e in found] == positions

    with_log(tmp_path / "log", write)
    shutil.rmtree(tmp_path / "log" / CHANNEL)
    with_log(tmp_path / "log", begin_again)


def test_a_log_that_was_trimmed_is_not_read_from_its_start(tmp_path: Path) -> None:
    async def use(log: FileLog) -> None:
        for ts in range(1, 40):
            await log.append(CHANNEL, [entry(ts, bytes(50_000))])
        await log.trim(CHANNEL, log.end(CHANNEL))
        with pytest.raises(TrimmedLog):
            await log.open_reader(CHANNEL, START).read()

    with_log(tmp_path, use, file_bytes_max=1 << 18)


def test_only_the_first_file_begins_a_log() -> None:
    base = Position(1 << 50)
    assert begins_log(pack_file_header(base, START))
    for before in (None, base, Position(base - 8), Position(8)):
        assert not begins_log(pack_file_header(base, before))
