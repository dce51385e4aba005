"""The log forgets what all have in binlogs, and nothing that anybody may still read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from data_bench import LOG_HOLD_S, Bench
from fakes import CID, collection, schema

from elanus.api.datacoord import LogHold
from elanus.core.catalog import Checkpoint
from elanus.core.ids import CollectionID, NodeID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import compose
from elanus.log.port import EntryHeader, NewEntry

A, B = NodeID(31), NodeID(32)
PCHANNEL = "by-dev-rootcoord-dml_0"


async def fill(bench: Bench, pchannel: str = PCHANNEL, count: int = 10) -> list[int]:
    entries = [NewEntry(EntryHeader(MsgKind.TIME_TICK, compose(n + 1))) for n in range(count)]
    return list(await bench.log.append(pchannel, entries))


def first_left(bench: Bench, pchannel: str = PCHANNEL) -> int:
    return bench.log._streams[pchannel].begin


def at(position: int) -> Checkpoint:
    return Checkpoint(compose(100_000 + position), position, compose(1), 1)


async def test_the_slowest_vchannel_of_a_pchannel_decides(tmp_path: Path) -> None:
    other = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path, collection(), other)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[7]))
    await asyncio.sleep(15)
    assert first_left(bench) == 1, "the other one has not moved"
    await bench.commit(vchannel=other.vchannels[0], checkpoint=at(positions[4]))
    await asyncio.sleep(15)
    assert first_left(bench) == positions[4]
    await bench.coord.stop()


async def test_a_checkpoint_that_was_given_out_is_kept_until_it_can_be_reported(tmp_path: Path) -> None:
    """Its reader loads binlogs first, and reads the log from there afterwards."""
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[2]))
    assert (await bench.coord.recovery_info(CID)).vchannels[0].checkpoint.position == positions[2]
    await bench.commit(checkpoint=at(positions[7]))
    await asyncio.sleep(15)
    assert first_left(bench) == positions[2]
    await asyncio.sleep(30)
    assert first_left(bench) == positions[7]
    await bench.coord.stop()


async def test_what_a_query_node_has_yet_to_read_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.coord.hold_log((LogHold(A, PCHANNEL, positions[2]), LogHold(B, PCHANNEL, positions[4])))
    await bench.commit(checkpoint=at(positions[7]))
    await asyncio.sleep(15)
    assert first_left(bench) == positions[2]
    await bench.coord.hold_log((LogHold(B, PCHANNEL, positions[4]),))
    await asyncio.sleep(15)
    assert first_left(bench) == positions[4]
    await bench.coord.hold_log((LogHold(B, PCHANNEL, positions[8]),))
    await asyncio.sleep(15)
    assert first_left(bench) == positions[7], "the checkpoint counts as well"
    await bench.coord.stop()


async def test_a_query_node_that_reads_nothing_holds_the_log_for_a_limited_time(tmp_path: Path) -> None:
    """Another one that lags but reads is waited for."""
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[9]))
    rounds = LOG_HOLD_S // 10
    for n in range(rounds + 3):
        moving = LogHold(B, PCHANNEL, positions[3 + (n > rounds // 2)])
        await bench.coord.hold_log((LogHold(A, PCHANNEL, positions[1]), moving))
        await asyncio.sleep(10)
        if n < rounds - 1:
            assert first_left(bench) == positions[1]
    assert first_left(bench) == positions[4]
    await asyncio.sleep(LOG_HOLD_S)  # and nobody reports any more
    assert first_left(bench) == positions[9]
    await bench.coord.stop()


async def test_a_collection_that_is_being_dropped_holds_the_log_until_its_end_is_read(tmp_path: Path) -> None:
    other = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path, collection(), other)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(vchannel=other.vchannels[0], checkpoint=at(positions[4]))
    await bench.coord.drop_collection(CID)
    await asyncio.sleep(15)
    assert first_left(bench) == 1
    bench.root.collections.pop(CID)
    await bench.coord.channel_dropped(bench.epoch, bench.vchannel)
    await asyncio.sleep(15)
    assert first_left(bench) == positions[4]
    await bench.coord.stop()


async def test_an_unknown_collection_holds_the_log_from_its_start_on(tmp_path: Path) -> None:
    unheard = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path)
    await bench.watched()
    bench.root.collections[unheard.collection_id] = unheard
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[4]))
    await asyncio.sleep(15)
    assert first_left(bench) == unheard.starts[unheard.vchannels[0]].position
    await bench.coord.stop()


async def test_a_pchannel_that_nobody_uses_any_more_is_trimmed_to_its_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    await fill(bench)
    await bench.coord.drop_collection(CID)
    await bench.coord.channel_dropped(bench.epoch, bench.vchannel)
    await asyncio.sleep(15)
    assert first_left(bench) == 0, "rootcoord still ticks it: a collection may be coming"
    bench.root.collections.clear()
    await asyncio.sleep(15)
    assert first_left(bench) == bench.log.end(PCHANNEL)
    await bench.coord.stop()


async def test_a_collection_that_begins_meanwhile_loses_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    await fill(bench)
    began: list[int] = []

    async def ticks() -> dict[str, int]:
        began.extend(await fill(bench, count=1))  # the creation's message, behind the end that was looked up
        return {}

    bench.root.ticks = ticks  # type: ignore[method-assign,assignment]
    await asyncio.sleep(15)
    assert first_left(bench) <= began[0]
    await bench.coord.stop()


async def test_a_round_that_fails_is_not_the_last(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    trim, failing = bench.log.trim, [True]

    async def failing_trim(pchannel: str, before: int) -> None:
        if failing.pop():
            raise OSError("gone")
        await trim(pchannel, before)  # type: ignore[arg-type]

    bench.log.trim = failing_trim  # type: ignore[method-assign,assignment]
    await bench.commit(checkpoint=at(positions[4]))
    await asyncio.sleep(15)
    failing[:] = [False]
    await asyncio.sleep(10)
    assert first_left(bench) == positions[4]
    await bench.coord.stop()
