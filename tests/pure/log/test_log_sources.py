"""Logs named by URL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.port import START, EntryHeader, NewEntry, Position
from elanus.log.sources import range_reader


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
