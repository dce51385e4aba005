"""Compactions with several data nodes: spread, passed on when a node is lost, and never committed twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from compaction_bench import answer, planned, start, state_of, two_small
from fakes import DEFAULT, OTHER

from elanus.core.compaction import CompactionState
from elanus.core.errors import CommitRefused, Unavailable
from elanus.core.ids import NodeID

P = CompactionState


async def test_plans_go_to_the_node_with_fewest_and_the_owner_first(tmp_path: Path) -> None:
    bench, files = await start(tmp_path, orders_max=1)
    first, first_epoch = bench.node, bench.epoch
    await bench.register(10)
    second = bench.node
    bench.epoch = first_epoch
    for partition in (DEFAULT, OTHER):
        for keys in (range(10), range(10, 20)):
            await files.flushed(keys, partition)
    plans = await planned(bench)
    assert len(plans) == 2
    assert len(first.calls.of("compact")) == len(second.calls.of("compact")) == 1
    assert first.calls.of("compact")[0].plan_id == plans[0].plan_id, "it follows the vchannel"
    await bench.coord.stop()


async def test_a_lost_nodes_plans_go_to_another_and_its_results_are_refused(tmp_path: Path) -> None:
    bench, _, plan, order = await two_small(tmp_path)
    lost, lost_epoch = bench.node, bench.epoch
    await bench.register(10)
    assert bench.node.calls.of("compact") == [], "it is under way"
    bench.data_nodes.leave(NodeID(9))
    await asyncio.sleep(0.1)
    (again,) = bench.node.calls.of("compact")
    assert (again.plan_id, lost.calls.of("cancel_compactions")) == (plan.plan_id, [])
    before = await bench.snapshot()
    with pytest.raises(CommitRefused, match="register again"):
        await bench.coord.commit_compaction(replace(answer(bench, order), epoch=lost_epoch))
    with pytest.raises(CommitRefused, match="given up"):
        await bench.coord.commit_compaction(answer(bench, order))
    with pytest.raises(CommitRefused, match="register again"):
        await bench.coord.compaction_failed(lost_epoch, plan.plan_id, "it says")
    assert await bench.snapshot() == before
    await bench.coord.commit_compaction(answer(bench, again))
    assert await state_of(bench, plan) is P.COMPLETED
    await bench.coord.stop()


async def test_a_node_that_takes_no_order_is_passed_over(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    first, first_epoch = bench.node, bench.epoch
    await bench.register(10)
    bench.epoch = first_epoch
    first.calls.failing["compact"] = Unavailable("hangs")
    await files.flushed(range(10))
    await files.flushed(range(10, 20))
    (plan,) = await planned(bench)
    (order,) = bench.node.calls.of("compact")
    assert (order.plan_id, len(first.calls.of("compact"))) == (plan.plan_id, 1)
    await bench.coord.stop()
