"""Reading a range of a log in packs, from the checkpoint of any of its packs."""

from __future__ import annotations

from range_packs import read_packs

from elanus.core.messages import MsgKind
from elanus.core.packs import ORIGIN
from elanus.core.timestamps import Timestamp
from elanus.log.memory import MemoryLog
from elanus.log.port import EntryHeader, NewEntry, Position
from elanus.log.shared_reader import EntryPack

PCHANNEL, A, B = "dml_0", "dml_0_1v0", "dml_0_2v0"


def message(ts: int, vchannel: str = A) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(ts), vchannel, rows=2), [b"rows"])


def tick(ts: int) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(ts)))


def brief(pack: EntryPack) -> tuple[int, int, list[int]]:
    return pack.begin_ts, pack.end_ts, [entry.header.ts for entry in pack.entries]


async def test_a_range_begins_at_the_checkpoint_of_any_pack() -> None:
    log = MemoryLog()
    await log.append(PCHANNEL, [message(9), message(1), message(1, B), tick(2), message(5), tick(6)])
    await log.append(PCHANNEL, [message(8), message(7, B), tick(9), tick(12)])
    packs = list(read_packs(log.read_range, PCHANNEL, ORIGIN, log.end(PCHANNEL), [A]))
    assert [brief(pack) for pack in packs] == [(0, 2, [1]), (2, 6, [5]), (6, 9, [8, 9]), (9, 12, [])]
    for begin in range(4):
        start = packs[begin - 1].seek if begin else ORIGIN
        for end in range(begin, 4):
            stop = Position(packs[end].next_position)
            assert list(read_packs(log.read_range, PCHANNEL, start, stop, [A])) == packs[begin : end + 1]
