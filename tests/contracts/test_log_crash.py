"""The embedded log after its process was killed with SIGKILL at seeded moments, again and again."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from log_child import FILE_BYTES_MAX, payload

from elanus.log.files import FileLog, FileLogOptions
from elanus.log.follower import FileLogFollower
from elanus.log.port import START, LogEntry, Position
from elanus.log.reading import read_range

CHILD = Path(__file__).with_name("log_child.py")
KILLS = 4
TIMEOUT_S = 30

Appended = tuple[str, int, int]
"""pchannel, writer, number."""


@dataclass
class Acknowledged:
    positions: dict[Appended, list[Position]] = field(default_factory=dict)

    def take(self, line: bytes) -> None:
        pchannel, writer, number, *positions = line.decode().split()
        self.positions[pchannel, int(writer), int(number)] = [Position(int(p)) for p in positions]


def kill_while_writing(directory: Path, seed: int, acknowledged: Acknowledged) -> None:
    """Start a writer, kill it at a moment that the seed decides, take down what it had acknowledged."""
    acks = random.Random(seed).randint(1, 200)
    command = [sys.executable, str(CHILD), str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(acks):
            acknowledged.take(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            if line.endswith(b"\n"):
                acknowledged.take(line)


async def read_everything(log: FileLog) -> dict[str, list[LogEntry]]:
    found: dict[str, list[LogEntry]] = {}
    for pchannel in log.pchannels():
        reader = log.open_reader(pchannel, START)
        entries = found[pchannel] = list[LogEntry]()
        while not entries or entries[-1].next < log.end(pchannel):
            entries += await reader.read()
    return found


def check(found: dict[str, list[LogEntry]], acknowledged: Acknowledged) -> None:
    appended: defaultdict[Appended, list[LogEntry]] = defaultdict(list)
    for pchannel, entries in found.items():
        positions = [e.position for e in entries]
        assert positions == sorted(set(positions)), "positions grow and none comes twice"
        last: dict[str, tuple[int, int]] = {}
        for e in entries:
            assert e.payload == payload(e.header.ts, e.header.row_id_start)
            place = (e.header.ts, e.header.rows)
            assert place > last.get(e.header.vchannel, (0, 0)), "each writer's order is kept"
            last[e.header.vchannel] = place
            appended[pchannel, int(e.header.vchannel[1:]), e.header.ts].append(e)
    for key, positions in acknowledged.positions.items():
        assert [e.position for e in appended[key]] == positions, f"{key} was acknowledged"


@pytest.mark.parametrize("seed", [1, 2])
def test_every_acknowledged_entry_survives_kills(tmp_path: Path, seed: int) -> None:
    acknowledged = Acknowledged()
    for kill in range(KILLS):
        kill_while_writing(tmp_path, seed * 1000 + kill, acknowledged)

    async def reopen() -> dict[str, list[LogEntry]]:
        log = FileLog(tmp_path, FileLogOptions(file_bytes_max=FILE_BYTES_MAX))
        found = await asyncio.wait_for(read_everything(log), TIMEOUT_S)
        await log.close()
        return found

    found = asyncio.run(reopen())
    assert len(acknowledged.positions) > KILLS
    check(found, acknowledged)
    for pchannel, entries in found.items():
        again = read_range(tmp_path, pchannel, START, entries[-1].next)
        assert [e.position for e in again] == [e.position for e in entries]


def test_a_follower_sees_through_kills_what_the_log_keeps(tmp_path: Path) -> None:
    """It follows from the first writer to the last, and must meet the very entries that are recovered."""
    acknowledged, seen = Acknowledged(), defaultdict[str, list[LogEntry]](list)

    async def follow(follower: FileLogFollower, pchannel: str) -> None:
        reader = follower.open_reader(pchannel, START)
        while True:
            seen[pchannel] += await reader.read()

    async def run() -> dict[str, list[LogEntry]]:
        follower = FileLogFollower(tmp_path, poll_ms=1)
        following = [asyncio.create_task(follow(follower, f"dml_{n}")) for n in range(3)]
        for kill in range(3):
            await asyncio.to_thread(kill_while_writing, tmp_path, kill, acknowledged)
        log = FileLog(tmp_path, FileLogOptions(file_bytes_max=FILE_BYTES_MAX))
        found = await read_everything(log)
        while any(seen[p][-1].next < log.end(p) for p in found):
            await asyncio.sleep(0.001)
            assert not any(task.done() for task in following)
        await log.close()
        await follower.close()
        await asyncio.gather(*following, return_exceptions=True)
        return found

    found = asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
    check(found, acknowledged)
    for pchannel, entries in found.items():
        assert [e.position for e in seen[pchannel]] == [e.position for e in entries]
