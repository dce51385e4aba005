"""A range that cannot be written, and a pchannel that cannot be read, harm no others."""

from __future__ import annotations

import asyncio

import pytest
from fakes import settle
from node_bench import V0, V1, W0, Bench

from elanus.core.channels import pchannel_of
from elanus.core.errors import DiskFull, Unavailable
from elanus.core.ids import SegmentID
from elanus.datanode import range_jobs
from elanus.log.port import (
    CorruptLog,
    LogClosed,
    LogReader,
    LogUnreadable,
    Position,
    TrimmedLog,
    UnknownLogFormat,
)
from elanus.pipeline.port import JobCancelled, JobFailed
from elanus.storage.port import CorruptObject, ObjectExists, ObjectMissing, StorageFailed

S1, S2, S3 = SegmentID(1), SegmentID(2), SegmentID(3)
DAMAGE = CorruptLog("log/p0/0001.log: a damaged frame at position 4096 (byte 4096)")


async def ordered_together() -> Bench:
    """Three vchannels with rows, all flushed at once; the range of the middle one is damaged."""
    bench = Bench(V0, V1, W0)
    await bench.start()
    for number, vchannel in enumerate((V0, V1, W0), start=1):
        await bench.insert(number, 10, vchannel=vchannel)
    for vchannel in (V0, W0):
        await bench.tick(pchannel_of(vchannel))
    bench.jobs.damaged[V1] = DAMAGE
    for number, vchannel in enumerate((V0, V1, W0), start=1):
        await bench.flush(vchannel, number)
    await settle()
    return bench


@pytest.mark.parametrize(
    "error",
    [
        DAMAGE,
        LogUnreadable("io"),
        DiskFull("no room"),
        JobFailed("lost four times"),
        *(kind("one") for kind in (ObjectMissing, ObjectExists, CorruptObject, StorageFailed)),
    ],
)
async def test_one_damaged_range_leaves_the_others_committed(error: Exception) -> None:
    bench = await ordered_together()
    assert bench.committed_rows() == {S1: 10, S3: 10}
    assert [(c.vchannel, c.flushed) for c in bench.coord.commits] == [(V0, (S1,)), (W0, (S3,))]
    assert bench.coord.epoch == 1, "no reason to give up what else it does"
    assert sorted(vchannels for _, vchannels in bench.jobs.runs[1:]) == [(V0,), (V1,), (W0,)]
    await bench.stop()


async def test_the_attempt_of_a_range_that_failed_is_closed_and_no_other() -> None:
    bench = await ordered_together()
    (closed,) = bench.coord.calls.of("close_attempts")
    committed = {commit.attempt for commit in bench.coord.commits}
    assert {*closed, *committed} == {1, 2, 3}
    assert len(closed) == 1
    await asyncio.sleep(2)
    assert bench.coord.calls.of("close_attempts") == [closed, (4,)], "a number for each try"
    await bench.stop()


async def test_a_damaged_range_is_tried_again_alone_and_ever_more_seldom() -> None:
    bench = await ordered_together()
    first_tries = len(bench.jobs.runs)
    await asyncio.sleep(16)
    assert bench.jobs.runs[first_tries:] == [("flush", (V1,))] * 4, "after 1, 2, 4 and 8 seconds"
    assert bench.jobs.tries[first_tries:] == [2, 3, 4, 5]
    await asyncio.sleep(20 * range_jobs.REST_MAX_S)
    assert len(bench.jobs.runs) > first_tries + 20, "it is never given up"
    await bench.stop()


@pytest.mark.parametrize("drops_during_job", [False, True])
async def test_a_damaged_range_is_forgotten_with_its_collection(drops_during_job: bool) -> None:
    bench = await ordered_together()
    assert len(bench.node._ranges) == 1
    if drops_during_job:
        bench.jobs.go_on.clear()
        await asyncio.sleep(2)  # the next try begins
    await bench.drop(V1)
    await bench.tick(pchannel_of(V1))
    bench.jobs.go_on.set()
    await settle()
    assert len(bench.node._ranges) == 0
    await asyncio.sleep(60)
    assert len(bench.node._ranges) == 0
    await bench.stop()


async def test_a_damaged_range_is_no_neighbor_of_others() -> None:
    bench = await ordered_together()
    await bench.insert(1, 4)
    await bench.tick()
    runs = len(bench.jobs.runs)
    await asyncio.sleep(1)
    await bench.flush(V0)
    await bench.flush(V1)
    await settle()
    assert {vchannels for _, vchannels in bench.jobs.runs[runs:]} == {(V0,), (V1,)}
    assert bench.committed_rows() == {S1: 14, S3: 10}
    await bench.stop()


async def test_a_range_that_can_be_written_again_is_written_with_all_that_was_ordered_of_it() -> None:
    bench = await ordered_together()
    await bench.insert(2, 5, vchannel=V1)
    await bench.tick()
    await bench.flush(V1, 4)
    bench.jobs.damaged.clear()
    await asyncio.sleep(range_jobs.REST_MIN_S)
    assert bench.committed_rows() == {S1: 10, S2: 15, S3: 10}
    assert bench.coord.commits[-1].flushed == (S2, SegmentID(4))
    await bench.insert(2, 1, vchannel=V1)
    await bench.insert(1, 1)
    await bench.tick()
    await bench.flush(V0)
    await bench.flush(V1)
    await settle()
    assert bench.jobs.runs[-1][1] == (V0, V1), "neighbors again"
    await bench.stop()


async def test_a_pchannel_that_cannot_be_read_stops_its_own_vchannels_only() -> None:
    bench = Bench(V0, W0)
    opened = bench.log.open_reader
    damaged = [True]

    def open_reader(pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        if pchannel == pchannel_of(V0) and damaged[0]:
            raise DAMAGE
        return opened(pchannel, start, headers_only=headers_only)

    bench.log.open_reader = open_reader  # type: ignore[method-assign, assignment]
    await bench.start()
    await bench.insert(1, 10)
    await bench.insert(3, 10, vchannel=W0)
    await bench.tick(pchannel_of(W0))
    await bench.tick()
    await bench.flush(W0, S3)
    await settle()
    assert bench.committed_rows() == {S3: 10}
    assert not [r for r in bench.coord.reports if r.vchannel == V0 and r.ts]
    assert bench.coord.epoch == 1
    damaged[0] = False
    await asyncio.sleep(10)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {S1: 10}
    await bench.stop()


@pytest.mark.parametrize("error", [TrimmedLog("gone"), JobCancelled("flush")])
async def test_an_error_that_says_nothing_about_the_ranges_ends_the_registration(error: Exception) -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.insert(1, 10)
    await bench.tick()
    bench.jobs.damaged[V0] = error
    await bench.flush(V0, 1)
    await asyncio.sleep(1)
    assert bench.coord.epoch == 2
    assert bench.jobs.tries == [1], "the range was not tried alone"
    await bench.stop()


async def test_a_range_of_a_dropped_collection_is_not_missed_when_its_log_is_trimmed() -> None:
    bench = Bench(V0, W0)
    await bench.start()
    for number, vchannel in enumerate((V0, W0), start=1):
        await bench.insert(number, 10, vchannel=vchannel)
        await bench.tick(pchannel_of(vchannel))
    bench.jobs.go_on.clear()
    for number, vchannel in enumerate((V0, W0), start=1):
        await bench.flush(vchannel, number)
    await settle()
    bench.jobs.damaged[V0] = TrimmedLog("nobody needs it any more")
    await bench.drop(V0)
    await bench.tick()
    bench.jobs.go_on.set()
    await asyncio.sleep(1)
    assert bench.coord.epoch == 1, "no reason to give up what else it does"
    assert bench.committed_rows() == {S2: 10}
    await bench.stop()


def fail_reading(bench: Bench, error: Exception) -> None:
    """The next reader fails."""
    opened = bench.log.open_reader

    def open_reader(pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        bench.log.open_reader = opened  # type: ignore[method-assign]
        raise error

    bench.log.open_reader = open_reader  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("error", [TrimmedLog("gone"), LogUnreadable("io"), Unavailable("no answer")])
async def test_a_log_that_cannot_be_read_makes_the_node_register_again(error: Exception) -> None:
    bench = Bench(V0)
    fail_reading(bench, error)
    await bench.start()
    await asyncio.sleep(1)
    assert bench.coord.epoch == 2
    await bench.insert(1, 10)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {S1: 10}
    await bench.stop()


@pytest.mark.parametrize("error", [LogClosed("closed"), UnknownLogFormat("99"), RuntimeError("a bug")])
async def test_an_error_that_lasts_ends_the_node(error: Exception) -> None:
    bench = Bench(V0)
    fail_reading(bench, error)
    await bench.start()
    await asyncio.sleep(1)
    assert bench.running is not None
    assert bench.running.done()
    assert bench.running.exception() is error
    assert bench.coord.epoch == 1
