"""A data node follows ticks by headers alone, and reports its position and its row counts."""

from __future__ import annotations

import asyncio

from fakes import settle
from node_bench import IDLE_S, LOOK_S, POLICY, V0, V1, W0, Bench, assignment

from elanus.api.datacoord import DataNodeRegistration, DataNodeTick
from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID, SegmentID
from elanus.core.messages import TimeTick
from elanus.core.timestamps import compose
from elanus.log.port import LogReader, Position


async def test_it_reports_the_tick_and_the_rows_beyond_the_checkpoint() -> None:
    bench = Bench(V0)
    await bench.start()
    for segment_id, rows in ((1, 10), (2, 5), (1, 3)):
        await bench.insert(segment_id, rows)
    await bench.delete(7)
    assert bench.coord.reports == [], "nothing is complete before a tick"
    tick = await bench.tick()
    report = bench.coord.last(V0)
    assert (report.ts, dict(report.segment_rows), report.checkpoint_ts) == (tick, {1: 13, 2: 5}, 0)
    assert report.bytes == bench.log.size_bytes()
    await bench.stop()


async def test_a_node_without_vchannels_learns_that_its_coordinator_was_replaced() -> None:
    bench = Bench()
    await bench.start()
    bench.coord.epoch += 1  # the next coordinator knows nobody, and has no node for new vchannels
    await asyncio.sleep(4 * IDLE_S)
    assert len(bench.coord.calls.of("register_datanode")) == 2
    await bench.stop()


async def test_it_reads_no_payload() -> None:
    bench = Bench(V0)
    opened: list[bool] = []
    open_reader = bench.log.open_reader

    def noting(pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        opened.append(headers_only)
        return open_reader(pchannel, start, headers_only=headers_only)

    bench.log.open_reader = noting  # type: ignore[method-assign]
    await bench.start()
    assert opened == [True]
    await bench.stop()


async def test_rows_later_than_the_tick_wait_for_a_later_one() -> None:
    bench = Bench(V0)
    await bench.start()
    early, late = bench.stamp(), compose(5000)
    await bench.insert(1, 10, ts=late)
    await bench.insert(1, 4, ts=early)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {1: 4}
    await bench.tick(ts=compose(6000))
    assert dict(bench.coord.last(V0).segment_rows) == {1: 14}
    await bench.stop()


async def test_a_message_behind_its_tick_counts_for_nobody() -> None:
    bench = Bench(V0)
    await bench.start()
    late = bench.stamp()
    await bench.tick()
    await bench.insert(1, 10, ts=late)
    await bench.insert(1, 4)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {1: 4}
    await bench.stop()


async def test_ticks_of_an_older_epoch_are_nobodys() -> None:
    bench = Bench(V0)
    await bench.start()
    first = await bench.tick()
    await bench.epoch(2)
    await bench.tick(epoch=1)
    await asyncio.sleep(LOOK_S)
    assert bench.coord.last(V0).ts == first
    second = await bench.tick(epoch=2)
    await asyncio.sleep(LOOK_S)
    assert bench.coord.last(V0).ts == second
    await bench.stop()


async def test_vchannels_of_one_pchannel_are_counted_apart() -> None:
    bench = Bench(V0, V1, W0)
    await bench.start()
    await bench.insert(1, 10, V0)
    await bench.insert(2, 20, V1)
    await bench.insert(3, 30, W0)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {1: 10}
    assert dict(bench.coord.last(V1).segment_rows) == {2: 20}
    assert [r for r in bench.coord.reports if r.vchannel == W0 and r.segment_rows] == [], "another pchannel"
    await bench.tick(pchannel_of(W0))
    assert dict(bench.coord.last(W0).segment_rows) == {3: 30}
    await bench.stop()


async def test_what_lies_before_a_vchannels_checkpoint_is_not_counted_again() -> None:
    bench = Bench(V0, V1)
    await bench.insert(1, 10, V0)
    done = await bench.insert(2, 20, V1)
    await bench.start()
    await bench.tick(ts=done)
    await bench.stop()

    # V1 has been committed up to there, V0 has not: one reader serves both
    end = bench.log.end(pchannel_of(V0))
    bench.coord.assignments[V1] = assignment(V1, Checkpoint(done, end, done, 1))
    await bench.insert(2, 5, V1)
    await bench.start()
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {1: 10}
    assert dict(bench.coord.last(V1).segment_rows) == {2: 5}
    await bench.stop()


async def test_many_ticks_are_few_reports() -> None:
    bench = Bench(V0)
    await bench.start()
    for _ in range(200):
        await bench.insert(1, 1)
        await bench.write(TimeTick(bench.stamp(), 1), pchannel=pchannel_of(V0))
        await asyncio.sleep(POLICY.report_ms / 20_000)
    await asyncio.sleep(0.2)
    assert 10 <= len(bench.coord.reports) <= 12
    assert dict(bench.coord.last(V0).segment_rows) == {1: 200}
    await bench.stop()


async def test_an_idle_vchannel_is_reported_seldom() -> None:
    bench = Bench(V0, V1)
    await bench.start()
    await bench.insert(1, 1, V0)
    for _ in range(50):
        await bench.tick()
    reports = [len([r for r in bench.coord.reports if r.vchannel == v]) for v in (V0, V1)]
    assert reports[0] == 50, "what waits is reported at every tick"
    assert reports[1] <= 50 * 0.2 / (POLICY.idle_look_ms / 1000) + 2
    await bench.stop()


async def test_an_idle_vchannel_is_reported_when_its_tick_is_awaited() -> None:
    bench = Bench(V0, V1)
    await bench.start()
    await bench.tick()
    bench.coord.awaited = (V1,)
    tick = await bench.tick()
    await asyncio.sleep(2 * POLICY.idle_report_ms / 1000)
    assert bench.coord.last(V1).ts == tick
    assert bench.coord.last(V0).ts < tick, "nobody waits for it"
    await bench.stop()


async def test_a_collection_that_comes_later_is_followed_from_its_start() -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.insert(1, 10, V0)
    await bench.tick()
    start = bench.log.end(pchannel_of(V1))
    await bench.insert(2, 20, V1)
    began = Checkpoint(compose(bench.ms - 1), start, compose(1), 1)
    await bench.watch(assignment(V1, began))
    await bench.watch(assignment(V1, began))  # said twice
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {1: 10}, "reading again has doubled nothing"
    assert dict(bench.coord.last(V1).segment_rows) == {2: 20}
    await bench.stop()


async def test_one_that_it_follows_already_is_not_put_back_to_where_it_began() -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.insert(1, 10)
    tick = await bench.tick()
    await bench.flush(V0)
    await settle()
    await bench.watch(assignment(V0))  # said late
    await bench.insert(1, 4)
    await bench.tick()
    report = bench.coord.last(V0)
    assert (report.checkpoint_ts, dict(report.segment_rows)) == (tick, {1: 4})
    await bench.stop()


async def test_a_collection_created_while_it_registers_is_followed() -> None:
    bench = Bench(V0)
    register = bench.coord.register_datanode

    async def overtaken(node_id: NodeID) -> DataNodeRegistration:
        answer = await register(node_id)
        bench.coord.assignments[W0] = assignment(W0)
        await bench.watch(assignment(W0))
        await bench.flush(W0, SegmentID(3))
        await settle()
        return answer

    bench.coord.register_datanode = overtaken  # type: ignore[method-assign]
    await bench.start()
    await bench.insert(3, 30, W0)
    await bench.tick(pchannel_of(W0))
    assert dict(bench.coord.last(W0).segment_rows) == {3: 30}
    assert bench.coord.commits[0].flushed == (3,), "an order that came then is carried out"
    await bench.stop()


async def test_when_datacoord_is_not_there_it_goes_on_trying() -> None:
    bench = Bench(V0)
    bench.coord.calls.failing["register_datanode"] = Unavailable("not yet")
    await bench.start()
    await asyncio.sleep(3)
    bench.coord.calls.failing.clear()
    await asyncio.sleep(1)
    tick = await bench.tick()
    assert bench.coord.last(V0).ts == tick
    await bench.stop()


async def test_a_log_that_was_trimmed_behind_its_back_makes_it_register_again() -> None:
    bench = Bench(V0)
    await bench.insert(1, 10)
    await bench.log.trim(pchannel_of(V0), bench.log.end(pchannel_of(V0)))
    await bench.start()
    await asyncio.sleep(3)
    assert len(bench.coord.calls.of("register_datanode")) == 2, "once for a newer checkpoint: there is none"
    end = bench.log.end(pchannel_of(V0))
    await bench.watch(assignment(V0, Checkpoint(compose(900), end, compose(900), 1), epoch=3))
    tick = await bench.tick()
    assert bench.coord.last(V0).ts == tick
    await bench.stop()


async def test_a_tick_that_datacoord_asks_about_is_reported_as_soon_as_it_is_read() -> None:
    bench = Bench(V0, V1)
    await bench.start()
    await bench.tick()
    await asyncio.sleep(2 * IDLE_S)
    at_least = bench.stamp()
    await bench.node.report_soon(bench.coord.epoch, V0, at_least)
    await bench.node.report_soon(bench.coord.epoch, W0, at_least)  # not its own
    before = len(bench.coord.reports)
    await asyncio.sleep(POLICY.report_ms / 1000)
    assert len(bench.coord.reports) == before, "the tick has not been written yet"
    tick = await bench.tick()
    assert tick >= at_least
    await asyncio.sleep(2.2 * POLICY.report_ms / 1000)
    assert [(r.vchannel, r.ts) for r in bench.coord.reports[before:]] == [(V0, tick)], "not the idle one"
    await bench.tick()
    await asyncio.sleep(2.2 * POLICY.report_ms / 1000)
    assert len(bench.coord.reports) == before + 1, "asked about once"
    await bench.stop()


async def test_a_tick_that_is_read_during_a_report_is_in_the_next_one() -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.tick()
    await asyncio.sleep(2 * IDLE_S)
    answer, report_ticks = asyncio.Event(), bench.coord.report_ticks

    async def slowly(epoch: int, ticks: tuple[DataNodeTick, ...]) -> tuple[str, ...]:
        awaited = await report_ticks(epoch, ticks)
        await answer.wait()
        return awaited

    bench.coord.report_ticks = slowly  # type: ignore[method-assign]
    await bench.insert(1, 5)
    reported = await bench.tick()
    await asyncio.sleep(2.2 * POLICY.report_ms / 1000)
    assert bench.coord.last(V0).ts == reported
    read_meanwhile = await bench.tick()
    await settle()
    answer.set()
    await asyncio.sleep(2.2 * POLICY.report_ms / 1000)
    assert bench.coord.last(V0).ts == read_meanwhile
    await bench.stop()
