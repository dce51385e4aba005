"""Compactions: planned once, ordered from the node in force, committed as a whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from compaction_bench import answer, orders, planned, start, state_of, two_small
from data_bench import COMPACTION, Bench
from fakes import CID, DEFAULT, OTHER, binlog, collection, settle

from elanus.api.datacoord import CompactionCommit, SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import CollectionNotFound, CommitRefused, InvalidParameter, Unavailable
from elanus.core.ids import CollectionID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportState, ImportTask
from elanus.core.segments import SegmentState
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.core.timestamps import Timestamp
from elanus.datacoord.compaction_facts import CompactionFacts
from elanus.datacoord.vchannel_table import Vchannel
from elanus.meta.port import Put

S, P = SegmentState, CompactionState


async def test_a_commit_exchanges_output_and_inputs_in_one_step(tmp_path: Path) -> None:
    bench, _, plan, order = await two_small(tmp_path)
    assert [m.segment_id for m in order.inputs] == list(plan.inputs)
    before = await bench.coord.wait_change(0, 0)
    await bench.coord.commit_compaction(answer(bench, order, rows=20))
    for segment_id in plan.inputs:
        assert (await bench.segment(segment_id)).state is S.DROPPED
    info = await bench.segment(plan.output)
    assert (info.state, info.rows, info.compacted_from) == (S.FLUSHED, 20, plan.inputs)
    recovery = await bench.coord.recovery_info(CID, plan.inputs)
    (manifest,) = recovery.flushed
    assert (manifest.parents, manifest.deletes_from) == (plan.inputs, plan.fold_until)
    assert recovery.successors == dict.fromkeys(plan.inputs, plan.output)
    assert (await bench.coord.recovery_info(CID)).successors == recovery.successors, "unasked, too"
    assert await state_of(bench, plan) is P.COMPLETED
    assert await bench.coord.wait_change(before, 0) != before, "indexes and query nodes are notified"
    assert await bench.coord.flush_finished(CID, plan.inputs, Timestamp(0)), (
        "those who wait for a flush are notified"
    )
    await bench.coord.stop()


async def test_nothing_is_kept_of_segments_that_requested_compactions_have_replaced(tmp_path: Path) -> None:
    """Without automatic compactions there is no look at all segments, which would forget them."""
    bench, files = await start(tmp_path)
    dead = bench.coord.role._compactor._planner._gatherer._dead
    for number in range(3):
        segments = [await files.flushed(range(n, n + 10)) for n in (0, 10)]
        await bench.commit(delta=files.deletes(range(5)))
        (plan,) = await planned(bench)
        assert {path for path, _ in dead._known} == {(await bench.segment(s)).manifest for s in plan.inputs}
        assert set(segments) <= set(plan.inputs), number
        await bench.coord.commit_compaction(answer(bench, orders(bench)[-1], rows=0))
    await bench.coord.drop_collection(CID)
    await bench.coord.stop()


async def test_an_output_without_rows_is_not_stored(tmp_path: Path) -> None:
    bench, _, plan, order = await two_small(tmp_path)
    await bench.coord.commit_compaction(answer(bench, order, rows=0))
    recovery = await bench.coord.recovery_info(CID, plan.inputs)
    assert recovery.flushed == ()
    assert recovery.successors == dict.fromkeys(plan.inputs, SegmentID(0))
    assert await bench.coord.segments_by_id((plan.output,)) == ()
    await bench.coord.stop()


Change = Callable[[Bench, CompactionPlan, CompactionOrder], Awaitable[CompactionCommit]]


async def of_an_older_epoch(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    await b.register()
    await asyncio.sleep(0.1)
    again = orders(b)[-1]
    assert again.plan_id == plan.plan_id, "the new node gets the order"
    return replace(answer(b, again), epoch=b.epoch - 1)


async def of_an_attempt_before(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    await b.register()
    await asyncio.sleep(0.1)
    assert orders(b)[-1].attempt > order.attempt
    return answer(b, order)


async def after_the_deadline(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    for task in b.coord.role._background:
        task.cancel()  # nobody looks whether it is late
    await asyncio.sleep(COMPACTION.timeout_s + 1)
    return answer(b, order)


async def with_a_changed_input(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    info = await b.segment(plan.inputs[0])
    await b.coord.context.state.put([replace(info, manifest="manifests/another")])
    return answer(b, order)


async def with_a_record_somebody_else_changed(
    b: Bench, plan: CompactionPlan, order: CompactionOrder
) -> CompactionCommit:
    (stored,) = [s for k, s in await b.meta.list("datacoord/segment/") if k.endswith(f"/{plan.inputs[0]}")]
    await b.meta.txn([Put(f"datacoord/segment/{plan.inputs[0]}", stored.value)])
    return answer(b, order)


async def with_another_output(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    return replace(answer(b, order), outputs=(SegmentOutput(SegmentID(4711), (binlog("x"),), ("y",)),))


async def of_a_plan_nobody_made(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    return replace(answer(b, order), plan_id=4711)


async def of_a_dropped_partition(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    await b.coord.drop_partition(CID, DEFAULT)
    return answer(b, order)


async def of_a_dropped_collection(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    await b.coord.drop_collection(CID)
    return answer(b, order)


async def after_it_failed(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    await b.coord.compaction_failed(b.epoch, plan.plan_id, "CorruptObject: x")
    return answer(b, order)


async def a_second_time(b: Bench, plan: CompactionPlan, order: CompactionOrder) -> CompactionCommit:
    await b.coord.commit_compaction(answer(b, order))
    return answer(b, order)


@pytest.mark.parametrize(
    "change",
    [
        of_an_older_epoch,
        of_an_attempt_before,
        after_the_deadline,
        with_a_changed_input,
        with_a_record_somebody_else_changed,
        with_another_output,
        of_a_plan_nobody_made,
        of_a_dropped_partition,
        of_a_dropped_collection,
        after_it_failed,
        a_second_time,
    ],
)
async def test_a_result_is_refused_and_changes_no_segment(tmp_path: Path, change: Change) -> None:
    bench, _, plan, order = await two_small(tmp_path)
    commit = await change(bench, plan, order)
    before = await bench.meta.list("datacoord/segment/")
    with pytest.raises(CommitRefused):
        await bench.coord.commit_compaction(commit)
    assert await bench.meta.list("datacoord/segment/") == before
    await bench.coord.stop()


async def test_deletes_that_come_meanwhile_go_on_concerning_the_output(tmp_path: Path) -> None:
    bench, files, _, order = await two_small(tmp_path)
    late = files.deletes(range(5))
    await bench.commit_files([], [], late)
    await bench.coord.commit_compaction(answer(bench, order, rows=20))
    recovery = await bench.coord.recovery_info(CID)
    (manifest,) = recovery.flushed
    (delta,) = recovery.vchannels[0].delta_logs
    assert delta.file == late
    assert delta.file.ts_max > manifest.deletes_from, "readers apply it"
    await bench.coord.stop()


async def test_dead_rows_are_counted_by_key_partition_and_age(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    early = files.deletes(range(1000, 1600))
    worn = await files.flushed(range(600))
    await files.flushed(range(1000, 1600))
    other = await files.flushed(range(2000, 2600), OTHER)
    deltas = [early, files.deletes(range(10)), files.deletes(range(2000, 2010), DEFAULT)]
    for delta in deltas:
        await bench.commit_files([], [], delta)
    (plan,) = await planned(bench)
    assert plan.inputs == (worn,), "the others' keys were deleted before them, or in another partition"
    assert other not in plan.inputs
    (order,) = orders(bench)
    assert deltas[1] in order.delta_logs
    await bench.coord.stop()


async def test_upserts_of_new_keys_leave_nothing_to_compact(tmp_path: Path) -> None:
    """A delete stands at the timestamp of the rows that come with it; by keys alone all of them look dead."""
    bench, files = await start(tmp_path)
    segment_id = await bench.write(600)
    await bench.coord.flush(CID)
    await bench.report({segment_id: 600})
    writes = [(bench.root.stamp(), range(300)), (bench.root.stamp(), range(300, 600))]
    output, delta = files.rows_at(segment_id, writes), files.deletes_at(writes)
    await bench.commit_files([output], [segment_id], delta)
    assert delta.ts_max > output.insert_logs[0].ts_min
    assert await planned(bench) == []
    await bench.commit_files([], [], files.deletes(range(1)))
    (plan,) = await planned(bench)
    assert plan.inputs == (segment_id,), "one that is really dead is seen"
    await bench.coord.stop()


async def test_retention_holds_deletes_back(tmp_path: Path) -> None:
    plan_policy = replace(COMPACTION.plan, retention_s=3600)
    bench, files = await start(tmp_path, plan=plan_policy)
    bench.later(7200_000)
    await files.flushed(range(600))
    await bench.commit_files([], [], files.deletes(range(300)))
    assert await planned(bench) == [], "a read may ask for the time before the deletes"
    bench.later(3601_000)
    (plan,) = await planned(bench)
    assert len(plan.inputs) == 1
    await bench.coord.stop()


async def test_rows_expire_by_their_collections_time_to_live(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    await files.flushed(range(600))
    bench.root.collections[CID] = replace(bench.root.collections[CID], properties={TTL_PROPERTY: "60"})
    assert await planned(bench) == []
    bench.later(61_000)
    (plan,) = await planned(bench)
    (order,) = orders(bench)
    assert order.expire_until == plan.expire_until > 0
    await bench.coord.stop()


async def test_deltas_leave_the_vchannel_when_all_have_them_folded_in(tmp_path: Path) -> None:
    bench, files, plan, order = await two_small(tmp_path)
    growing = await bench.write(5)
    await bench.commit_files([files.rows(growing, range(50, 55))], [])
    deltas = [files.deletes(range(5)), files.deletes(range(50, 51))]
    for delta in deltas:
        await bench.commit_files([], [], delta)

    async def left() -> list[str]:
        await bench.coord.compact(CID)
        (vchannel,) = (await bench.coord.recovery_info(CID)).vchannels
        return [d.file.path for d in vchannel.delta_logs]

    assert await left() == [d.path for d in deltas], "the inputs do not have the first folded in"
    await bench.coord.commit_compaction(answer(bench, order, rows=20))
    files_of_output = files.rows(plan.output, range(5, 20))
    info = await bench.segment(plan.output)
    folded = deltas[0].ts_max
    await bench.coord.context.state.put(
        [await bench.coord.context.manifests.add_compacted(info, files_of_output, folded, "folded")]
    )
    assert await left() == [deltas[1].path], "a growing segment has rows that the second concerns"
    await bench.coord.stop()


async def test_a_segment_is_planned_once_at_a_time(tmp_path: Path) -> None:
    bench, _, plan, _ = await two_small(tmp_path)
    assert await planned(bench) == []
    await bench.coord.compaction_failed(bench.epoch, plan.plan_id, "JobFailed")
    assert await state_of(bench, plan) is P.FAILED
    (again,) = await planned(bench)
    assert again.inputs == plan.inputs
    await bench.coord.stop()


async def test_plans_outlive_the_coordinator_and_the_data_node(tmp_path: Path) -> None:
    bench, _, plan, order = await two_small(tmp_path)
    await bench.restart()
    assert await state_of(bench, plan) is P.PLANNED
    await bench.register()
    await asyncio.sleep(0.1)
    again = orders(bench)[-1]
    assert (again.plan_id, again.inputs, again.fold_until) == (order.plan_id, order.inputs, order.fold_until)
    await bench.coord.commit_compaction(answer(bench, again))
    await bench.restart()
    assert await state_of(bench, plan) is P.COMPLETED
    assert (await bench.coord.recovery_info(CID, plan.inputs)).successors[plan.inputs[0]] == plan.output
    await bench.coord.stop()


async def test_a_plan_that_takes_too_long_is_given_up_and_called_off(tmp_path: Path) -> None:
    bench, _, plan, _ = await two_small(tmp_path, timeout_s=1)
    await asyncio.sleep(1.5)
    assert await state_of(bench, plan) is P.TIMED_OUT
    assert ("cancel_compactions", (plan.plan_id,)) in bench.node.calls.asked
    (again,) = await planned(bench)
    assert again.inputs == plan.inputs
    await bench.coord.stop()


@pytest.mark.parametrize("whole", [True, False], ids=["collection", "partition"])
async def test_a_drop_cancels_compactions_first(tmp_path: Path, whole: bool) -> None:
    bench, _, plan, _ = await two_small(tmp_path)
    if whole:
        await bench.coord.drop_collection(CID)
    else:
        await bench.coord.drop_partition(CID, OTHER)
        assert await state_of(bench, plan) is P.PLANNED, "it is another partition's"
        await bench.coord.drop_partition(CID, DEFAULT)
    assert await state_of(bench, plan) is P.CANCELLED
    await asyncio.sleep(0.1)
    assert ("cancel_compactions", (plan.plan_id,)) in bench.node.calls.asked
    await bench.coord.stop()


async def test_orders_are_given_a_few_at_a_time_and_again_when_a_call_fails(tmp_path: Path) -> None:
    bench, files = await start(tmp_path, orders_max=1)
    for partition in (DEFAULT, OTHER):
        await files.flushed(range(10), partition)
        await files.flushed(range(10, 20), partition)
    bench.node.calls.failing["compact"] = Unavailable("gone")
    plans = await planned(bench)
    assert (len(plans), len(orders(bench))) == (2, 1)
    bench.node.calls.failing.clear()
    await asyncio.sleep(2)
    first, second = orders(bench)
    assert (first.plan_id, first.attempt < second.attempt) == (second.plan_id, True)
    await bench.coord.commit_compaction(answer(bench, second))
    await asyncio.sleep(0.1)
    assert orders(bench)[-1].plan_id != first.plan_id
    await bench.coord.stop()


async def test_a_request_gets_all_its_plans_and_the_automatic_ones_wait_for_room(tmp_path: Path) -> None:
    merges = replace(COMPACTION.plan, plans_max=1)
    bench, files = await start(tmp_path, 4, plan=merges, automatic=True, interval_s=30)
    partitions = [PartitionID(DEFAULT + number) for number in range(4)]
    for partition in partitions[:3]:
        await files.flushed(range(10), partition)
        await files.flushed(range(10, 20), partition)
    plans = await planned(bench)
    assert [plan.partition_id for plan in plans] == partitions[:3]
    assert len(orders(bench)) < len(plans), "they are ordered as the node has room"
    for first in (0, 10, 20):
        await files.flushed(range(first, first + 10), partitions[3])
    await asyncio.sleep(35)
    assert all(p.partition_id != partitions[3] for p in bench.coord.context.state.plans())
    again = await planned(bench)
    assert [plan.partition_id for plan in again] == partitions[3:], "the others are being compacted"
    await bench.coord.stop()


async def test_flushes_and_time_trigger_compaction_of_all(tmp_path: Path) -> None:
    bench, files = await start(tmp_path, automatic=True, interval_s=30)
    for number in range(3):
        await files.flushed(range(10 * number, 10 * number + 10))
        await asyncio.sleep(0.2)
        assert len(orders(bench)) == (1 if number == 2 else 0), "three small ones are enough"
    await bench.coord.compaction_failed(bench.epoch, orders(bench)[0].plan_id, "JobFailed")
    await asyncio.sleep(1)
    assert len(orders(bench)) == 1
    await asyncio.sleep(30)
    assert len(orders(bench)) == 2
    await bench.coord.stop()


async def test_a_damaged_segment_is_left_alone_and_the_others_are_compacted(tmp_path: Path) -> None:
    bench, files = await start(tmp_path, automatic=True, interval_s=30)
    damaged, *sound = [await files.flushed(range(10 * n, 10 * n + 10)) for n in range(4)]
    await asyncio.sleep(0.2)
    (order,) = orders(bench)
    assert damaged in {manifest.segment_id for manifest in order.inputs}
    reason = f"CorruptObject: insert_log/{CID}/{DEFAULT}/{damaged}/a1-x.parquet is not a binlog"
    await bench.coord.compaction_failed(bench.epoch, order.plan_id, reason)
    await asyncio.sleep(31)
    assert {m.segment_id for m in orders(bench)[1].inputs} == set(sound)
    await bench.coord.stop()


async def test_what_an_import_brought_is_compacted_when_it_is_served(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    segments = tuple([await files.flushed(range(10 * n, 10 * n + 10)) for n in range(2)])
    task = ImportTask(TaskID(7), CID, "c", DEFAULT, "_default", ("f",), 1, ImportState.PERSISTED)
    await bench.coord.context.state.put(imports=[replace(task, segments=segments)])
    assert await planned(bench) == []
    await bench.coord.context.state.put(
        imports=[replace(task, segments=segments, state=ImportState.COMPLETED)]
    )
    (plan,) = await planned(bench)
    assert set(plan.inputs) == set(segments)
    await bench.coord.stop()


@pytest.mark.parametrize("lost", ["insert_log", "stats_log"])
async def test_a_file_that_is_gone_harms_no_other_segment(tmp_path: Path, lost: str) -> None:
    """Found before anything is planned: the search for dead rows reads keys and statistics."""
    bench, files = await start(tmp_path)
    first = await files.flushed(range(600))
    await files.flushed(range(600, 1200))
    bench.store.delete(f"{lost}/{first}/1")
    await bench.commit_files([], [], files.deletes(range(400, 800)))
    inputs = {segment_id for plan in await planned(bench) for segment_id in plan.inputs}
    assert (first in inputs) == (lost == "stats_log"), "statistics are written again"
    assert len(inputs - {first}) == 1
    await bench.coord.stop()


async def test_a_target_below_the_largest_segment_is_refused(tmp_path: Path) -> None:
    bench, _, _, _ = await two_small(tmp_path)
    most = bench.coord.context.allocator.segment_bytes_max
    for target in (1, most - 1):
        with pytest.raises(InvalidParameter, match="should be greater than or equal to configMaxSize"):
            await bench.coord.compact(CID, target)
    assert await bench.coord.compact(CID, most)
    await bench.coord.stop()


async def test_a_damaged_file_stops_its_vchannel_only(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    await files.flushed(range(600))
    damaged = files.deletes(range(300))
    await bench.commit_files([], [], replace(damaged, path="delta_log/nowhere"))
    assert await planned(bench) == []
    await settle()
    with pytest.raises(CollectionNotFound):
        await bench.coord.compact(bench.root.collections[CID].collection_id + 1)
    await bench.coord.stop()


async def test_after_a_flush_its_collection_alone_is_examined(tmp_path: Path) -> None:
    others = [collection(collection_id=CollectionID(CID + n)) for n in range(1, 5)]
    bench = Bench(tmp_path, collection(), *others)
    bench.compaction = replace(COMPACTION, automatic=True, interval_s=600)
    await bench.watched()
    examined: list[str] = []
    gatherer = bench.coord.role._compactor._planner._gatherer
    gather = gatherer.gather

    async def noted(vchannel: Vchannel, *args: object, **options: object) -> CompactionFacts:
        examined.append(vchannel.vchannel)
        return await gather(vchannel, *args, **options)  # type: ignore[arg-type]

    gatherer.gather = noted  # type: ignore[method-assign]
    await asyncio.sleep(1)
    examined.clear()
    segment_id = await bench.write(10)
    await bench.coord.flush(CID)
    await bench.report({segment_id: 10})
    await bench.commit({segment_id: 10}, [segment_id])
    await asyncio.sleep(1)
    assert examined == [bench.vchannel]
    await asyncio.sleep(600)
    assert sorted(examined[1:]) == sorted(c.vchannels[0] for c in others), "each is examined once"
    await asyncio.sleep(1200)
    assert len(examined) == 5, "nothing has changed since"
    await bench.coord.stop()
