"""A backlog is written in bounded pieces, and orders of coordinators that were replaced are refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fakes import settle
from node_bench import POLICY, V0, V1, Bench, assignment

from elanus.api.datacoord import DataNodeRegistration
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused
from elanus.core.ids import SegmentID
from elanus.core.messages import TimeTick

S1 = SegmentID(1)


# bounded pieces


async def test_a_backlog_is_drained_in_bounded_pieces_and_completes_with_the_last() -> None:
    bench = Bench(V0, policy=replace(POLICY, range_size_max_bytes=1))
    for _ in range(5):
        await bench.insert(1, 10)
        await bench.write(TimeTick(bench.stamp(), 1), pchannel=pchannel_of(V0))
    await bench.start()
    await asyncio.sleep(1)
    await bench.flush(V0, S1)
    await asyncio.sleep(1)
    assert len(bench.jobs.runs) == 5, "a tick at a time: the least that a range can be"
    assert [sum(o.insert_logs[0].rows for o in c.segments) for c in bench.coord.commits] == [10] * 5
    assert [c.flushed for c in bench.coord.commits] == [()] * 4 + [(S1,)], "complete with the last piece only"
    starts, ends = zip(*bench.jobs.ranges, strict=True)
    assert starts[1:] == ends[:-1], "one piece begins where the one before it ended"
    await bench.stop()


async def test_what_is_remembered_of_a_backlog_grows_with_its_ticks_and_not_with_its_writes() -> None:
    bench = Bench(V0)
    await bench.start()
    for _ in range(500):
        await bench.insert(1, 1)
    await bench.tick()
    assert len(bench.node.owned[V0]._spans) == 1
    assert dict(bench.coord.last(V0).segment_rows) == {1: 500}
    await bench.stop()


# epochs of orders


async def test_an_order_of_an_epoch_that_has_passed_is_refused() -> None:
    bench = Bench(V0)
    await bench.start()
    await bench.insert(1, 10)
    await bench.tick()
    with pytest.raises(CommitRefused, match="an order of epoch 0: epoch 1 has begun"):
        await bench.flush(V0, S1, epoch=0)
    with pytest.raises(CommitRefused):
        await bench.node.watch_channels(0, (assignment(V1),))
    await asyncio.sleep(1)
    assert bench.jobs.runs == []
    await bench.flush(V0, S1)
    await asyncio.sleep(1)
    assert len(bench.jobs.runs) == 1
    await bench.stop()


async def test_what_an_order_of_an_earlier_epoch_left_is_forgotten_with_it() -> None:
    """A coordinator that was replaced orders while the node registers with the next one."""
    bench = Bench(V0)
    bench.coord.epoch = 5
    waits = asyncio.Event()
    register = bench.coord.register_datanode

    async def slowly(*args: Any) -> DataNodeRegistration:
        await waits.wait()
        return await register(*args)

    bench.coord.register_datanode = slowly  # type: ignore[method-assign]
    await bench.start()
    await bench.node.watch_channels(3, (assignment(V1),))
    await bench.flush(V1, S1, epoch=3)
    waits.set()
    await settle()
    assert {c.vchannel for c in bench.node.owned} == {V0}
    assert not list(bench.node.orders)
    await bench.stop()
