"""On order a range becomes a job, the job a commit; whatever goes wrong, no row is lost or written twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from fakes import settle
from node_bench import LOOK_S, POLICY, V0, V1, Bench, assignment

from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused, Unavailable
from elanus.core.ids import SegmentID
from elanus.core.timestamps import compose
from elanus.datanode.policy import HELD_MAX_BYTES
from elanus.log.port import LogEntry, LogReader, Position, TrimmedLog
from elanus.pipeline.port import JobCancelled

S1, S2 = SegmentID(1), SegmentID(2)
P0 = pchannel_of(V0)


async def started(*vchannels: str) -> Bench:
    bench = Bench(*(vchannels or (V0,)))
    await bench.start()
    return bench


async def test_an_order_brings_everything_up_to_the_tick_into_binlogs() -> None:
    bench = await started()
    await bench.insert(1, 10)
    await bench.delete(3)
    await bench.insert(2, 5)
    tick = await bench.tick()
    await bench.insert(1, 99)  # behind the tick
    await bench.flush(V0, S1)
    await settle()
    (commit,) = bench.coord.commits
    assert bench.committed_rows() == {1: 10, 2: 5}, "a range holds the rows of every segment"
    assert (commit.flushed, commit.checkpoint.ts, commit.expected.ts) == ((1,), tick, 0)
    assert commit.delta is not None
    assert commit.delta.rows == 3
    assert bench.jobs.runs == [("flush", (V0,))]
    await bench.tick()
    report = bench.coord.last(V0)
    assert (report.checkpoint_ts, dict(report.segment_rows)) == (tick, {1: 99})
    await bench.stop()


async def test_ranges_join_without_gap_and_overlap() -> None:
    bench = await started()
    chance, written = random.Random(7), {}
    for _ in range(40):
        segment_id, rows = chance.randint(1, 5), chance.randint(1, 9)
        later = compose(bench.ms + chance.randint(1, 4))  # may be later than the next tick
        await bench.insert(segment_id, rows, ts=later)
        written[segment_id] = written.get(segment_id, 0) + rows
        if chance.random() < 0.4:
            await bench.tick()
        if chance.random() < 0.3:
            await bench.flush(V0)
            await settle()
    bench.ms += 10
    await bench.tick()
    await bench.flush(V0)
    await settle()
    assert len(bench.coord.commits) > 5
    assert bench.committed_rows() == written
    for before, after in zip(bench.coord.commits, bench.coord.commits[1:], strict=False):
        assert after.expected == before.checkpoint
    await bench.stop()


async def test_an_order_without_new_rows_needs_no_job() -> None:
    bench = await started()
    await bench.insert(1, 10)
    await bench.tick()
    await bench.flush(V0)
    await settle()
    tick = await bench.tick()
    await bench.flush(V0, S1)
    await settle()
    assert len(bench.jobs.runs) == 1
    last = bench.coord.commits[-1]
    assert (last.flushed, last.segments, last.delta, last.checkpoint.ts) == ((1,), (), None, tick)
    await bench.stop()


async def test_orders_that_come_together_are_one_job() -> None:
    bench = await started(V0, V1)
    await bench.insert(1, 10, V0)
    await bench.insert(2, 20, V1)
    await bench.tick()
    for vchannel, segment in ((V0, S1), (V1, S2), (V0, SegmentID(3))):
        await bench.flush(vchannel, segment)
    await settle()
    assert bench.jobs.runs == [("flush", (V0, V1))]
    assert {c.vchannel: c.flushed for c in bench.coord.commits} == {V0: (1, 3), V1: (2,)}
    await bench.stop()


async def test_rows_that_come_during_a_job_are_left_to_the_next() -> None:
    bench = await started()
    await bench.insert(1, 10)
    tick = await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await settle()
    await bench.insert(2, 5)
    await bench.tick()
    await bench.flush(V0, S2)
    bench.jobs.go_on.set()
    await settle()
    assert [(c.flushed, c.checkpoint.ts > tick) for c in bench.coord.commits] == [((1,), False), ((2,), True)]
    assert bench.committed_rows() == {1: 10, 2: 5}
    await bench.stop()


async def test_a_collection_that_comes_during_a_job_disturbs_it_not() -> None:
    bench = await started(V0)
    await bench.insert(1, 10)
    await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await settle()
    bench.coord.assignments[V1] = assignment(V1)
    await bench.watch(assignment(V1))  # the pchannel is read again
    bench.jobs.go_on.set()
    await settle()
    await bench.insert(1, 4)
    await bench.tick()
    assert bench.committed_rows() == {1: 10}
    assert dict(bench.coord.last(V0).segment_rows) == {1: 4}
    await bench.flush(V0)
    await settle()
    assert bench.committed_rows() == {1: 14}
    await bench.stop()


@pytest.mark.parametrize("error", [JobCancelled("by hand"), TrimmedLog("it begins later")])
async def test_after_a_job_that_was_ended_it_begins_where_the_last_commit_was(error: Exception) -> None:
    bench = await started()
    await bench.insert(1, 10)
    await bench.tick()
    bench.jobs.error = error
    await bench.flush(V0, S1)
    await settle()
    bench.jobs.error = None
    await asyncio.sleep(1)
    assert bench.coord.epoch == 2, "it has registered again"
    assert bench.coord.commits == []
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {1: 10}
    await bench.flush(V0, S1)
    await settle()
    assert bench.committed_rows() == {1: 10}
    await bench.stop()


async def test_a_refused_commit_makes_it_give_up_what_it_holds_and_register_again() -> None:
    bench = await started()
    await bench.insert(1, 10)
    tick = await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await settle()
    position = bench.log.end(P0)
    moved = assignment(V0).checkpoint.__class__(tick, position, tick, 1)
    bench.coord.assignments[V0] = assignment(V0, moved)  # somebody else has committed the range
    bench.jobs.go_on.set()
    await asyncio.sleep(1)
    assert bench.coord.epoch == 2
    await bench.insert(1, 4)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {1: 4}, "it goes on from the checkpoint in force"
    await bench.stop()


async def test_one_that_was_replaced_stops_reporting_and_registers_again() -> None:
    bench = await started()
    bench.coord.epoch += 1
    await bench.tick()
    await asyncio.sleep(1)
    assert len(bench.coord.calls.of("register_datanode")) == 2
    await asyncio.sleep(LOOK_S)
    tick = await bench.tick()
    assert bench.coord.last(V0).ts == tick
    await bench.stop()


async def test_earlier_orders_do_not_outlive_a_registration() -> None:
    bench = await started()
    await bench.insert(1, 10)
    await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await settle()
    await bench.flush(V0, S2)
    bench.jobs.error = JobCancelled("by hand")
    bench.jobs.go_on.set()
    await settle()
    bench.jobs.error = None
    await asyncio.sleep(2)
    assert bench.coord.commits == []
    await bench.stop()


# checkpoints move on


async def test_an_idle_checkpoint_follows_the_tick_without_a_job() -> None:
    bench = await started()
    bench.ms += POLICY.idle_checkpoint_ms + 1
    tick = await bench.tick()
    await asyncio.sleep(POLICY.idle_checkpoint_ms / 1000)
    (move,) = bench.coord.moves
    assert (move.vchannel, move.checkpoint.ts) == (V0, tick)
    assert move.checkpoint.position == bench.log.end(P0)
    assert bench.jobs.runs == bench.coord.commits == []
    await asyncio.sleep(POLICY.idle_checkpoint_ms / 1000)
    assert len(bench.coord.moves) == 1, "and stands while no tick comes"
    await bench.stop()


async def test_an_idle_checkpoint_that_holds_much_of_the_log_follows_sooner() -> None:
    """Rows of another vchannel of its pchannel can go only when every checkpoint has passed them."""
    bench = Bench(V0, V1)
    await bench.start()
    await bench.insert(1, HELD_MAX_BYTES // 8, vchannel=V1)
    bench.ms += POLICY.holding_checkpoint_ms + 1
    tick = await bench.tick()
    await asyncio.sleep(POLICY.holding_checkpoint_ms / 1000)
    assert [(m.vchannel, m.checkpoint.ts) for m in bench.coord.moves] == [(V0, tick)]
    bench.ms += POLICY.holding_checkpoint_ms + 1
    await bench.tick()
    await asyncio.sleep(POLICY.holding_checkpoint_ms / 1000)
    assert len(bench.coord.moves) == 1, "it holds nothing any more"
    await bench.stop()


async def test_a_waiting_message_holds_the_seek_position_not_the_checkpoint() -> None:
    bench = await started()
    position = bench.log.end(P0)
    await bench.insert(1, 10, ts=compose(10_000_000))
    bench.ms += POLICY.idle_checkpoint_ms + 1
    tick = await bench.tick()
    await asyncio.sleep(POLICY.idle_checkpoint_ms / 1000)
    (move,) = bench.coord.moves
    assert move.checkpoint.ts == tick
    assert position <= move.checkpoint.position < bench.log.end(P0)
    bench.ms = 10_000_001
    await bench.tick()
    await bench.flush(V0)
    await settle()
    assert bench.committed_rows() == {1: 10}
    await bench.stop()


async def test_an_idle_checkpoint_moves_in_bounded_time() -> None:
    bench = await started(V0, V1)
    await bench.insert(1, 10, V0)
    await bench.insert(2, 20, V1)
    bench.ms += POLICY.sync_age_ms + 1
    await bench.tick()
    await asyncio.sleep(POLICY.idle_checkpoint_ms / 1000)
    assert bench.jobs.runs == [("age", (V0, V1))], "what is due is one job"
    assert bench.committed_rows() == {1: 10, 2: 20}
    await bench.stop()


# the end of a collection


async def test_a_drop_is_reported_once_and_ends_the_vchannel() -> None:
    bench = await started(V0, V1)
    await bench.insert(1, 10, V0)
    await bench.drop(V0)
    await bench.drop(V0)
    await bench.tick()
    assert bench.coord.calls.of("channel_dropped") == [V0]
    before = len([r for r in bench.coord.reports if r.vchannel == V0])
    await bench.insert(2, 20, V1)
    await bench.tick()
    assert len([r for r in bench.coord.reports if r.vchannel == V0]) == before
    assert dict(bench.coord.last(V1).segment_rows) == {2: 20}
    await bench.flush(V0, S1)
    await settle()
    assert bench.coord.commits == []
    await bench.stop()


async def test_a_drop_whose_report_failed_is_reported_again() -> None:
    bench = await started()
    bench.coord.calls.failing["channel_dropped"] = Unavailable("restarting")
    await bench.drop()
    await bench.tick()
    bench.coord.calls.failing.clear()
    await asyncio.sleep(2)
    assert bench.coord.assignments == {}
    await bench.stop()


async def test_a_drop_that_is_announced_again_during_its_report_is_reported_once() -> None:
    bench, answer = await started(), asyncio.Event()
    dropped = bench.coord.channel_dropped

    async def answers_late(epoch: int, vchannel: str) -> None:
        await dropped(epoch, vchannel)
        await answer.wait()

    bench.coord.channel_dropped = answers_late  # type: ignore[method-assign]
    for _ in range(3):
        await bench.drop()
        await bench.tick()
    answer.set()
    await settle()
    assert bench.coord.calls.of("channel_dropped") == [V0]
    await bench.stop()


async def test_after_ten_failed_reports_of_a_drop_the_node_registers_again() -> None:
    bench = await started()
    bench.coord.calls.failing["channel_dropped"] = Unavailable("restarting")
    await bench.drop()
    await bench.tick()
    await asyncio.sleep(4.4)
    reports = bench.coord.calls.of("channel_dropped")
    assert (len(reports), bench.coord.epoch) == (10, 1)
    await asyncio.sleep(1)
    assert bench.coord.epoch == 2
    bench.coord.calls.failing.clear()
    await asyncio.sleep(1)
    assert bench.coord.assignments == {}
    await bench.stop()


async def test_a_replaced_node_does_not_report_a_drop_again() -> None:
    bench = await started()
    bench.coord.calls.failing["channel_dropped"] = CommitRefused("replaced")
    await bench.drop()
    await bench.tick()
    assert bench.coord.calls.of("channel_dropped") == [V0]
    await bench.stop()


async def test_a_drop_whose_report_is_cut_off_by_a_new_collection_is_reported_again() -> None:
    bench = await started(V0)
    channel_dropped, go_on = bench.coord.channel_dropped, asyncio.Event()

    async def lost(epoch: int, vchannel: str) -> None:
        await go_on.wait()
        await channel_dropped(epoch, vchannel)

    bench.coord.channel_dropped = lost  # type: ignore[method-assign]
    await bench.drop()
    await bench.tick()
    bench.coord.assignments[V1] = assignment(V1)
    await bench.watch(assignment(V1))
    await settle()
    go_on.set()
    await bench.tick()
    assert set(bench.coord.assignments) == {V1}
    await bench.stop()


async def test_a_job_whose_collection_is_dropped_meanwhile_ends_quietly() -> None:
    bench = await started(V0, V1)
    await bench.insert(1, 10, V0)
    await bench.insert(2, 20, V1)
    await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await bench.flush(V1, S2)
    await settle()
    await bench.drop(V0)
    await bench.tick()
    bench.jobs.go_on.set()
    await settle()
    assert bench.coord.epoch == 1, "no reason to register again"
    assert bench.committed_rows() == {2: 20}
    await bench.stop()


async def test_a_commit_refused_while_the_drop_is_reported_is_no_reason_to_register_again() -> None:
    bench = await started()
    await bench.insert(1, 10)
    await bench.tick()
    channel_dropped, go_on = bench.coord.channel_dropped, asyncio.Event()

    async def slow_answer(epoch: int, vchannel: str) -> None:
        await channel_dropped(epoch, vchannel)
        await go_on.wait()

    bench.coord.channel_dropped = slow_answer  # type: ignore[method-assign]
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await settle()
    await bench.drop()
    await bench.tick()
    bench.jobs.go_on.set()
    await asyncio.sleep(2)
    go_on.set()
    await asyncio.sleep(2)
    assert bench.coord.epoch == 1
    assert bench.coord.commits == []
    await bench.stop()


async def test_an_order_that_comes_before_the_log_was_read_again_commits_nothing_backwards() -> None:
    bench = await started(V0)
    await bench.insert(1, 10)
    tick = await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await settle()
    open_reader, go_on = bench.log.open_reader, asyncio.Event()

    def slow_reader(pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        reader = open_reader(pchannel, start, headers_only=headers_only)
        read = reader.read

        async def slowly(bytes_max: int = 1 << 20) -> Sequence[LogEntry]:
            await go_on.wait()
            return await read(bytes_max)

        reader.read = slowly  # type: ignore[method-assign]
        return reader

    bench.log.open_reader = slow_reader  # type: ignore[method-assign]
    bench.coord.assignments[V1] = assignment(V1)
    await bench.watch(assignment(V1))  # the pchannel is read again, from before the range
    bench.jobs.go_on.set()
    await settle()
    await bench.flush(V0, S2)
    await settle()
    assert [(c.checkpoint.ts, c.flushed) for c in bench.coord.commits] == [(tick, (1,)), (tick, (2,))]
    go_on.set()
    await bench.tick()
    assert bench.coord.epoch == 1
    await bench.stop()


async def test_commit_refused_reaches_nobody_else() -> None:
    bench = await started()
    bench.coord.calls.failing["report_ticks"] = CommitRefused("replaced")
    await bench.tick()
    await asyncio.sleep(5)
    assert bench.running is not None
    assert not bench.running.done()
    await bench.stop()


async def test_a_write_that_does_not_fit_is_counted_until_its_range_is_committed_without_it() -> None:
    bench = await started()
    await bench.insert(1, 10)
    await bench.insert(1, 4, foreign=True)
    await bench.insert(2, 3, foreign=True)
    tick = await bench.tick()
    seen = bench.coord.last(V0)
    assert dict(seen.segment_rows) == {1: 14, 2: 3}, "headers do not show what fits"
    await bench.flush(V0, S1, S2)
    await settle()
    (commit,) = bench.coord.commits
    assert bench.committed_rows() == {1: 10}
    assert [(q.segment_id, q.rows) for q in commit.quarantined] == [(1, 4), (2, 3)]
    assert (commit.checkpoint.ts, commit.flushed) == (tick, (1, 2)), "the vchannel goes on behind it"
    await bench.insert(3, 1)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {3: 1}
    await bench.stop()
