"""Reading a log in packs: following it, starting again at a checkpoint, reading a range once more."""

from __future__ import annotations

import asyncio

from elanus.core.catalog import Checkpoint
from elanus.core.messages import MsgKind
from elanus.core.packs import ORIGIN
from elanus.core.timestamps import Timestamp
from elanus.log.memory import MemoryLog
from elanus.log.msgstream import EntryPack, TickReader, read_packs
from elanus.log.port import EntryHeader, NewEntry, Position

PCHANNEL, A, B = "dml_0", "dml_0_1v0", "dml_0_2v0"


def message(ts: int, vchannel: str = A) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(ts), vchannel, rows=2), [b"rows"])


def tick(ts: int) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(ts)))


def follow(
    log: MemoryLog, start: Checkpoint = ORIGIN, *vchannels: str, headers_only: bool = False
) -> TickReader:
    reader = log.open_reader(PCHANNEL, Position(start.position), headers_only=headers_only)
    return TickReader(reader, start, vchannels or None)


def brief(pack: EntryPack) -> tuple[int, int, list[int]]:
    return pack.begin_ts, pack.end_ts, [entry.header.ts for entry in pack.entries]


def test_packs_come_as_their_ticks_do() -> None:
    async def run() -> None:
        log = MemoryLog()
        reader = follow(log)
        waiting = asyncio.ensure_future(reader.next_pack())
        await log.append(PCHANNEL, [message(2), message(5), message(1)])
        await asyncio.sleep(0)
        assert not waiting.done()
        await log.append(PCHANNEL, [tick(3)])
        assert brief(await waiting) == (0, 3, [1, 2])
        await log.append(PCHANNEL, [tick(4), message(3), tick(6)])
        assert brief(await reader.next_pack()) == (3, 4, [])
        assert brief(await reader.next_pack()) == (4, 6, [5])
        assert (reader.late_messages, reader.late_rows) == (1, 2)

    asyncio.run(run())


def test_a_reader_that_is_behind_takes_many_packs_at_once() -> None:
    async def run() -> None:
        log = MemoryLog()
        for ts in range(1, 101):
            await log.append(PCHANNEL, [message(ts), tick(ts)])
        found = await follow(log).next_packs()
        assert [brief(p) for p in found] == [(ts - 1, ts, [ts]) for ts in range(1, 101)]

    asyncio.run(run())


def test_a_pack_that_was_given_up_waiting_for_is_not_lost() -> None:
    async def run() -> None:
        log = MemoryLog()
        reader = follow(log)
        await log.append(PCHANNEL, [message(1)])
        given_up = asyncio.ensure_future(reader.next_pack())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await log.append(PCHANNEL, [tick(1)])
        assert brief(await reader.next_pack()) == (0, 1, [1])

    asyncio.run(run())


def test_a_range_reads_again_what_was_followed() -> None:
    async def run() -> None:
        log = MemoryLog()
        await log.append(PCHANNEL, [message(9), message(1), message(1, B), tick(2), message(5), tick(6)])
        await log.append(PCHANNEL, [message(8), message(7, B), tick(9), tick(12)])
        reader = follow(log, ORIGIN, A)
        followed = [await reader.next_pack() for _ in range(4)]
        for begin in range(4):
            start = followed[begin - 1].seek if begin else ORIGIN
            for end in range(begin, 4):
                stop = Position(followed[end].next_position)
                again = list(read_packs(log.read_range, PCHANNEL, start, stop, [A]))
                assert again == followed[begin : end + 1]

    asyncio.run(run())


def test_headers_are_enough_to_follow() -> None:
    async def run() -> None:
        log = MemoryLog()
        await log.append(PCHANNEL, [message(1), tick(2)])
        pack = await follow(log, headers_only=True).next_pack()
        assert [(e.header.rows, e.payload, e.payload_bytes) for e in pack.entries] == [(2, None, 4)]

    asyncio.run(run())
