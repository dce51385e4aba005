"""A log that was replaced by an older copy: what it lacks is refused, and no position is given twice."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from log_files import CHANNEL, entry, read_all, stamps, tick, with_log

from elanus.log.files import FileLog
from elanus.log.follower import FileLogFollower
from elanus.log.port import Position, RewoundLog
from elanus.log.reading import read_range

Lose = Callable[[Path, Path], tuple[Position, list[Position]]]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds pass between two processes."""
    positions = itertools.count(1 << 50, 1 << 30)
    monkeypatch.setattr("elanus.log.writer._clock", lambda: next(positions))


def within_one_process(log_dir: Path, copy: Path) -> tuple[Position, list[Position]]:
    """The copy was made while the log was written, and the rest directly follows it."""
    end, lost = [Position(0)], list[Position]()

    async def write(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1), entry(2), entry(3)])
        end[0] = log.end(CHANNEL)
        shutil.copytree(log_dir, copy)
        await log.append(CHANNEL, [entry(4)])  # a reader at its position has nothing that the copy lacks
        for ts in (5, 6):
            lost.extend(await log.append(CHANNEL, [entry(ts)]))
        lost.append(log.end(CHANNEL))

    with_log(log_dir, write)
    return end[0], lost


def between_two_processes(log_dir: Path, copy: Path) -> tuple[Position, list[Position]]:
    """The copy was made of a log that was closed, and the rest is in files of another process."""
    end, lost = [Position(0)], list[Position]()

    async def begin(log: FileLog) -> None:
        await log.append(CHANNEL, [entry(1), entry(2), entry(3)])
        end[0] = log.end(CHANNEL)

    async def go_on(log: FileLog) -> None:
        for ts in (4, 5, 6):
            lost.extend(await log.append(CHANNEL, [entry(ts)]))
        lost.append(log.end(CHANNEL))

    with_log(log_dir, begin)
    shutil.copytree(log_dir, copy)
    with_log(log_dir, go_on)
    return end[0], lost


@pytest.mark.parametrize("lose", [within_one_process, between_two_processes])
def test_what_the_copy_lacks_is_refused_and_its_positions_are_never_given_again(
    tmp_path: Path, lose: Lose
) -> None:
    log_dir, copy = tmp_path / "log", tmp_path / "copy"
    end, lost = lose(log_dir, copy)
    shutil.rmtree(log_dir)
    shutil.copytree(copy, log_dir)

    async def refused(log: FileLog, follower: FileLogFollower | None = None) -> None:
        for position in lost:
            assert log.missing_from(CHANNEL, position) == end
            text = f"{CHANNEL}: position {position} is needed, but the log ends at {end}: an older copy"
            with pytest.raises(RewoundLog, match=text):
                await log.open_reader(CHANNEL, position).read()
            with pytest.raises(RewoundLog, match=text):
                list(read_range(log_dir, CHANNEL, position, Position(max(lost[-1], log.end(CHANNEL)) + 1)))
            if follower is not None:
                with pytest.raises(RewoundLog, match=text):
                    await follower.open_reader(CHANNEL, position).read()

    async def use(log: FileLog) -> None:
        await refused(log)
        assert await stamps(log) == [1, 2, 3]
        (after,) = await log.append(CHANNEL, [entry(7)])
        await log.append(CHANNEL, [tick(8)])
        assert after > lost[-1]
        await refused(log, FileLogFollower(log_dir))
        assert [e.header.ts for e in await read_all(log, end)] == [7, 8]
        assert await stamps(log) == [1, 2, 3, 7, 8]

    with_log(log_dir, use)


def test_a_clock_that_was_set_back_gives_no_position_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[Position] = []

    async def use(log: FileLog) -> None:
        known.extend(await log.append(CHANNEL, [entry(len(known) + 1)]))
        assert known == sorted(set(known))
        assert await stamps(log) == list(range(1, len(known) + 1))

    for clock in (1 << 40, 1 << 30, 1 << 50, 0):
        monkeypatch.setattr("elanus.log.writer._clock", lambda clock=clock: clock)
        with_log(tmp_path, use)
