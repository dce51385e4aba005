"""Compactions by a clustering key: which plans are made, and that a commit exchanges all or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from compaction_bench import Files, answer, orders, state_of
from data_bench import COMPACTION, Bench
from fakes import CID, collection, schema

from elanus.api.datacoord import CompactionCommit
from elanus.api.datanode import CompactionOrder
from elanus.core.clustering import Cluster
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import CommitRefused
from elanus.core.ids import FieldID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp
from elanus.pipeline.clustering import outputs_of
from elanus.storage.binlog import read_columns

P = CompactionState


def keyed() -> CollectionSchema:
    plain = schema()
    pk, *others = plain.fields
    return replace(plain, fields=(replace(pk, is_clustering_key=True), *others))


def target(rows: int) -> int:
    """The target size of segments with so many rows."""
    return rows * keyed().row_bytes_estimate


async def start(tmp_path: Path, of: CollectionSchema | None = None, **policy: float) -> tuple[Bench, Files]:
    bench = Bench(tmp_path / "store", collection(of or keyed()))
    bench.compaction = replace(COMPACTION, **policy)  # type: ignore[arg-type]
    await bench.watched()
    scratch = tmp_path / "scratch"
    scratch.mkdir(parents=True)
    return bench, Files(bench, scratch)


async def planned(bench: Bench, rows: int = 10) -> list[CompactionPlan]:
    plans = await bench.coord.compaction_plans(await bench.coord.compact(CID, target(rows), True))
    await asyncio.sleep(0.1)
    return list(plans)


async def two_planned(tmp_path: Path) -> tuple[Bench, Files, CompactionPlan, CompactionOrder]:
    bench, files = await start(tmp_path)
    await files.flushed(range(0, 40, 2))
    await files.flushed(range(1, 40, 2))
    (plan,) = await planned(bench)
    (order,) = orders(bench)
    return bench, files, plan, order


def commit_of(bench: Bench, files: Files, order: CompactionOrder) -> CompactionCommit:
    """The answer of a data node, with real files."""
    name = f"a{order.attempt}-x"
    outputs = outputs_of(order, bench.store, files.directory, name)
    return CompactionCommit(bench.epoch, order.attempt, order.plan_id, outputs)


async def test_the_clusters_replace_all_inputs_in_one_commit(tmp_path: Path) -> None:
    bench, files, plan, order = await two_planned(tmp_path)
    assert plan.output == 0
    assert order.clustering == plan.clustering
    commit = commit_of(bench, files, order)
    assert len(commit.outputs) > 2
    await bench.coord.commit_compaction(commit)
    assert await state_of(bench, plan) is P.COMPLETED
    (done,) = await bench.coord.compaction_plans(plan.trigger_id)
    assert done.made == tuple(output.segment_id for output in commit.outputs)
    recovery = await bench.coord.recovery_info(CID, plan.inputs)
    assert {m.segment_id for m in recovery.flushed} == set(done.made)
    assert recovery.split == dict.fromkeys(plan.inputs, done.made)
    assert recovery.successors == dict.fromkeys(plan.inputs, done.made[0])
    keys = []
    for manifest in recovery.flushed:
        found = sorted(read_columns(bench.store, manifest, ["pk"]).column("pk").to_pylist())
        assert manifest.cluster == Cluster(FieldID(100), found[0], found[-1])
        assert manifest.parents == plan.inputs
        assert len(found) <= 10
        keys += found
    assert sorted(keys) == list(range(40))
    for segment_id in plan.inputs:
        (info,) = await bench.coord.segments_by_id((segment_id,))
        assert info.state is SegmentState.DROPPED
    await bench.coord.stop()


async def test_clusters_stay_until_there_is_something_new(tmp_path: Path) -> None:
    bench, files, _, order = await two_planned(tmp_path)
    await bench.coord.commit_compaction(commit_of(bench, files, order))
    clustered = {s.segment_id for s in await bench.coord.segments(CID) if s.state is SegmentState.FLUSHED}
    assert await bench.coord.compaction_plans(await bench.coord.compact(CID)) == (), "they are not merged"
    new = await files.flushed(range(100, 110))
    also = await files.flushed(range(110, 120))
    merge = await bench.coord.compaction_plans(await bench.coord.compact(CID))
    assert [set(p.inputs) for p in merge] == [{new, also}], "but what was flushed since is"
    await asyncio.sleep(0.1)
    await bench.coord.commit_compaction(answer(bench, orders(bench)[-1], rows=20))
    (again,) = await planned(bench)
    assert set(again.inputs) == {*clustered, *(p.output for p in merge)}
    await bench.coord.stop()


async def test_a_cluster_with_dead_rows_is_rewritten_alone_and_stays_one(tmp_path: Path) -> None:
    bench, files, _, order = await two_planned(tmp_path)
    commit = commit_of(bench, files, order)
    await bench.coord.commit_compaction(commit)
    first = commit.outputs[0].segment_id
    await bench.commit_files([], [], files.deletes(range(3)))
    (alone,) = await bench.coord.compaction_plans(await bench.coord.compact(CID))
    assert alone.inputs == (first,)
    await asyncio.sleep(0.1)
    await bench.coord.commit_compaction(commit_of(bench, files, orders(bench)[-1]))
    (info,) = await bench.coord.segments_by_id((alone.output,))
    (before,) = await bench.coord.segments_by_id((first,))
    assert info.clustering == before.clustering == order.plan_id
    recovery = await bench.coord.recovery_info(CID)
    (manifest,) = [m for m in recovery.flushed if m.segment_id == alone.output]
    assert manifest.cluster == commit.outputs[0].cluster
    await bench.coord.stop()


async def test_without_a_key_or_with_few_rows_segments_are_merged(tmp_path: Path) -> None:
    bench, files = await start(tmp_path, schema())
    await files.flushed(range(10))
    await files.flushed(range(10, 20))
    trigger_id = await bench.coord.compact(CID, None, True)
    (plan,) = await bench.coord.compaction_plans(trigger_id)
    assert (plan.clustering, len(plan.inputs)) == (None, 2)
    await bench.coord.stop()
    bench, files = await start(tmp_path / "few")
    await files.flushed(range(10))
    await files.flushed(range(10, 20))
    (plan,) = await planned(bench, rows=100)
    assert (plan.clustering, len(plan.inputs)) == (None, 2)
    await bench.coord.stop()


async def test_a_clustering_has_a_time_limit_of_its_own(tmp_path: Path) -> None:
    bench, files = await start(tmp_path, timeout_s=1, clustering_timeout_s=3)
    await files.flushed(range(40))
    (plan,) = await planned(bench)
    await asyncio.sleep(2)
    assert await state_of(bench, plan) is P.PLANNED
    await asyncio.sleep(2)
    assert await state_of(bench, plan) is P.TIMED_OUT
    await bench.coord.stop()


@pytest.mark.parametrize("wrong", ["twice", "strange", "one of an ordinary plan"])
async def test_outputs_that_the_plan_does_not_make_are_refused(tmp_path: Path, wrong: str) -> None:
    bench, files, plan, order = await two_planned(tmp_path)
    commit = commit_of(bench, files, order)
    first, *others = commit.outputs
    outputs = {
        "twice": (first, first, *others),
        "strange": (replace(first, segment_id=SegmentID(1)), *others),
        "one of an ordinary plan": (replace(first, segment_id=plan.output),),
    }[wrong]
    with pytest.raises(CommitRefused, match="its outputs are segments"):
        await bench.coord.commit_compaction(replace(commit, outputs=outputs))
    assert await state_of(bench, plan) is P.FAILED
    recovery = await bench.coord.recovery_info(CID)
    assert {m.segment_id for m in recovery.flushed} == set(plan.inputs), "nothing has changed"
    await bench.coord.stop()


async def test_an_input_that_changed_meanwhile_refuses_all_of_them(tmp_path: Path) -> None:
    bench, files, plan, order = await two_planned(tmp_path)
    commit = commit_of(bench, files, order)
    state = bench.coord.context.state
    await state.put(segments=[replace(state.segment(plan.inputs[0]), manifest="elsewhere")])
    with pytest.raises(CommitRefused, match="has changed"):
        await bench.coord.commit_compaction(commit)
    flushed = {s.segment_id for s in await bench.coord.segments(CID) if s.state is SegmentState.FLUSHED}
    assert flushed == set(plan.inputs)
    await bench.coord.stop()


async def test_nothing_left_drops_the_inputs(tmp_path: Path) -> None:
    bench, _, plan, order = await two_planned(tmp_path)
    await bench.coord.commit_compaction(CompactionCommit(bench.epoch, order.attempt, order.plan_id, ()))
    recovery = await bench.coord.recovery_info(CID, plan.inputs)
    assert recovery.flushed == ()
    assert recovery.successors == dict.fromkeys(plan.inputs, SegmentID(0))
    assert await bench.coord.flush_finished(CID, plan.inputs, Timestamp(0))
    await bench.coord.stop()
