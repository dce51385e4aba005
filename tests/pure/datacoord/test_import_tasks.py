"""Imports in the data coordinator: all or nothing, once, however often a job runs, dies or comes late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import IMPORT_TIMEOUT_MS, Bench, FakeImporter
from fakes import CID, DEFAULT, OTHER, binlog, collection, schema, settle

from elanus.api.imports import ImportedSegment, ImportOutcome, ImportRequest
from elanus.core.errors import (
    CollectionNotFound,
    DiskFull,
    ElanusError,
    ImportRefused,
    InvalidParameter,
    PartitionNotFound,
    StoreAway,
    TaskQueueFull,
    Unavailable,
)
from elanus.core.ids import NodeID, SegmentID, TaskID
from elanus.core.imports import ATTEMPTS_MAX, CsvFormat, ImportState
from elanus.core.segments import SegmentState
from elanus.core.sent_keys import is_made

S = ImportState
REQUEST = ImportRequest(CID, "docs", DEFAULT, "_default", ("a.parquet", "b.parquet"))


def outcome(bench: Bench, *segments: int, rows: int = 10) -> ImportOutcome:
    """The output of a job: segments, one after the other on each vchannel."""
    vchannels = bench.collections[0].vchannels
    return ImportOutcome(
        tuple(
            ImportedSegment(
                SegmentID(s),
                vchannels[n % len(vchannels)],
                binlog(f"insert_log/{s}", rows),
                f"stats_log/{s}",
                DEFAULT,
            )
            for n, s in enumerate(segments)
        ),
        files_bytes=(100, 20),
    )


async def state(bench: Bench, task_id: TaskID) -> ImportState:
    return (await bench.coord.import_task(task_id)).state


async def answer(importer: FakeImporter, what: ImportOutcome | ElanusError) -> None:
    importer.answers.put_nowait(what)
    await asyncio.sleep(1.5)


async def test_an_import_step_by_step(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    bench.served = False
    coord = await bench.watched()
    change = await coord.wait_change(0, 0)
    task_id = await coord.start_import(replace(REQUEST, csv=CsvFormat(";", "NULL")))
    assert await state(bench, task_id) in (S.PENDING, S.STARTED)
    await settle()
    (order,) = bench.importers[0].orders
    assert (order.files, order.vchannels) == (REQUEST.files, bench.collections[0].vchannels)
    assert order.csv == CsvFormat(";", "NULL")
    assert order.segment_rows_max == 1000
    assert await state(bench, task_id) is S.STARTED
    assert (await coord.recovery_info(CID)).flushed == ()

    before = bench.root.stamp()
    await answer(bench.importers[0], outcome(bench, 51, 52))
    task = await coord.import_task(task_id)
    assert (task.state, task.rows, task.segments) == (S.PERSISTED, 20, (51, 52))
    assert task.files_bytes == (100, 20)
    assert task.commit_ts > before
    assert await coord.wait_change(change, 0) > change, "indexes and queries are notified"
    manifests = (await coord.recovery_info(CID)).flushed
    assert {m.segment_id for m in manifests} == {51, 52}
    for manifest in manifests:
        assert manifest.commit_ts == manifest.deletes_from == task.commit_ts
        assert {(f.ts_min, f.ts_max) for f in manifest.insert_logs} == {(task.commit_ts, task.commit_ts)}
        info = await bench.segment(manifest.segment_id)
        assert (info.state, info.rows, info.sealed_at) == (SegmentState.FLUSHED, 10, task.commit_ts)

    bench.served = True
    await asyncio.sleep(1)
    assert await state(bench, task_id) is S.COMPLETED
    await asyncio.sleep(61)
    with pytest.raises(ImportRefused, match="import job does not exist, jobID="):
        await coord.import_task(task_id)
    await coord.stop()


@pytest.mark.parametrize("taking", [True, False])
async def test_a_job_knows_whether_files_may_bring_automatic_keys(tmp_path: Path, taking: bool) -> None:
    bench = Bench(tmp_path, collection(schema(auto_id=True)))
    coord = await bench.watched()
    await coord.start_import(replace(REQUEST, takes_keys=taking))
    await settle()
    (order,) = bench.importers[0].orders
    assert is_made(order.schema.primary_field, [order.schema.primary_field.name]) is not taking
    assert is_made(order.schema.primary_field, [])
    await coord.stop()


async def test_tasks_run_one_after_the_other_and_wait_for_a_node(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    await coord.watch_channels(bench.collections[0])
    first, second = await coord.start_import(REQUEST), await coord.start_import(REQUEST)
    await asyncio.sleep(30)
    assert [t.state for t in await coord.import_tasks(CID)] == [S.PENDING, S.PENDING]
    await bench.register()
    await settle()
    assert [t.state for t in await coord.import_tasks(CID)] == [S.STARTED, S.PENDING]
    await answer(bench.importers[0], outcome(bench, 51))
    assert [await state(bench, t) for t in (first, second)] == [S.COMPLETED, S.STARTED]
    await coord.stop()


@pytest.mark.parametrize("error", [InvalidParameter("row 7 is null"), DiskFull("no room")])
async def test_a_failed_job_leaves_its_reason_and_nothing_else(tmp_path: Path, error: ElanusError) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await coord.start_import(REQUEST)
    await answer(bench.importers[0], error)
    task = await coord.import_task(task_id)
    assert (task.state, task.reason, task.segments) == (S.FAILED, error.message, ())
    assert await coord.segments(CID) == ()
    await coord.stop()


async def test_an_import_of_a_lost_node_is_retried_a_bounded_number_of_times(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await coord.start_import(REQUEST)
    for tries, pause_s in enumerate((0, 1, 4, 15, 30)):
        await asyncio.sleep(max(0, pause_s - 2))
        assert tries < 2 or len(bench.importers[0].orders) == tries, "an object store may restart meanwhile"
        await asyncio.sleep(2.5)
        await answer(bench.importers[0], Unavailable("datanode cannot be reached"))
    await asyncio.sleep(30.5)
    attempts = [order.attempt for order in bench.importers[0].orders]
    assert len(set(attempts)) == ATTEMPTS_MAX
    task = await coord.import_task(task_id)
    assert (task.state, task.reason) == (
        S.FAILED,
        "begun 5 times in vain; the last time: datanode cannot be reached",
    )
    await coord.stop()


async def test_an_object_store_that_is_away_costs_an_import_no_tries(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await coord.start_import(REQUEST)
    for _ in range(2 * ATTEMPTS_MAX):
        await answer(bench.importers[0], StoreAway("the object store does not answer"))
        assert await state(bench, task_id) is S.STARTED
        await asyncio.sleep(30)
    orders = len(bench.importers[0].orders)
    assert ATTEMPTS_MAX < orders <= 2 * ATTEMPTS_MAX + 1
    await answer(bench.importers[0], outcome(bench, 51))
    task = await coord.import_task(task_id)
    assert (task.state, task.tries) == (S.COMPLETED, 1)
    await coord.stop()


async def test_an_object_store_that_stays_away_ends_an_import_with_its_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await coord.start_import(REQUEST)
    while await state(bench, task_id) is not S.FAILED:
        await answer(bench.importers[0], StoreAway("the object store does not answer"))
        await asyncio.sleep(30)
    task = await coord.import_task(task_id)
    assert (task.state, task.reason) == (
        S.FAILED,
        "the object store was away for 1800 s; the last time: the object store does not answer",
    )
    await coord.stop()


async def test_a_new_node_takes_the_running_task_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await coord.start_import(REQUEST)
    await settle()
    await bench.register()
    await settle()
    assert bench.importers[0].cancelled == 1
    (order,) = bench.importers[1].orders
    await answer(bench.importers[1], outcome(bench, 51))
    task = await coord.import_task(task_id)
    assert (task.state, task.attempt, task.tries) == (S.COMPLETED, order.attempt, 2)
    await coord.stop()


async def test_a_restarted_coordinator_begins_an_interrupted_task_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    task_id = await bench.coord.start_import(REQUEST)
    await settle()
    coord = await bench.restart()
    assert await state(bench, task_id) is S.STARTED
    await bench.register()
    await answer(bench.importers[-1], outcome(bench, 51))
    assert (await coord.import_task(task_id)).rows == 10
    (manifest,) = (await coord.recovery_info(CID)).flushed
    assert manifest.segment_id == 51
    await coord.stop()


async def test_a_coordinator_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    """Its job finishes late: the next coordinator has begun the task again, and maybe committed it."""
    bench = Bench(tmp_path)
    old = await bench.watched()
    task_id = await old.start_import(REQUEST)
    await settle()
    late = bench.importers[0]
    new = await bench.start()
    await bench.register()
    await answer(bench.importers[1], outcome(bench, 61))
    before = await bench.snapshot()
    await answer(late, outcome(bench, 51))
    assert await bench.snapshot() == before
    assert {m.segment_id for m in (await new.recovery_info(CID)).flushed} == {61}
    assert await state(bench, task_id) is S.COMPLETED
    await old.stop()
    await new.stop()


async def test_an_import_may_end_before_the_deadline_of_the_server(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    task_id = await bench.coord.start_import(replace(REQUEST, timeout_ms=90_000))
    await asyncio.sleep(80)
    assert await state(bench, task_id) is S.STARTED
    await asyncio.sleep(15)
    task = await bench.coord.import_task(task_id)
    assert (task.state, task.reason) == (S.FAILED, "it took longer than its timeout of 90 s")
    await bench.coord.stop()


async def test_the_deadline_of_an_import_counts_while_it_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    first = await bench.coord.start_import(REQUEST)
    waiting = await bench.coord.start_import(replace(REQUEST, timeout_ms=90_000))
    patient = await bench.coord.start_import(REQUEST)
    await asyncio.sleep(89)
    assert await state(bench, waiting) is S.PENDING
    await asyncio.sleep(2)
    task = await bench.coord.import_task(waiting)
    assert (task.state, task.reason) == (S.FAILED, "it took longer than its timeout of 90 s")
    assert [await state(bench, t) for t in (first, patient)] == [S.STARTED, S.PENDING]
    await answer(bench.importers[0], outcome(bench, 51))
    assert [order.task_id for order in bench.importers[0].orders] == [first, patient]
    await bench.coord.stop()


async def test_what_comes_after_the_deadline_is_not_committed(tmp_path: Path) -> None:
    """It counts from the first try on: a coordinator that is restarted does not grant it again."""
    bench = Bench(tmp_path)
    await bench.watched()
    task_id = await bench.coord.start_import(REQUEST)
    await asyncio.sleep(IMPORT_TIMEOUT_MS / 2000)
    coord = await bench.restart()
    await bench.register()
    await asyncio.sleep(IMPORT_TIMEOUT_MS / 2000 - 10)
    assert await state(bench, task_id) is S.STARTED
    await asyncio.sleep(20)
    task = await coord.import_task(task_id)
    assert (task.state, task.tries) == (S.FAILED, 2)
    assert task.reason == "it took longer than 1800 s: raise imports.timeout_s"
    assert bench.importers[-1].cancelled == 1
    await answer(bench.importers[-1], outcome(bench, 51))
    assert await coord.segments(CID) == ()
    await coord.stop()


async def test_some_tasks_run_at_a_time_each_on_the_node_that_imports_least(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.imports = replace(bench.imports, at_once=2)
    coord = await bench.watched()
    await bench.register(12)
    tasks = [await coord.start_import(REQUEST) for _ in range(3)]
    await settle()
    assert [await state(bench, t) for t in tasks] == [S.STARTED, S.STARTED, S.PENDING]
    assert [len(importer.orders) for importer in bench.importers] == [1, 1]
    second = next(i for i in bench.importers if i.orders[0].task_id == tasks[1])
    await answer(second, outcome(bench, 51))
    assert [await state(bench, t) for t in tasks] == [S.STARTED, S.COMPLETED, S.STARTED]
    assert [order.task_id for order in second.orders] == [tasks[1], tasks[2]]
    await coord.stop()


async def test_a_task_that_fails_again_and_again_holds_up_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.imports = replace(bench.imports, at_once=2)
    coord = await bench.watched()
    first, second = await coord.start_import(REQUEST), await coord.start_import(REQUEST)
    await settle()
    (importer,) = bench.importers
    importer.answers.put_nowait(Unavailable("no answer"))
    await answer(importer, outcome(bench, 51))
    assert [await state(bench, t) for t in (first, second)] == [S.STARTED, S.COMPLETED]
    await answer(importer, outcome(bench, 52))
    assert await state(bench, first) is S.COMPLETED
    await coord.stop()


async def test_a_cancelled_task_ends_its_job_and_commits_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    running, waiting = await coord.start_import(REQUEST), await coord.start_import(REQUEST)
    await settle()
    await coord.cancel_import(waiting)
    await coord.cancel_import(running)
    await coord.cancel_import(running)
    await asyncio.sleep(1)
    assert bench.importers[0].cancelled == 1
    assert [(t.state, t.reason) for t in await coord.import_tasks(CID)] == [(S.FAILED, "cancelled")] * 2
    assert len(bench.importers[0].orders) == 1

    third = await coord.start_import(REQUEST)
    await answer(bench.importers[0], outcome(bench, 51))
    with pytest.raises(InvalidParameter, match="it cannot become Failed"):
        await coord.cancel_import(third)
    await coord.stop()


async def test_nothing_is_kept_of_an_interrupted_task_that_is_cancelled(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    for pause_s in (0, 2):  # in the pause before the next try, and in the next try
        task_id = await coord.start_import(REQUEST)
        await settle()
        bench.importers[0].answers.put_nowait(Unavailable("no answer"))
        await settle()
        assert coord.role._imports._interrupted.keys() == {task_id}
        await asyncio.sleep(pause_s)
        await coord.cancel_import(task_id)
        await asyncio.sleep(60)
        assert coord.role._imports._interrupted == {}
        assert coord.role._imports._at_work == {}
    await coord.stop()


async def test_a_collection_dropped_meanwhile_gets_no_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    running, waiting = await coord.start_import(REQUEST), await coord.start_import(REQUEST)
    await settle()
    await coord.drop_collection(CID)
    await answer(bench.importers[0], outcome(bench, 51))
    tasks = {t.task_id: t for t in await coord.import_tasks(CID)}
    assert {tasks[t].state for t in (running, waiting)} == {S.FAILED}
    assert tasks[running].reason == "collection not found[collection=docs]"
    assert await coord.segments(CID) == ()
    with pytest.raises(CollectionNotFound):
        await coord.start_import(REQUEST)
    await coord.stop()


async def test_a_partition_dropped_meanwhile_gets_no_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(partitions=(DEFAULT, OTHER)))
    coord = await bench.watched()
    request = replace(REQUEST, partition_id=OTHER, partition="p1")
    task_id = await coord.start_import(request)
    await settle()
    bench.root.collections[CID] = collection(partitions=(DEFAULT,))
    await coord.drop_partition(CID, OTHER)
    await answer(bench.importers[0], outcome(bench, 51))
    assert (await coord.import_task(task_id)).reason == "partition not found[partition=p1]"
    assert await coord.segments(CID) == ()
    with pytest.raises(PartitionNotFound):
        await coord.start_import(request)
    await coord.stop()


async def test_the_queue_is_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    for _ in range(3):
        await coord.start_import(REQUEST)
    with pytest.raises(TaskQueueFull, match="3 imports wait already"):
        await coord.start_import(REQUEST)
    await coord.stop()


async def test_a_write_that_is_known_is_not_repeated(tmp_path: Path) -> None:
    """Queued, running, committed or after a restart: only a write that failed may be tried again."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    write = replace(REQUEST, write_id="job 7, part 3")
    task_id = await coord.start_import(write)
    assert await coord.start_import(replace(write, files=("other.parquet",))) == task_id
    await settle()
    assert await coord.start_import(write) == task_id
    await answer(bench.importers[0], outcome(bench, 51))
    assert (await coord.import_task(task_id)).rows > 0
    assert await coord.start_import(write) == task_id
    coord = await bench.restart()
    assert await coord.start_import(write) == task_id
    assert await coord.start_import(REQUEST) != task_id, "without a name every request is another write"
    await coord.stop()


async def test_a_write_that_failed_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    write = replace(REQUEST, write_id="w")
    task_id = await coord.start_import(write)
    await coord.cancel_import(task_id)
    again = await coord.start_import(write)
    assert again != task_id
    assert await coord.start_import(write) == again
    await coord.stop()


async def test_a_large_import_is_committed_as_a_whole(tmp_path: Path) -> None:
    """More records than one transaction of the store takes."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await coord.start_import(REQUEST)
    await answer(bench.importers[0], outcome(bench, *range(5000, 5300)))
    assert len((await coord.recovery_info(CID)).flushed) == 300
    again = await bench.restart()
    assert len((await again.recovery_info(CID)).flushed) == 300
    await again.stop()


async def test_files_without_rows_are_imported_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await coord.start_import(REQUEST)
    await answer(bench.importers[0], ImportOutcome(()))
    assert await state(bench, task_id) is S.COMPLETED
    await coord.stop()


async def test_a_task_of_a_lost_node_is_begun_again_on_another(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await bench.register(10)  # idle: it follows nothing
    task_id = await coord.start_import(REQUEST)
    await settle()
    assert (len(bench.importers[0].orders), len(bench.importers[1].orders)) == (0, 1)
    bench.data_nodes.leave(NodeID(10))
    await settle()
    assert bench.importers[1].cancelled == 1
    await answer(bench.importers[0], outcome(bench, 51))
    assert (await coord.import_task(task_id)).tries == 2
    assert await state(bench, task_id) is S.COMPLETED
    await coord.stop()


async def test_a_task_does_not_care_for_the_loss_of_another_node(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await bench.register(10)
    task_id = await coord.start_import(REQUEST)
    await settle()
    bench.data_nodes.leave(NodeID(9))
    await settle()
    assert bench.importers[1].cancelled == 0
    await answer(bench.importers[1], outcome(bench, 51))
    assert await state(bench, task_id) is S.COMPLETED
    await coord.stop()
