"""A vchannel joins the reading of its pchannel without putting the others back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from counting import calls_of
from fakes import settle
from node_bench import V0, V1, W0, Bench, assignment
from structlog.testing import capture_logs

from elanus.api.datacoord import RangeCommit
from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_name, pchannel_of, vchannel_name
from elanus.core.errors import CommitRefused
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.messages import TimeTick
from elanus.core.timestamps import compose
from elanus.log.port import CorruptLog, LogEntry, LogReader, Position

S7 = SegmentID(7)


def slow_readers(bench: Bench) -> list[Position]:
    """Readers that are opened from now on take a while, as one with a backlog does. Returns their starts."""
    opened: list[Position] = []
    open_reader = bench.log.open_reader

    def slow_reader(pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        opened.append(start)
        reader = open_reader(pchannel, start, headers_only=headers_only)
        read = reader.read

        async def slowly(bytes_max: int = 1 << 20) -> Sequence[LogEntry]:
            await asyncio.sleep(0.02)
            return await read(bytes_max)

        reader.read = slowly  # type: ignore[method-assign]
        return reader

    bench.log.open_reader = slow_reader  # type: ignore[method-assign]
    return opened


def refuse_incomplete(bench: Bench, sealed: int) -> None:
    """Refuse to complete segments with a range that ends before their seal, as datacoord does."""
    commit_range = bench.coord.commit_range

    async def checked(commit: RangeCommit) -> None:
        if commit.flushed and commit.checkpoint.ts < sealed:
            raise CommitRefused(
                f"a segment is complete at {sealed}, the range ends at {commit.checkpoint.ts}"
            )
        await commit_range(commit)

    bench.coord.commit_range = checked  # type: ignore[method-assign]


async def test_a_flush_order_right_after_a_collection_was_created_is_carried_out() -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.insert(S7, 10)
    tick = await bench.tick()
    refuse_incomplete(bench, tick)
    slow_readers(bench)
    for number in range(3):  # the last one begins where nothing has been read yet
        vchannel = vchannel_name(pchannel_of(V0), CollectionID(900 + number), 0)
        start = (
            Checkpoint(tick, bench.log.end(pchannel_of(V0)), tick, 1) if number else assignment(V1).checkpoint
        )
        await bench.watch(assignment(vchannel, start))
    await bench.flush(V0, S7)
    await asyncio.sleep(1)
    assert [(c.checkpoint.ts, c.flushed) for c in bench.coord.commits if c.vchannel == V0] == [(tick, (S7,))]
    assert bench.coord.epoch == 1, "it has not registered again"
    await bench.stop()


async def test_creating_a_collection_reads_nothing_again() -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.insert(1, 10)
    tick = await bench.tick()
    opened = slow_readers(bench)
    for number in range(20):
        vchannel = vchannel_name(pchannel_of(V0), CollectionID(900 + number), 0)
        start = Checkpoint(compose(bench.ms - 1), bench.log.end(pchannel_of(V0)), tick, 1)
        await bench.watch(assignment(vchannel, start))
        await bench.insert(100 + number, 3, vchannel)
        tick = await bench.tick()
        assert dict(bench.coord.last(vchannel).segment_rows) == {100 + number: 3}
    assert opened == [], "each begins where the reader is"
    assert dict(bench.coord.last(V0).segment_rows) == {1: 10}
    await bench.stop()


async def test_a_job_in_progress_outlives_a_collection_that_begins_earlier() -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.insert(1, 10)
    tick = await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, 1)
    await settle()
    opened = slow_readers(bench)
    await bench.watch(assignment(V1))
    await bench.insert(2, 5, V1)
    await bench.tick()
    bench.jobs.go_on.set()
    await asyncio.sleep(1)
    assert (opened, bench.coord.epoch) == ([0], 1)
    assert [(c.vchannel, c.checkpoint.ts) for c in bench.coord.commits] == [(V0, tick)]
    assert dict(bench.coord.last(V1).segment_rows) == {2: 5}
    await bench.stop()


async def test_after_damage_it_reads_on_where_it_was() -> None:
    bench = Bench(V0, V1)
    await bench.start()
    await bench.insert(1, 10)
    tick = await bench.tick()
    opened = slow_readers(bench)
    refuse_incomplete(bench, tick)
    reader = next(iter(bench.node.readers.dispatcher._readers[pchannel_of(V0)]))
    read_on = reader._packs.feed

    def damaged(*_: object) -> None:
        raise CorruptLog("damaged frame")

    reader._packs.feed = damaged  # type: ignore[assignment, method-assign]
    end = bench.log.end(pchannel_of(V0))
    await bench.tick()
    assert read_on is not None
    await bench.flush(V0, 1)  # an order that was under way
    await asyncio.sleep(0.5)
    assert [(c.checkpoint.ts, c.flushed) for c in bench.coord.commits] == [(tick, (1,))]
    await asyncio.sleep(11)
    await bench.insert(2, 4)
    await bench.tick()
    assert (opened, bench.coord.epoch) == ([end], 1)
    assert dict(bench.coord.last(V0).segment_rows) == {2: 4}
    await bench.stop()


async def lost_log() -> Bench:
    """A node that has registered where the log of V0 and V1 begins after their checkpoints."""
    bench = Bench(V0, V1, W0)
    await bench.insert(1, 10)
    await bench.tick()
    await bench.log.trim(pchannel_of(V0), bench.log.end(pchannel_of(V0)))
    await bench.start()
    await asyncio.sleep(2)
    return bench


async def test_a_log_that_has_lost_its_beginning_stops_only_the_vchannels_that_need_it() -> None:
    bench = await lost_log()
    assert bench.coord.epoch == 2, "it has registered again once, for newer checkpoints"
    await bench.insert(2, 5, W0)
    await bench.tick(pchannel_of(W0))
    await bench.flush(W0, 2)
    await asyncio.sleep(25)
    assert bench.committed_rows() == {2: 5}
    assert bench.coord.epoch == 2
    await bench.stop()


async def test_a_log_that_was_put_back_to_an_older_copy_stops_only_the_vchannels_that_need_it() -> None:
    bench = Bench(V0, W0)
    await bench.insert(1, 10)
    await bench.tick()
    end = bench.log.end(pchannel_of(V0))
    beyond = Checkpoint(compose(500), end + 100, compose(500), 0)
    bench.coord.assignments[V0] = assignment(V0, beyond)
    with capture_logs() as logged:
        await bench.start()
        await bench.insert(2, 5, W0)
        await bench.tick(pchannel_of(W0))
        await bench.flush(W0, 2)
        await asyncio.sleep(25)
    assert (bench.committed_rows(), bench.coord.epoch) == ({2: 5}, 1)
    assert set(bench.coord.calls.of("channel_unreadable")) == {V0}
    text = f"{pchannel_of(V0)}: position {end + 100} is needed, but the log ends at {end}"
    assert any(text in one["error"] for one in logged if one["event"] == "log damaged")
    await bench.stop()


async def test_a_dropped_vchannel_is_given_up_without_its_log() -> None:
    bench = await lost_log()
    bench.coord.dropping = {V0}
    await asyncio.sleep(25)
    assert (bench.coord.calls.of("channel_dropped"), bench.coord.epoch) == ([V0], 2)
    assert {c.vchannel for c in bench.node.owned} == {V1, W0}
    assert set(bench.coord.calls.of("channel_unreadable")[-2:]) == {V1}
    await bench.stop()


async def test_a_node_whose_checkpoint_was_old_goes_on_from_the_newer_one() -> None:
    """The log was trimmed while another node owned the vchannel."""
    bench = Bench(V0)
    await bench.insert(1, 10)
    tick = await bench.tick()
    end = bench.log.end(pchannel_of(V0))
    await bench.log.trim(pchannel_of(V0), end)
    await bench.start()
    bench.coord.assignments[V0] = assignment(V0, Checkpoint(tick, end, tick, 1))
    await asyncio.sleep(1)
    await bench.insert(2, 4)
    await bench.tick()
    assert (bench.coord.epoch, dict(bench.coord.last(V0).segment_rows)) == (2, {2: 4})
    await bench.stop()


async def test_a_message_that_waits_for_another_vchannel_moves_no_checkpoint_back() -> None:
    """The log may have been trimmed up to the checkpoint, should the other vchannel go again."""
    bench = Bench(V0)
    await bench.start()
    await bench.insert(5, 1, V1, ts=compose(50_000))
    await bench.insert(1, 10)
    await bench.tick()
    await bench.flush(V0, 1)
    await settle()
    bench.coord.assignments[V1] = assignment(V1)
    await bench.watch(assignment(V1))
    await bench.insert(2, 10)
    await bench.tick()
    await bench.flush(V0, 2)
    await bench.insert(5, 1, V1)
    await bench.tick()
    await bench.flush(V1, 5)
    await settle()
    first, second = (c.checkpoint for c in bench.coord.commits if c.vchannel == V0)
    assert (second.ts > first.ts, second.position) == (True, first.position)
    [other] = (c.checkpoint for c in bench.coord.commits if c.vchannel == V1)
    assert other.position < first.position, "what waits is still read from there"
    assert dict(bench.coord.last(V1).segment_rows) == {5: 1}
    await bench.tick(ts=compose(60_000))
    assert dict(bench.coord.last(V1).segment_rows) == {5: 1}, "and is counted when its tick comes"
    await bench.stop()


async def test_readers_do_not_grow_with_vchannels() -> None:
    names = [vchannel_name(pchannel_name(n % 4), CollectionID(400 + n), 0) for n in range(200)]
    bench = Bench(*names)
    await bench.start()
    await settle()
    assert bench.node.readers.dispatcher.readers == 4
    await bench.stop()
    assert bench.node.readers.dispatcher.readers == 0


async def tick_all(bench: Bench) -> int:
    ts = bench.stamp()
    for number in range(16):
        await bench.write(TimeTick(ts, 1), pchannel=pchannel_name(number))
    return ts


async def calls_per_tick(vchannels: int) -> int:
    """Python functions called from the arrival of a tick on each pchannel until it has been reported."""
    names = [vchannel_name(pchannel_name(n % 16), CollectionID(400 + n), 0) for n in range(vchannels)]
    bench = Bench(*names)
    await bench.start()
    await tick_all(bench)
    await asyncio.sleep(0.2)
    assert {r.vchannel for r in bench.coord.reports} == set(names)
    await bench.insert(1, 1, names[0])
    stamps: list[int] = []

    async def reported() -> None:
        stamps.append(await tick_all(bench))
        await asyncio.sleep(0.1)

    calls = await calls_of(reported)
    assert [(r.vchannel, r.ts) for r in bench.coord.reports[-1:]] == [(names[0], stamps[0])]
    await bench.stop()
    return calls


async def test_a_tick_costs_the_same_for_1000_vchannels_as_for_16() -> None:
    assert await calls_per_tick(16) == await calls_per_tick(1000)
