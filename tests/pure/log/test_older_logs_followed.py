"""A vchannel that begins beyond the end of an older copy of its log, while another begins before it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from log_files import CHANNEL, entry, tick, with_log
from test_dispatcher import ORIGIN, Seen, breathe

from elanus.core.catalog import Checkpoint
from elanus.log.dispatcher import Dispatcher
from elanus.log.files import FileLog
from elanus.log.memory import MemoryLog
from elanus.log.port import Log, Position, RewoundLog

EARLIER, LATER = f"{CHANNEL}_1v0", f"{CHANNEL}_2v0"


def checkpoint(position: int) -> Checkpoint:
    return replace(ORIGIN, position=position)


def follow(dispatcher: Dispatcher, vchannel: str, start: Checkpoint) -> Seen:
    seen = Seen()
    seen.subscription = dispatcher.follow(vchannel, start, seen)
    return seen


def kinds(errors: Sequence[Exception]) -> list[type[Exception]]:
    return [type(error) for error in errors]


async def test_it_is_refused_although_the_reader_of_the_other_waits_before_its_start() -> None:
    log = MemoryLog()
    await log.append(CHANNEL, [entry(1), tick(2)])
    end = log.end(CHANNEL)
    dispatcher = Dispatcher(log)
    earlier = follow(dispatcher, EARLIER, ORIGIN)
    await breathe()
    there, later = (follow(dispatcher, LATER, checkpoint(p)) for p in (end, end + 1))
    await breathe()
    assert (kinds(earlier.errors), kinds(there.errors), kinds(later.errors)) == ([], [], [RewoundLog])
    assert f"position {end + 1} is needed, but the log ends at {end}" in str(later.errors[0])
    await log.append(CHANNEL, [tick(3)])
    await breathe()
    assert earlier.subscription is not None
    assert earlier.subscription.ts == 3
    await dispatcher.close()


@pytest.mark.parametrize("goes_on_before", [False, True])
@pytest.mark.parametrize("is_suspected", [False, True])
def test_it_is_refused_where_files_skip_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on_before: bool, is_suspected: bool
) -> None:
    """Unless it is suspected when it begins, it is when the reader comes to the place."""
    if not is_suspected:
        monkeypatch.setattr(FileLog, "missing_from", lambda *_: None)
    positions = itertools.count(1 << 50, 1 << 30)
    monkeypatch.setattr("elanus.log.writer._clock", lambda: next(positions))
    log_dir, copy = tmp_path / "log", tmp_path / "copy"
    starts: list[Position] = []

    async def write(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1), tick(2)])
        starts.append(log.end(CHANNEL))
        shutil.copytree(log_dir, copy)
        await log.append(CHANNEL, [entry(3), tick(4)])
        starts.append(log.end(CHANNEL))

    async def use(log: Log) -> None:
        dispatcher = Dispatcher(log)
        if goes_on_before:
            await log.append(CHANNEL, [tick(5)])
        earlier, there, later = (
            follow(dispatcher, vchannel, checkpoint(start))
            for vchannel, start in ((EARLIER, 0), (LATER, starts[0]), (LATER, starts[1]))
        )
        await log.append(CHANNEL, [tick(6)])
        while earlier.subscription is None or earlier.subscription.ts < 6:
            await breathe()
        assert (kinds(earlier.errors), kinds(there.errors), kinds(later.errors)) == ([], [], [RewoundLog])
        assert f"position {starts[1]} is needed, but the log ends at {starts[0]}" in str(later.errors[0])
        await dispatcher.close()

    with_log(log_dir, write)
    shutil.rmtree(log_dir)
    shutil.copytree(copy, log_dir)
    with_log(log_dir, use)
