"""Small delta logs of a vchannel become one: in one commit, with all their deletes, and with nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from compaction_bench import Files, orders, start
from data_bench import Bench
from fakes import CID, OTHER

from elanus.api.datacoord import CompactionCommit
from elanus.api.datanode import CompactionOrder
from elanus.core.clones import deletes_as_of
from elanus.core.compaction import CompactionState, CompactionThresholds
from elanus.core.errors import CommitRefused
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datacoord.planner import PlanPolicy
from elanus.pipeline.merge import compact
from elanus.storage.delta_log import PRIMARY_KEY_COLUMN, read_delta_log

DELTAS = 4
POLICY = PlanPolicy(CompactionThresholds(0.5, 1 << 30, 100, DELTAS), retention_s=3600, plans_max=10)


async def with_deltas(tmp_path: Path, count: int = DELTAS) -> tuple[Bench, Files]:
    bench, files = await start(tmp_path, plan=POLICY)
    await files.flushed(range(1000))
    for number in range(count):
        await bench.commit_files([], [], files.deletes(range(number, number + 2)))
    return bench, files


async def ordered(bench: Bench) -> CompactionOrder:
    await bench.coord.compact(CID)
    await asyncio.sleep(0.1)
    (order,) = orders(bench)
    return order


async def listed(bench: Bench) -> tuple[BinlogFile, ...]:
    (vchannel,) = (await bench.coord.recovery_info(CID)).vchannels
    return tuple(log.file for log in vchannel.delta_logs)


def carried_out(bench: Bench, files: Files, order: CompactionOrder, name: str = "merged") -> CompactionCommit:
    output = compact(order, bench.store, files.directory, f"{name}-{order.attempt}")
    return CompactionCommit(bench.epoch, order.attempt, order.plan_id, (output,))


def deletes(bench: Bench, files: tuple[BinlogFile, ...]) -> list[tuple[int, int]]:
    """The deletes with their timestamps, in the order of the files."""
    tables = [read_delta_log(bench.store, file) for file in files]
    columns = (PRIMARY_KEY_COLUMN, TIMESTAMP_FIELD)
    return [row for t in tables for row in zip(*(t.column(c).to_pylist() for c in columns), strict=True)]


async def test_delta_logs_become_one_with_the_same_deletes(tmp_path: Path) -> None:
    bench, files = await with_deltas(tmp_path)
    before = await listed(bench)
    checkpoint = await bench.recovery()
    order = await ordered(bench)
    assert order.merges_deltas
    assert order.delta_logs == before
    assert not order.inputs
    await bench.coord.commit_compaction(carried_out(bench, files, order))
    (merged,) = await listed(bench)
    assert (merged.rows, merged.ts_min, merged.ts_max) == (
        2 * DELTAS,
        before[0].ts_min,
        before[-1].ts_max,
    )
    assert deletes(bench, (merged,)) == deletes(bench, before)
    assert await bench.recovery() == checkpoint
    (plan,) = await bench.coord.compaction_plans(order.plan_id)
    assert plan.state is CompactionState.COMPLETED
    await bench.restart()
    assert await listed(bench) == (merged,)
    await bench.coord.stop()


async def test_a_delta_log_that_is_cut_for_a_clone_is_merged_with_the_deletes_that_count(
    tmp_path: Path,
) -> None:
    bench, files = await with_deltas(tmp_path, DELTAS - 1)
    moments = [bench.root.stamp() for _ in range(3)]
    late = files.deletes_at([(moment, range(70 + n, 71 + n)) for n, moment in enumerate(moments)])
    await bench.commit_files([], [], late)
    context = bench.coord.context
    vchannel = context.state.vchannel(bench.vchannel)
    assert vchannel is not None
    cut = deletes_as_of(await context.manifests.of_vchannel(vchannel), moments[1])
    await context.state.put(vchannels=[await context.manifests.with_deltas(vchannel, cut, "cut")])
    before = await listed(bench)
    assert before[-1].until == moments[1]
    await bench.coord.commit_compaction(carried_out(bench, files, await ordered(bench)))
    (merged,) = await listed(bench)
    assert deletes(bench, (merged,)) == deletes(bench, before)
    assert (merged.ts_max, merged.until) == (moments[1], NO_TIMESTAMP)
    await bench.coord.stop()


async def test_too_few_are_left_alone(tmp_path: Path) -> None:
    bench, _ = await with_deltas(tmp_path, DELTAS - 1)
    await bench.coord.compact(CID)
    await asyncio.sleep(0.1)
    assert not orders(bench)
    await bench.coord.stop()


async def test_what_a_range_adds_meanwhile_stays(tmp_path: Path) -> None:
    bench, files = await with_deltas(tmp_path)
    order = await ordered(bench)
    commit = carried_out(bench, files, order)
    later = files.deletes(range(50, 60), OTHER)
    await bench.commit_files([], [], later)
    await bench.coord.commit_compaction(commit)
    assert await listed(bench) == (*commit.outputs[0].insert_logs, later)
    await bench.coord.stop()


async def test_a_range_that_is_committed_while_the_list_is_written_is_not_lost(tmp_path: Path) -> None:
    bench, files = await with_deltas(tmp_path)
    order = await ordered(bench)
    commit = carried_out(bench, files, order)
    later = files.deletes(range(50, 60))
    manifests = bench.coord.context.manifests
    write, written = manifests.with_deltas, 0

    async def slowly(*arguments: object) -> object:
        nonlocal written
        found = await write(*arguments)  # type: ignore[arg-type]
        written += 1
        if written == 1:
            await bench.commit_files([], [], later)
        return found

    manifests.with_deltas = slowly  # type: ignore[method-assign, assignment]
    await bench.coord.commit_compaction(commit)
    assert await listed(bench) == (*commit.outputs[0].insert_logs, later)
    await bench.coord.stop()


Change = Callable[[Bench, CompactionCommit], Awaitable[CompactionCommit]]


async def of_another_attempt(bench: Bench, commit: CompactionCommit) -> CompactionCommit:
    return replace(commit, attempt=commit.attempt - 1)


async def of_an_older_epoch(bench: Bench, commit: CompactionCommit) -> CompactionCommit:
    return replace(commit, epoch=commit.epoch - 1)


async def without_some_deletes(bench: Bench, commit: CompactionCommit) -> CompactionCommit:
    (output,) = commit.outputs
    (file,) = output.insert_logs
    fewer = replace(output, insert_logs=(replace(file, rows=file.rows - 1),))
    return replace(commit, outputs=(fewer,))


async def without_a_file(bench: Bench, commit: CompactionCommit) -> CompactionCommit:
    return replace(commit, outputs=(replace(commit.outputs[0], insert_logs=()),))


async def of_a_dropped_collection(bench: Bench, commit: CompactionCommit) -> CompactionCommit:
    await bench.coord.drop_collection(CID)
    return commit


async def when_one_is_not_needed_any_more(bench: Bench, commit: CompactionCommit) -> CompactionCommit:
    context = bench.coord.context
    vchannel = context.state.vchannel(bench.vchannel)
    assert vchannel is not None
    (_, *rest) = await context.manifests.of_vchannel(vchannel)
    await context.state.put(vchannels=[await context.manifests.with_deltas(vchannel, tuple(rest), "fewer")])
    return commit


async def a_second_time(bench: Bench, commit: CompactionCommit) -> CompactionCommit:
    await bench.coord.commit_compaction(commit)
    return commit


@pytest.mark.parametrize(
    "change",
    [
        of_another_attempt,
        of_an_older_epoch,
        without_some_deletes,
        without_a_file,
        of_a_dropped_collection,
        when_one_is_not_needed_any_more,
        a_second_time,
    ],
)
async def test_a_result_is_refused_and_changes_nothing(tmp_path: Path, change: Change) -> None:
    bench, files = await with_deltas(tmp_path)
    commit = await change(bench, carried_out(bench, files, await ordered(bench)))
    state = bench.coord.context.state
    before = state.vchannel(bench.vchannel)
    with pytest.raises(CommitRefused):
        await bench.coord.commit_compaction(commit)
    after = state.vchannel(bench.vchannel)
    assert before is not None
    assert after is not None
    assert after.deltas == before.deltas
    await bench.coord.stop()


async def test_an_order_comes_again_after_a_restart(tmp_path: Path) -> None:
    bench, files = await with_deltas(tmp_path)
    await ordered(bench)
    await bench.restart()
    await bench.register()
    await asyncio.sleep(0.1)
    (order,) = orders(bench)
    await bench.coord.commit_compaction(carried_out(bench, files, order, "again"))
    assert len(await listed(bench)) == 1
    await bench.coord.stop()
