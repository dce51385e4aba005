"""Compactions with real files: reads of the past do not change, and small imported segments are merged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from compaction_bench import SCHEMA, Files, answer, orders, planned, start
from data_bench import COMPACTION, Bench
from fakes import CID, DEFAULT, binlog

from elanus.api.datacoord import CompactionCommit
from elanus.api.imports import ImportedSegment
from elanus.core.compaction import CompactionThresholds
from elanus.core.ids import SegmentID, TaskID
from elanus.core.imports import ImportTask
from elanus.core.segments import BinlogFile, DeltaLog, SegmentState
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.core.timestamps import Timestamp
from elanus.datacoord.imported_segments import imported_manifest, imported_segment
from elanus.datacoord.planner import PlanPolicy
from elanus.pipeline.merge import compact
from elanus.spark.segment import SegmentRead, read_segment

MAX_ROWS = 1000
TASK = ImportTask(TaskID(1), CID, "docs", DEFAULT, "_default", ("a.parquet",), 0)


async def keys(bench: Bench, read_ts: Timestamp, *later: BinlogFile) -> list[int]:
    """The keys that a reader finds as of a timestamp. ``later``: deletes that are still in the log."""
    recovery = await bench.coord.recovery_info(CID)
    (vchannel,) = recovery.vchannels
    logs = (*vchannel.delta_logs, *(DeltaLog(bench.vchannel, file) for file in later))
    found: list[int] = []
    for manifest in recovery.flushed:
        assert read_ts >= manifest.folded_until, "a query node refuses it as too old"
        read = SegmentRead(bench.store.url, SCHEMA, manifest, logs, read_ts, ("pk",))
        for batch in read_segment(read, bench.store):
            found += batch.column("pk").to_pylist()
    return sorted(found)


async def compacted(bench: Bench, scratch: Path) -> list[int]:
    """Compact as the data node would; return how many segments went into each new one."""
    before = len(orders(bench))
    plans = await planned(bench)
    for order in orders(bench)[before:]:
        output = compact(order, bench.store, scratch, f"merged-{order.attempt}")
        await bench.coord.commit_compaction(
            CompactionCommit(bench.epoch, order.attempt, order.plan_id, (output,))
        )
    return [len(plan.inputs) for plan in plans]


async def imported(bench: Bench, files: Files, segment_id: int, rows: range) -> Timestamp:
    """An import of a few rows has committed: it has the newest timestamp of all."""
    output = files.rows(SegmentID(segment_id), rows)
    commit_ts = bench.root.stamp()
    written = ImportedSegment(
        SegmentID(segment_id),
        bench.vchannel,
        output.insert_logs[0],
        output.stats_logs[0],
        TASK.partition_id,
    )
    manifest = imported_manifest(TASK, written, commit_ts)
    path = await bench.coord.context.manifests.put(manifest, "imported")
    await bench.coord.context.state.put([imported_segment(manifest, path, MAX_ROWS)])
    return commit_ts


async def test_a_read_as_of_a_time_before_a_row_expired_finds_it_after_the_compaction(tmp_path: Path) -> None:
    plan_policy = replace(COMPACTION.plan, retention_s=3600)
    bench, files = await start(tmp_path, plan=plan_policy)
    bench.root.collections[CID] = replace(bench.root.collections[CID], properties={TTL_PROPERTY: "2"})
    bench.later(7200_000)
    await files.flushed(range(10))
    written = bench.root.stamp()
    assert await keys(bench, written) == list(range(10))
    bench.later(1800_000)
    await files.flushed(range(10, 20))
    bench.later(1799_000)
    assert await compacted(bench, files.directory) == [2], "two small segments"
    assert await keys(bench, written) == list(range(10)), "within the retention"
    bench.later(10_000)
    await files.flushed(range(20, 30))
    assert await compacted(bench, files.directory) == [2]
    now = bench.root.stamp()
    assert await keys(bench, now) == list(range(10, 30)), "no read is as of a time when these had not expired"
    await bench.coord.stop()


async def test_a_thousand_small_imports_become_one_segment(tmp_path: Path) -> None:
    bench, _ = await start(tmp_path)
    infos = []
    for number in range(1000):
        written = ImportedSegment(
            SegmentID(100_000 + number),
            bench.vchannel,
            binlog(f"insert_log/{number}", 1),
            f"stats/{number}",
            TASK.partition_id,
        )
        manifest = imported_manifest(TASK, written, bench.root.stamp())
        infos.append(imported_segment(manifest, f"manifests/{number}", MAX_ROWS))
        bench.coord.context.manifests._remember_written(f"manifests/{number}", manifest)
    await bench.coord.context.state.put(infos)
    (plan,) = await planned(bench)
    assert len(plan.inputs) == 1000
    (order,) = orders(bench)
    await bench.coord.commit_compaction(answer(bench, order, rows=1000))
    live = [s for s in await bench.coord.segments(CID) if s.state is SegmentState.FLUSHED]
    assert [s.segment_id for s in live] == [plan.output]
    await bench.coord.stop()


async def test_deletes_that_are_only_in_the_log_concern_the_rows_that_an_import_is_merged_with(
    tmp_path: Path,
) -> None:
    bench, files = await start(tmp_path)
    await files.flushed(range(10))
    checkpoint = await bench.recovery()
    in_the_log = files.deletes(range(5))
    commit_ts = await imported(bench, files, 51, range(3, 8))
    assert checkpoint.ts < in_the_log.ts_max < commit_ts
    now = bench.root.stamp()
    before = await keys(bench, now, in_the_log)
    assert before == [3, 4, 5, 5, 6, 6, 7, 7, 8, 9], "imported rows are later than the deletes"
    assert await compacted(bench, files.directory) == [2]
    (output,) = (await bench.coord.recovery_info(CID)).flushed
    assert output.deletes_from <= checkpoint.ts
    assert await keys(bench, now, in_the_log) == before
    await bench.commit_files([], [], in_the_log)
    assert await keys(bench, now) == before, "now they are in a file"
    assert await keys(bench, checkpoint.ts) == list(range(10)), "as of the time before the import"
    await bench.coord.stop()


async def test_reads_as_of_any_time_are_the_same_when_delta_logs_have_been_merged(tmp_path: Path) -> None:
    merges = PlanPolicy(CompactionThresholds(1.0, 1 << 30, 100, 4), retention_s=3600, plans_max=10)
    bench, files = await start(tmp_path, plan=merges, automatic=True)
    await files.flushed(range(10))
    moments = [bench.root.stamp()]
    for key in range(4):
        deleted = files.deletes(range(key, key + 1))
        moments.append(bench.root.stamp())
        await files.flushed(range(key, key + 1))  # the key comes again
        await bench.commit_files([], [], deleted)
        moments.append(bench.root.stamp())
    found = [await keys(bench, moment) for moment in moments]
    assert found[0] == found[-1] == list(range(10))
    assert found[1] == list(range(1, 10))
    await asyncio.sleep(0.1)
    (order,) = orders(bench)
    output = compact(order, bench.store, files.directory, f"merged-{order.attempt}")
    await bench.coord.commit_compaction(
        CompactionCommit(bench.epoch, order.attempt, order.plan_id, (output,))
    )
    (vchannel,) = (await bench.coord.recovery_info(CID)).vchannels
    assert [log.file.rows for log in vchannel.delta_logs] == [4]
    assert [await keys(bench, moment) for moment in moments] == found
    bench.later(7200_000)  # the merged deletes are folded in
    later = files.deletes(range(9, 10))
    await bench.commit_files([], [], later)
    assert await compacted(bench, files.directory) == [5]
    now = bench.root.stamp()
    assert await keys(bench, now) == list(range(9))
    await bench.coord.stop()
