"""A flush job that hangs delays its own batch, until its deadline, and nobody else."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace

from fakes import settle
from node_bench import POLICY, V0, V1, W0, Bench, Jobs

from elanus.api.datanode import FlushReason
from elanus.core.channels import pchannel_of, vchannel_name
from elanus.core.ids import CollectionID, SegmentID
from elanus.datanode.flushing import BATCH_MAX_VCHANNELS, BATCHES_MAX
from elanus.log.memory import MemoryLog
from elanus.pipeline.ranges import FlushPlan, RangeOutcome

S1, S2, S3 = SegmentID(1), SegmentID(2), SegmentID(3)
TIMEOUT_S = POLICY.flush_timeout_s


class Hanging(Jobs):
    """Jobs over ranges of certain vchannels hang, and do not even end when they are cancelled."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.hanging: set[str] = set()
        self.released = asyncio.Event()
        self.cancelled = 0

    async def run(self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int) -> list[RangeOutcome]:
        if any(plan.vchannel in self.hanging for plan in plans):
            self.runs.append((reason.cause, tuple(plan.vchannel for plan in plans)))
            self.tries.append(tries)
            while not self.released.is_set():
                try:
                    await self.released.wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
            return [self._outcome(plan) for plan in plans]
        return await super().run(plans, reason, tries)


async def started(*vchannels: str) -> tuple[Bench, Hanging]:
    bench = Bench(*vchannels)
    bench.jobs = jobs = Hanging(bench.log)
    bench.node._ranges._flushes = jobs
    await bench.start()
    return bench, jobs


async def stop(bench: Bench, jobs: Hanging) -> None:
    jobs.released.set()
    await bench.stop()


async def test_while_a_job_hangs_the_other_vchannels_are_flushed() -> None:
    bench, jobs = await started(V0, V1, W0)
    jobs.hanging = {V0}
    await bench.insert(1, 10, V0)
    await bench.tick()
    await bench.flush(V0, S1)
    await settle()
    await bench.insert(2, 20, V1)
    await bench.insert(3, 30, W0)
    await bench.tick()
    await bench.tick(pchannel_of(W0))
    await bench.flush(V1, S2)
    await bench.flush(W0, S3)
    await settle()
    assert bench.committed_rows() == {S2: 20, S3: 30}
    assert jobs.cancelled == 0, "its deadline is far away"
    await stop(bench, jobs)


async def test_idle_checkpoints_move_while_a_job_hangs() -> None:
    bench, jobs = await started(V0, V1)
    jobs.hanging = {V0}
    await bench.insert(1, 10, V0)
    await bench.tick()
    await bench.flush(V0, S1)
    await settle()
    bench.ms += POLICY.idle_checkpoint_ms + 1
    tick = await bench.tick()
    await asyncio.sleep(POLICY.holding_checkpoint_ms / 1000)
    assert [(m.vchannel, m.checkpoint.ts) for m in bench.coord.moves] == [(V1, tick)]
    await stop(bench, jobs)


async def test_at_the_deadline_the_ranges_of_the_batch_are_tried_alone() -> None:
    bench, jobs = await started(V0, V1)
    jobs.hanging = {V0}
    await bench.insert(1, 10, V0)
    await bench.insert(2, 20, V1)
    await bench.tick()
    await bench.flush(V0, S1)
    await bench.flush(V1, S2)
    await asyncio.sleep(TIMEOUT_S - 1)
    assert (jobs.runs, jobs.cancelled) == ([("flush", (V0, V1))], 0)
    await asyncio.sleep(TIMEOUT_S)
    assert jobs.cancelled == 1, "it does not end for that, and is not waited for"
    assert sorted(jobs.runs[1:]) == [("flush", (V0,)), ("flush", (V1,))]
    await asyncio.sleep(2)
    assert bench.committed_rows() == {S2: 20}
    assert bench.coord.epoch == 1, "no reason to give up what else it does"
    await stop(bench, jobs)


async def test_a_range_that_hangs_alone_delays_nobody_in_its_batch() -> None:
    bench, jobs = await started(V0, V1)
    jobs.hanging = {V0}
    await bench.insert(1, 10, V0)
    await bench.insert(2, 20, V1)
    await bench.tick()
    await bench.flush(V0, S1)
    await bench.flush(V1, S2)
    await asyncio.sleep(TIMEOUT_S + 1)
    assert bench.committed_rows() == {S2: 20}, "the other is committed while the first is tried alone"
    await bench.insert(3, 30, V1)
    await bench.tick()
    await bench.flush(V1, S3)
    await asyncio.sleep(1)
    assert bench.committed_rows() == {S2: 20, S3: 30}, "and it is free for the next order"
    assert jobs.runs[-1] == ("flush", (V1,))
    await stop(bench, jobs)


async def test_each_further_try_may_take_twice_as_long_and_a_late_end_commits_nothing() -> None:
    bench, jobs = await started(V0)
    jobs.hanging = {V0}
    await bench.insert(1, 10, V0)
    await bench.tick()
    await bench.flush(V0, S1)
    await asyncio.sleep(TIMEOUT_S + 2)
    assert jobs.tries == [1, 2]
    await asyncio.sleep(2 * TIMEOUT_S - 3)
    assert (jobs.tries, jobs.cancelled) == ([1, 2], 1)
    await asyncio.sleep(5)
    assert (jobs.tries, jobs.cancelled) == ([1, 2, 3], 2)
    jobs.hanging.clear()
    jobs.released.set()
    await settle()
    assert bench.committed_rows() == {S1: 10}, "the third try ends, and the two before it count for nothing"
    await bench.stop()


async def test_a_node_that_stops_waits_for_its_jobs() -> None:
    bench, jobs = await started(V0)
    jobs.hanging = {V0}
    await bench.insert(1, 10, V0)
    await bench.tick()
    await bench.flush(V0, S1)
    await settle()
    stopping = asyncio.create_task(bench.stop())
    await asyncio.sleep(1)
    assert not stopping.done()
    jobs.released.set()
    await stopping


def names(count: int) -> list[str]:
    return [vchannel_name(pchannel_of(V0), CollectionID(1000 + n), 0) for n in range(count)]


async def test_so_many_batches_run_at_a_time_and_what_waits_becomes_large_ones() -> None:
    vchannels = names(BATCHES_MAX + BATCH_MAX_VCHANNELS + 5)
    bench = Bench(*vchannels)
    await bench.start()
    for number, vchannel in enumerate(vchannels):
        await bench.insert(number + 1, 1, vchannel)
    await bench.tick()
    bench.jobs.go_on.clear()
    for vchannel in vchannels:
        await bench.flush(vchannel)
        await settle()
    assert [len(group) for _, group in bench.jobs.runs] == [1] * BATCHES_MAX
    bench.jobs.go_on.set()
    await settle()
    assert [len(group) for _, group in bench.jobs.runs[BATCHES_MAX:]] == [BATCH_MAX_VCHANNELS, 5]
    assert len(bench.coord.commits) == len(vchannels)
    await bench.stop()


async def test_the_checkpoints_of_many_idle_vchannels_move_in_few_calls() -> None:
    vchannels = names(250)
    bench = Bench(*vchannels, policy=replace(POLICY, report_ms=1000))
    await bench.start()
    bench.ms += POLICY.idle_checkpoint_ms + 1
    tick = await bench.tick()
    await asyncio.sleep(POLICY.holding_checkpoint_ms / 1000)
    assert {move.vchannel for move in bench.coord.moves} == set(vchannels)
    assert {move.checkpoint.ts for move in bench.coord.moves} == {tick}
    assert [len(moves) for moves in bench.coord.calls.of("move_checkpoints")] == [100, 100, 50]
    assert bench.coord.commits == []
    await bench.stop()


async def test_a_move_that_is_refused_makes_the_node_register_again() -> None:
    bench = Bench(V0)
    await bench.start()
    bench.ms += POLICY.idle_checkpoint_ms + 1
    tick = await bench.tick()
    known = bench.coord.assignments[V0]
    elsewhere = replace(known.checkpoint, ts=tick, position=bench.log.end(pchannel_of(V0)), tick=tick)
    bench.coord.assignments[V0] = replace(known, checkpoint=elsewhere)
    await asyncio.sleep(POLICY.holding_checkpoint_ms / 1000)
    assert bench.coord.epoch == 2
    await bench.stop()


async def test_two_batches_that_are_refused_at_once_make_the_node_register_again() -> None:
    """Neither error is left unread."""
    bench, jobs = await started(V0, V1)
    jobs.hanging = {V0, V1}
    for vchannel, segment_id in ((V0, S1), (V1, S2)):
        await bench.insert(segment_id, 10, vchannel)
        tick = await bench.tick()
        await bench.flush(vchannel, segment_id)
        await settle()
    for vchannel in (V0, V1):
        known = bench.coord.assignments[vchannel]
        elsewhere = replace(
            known.checkpoint, ts=tick, position=bench.log.end(pchannel_of(vchannel)), tick=tick
        )
        bench.coord.assignments[vchannel] = replace(known, checkpoint=elsewhere)
    jobs.released.set()
    await asyncio.sleep(POLICY.holding_checkpoint_ms / 1000)
    assert bench.coord.epoch == 2
    gc.collect()  # an error that nobody read is reported when its task goes
    await bench.stop()
