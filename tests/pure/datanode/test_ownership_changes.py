"""A data node is given vchannels, and has others taken from it, while it works."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fakes import settle
from node_bench import V0, V1, W0, Bench, assignment

from elanus.core.channels import pchannel_of
from elanus.core.ids import SegmentID

S1 = SegmentID(1)


async def started(*vchannels: str) -> Bench:
    bench = Bench(*vchannels)
    await bench.start()
    return bench


async def leave(bench: Bench, vchannel: str) -> None:
    """Datacoord has given the vchannel to another node, and says so."""
    epoch = bench.coord.assignments[vchannel].epoch
    bench.coord.assignments[vchannel] = assignment(vchannel, epoch=epoch + 100)
    await bench.node.unwatch_channels(bench.coord.epoch, {vchannel: epoch})


async def test_what_it_has_left_it_neither_follows_nor_reports_nor_flushes() -> None:
    bench = await started(V0, W0)
    await bench.tick(pchannel_of(W0))
    await leave(bench, W0)
    reported = len(bench.coord.reports)
    await bench.insert(1, 10, W0)
    await bench.tick(pchannel_of(W0))
    await bench.flush(W0, S1)
    await asyncio.sleep(2)
    assert [r.vchannel for r in bench.coord.reports[reported:] if r.vchannel == W0] == []
    assert bench.node.readers.dispatcher.readers == 1
    assert bench.jobs.runs == []
    await bench.insert(2, 10, V0)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {2: 10}
    await bench.stop()


async def test_the_pchannel_is_read_on_for_its_other_vchannels() -> None:
    bench = await started(V0, V1)
    await bench.insert(1, 10, V1)
    await bench.tick()
    await leave(bench, V0)
    await bench.insert(1, 5, V1)
    await bench.tick()
    assert dict(bench.coord.last(V1).segment_rows) == {1: 15}
    await bench.stop()


async def test_what_a_job_writes_of_it_is_refused_and_the_rest_goes_on() -> None:
    bench = await started(V0, W0)
    await bench.insert(1, 10, V0)
    await bench.insert(2, 10, W0)
    await bench.tick()
    await bench.tick(pchannel_of(W0))
    bench.jobs.go_on.clear()
    await bench.flush(W0, S1)
    await bench.flush(V0, S1)
    await settle()
    await leave(bench, W0)
    bench.jobs.go_on.set()
    await asyncio.sleep(1)
    assert [c.vchannel for c in bench.coord.commits] == [V0]
    assert len(bench.coord.calls.of("register_datanode")) == 1, "nothing is wrong"
    await bench.stop()


async def test_a_refusal_that_comes_before_the_word_is_no_end_of_it_either() -> None:
    """It registers again, and learns from that what it owns."""
    bench = await started(V0, W0)
    await bench.insert(2, 10, W0)
    await bench.tick(pchannel_of(W0))
    del bench.coord.assignments[W0]
    await bench.flush(W0, S1)
    await asyncio.sleep(2)
    assert len(bench.coord.calls.of("register_datanode")) == 2
    assert {c.vchannel for c in bench.node.owned} == {V0}
    assert bench.coord.commits == []
    await bench.stop()


async def test_a_vchannel_that_comes_back_begins_at_its_checkpoint() -> None:
    bench = await started(V0)
    await bench.insert(1, 10, V0)
    await bench.tick()
    await bench.flush(V0, S1)
    await asyncio.sleep(1)
    (commit,) = bench.coord.commits
    epoch = bench.coord.assignments[V0].epoch
    await bench.node.unwatch_channels(bench.coord.epoch, {V0: epoch})
    back = assignment(V0, commit.checkpoint, epoch + 1)
    bench.coord.assignments[V0] = back
    await bench.watch(back)
    await bench.insert(2, 7, V0)
    await bench.tick()
    assert dict(bench.coord.last(V0).segment_rows) == {2: 7}
    await bench.flush(V0, SegmentID(2))
    await asyncio.sleep(1)
    assert bench.coord.commits[-1].epoch == epoch + 1
    await bench.stop()


async def test_a_repeated_or_late_assignment_changes_nothing() -> None:
    bench = await started(V0)
    epoch = bench.coord.assignments[V0].epoch
    await bench.insert(1, 10, V0)
    await bench.tick()
    progress = bench.node.owned[V0]
    await bench.watch(assignment(V0, epoch=epoch))
    assert bench.node.owned[V0] is progress
    await bench.node.unwatch_channels(bench.coord.epoch, {V0: epoch - 1})
    assert bench.node.owned[V0] is progress
    for _ in range(2):
        await bench.node.unwatch_channels(bench.coord.epoch, {V0: epoch})
    await bench.watch(assignment(V0, epoch=epoch))
    assert not list(bench.node.owned), "the word of a moment when it was this node's"
    await bench.stop()


async def test_what_is_left_before_the_registration_is_answered_stays_left() -> None:
    bench = Bench(V0, W0)
    register = bench.coord.register_datanode

    async def overtaken(node_id: object) -> object:
        answer = await register(node_id)  # type: ignore[arg-type]
        await bench.node.unwatch_channels(answer.epoch, {W0: answer.epoch})
        newer = replace(bench.coord.assignments[V0], epoch=answer.epoch + 5)
        await bench.node.watch_channels(answer.epoch, (newer,))
        return answer

    bench.coord.register_datanode = overtaken  # type: ignore[method-assign,assignment]
    await bench.start()
    assert {c.vchannel: c.epoch for c in bench.node.owned} == {V0: bench.coord.epoch + 5}
    await bench.stop()


async def test_a_drop_of_a_vchannel_that_is_anothers_ends_nothing() -> None:
    bench = await started(V0, W0)
    await leave(bench, W0)
    await bench.drop(W0)
    await bench.tick(pchannel_of(W0))
    assert bench.coord.calls.of("channel_dropped") == []
    await bench.stop()
