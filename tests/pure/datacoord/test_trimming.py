"""The log forgets what all have in binlogs, and nothing that anybody may still read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from data_bench import LOG_HOLD_S, Bench
from fakes import CID, collection, schema
from structlog.testing import capture_logs

from elanus.api.recovery import LogHold
from elanus.core.catalog import Checkpoint, Collection
from elanus.core.ids import CollectionID, NodeID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import compose
from elanus.datacoord.trimming import trim_log
from elanus.log.port import REWOUND_REMEDY, EntryHeader, NewEntry, Position

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


async def test_a_log_that_ends_before_a_checkpoint_is_reported_and_left_as_it_is(tmp_path: Path) -> None:
    """It was put back to an older copy."""
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[7]))
    bench.log._streams[PCHANNEL].cut(Position(positions[4]))
    with capture_logs() as logged:
        await bench.restart()
    [report] = [one for one in logged if one["event"] == "log ends before a checkpoint"]
    wrong = (
        f"{PCHANNEL}: position {positions[7]} is needed, but the log ends at {positions[4]}: an older copy"
    )
    assert (report["log_level"], wrong in report["error"]) == ("error", True)
    assert report["remedy"] == REWOUND_REMEDY
    begin = first_left(bench)
    await asyncio.sleep(15)
    assert first_left(bench) == begin
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


async def test_a_vchannel_that_arrives_while_rootcoord_is_asked_keeps_its_start(tmp_path: Path) -> None:
    """Rootcoord names the collection, and its vchannel is here by the time the answer is."""
    late = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[7]))
    listed = bench.root.list_collections

    async def list_collections(database: str) -> tuple[Collection, ...]:
        bench.root.collections[late.collection_id] = late
        found = await listed(database)
        await bench.coord.watch_channels(late)
        return found

    bench.root.list_collections = list_collections  # type: ignore[method-assign]
    await asyncio.sleep(15)
    assert first_left(bench) == late.starts[late.vchannels[0]].position
    await bench.coord.stop()


async def test_a_checkpoint_that_moves_while_rootcoord_is_asked_is_trimmed_to_later(tmp_path: Path) -> None:
    """A collection whose creation ended after the answer may start below it."""
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[2]))
    listed = bench.root.list_collections
    moved = [at(positions[7])]

    async def list_collections(database: str) -> tuple[Collection, ...]:
        found = await listed(database)
        if moved:
            await bench.commit(checkpoint=moved.pop())
        return found

    bench.root.list_collections = list_collections  # type: ignore[method-assign]
    await asyncio.sleep(15)
    assert first_left(bench) == positions[2]
    await asyncio.sleep(10)
    assert first_left(bench) == positions[7]
    await bench.coord.stop()


async def test_a_last_vchannel_that_goes_while_rootcoord_is_asked_leaves_its_checkpoint(
    tmp_path: Path,
) -> None:
    """The round goes on, for this pchannel and for the others."""
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[7]))
    await bench.coord.drop_collection(CID)
    listed = bench.root.list_collections
    epoch, vchannel = bench.epoch, bench.vchannel

    async def list_collections(database: str) -> tuple[Collection, ...]:
        found = await listed(database)
        bench.root.collections.pop(CID, None)
        await bench.coord.channel_dropped(epoch, vchannel)
        return found

    bench.root.list_collections = list_collections  # type: ignore[method-assign]
    with capture_logs() as logged:
        await asyncio.sleep(15)
    assert [one for one in logged if one["event"] == "log not trimmed"] == []
    assert first_left(bench) == positions[7]
    await bench.coord.stop()


async def test_others_run_while_many_collections_are_looked_at(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    positions = await fill(bench)
    await bench.commit(checkpoint=at(positions[4]))
    looks = 0

    class Counted(Mapping[str, Checkpoint]):
        """Notices how often a collection was looked at since others last ran."""

        def __getitem__(self, name: str) -> Checkpoint:
            raise KeyError(name)

        def __iter__(self) -> Iterator[str]:
            nonlocal looks
            looks += 1
            return iter(())

        def __len__(self) -> int:
            return 0

    looked: list[int] = []

    async def other() -> None:
        nonlocal looks
        while True:
            looked.append(looks)
            looks = 0
            await asyncio.sleep(0)

    many = replace(collection(), starts=Counted())

    async def list_collections(database: str) -> tuple[Collection, ...]:
        return (many,) * 2000

    bench.root.list_collections = list_collections  # type: ignore[method-assign]
    task = asyncio.create_task(other())
    state = bench.coord.role._context.state
    await trim_log(state, bench.log, bench.root, {})
    task.cancel()
    assert sum(looked) + looks == 2000
    assert max(looked) <= 256
    assert first_left(bench) == positions[4]
    await bench.coord.stop()
