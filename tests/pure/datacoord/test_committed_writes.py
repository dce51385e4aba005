"""Named writes that delete: one commit with the rows, remembered, and kept apart until they are served."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from data_bench import COMPACTION, Bench, FakeImporter
from fakes import CID, DEFAULT, binlog, settle

from elanus.api.connector import SNAPSHOTS
from elanus.api.imports import ImportedSegment, ImportOutcome, ImportRequest
from elanus.core.ids import SegmentID
from elanus.core.imports import Duplicates, ImportState, WriteMode
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.spark.change_rows import change_reads
from elanus.storage.snapshots import read_snapshot

UPSERT = ImportRequest(CID, "docs", DEFAULT, "_default", ("a.parquet",), "nightly", mode=WriteMode.UPSERT)


def outcome(bench: Bench, segment: int, deletes: str = "", left_out: int = 0) -> ImportOutcome:
    written = ImportedSegment(
        SegmentID(segment), bench.vchannel, binlog(f"insert_log/{segment}", 10), "stats_log", DEFAULT
    )
    deltas = (DeltaLog(bench.vchannel, binlog(deletes, 10)),) if deletes else ()
    return ImportOutcome((written,), deltas=deltas, left_out=left_out)


async def answer(importer: FakeImporter, what: ImportOutcome) -> None:
    importer.answers.put_nowait(what)
    await asyncio.sleep(1.5)


async def logs(bench: Bench) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths of the delta logs that nodes load, and of those kept apart."""
    (vchannel,) = (await bench.coord.recovery_info(CID)).vchannels
    return tuple(d.file.path for d in vchannel.delta_logs), tuple(d.file.path for d in vchannel.unserved)


async def test_rows_and_deletes_are_one_commit_and_wait_for_their_version(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.served = False
    coord = await bench.watched()
    task_id = await coord.start_import(UPSERT)
    await settle()
    assert bench.importers[0].orders[0].mode is WriteMode.UPSERT
    await bench.commit(delta=binlog("delta_log/of clients"))
    await answer(bench.importers[0], outcome(bench, 51, "delta_log/5-write"))
    task = await coord.import_task(task_id)
    assert (task.state, task.deltas) == (ImportState.PERSISTED, ("delta_log/5-write",))
    assert await logs(bench) == (("delta_log/of clients",), ("delta_log/5-write",))
    (vchannel,) = (await coord.recovery_info(CID)).vchannels
    (log,) = vchannel.unserved
    assert log.file.ts_min == log.file.ts_max == task.commit_ts
    await bench.restart()
    assert (await logs(bench))[1] == ("delta_log/5-write",), "also after a restart"
    bench.served = True
    await asyncio.sleep(1)
    assert await logs(bench) == (("delta_log/of clients", "delta_log/5-write"), ())
    await bench.coord.stop()


async def test_a_commit_that_meets_a_flush_keeps_the_deletes_of_both(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await coord.start_import(UPSERT)
    await settle()
    manifests, adds = bench.coord.context.manifests, []
    with_deltas = manifests.with_deltas

    async def slow(*arguments, **options):  # type: ignore[no-untyped-def]
        written = await with_deltas(*arguments, **options)
        if not adds:
            adds.append(1)
            await bench.commit(delta=binlog("delta_log/of clients"))
        return written

    manifests.with_deltas = slow  # type: ignore[method-assign]
    await answer(bench.importers[0], outcome(bench, 51, "delta_log/5-write"))
    assert sorted((await logs(bench))[0]) == ["delta_log/5-write", "delta_log/of clients"]
    await coord.stop()


async def test_a_name_is_remembered_longer_than_its_task(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    first, twin = await asyncio.gather(coord.start_import(UPSERT), coord.start_import(UPSERT))
    assert first == twin, "also when both come at the same time"
    await settle()
    await answer(bench.importers[0], outcome(bench, 51, "delta_log/5-write"))
    await asyncio.sleep(120)
    assert await coord.import_tasks(CID) == (), "the task is forgotten"
    coord = await bench.restart()
    assert await coord.start_import(UPSERT) == first
    again = await coord.import_task(first)
    assert (again.state, again.rows, again.commit_ts > 0) == (ImportState.COMPLETED, 10, True)
    assert await coord.start_import(replace(UPSERT, write_id="another")) != first
    await asyncio.sleep(700)
    assert await coord.start_import(UPSERT) != first, "30 days, here ten minutes, are over"
    await coord.stop()


async def test_of_a_stream_the_last_batch_is_remembered_for_good(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    batch = replace(UPSERT, write_id="stream", batch=0, query_id="query")
    tasks = []
    for number in range(3):
        tasks.append(await coord.start_import(replace(batch, batch=number)))
        await settle()
        await answer(bench.importers[0], outcome(bench, 51 + number, f"delta_log/{5 + number}-write"))
    await asyncio.sleep(2000)
    for number in range(3):
        assert await coord.start_import(replace(batch, batch=number)) == tasks[-1]
    assert (await coord.import_task(tasks[-1])).query_id == "query", "its own record is gone"
    assert len(bench.coord.context.state.writes.all()) == 1
    assert await coord.start_import(replace(batch, batch=3)) not in tasks
    await coord.stop()


async def test_unserved_deletes_are_neither_merged_nor_folded_in(tmp_path: Path) -> None:
    """With a retention of nothing, all deletes up to the checkpoint would be folded in otherwise."""
    plan = replace(COMPACTION.plan, thresholds=replace(COMPACTION.plan.thresholds, merge_delta_logs_min=2))
    bench = Bench(tmp_path)
    bench.compaction = replace(COMPACTION, plan=plan)
    bench.served = False
    coord = await bench.watched()
    for number in range(2):
        await coord.start_import(replace(UPSERT, write_id=f"{number}"))
        await settle()
        await answer(bench.importers[0], outcome(bench, 51 + number, f"delta_log/{5 + number}-write"))
    await bench.commit()
    await coord.compact(CID)
    assert bench.node.calls.of("compact") == []
    assert len((await logs(bench))[1]) == 2
    await coord.stop()


async def test_an_import_that_spares_keys_is_given_the_rows_that_exist(tmp_path: Path) -> None:
    """A snapshot of all partitions, whose files stay until the import has ended."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    for rule in (Duplicates.FIRST, Duplicates.REJECT):
        await coord.start_import(replace(UPSERT, write_id="", mode=WriteMode.APPEND, duplicates=rule))
        while not bench.importers[0].orders:
            await asyncio.sleep(0.1)
            await bench.commit()
        order = bench.importers[0].orders.pop()
        assert order.duplicates is rule
        assert read_snapshot(bench.store, order.existing, SNAPSHOTS).collection_id == CID
        assert order.existing in await coord.role._pins.pinned_files()
        await answer(bench.importers[0], outcome(bench, 51, left_out=4))
        assert not await coord.role._pins.pinned_files()
        assert (await coord.import_tasks(CID))[-1].left_out == 4
    await coord.start_import(replace(UPSERT, duplicates=Duplicates.LAST))
    await settle()
    assert bench.importers[0].orders[0].existing == "", "the rows that exist do not matter"
    await coord.stop()


async def test_changes_read_while_a_write_is_being_committed_are_in_one_batch(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.compaction = replace(COMPACTION, plan=replace(COMPACTION.plan, retention_s=60))
    bench.root.now_ms = 10_000_000
    coord = await bench.watched()
    await bench.commit(checkpoint=replace(await bench.recovery(), ts=Timestamp(2**60)))
    since = bench.root.stamp()
    await coord.start_import(UPSERT)
    await settle()
    manifests, begun, may_go_on = coord.context.manifests, asyncio.Event(), asyncio.Event()
    put_all = manifests.put_all

    async def slow(written: Sequence[SegmentManifest], name: str) -> Any:
        if name.endswith("import"):
            begun.set()
            await may_go_on.wait()
        return await put_all(written, name)

    with patch.object(manifests, "put_all", slow):
        bench.importers[0].answers.put_nowait(outcome(bench, 51, "delta_log/5-write"))
        await begun.wait()
        first_read = asyncio.ensure_future(coord.take_changes(CID, since, "", 60_000))
        await asyncio.sleep(1)
        may_go_on.set()
        first = await first_read
    second = await coord.take_changes(CID, first.read_ts, "", 60_000)
    found = [
        read.source
        for lease, start in ((first, since), (second, first.read_ts))
        for read in change_reads(read_snapshot(bench.store, lease.path, SNAPSHOTS), "", start, ())
    ]
    assert [source.segment_id for source in found if isinstance(source, SegmentManifest)] == [51]
    assert [s.file.path for s in found if isinstance(s, DeltaLog)] == ["delta_log/5-write"]
    await coord.stop()
