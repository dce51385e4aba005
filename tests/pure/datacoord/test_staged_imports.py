"""Imports in two steps: no row is there before the client's commit, and an abort leaves nothing behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import COMMIT_DEADLINE_S, IMPORT_TIMEOUT_MS, Bench
from fakes import CID, DEFAULT, OTHER, collection, settle
from test_collecting import Store, running
from test_import_tasks import REQUEST, answer, outcome, state

from elanus.core.errors import CollectionNotFound, InvalidParameter, PartitionNotFound, TaskQueueFull
from elanus.core.ids import TaskID
from elanus.core.imports import ImportState
from elanus.storage.paths import INSERT_LOG

S = ImportState
TWO_STEPS = replace(REQUEST, auto_commit=False)


async def staged(bench: Bench) -> TaskID:
    task_id: TaskID = await bench.coord.start_import(TWO_STEPS)
    await answer(bench.importers[-1], outcome(bench, 51, 52))
    assert await state(bench, task_id) is S.UNCOMMITTED
    return task_id


async def test_rows_are_there_from_the_commit_on_also_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    task_id = await staged(bench)
    task = await bench.coord.import_task(task_id)
    assert (task.rows, task.segments, task.files_bytes) == (20, (), (100, 20))
    coord = await bench.restart()
    await asyncio.sleep(5)
    assert await state(bench, task_id) is S.UNCOMMITTED
    assert (await coord.recovery_info(CID)).flushed == ()

    before = bench.root.stamp()
    await asyncio.gather(coord.commit_import(task_id), coord.commit_import(task_id))
    await asyncio.sleep(1)
    await coord.commit_import(task_id)
    task = await coord.import_task(task_id)
    assert (task.state, task.rows, task.segments, task.staged) == (S.COMPLETED, 20, (51, 52), "")
    assert task.commit_ts > before, "the rows have the timestamp of the commit"
    assert {m.commit_ts for m in (await coord.recovery_info(CID)).flushed} == {task.commit_ts}
    with pytest.raises(InvalidParameter, match="is Completed: it cannot become Failed"):
        await coord.cancel_import(task_id)
    await coord.stop()


async def test_what_is_not_written_or_commits_by_itself_is_not_committed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    early, own = await coord.start_import(TWO_STEPS), await coord.start_import(REQUEST)
    await settle()
    with pytest.raises(InvalidParameter, match="is Started, not Uncommitted: commit it when its files are"):
        await coord.commit_import(early)
    with pytest.raises(InvalidParameter, match="commits by itself: import with auto_commit=false"):
        await coord.commit_import(own)
    await coord.stop()


async def test_an_aborted_import_leaves_nothing_behind(tmp_path: Path) -> None:
    bench = Store(tmp_path)
    bench.gc_policy = replace(bench.gc_policy, missing_tolerance_s=0)
    bench.imports = replace(bench.imports, timeout_ms=10**9)
    async with running(tmp_path, bench):
        task_id = await staged(bench)
        attempt = bench.importers[-1].orders[0].attempt
        written = f"{INSERT_LOG}/1/2/3/a{attempt}-x"
        bench.store.put(written, b"x")
        await bench.restart()
        await bench.register()
        await bench.take(2 * COMMIT_DEADLINE_S)
        assert await state(bench, task_id) is S.UNCOMMITTED
        await bench.collect()
        assert bench.left() == {written, f"progress/outcomes-{task_id}/a{attempt}-staged.msgpack"}
        await bench.coord.cancel_import(task_id)
        await bench.coord.cancel_import(task_id)
        with pytest.raises(InvalidParameter, match="is Failed and cannot be committed: cancelled"):
            await bench.coord.commit_import(task_id)
        assert (await bench.coord.import_task(task_id)).rows == 0
        await bench.collect()
        assert bench.left() == set()
        assert await bench.coord.segments(CID) == ()


async def test_an_import_that_is_aborted_during_its_commit_adds_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await staged(bench)
    commits = coord.role._imports._commits
    write = commits._write

    async def slow(*arguments: object) -> object:
        found = await write(*arguments)
        await coord.cancel_import(task_id)
        return found

    commits._write = slow
    with pytest.raises(InvalidParameter, match="is Failed and cannot be committed: cancelled"):
        await coord.commit_import(task_id)
    assert await coord.segments(CID) == ()
    await coord.stop()


async def test_an_import_that_nobody_commits_fails_in_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.imports = replace(bench.imports, tasks_max=2)
    coord = await bench.watched()
    task_id = await staged(bench)
    hasty = await coord.start_import(replace(TWO_STEPS, timeout_ms=60_000))
    await answer(bench.importers[-1], outcome(bench, 53))
    with pytest.raises(TaskQueueFull, match="commit or abort those that are Uncommitted"):
        await coord.start_import(REQUEST)
    await asyncio.sleep(60)
    assert (await coord.import_task(hasty)).reason == "it was not committed within its timeout of 60 s"
    await asyncio.sleep(IMPORT_TIMEOUT_MS / 1000 - 90)
    assert await state(bench, task_id) is S.UNCOMMITTED
    await asyncio.sleep(30)
    task = await coord.import_task(task_id)
    assert (task.state, task.reason) == (
        S.FAILED,
        "it was not committed within 1800 s: raise imports.timeout_s",
    )
    await coord.stop()


async def test_rows_of_what_was_dropped_are_not_committed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2, partitions=(DEFAULT, OTHER)))
    coord = await bench.watched()
    task_id = await coord.start_import(replace(TWO_STEPS, partition_id=OTHER, partition="p1"))
    await answer(bench.importers[-1], outcome(bench, 51))
    bench.root.collections[CID] = collection(shards=2, partitions=(DEFAULT,))
    await coord.drop_partition(CID, OTHER)
    with pytest.raises(PartitionNotFound):
        await coord.commit_import(task_id)
    assert await state(bench, task_id) is S.FAILED

    other = await staged(bench)
    await coord.drop_collection(CID)
    await asyncio.sleep(5)
    with pytest.raises((InvalidParameter, CollectionNotFound)):
        await coord.commit_import(other)
    assert await state(bench, other) is S.FAILED
    await coord.stop()
