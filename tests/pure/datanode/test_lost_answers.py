"""A slow datacoord: calls whose answers are late are repeated, and running jobs are kept."""

from __future__ import annotations

import asyncio

import pytest
from fakes import settle
from node_bench import V0, V1, Bench

from elanus.api.datacoord import RangeCommit
from elanus.core.errors import DeadlineExceeded, ElanusError, Unavailable
from elanus.core.ids import SegmentID

S1 = SegmentID(1)


async def started() -> Bench:
    bench = Bench(V0)
    await bench.start()
    return bench


@pytest.mark.parametrize("error", [DeadlineExceeded("30 s"), Unavailable("the call was lost")])
async def test_a_report_that_is_not_answered_is_repeated_and_jobs_go_on(error: ElanusError) -> None:
    bench = await started()
    await bench.insert(1, 10)
    await bench.tick()
    bench.jobs.go_on.clear()
    await bench.flush(V0, S1)
    await settle()
    bench.coord.calls.failing["report_ticks"] = error
    await bench.insert(1, 4)
    tick = await bench.tick()
    await asyncio.sleep(10)
    assert bench.coord.last(V0).ts < tick
    bench.coord.calls.failing.clear()
    await asyncio.sleep(2)
    assert bench.coord.last(V0).ts == tick, "without a new tick"
    bench.jobs.go_on.set()
    await settle()
    assert len(bench.jobs.runs) == 1
    assert bench.committed_rows() == {1: 10}
    assert bench.coord.epoch == 1, "no reason to register again"
    await bench.stop()


@pytest.mark.parametrize("error", [DeadlineExceeded("30 s"), Unavailable("the call was lost")])
async def test_a_commit_that_is_not_answered_is_sent_again(error: ElanusError) -> None:
    bench = await started()
    commit_range, sent = bench.coord.commit_range, list[RangeCommit]()

    async def unanswered(commit: RangeCommit) -> None:
        sent.append(commit)
        if len(sent) == 1:
            await commit_range(commit)
        assert commit == sent[0]
        if len(sent) < 3:
            raise error

    bench.coord.commit_range = unanswered  # type: ignore[method-assign]
    await bench.insert(1, 10)
    await bench.tick()
    await bench.flush(V0, S1)
    await asyncio.sleep(30)
    assert len(sent) == 3
    assert bench.committed_rows() == {1: 10}
    assert bench.coord.epoch == 1
    bench.coord.commit_range = commit_range  # type: ignore[method-assign]
    await bench.insert(1, 4)
    await bench.tick()
    await bench.flush(V0)
    await settle()
    assert bench.committed_rows() == {1: 14}, "it goes on from there"
    await bench.stop()


@pytest.mark.parametrize("error", [DeadlineExceeded("30 s"), Unavailable("the call was lost")])
async def test_an_idle_vchannel_whose_first_report_was_lost_is_reported_again(error: ElanusError) -> None:
    """Datacoord seals by reports: segments of a vchannel that nobody reports would grow old unnoticed."""
    bench = Bench(V0, V1)
    bench.coord.calls.failing["report_ticks"] = error
    await bench.start()
    await bench.tick()
    await asyncio.sleep(2)
    bench.coord.calls.failing.clear()
    await asyncio.sleep(2)
    assert {report.vchannel for report in bench.coord.reports} == {V0, V1}
    await bench.stop()
