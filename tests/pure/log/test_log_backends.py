"""Logs named by URL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.backends import BACKENDS, range_reader
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.port import START, EntryHeader, LogOptions, LogUnreadable, NewEntry, Position


def test_a_file_url_reads_the_embedded_log(tmp_path: Path) -> None:
    directory = tmp_path / "a log"

    async def write() -> None:
        log = FileLog(directory, FileLogOptions(fsync=False))
        await log.append("dml_0", [NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(7)))])
        stop.append(log.end("dml_0"))
        await log.close()

    stop: list[Position] = []
    asyncio.run(write())
    entries = range_reader(directory.as_uri())("dml_0", START, stop[0])
    assert [entry.header.ts for entry in entries] == [7]


@pytest.mark.parametrize("url", ["", "log", "/log", "file:log", "kafka://host/log"])
def test_what_is_no_log_is_refused(url: str) -> None:
    with pytest.raises(InvalidParameter, match=r"log .*file:///"):
        range_reader(url)


def test_files_that_cannot_be_read_are_a_fault_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "dml_0").write_text("not a directory")
    with pytest.raises(LogUnreadable, match="dml_0 cannot be read"):
        list(range_reader(tmp_path.as_uri())("dml_0", START, Position(1)))

    async def follow() -> None:
        follower = await BACKENDS.of(tmp_path.as_uri()).follow(tmp_path.as_uri(), 1.0)
        await follower.open_reader("dml_0", START).read()

    with pytest.raises(LogUnreadable, match="dml_0 cannot be read"):
        asyncio.run(follow())


def test_a_directory_that_cannot_be_made_is_a_fault_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    url = (tmp_path / "file" / "log").as_uri()
    with pytest.raises(LogUnreadable, match="Not a directory"):
        asyncio.run(BACKENDS.of(url).open(url, LogOptions()))  # type: ignore[arg-type]
