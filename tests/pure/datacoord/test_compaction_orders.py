"""How many compactions a data node is given, and what becomes of orders that it has lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from compaction_bench import Files, answer, orders, planned, start, state_of, two_small
from data_bench import Bench
from fakes import DEFAULT

from elanus.api.datanode import CompactionOrder
from elanus.core.compaction import CompactionState
from elanus.core.errors import CommitRefused, Unavailable
from elanus.core.ids import PartitionID
from elanus.datacoord.compaction_orders import LOOK_INTERVAL_S

TURN_S = LOOK_INTERVAL_S + 1


async def with_plans(bench: Bench, files: Files, count: int) -> None:
    """Plan this many compactions: each of a partition, since one could merge all segments of one."""
    for number in range(count):
        partition = PartitionID(DEFAULT + number)
        for keys in (range(10), range(10, 20)):
            await files.flushed(keys, partition)
    assert len(await planned(bench)) == count


def running(bench: Bench) -> list[CompactionOrder]:
    return [order for order in orders(bench) if order.attempt in bench.node.held]


async def end_one(bench: Bench) -> None:
    order = running(bench)[0]
    bench.node.held.remove(order.attempt)
    await bench.coord.commit_compaction(answer(bench, order))
    await asyncio.sleep(0.1)


async def test_a_node_gets_as_many_orders_as_it_has_room_for_while_its_cluster_grows_and_shrinks(
    tmp_path: Path,
) -> None:
    bench, files = await start(tmp_path, partitions=9, orders_max=0)
    bench.node.room = 2
    await with_plans(bench, files, 9)
    assert len(running(bench)) == 2
    bench.node.room = 4  # workers have joined: no order has ended, but the node is looked at
    await asyncio.sleep(TURN_S)
    assert len(running(bench)) == 4
    bench.node.room = 1
    await asyncio.sleep(TURN_S)
    for left in (3, 2, 1):
        await end_one(bench)
        assert len(running(bench)) == left, "too many run still"
    await end_one(bench)
    assert len(running(bench)) == 1
    await bench.coord.stop()


async def test_the_setting_is_an_upper_bound(tmp_path: Path) -> None:
    bench, files = await start(tmp_path, partitions=5, orders_max=3)
    bench.node.room = 100
    await with_plans(bench, files, 5)
    assert len(running(bench)) == 3
    await bench.coord.stop()


async def test_a_lost_order_is_given_again_and_its_result_is_refused(tmp_path: Path) -> None:
    bench, _, plan, order = await two_small(tmp_path, timeout_s=7200)
    await asyncio.sleep(5 * TURN_S)
    assert orders(bench) == [order], "the node has it"
    bench.node.held.clear()
    await asyncio.sleep(TURN_S)
    _, again = orders(bench)
    assert (again.plan_id, again.attempt > order.attempt) == (plan.plan_id, True)
    with pytest.raises(CommitRefused, match="given up"):
        await bench.coord.commit_compaction(answer(bench, order))
    await bench.coord.commit_compaction(answer(bench, again))
    assert await state_of(bench, plan) is CompactionState.COMPLETED
    await bench.coord.stop()


async def test_a_node_that_cannot_be_asked_keeps_its_orders(tmp_path: Path) -> None:
    bench, _, plan, order = await two_small(tmp_path, timeout_s=7200)
    bench.node.calls.failing["compactions"] = Unavailable("hangs")
    bench.node.held.clear()
    await asyncio.sleep(3 * TURN_S)
    assert orders(bench) == [order]
    bench.node.calls.failing.clear()
    await asyncio.sleep(TURN_S)
    assert len(orders(bench)) == 2
    assert await state_of(bench, plan) is CompactionState.PLANNED
    await bench.coord.stop()


async def test_an_order_of_a_lost_registration_does_not_end_that_of_the_next(tmp_path: Path) -> None:
    """The look at the former registration is under way when the node registers again."""
    bench, _, plan, _ = await two_small(tmp_path, timeout_s=7200)
    former = bench.node
    former.answers.clear()
    former.held.clear()
    await asyncio.sleep(TURN_S)
    assert former.calls.of("compactions"), "asked, and not answered yet"
    await bench.register(9)
    former.answers.set()
    await asyncio.sleep(0.1)
    (again,) = orders(bench)
    assert again.plan_id == plan.plan_id
    await asyncio.sleep(3 * TURN_S)
    assert orders(bench) == [again]
    await bench.coord.commit_compaction(answer(bench, again))
    await bench.coord.stop()


async def test_a_server_without_compactions_asks_no_node(tmp_path: Path) -> None:
    bench, _ = await start(tmp_path)
    await asyncio.sleep(10 * TURN_S)
    assert bench.node.calls.of("compactions") == []
    await bench.coord.stop()
