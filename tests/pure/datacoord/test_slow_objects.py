"""A slow object store: while it works, allocations are answered, and what changed meanwhile counts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from compaction_bench import Files, answer, orders, state_of, two_small
from data_bench import Bench
from fakes import CID, DEFAULT, OTHER, binlog, collection, settle
from test_import_tasks import REQUEST, outcome

from elanus.core.compaction import CompactionState
from elanus.core.errors import CommitRefused
from elanus.core.ids import SegmentID
from elanus.core.imports import ImportState
from elanus.core.path_digests import PathDigests
from elanus.core.segments import SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datacoord.snapshot_files import SnapshotFiles
from elanus.datacoord.state import DataState
from elanus.meta.memory import MemoryMeta
from elanus.storage.manifests import write_manifest

SEGMENTS = 2000
PATIENCE = 300


class Blocked:
    """Blocking work. It does not end before the test says so, if it uses objects."""

    def __init__(self) -> None:
        self.calls = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        self.calls += 1
        if function != PathDigests.of:
            await self.go_on.wait()
        return function(*args)


async def blocked(tmp_path: Path) -> tuple[Bench, Files, Blocked]:
    bench = Bench(tmp_path / "store", collection(partitions=(DEFAULT, OTHER)))
    offload = Blocked()
    bench.offload = offload
    await bench.watched()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return bench, Files(bench, scratch), offload


async def while_blocked(offload: Blocked, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    """Start the work and let it get as far as its objects."""
    offload.go_on.clear()
    before = offload.calls
    doing = asyncio.ensure_future(work)
    for _ in range(PATIENCE):
        await asyncio.sleep(0.1)
        if offload.calls > before:
            break
    assert offload.calls > before, "it waits for objects"
    assert not doing.done()
    return doing


async def add_flushed(bench: Bench, count: int) -> None:
    infos = []
    for number in range(100_000, 100_000 + count):
        made = SegmentManifest(
            SegmentID(number), CID, DEFAULT, bench.vchannel, (binlog(f"f{number}", 5),), (), NO_TIMESTAMP
        )
        infos.append(
            SegmentInfo(
                made.segment_id,
                CID,
                DEFAULT,
                bench.vchannel,
                SegmentState.FLUSHED,
                max_rows=1000,
                created=bench.root.stamp(),
                last_expire=NO_TIMESTAMP,
                rows=5,
                manifest=write_manifest(bench.store, made, "made"),
            )
        )
    await bench.coord.context.state.put(infos)


async def test_a_coordinator_that_has_just_started_allocates_while_it_reads_thousands_of_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    bench, _, offload = await blocked(tmp_path)
    await add_flushed(bench, SEGMENTS)
    await bench.restart()
    before = offload.calls
    reading = await while_blocked(offload, bench.coord.recovery_info(CID))
    assert await bench.write(10), "answered without any object"
    assert not reading.done()
    offload.go_on.set()
    recovery = await reading
    assert len(recovery.flushed) == SEGMENTS
    assert offload.calls - before <= SEGMENTS // 100, "many manifests are read by one piece of work"
    read = offload.calls
    assert await bench.coord.recovery_info(CID) == recovery
    assert offload.calls == read, "they are read once"
    await bench.coord.stop()


async def test_what_commits_and_drops_change_during_the_reading_is_in_the_answer(tmp_path: Path) -> None:
    bench, files, offload = await blocked(tmp_path)
    kept = await files.flushed(range(10))
    dropped = await files.flushed(range(10), OTHER)
    await bench.restart()
    reading = await while_blocked(offload, bench.coord.recovery_info(CID))
    await bench.coord.drop_partition(CID, OTHER)
    (gone,) = [s for s in await bench.coord.segments(CID) if s.segment_id == dropped]
    bench.store.delete(gone.manifest)
    offload.go_on.set()
    recovery = await reading
    assert [m.segment_id for m in recovery.flushed] == [kept]
    assert recovery.vchannels[0].excluded == (dropped,)
    await bench.coord.stop()


Work = Callable[[Bench, Files], Coroutine[Any, Any, Coroutine[Any, Any, Any]]]


async def commit_of_a_range(bench: Bench, files: Files) -> Coroutine[Any, Any, Any]:
    segment_id = await bench.write(10)
    return bench.commit_files([files.rows(segment_id, range(10))], [], files.deletes(range(5)))


async def snapshot(bench: Bench, files: Files) -> Coroutine[Any, Any, Any]:
    await files.flushed(range(10))
    taking = asyncio.ensure_future(bench.coord.take_snapshot(CID, (), 1000))
    await settle()
    await bench.report()
    await bench.commit()
    return _the(taking)


async def _the(future: asyncio.Future[Any]) -> Any:
    return await future


async def commit_of_a_compaction(bench: Bench, files: Files) -> Coroutine[Any, Any, Any]:
    await files.flushed(range(10))
    await files.flushed(range(10, 20))
    await bench.coord.compact(CID)
    await asyncio.sleep(0.1)
    (order,) = orders(bench)
    return bench.coord.commit_compaction(answer(bench, order))


async def order_of_a_compaction(bench: Bench, files: Files) -> Coroutine[Any, Any, Any]:
    await files.flushed(range(10))
    await files.flushed(range(10, 20))
    await bench.restart()
    await bench.register()
    return bench.coord.compact(CID)


async def removal_of_delta_logs(bench: Bench, files: Files) -> Coroutine[Any, Any, Any]:
    await bench.commit_files([], [], files.deletes(range(5)))
    return bench.coord.compact(CID)


async def commit_of_an_import(bench: Bench, files: Files) -> Coroutine[Any, Any, Any]:
    task_id = await bench.coord.start_import(REQUEST)
    await settle()
    bench.importers[0].answers.put_nowait(outcome(bench, 51))

    async def committed() -> None:
        for _ in range(PATIENCE):
            await asyncio.sleep(0.1)
            if (await bench.coord.import_task(task_id)).state is not ImportState.STARTED:
                return

    return committed()


@pytest.mark.parametrize(
    "work",
    [
        commit_of_a_range,
        snapshot,
        commit_of_a_compaction,
        order_of_a_compaction,
        removal_of_delta_logs,
        commit_of_an_import,
    ],
)
async def test_allocations_and_reports_are_answered_while_objects_are_written_and_read(
    tmp_path: Path, work: Work
) -> None:
    bench, files, offload = await blocked(tmp_path)
    doing = await while_blocked(offload, await work(bench, files))
    segment_id = await bench.write(10, OTHER)
    await bench.report({segment_id: 10})
    assert not doing.done()
    offload.go_on.set()
    await doing
    await bench.coord.stop()


async def test_a_segment_that_is_dropped_during_its_commit_stays_dropped(tmp_path: Path) -> None:
    bench, files, offload = await blocked(tmp_path)
    dropped, sealed = await bench.write(10, OTHER), await bench.write(10)
    outputs = [files.rows(dropped, range(10), OTHER), files.rows(sealed, range(10))]
    doing = await while_blocked(offload, bench.commit_files(outputs, []))
    await bench.coord.drop_partition(CID, OTHER)
    await bench.coord.flush(CID)
    offload.go_on.set()
    await doing
    gone, info = await bench.segment(dropped), await bench.segment(sealed)
    assert (gone.state, gone.rows, gone.manifest) == (SegmentState.DROPPED, 0, "")
    assert (info.state, info.rows) == (SegmentState.SEALED, 10), "sealed meanwhile"
    assert info.sealed_at > 0
    await bench.coord.stop()


async def test_a_range_of_a_vchannel_that_another_node_owns_by_then_is_refused(tmp_path: Path) -> None:
    bench, files, offload = await blocked(tmp_path)
    segment_id = await bench.write(10)
    before = await bench.recovery()
    doing = await while_blocked(offload, bench.commit_files([files.rows(segment_id, range(10))], []))
    await bench.register()
    offload.go_on.set()
    with pytest.raises(CommitRefused, match="is over"):
        await doing
    assert await bench.recovery() == before
    assert (await bench.segment(segment_id)).manifest == ""
    await bench.coord.stop()


async def test_delta_logs_that_are_removed_during_a_commit_do_not_come_back(tmp_path: Path) -> None:
    bench, files, offload = await blocked(tmp_path)
    await bench.commit_files([], [], files.deletes(range(5)))
    growing = await bench.write(10)
    await bench.commit_files([files.rows(growing, range(10))], [])
    kept = files.deletes(range(3))
    doing = await while_blocked(offload, bench.commit_files([], [], kept))
    state = bench.coord.context.state
    vchannel = state.vchannel(bench.vchannel)
    assert vchannel is not None
    manifests = bench.coord.context.manifests
    held, manifests._offload = manifests._offload, files_now
    await state.put(vchannels=[await manifests.with_deltas(vchannel, (), "emptied")])
    manifests._offload = held
    offload.go_on.set()
    await doing
    (recovery,) = (await bench.coord.recovery_info(CID)).vchannels
    assert [log.file.path for log in recovery.delta_logs] == [kept.path]
    await bench.coord.stop()


async def test_a_compaction_whose_partition_is_dropped_during_its_commit_is_refused(tmp_path: Path) -> None:
    offload = Blocked()
    bench, _, plan, order = await two_small(tmp_path)
    bench.coord.context.manifests._offload = offload
    doing = await while_blocked(offload, bench.coord.commit_compaction(answer(bench, order)))
    await bench.coord.drop_partition(CID, DEFAULT)
    offload.go_on.set()
    with pytest.raises(CommitRefused, match="cancelled already"):
        await doing
    assert await state_of(bench, plan) is CompactionState.CANCELLED
    assert await bench.coord.segments_by_id((plan.output,)) == ()
    await bench.coord.stop()


async def test_delta_logs_that_an_import_needs_stay_while_it_is_committed(tmp_path: Path) -> None:
    """Its rows are older than the deletes, but none of its segments is known yet."""
    bench, files, offload = await blocked(tmp_path)
    doing = await while_blocked(offload, await commit_of_an_import(bench, files))
    manifests = bench.coord.context.manifests
    held, manifests._offload = manifests._offload, files_now
    delta = files.deletes(range(5))
    await bench.commit_files([], [], delta)
    await bench.coord.compact(CID)
    manifests._offload = held
    offload.go_on.set()
    await doing
    recovery = await bench.coord.recovery_info(CID)
    assert [m.segment_id for m in recovery.flushed] == [51]
    assert [log.file.path for log in recovery.vchannels[0].delta_logs] == [delta.path]
    await bench.coord.stop()


async def files_now(function: Callable[..., Any], *args: Any) -> Any:
    """The store is fast again."""
    return function(*args)


async def test_a_commit_whose_answer_was_lost_may_be_repeated(tmp_path: Path) -> None:
    bench, _, _ = await blocked(tmp_path)
    segment_id = await bench.write(10)
    before = await bench.recovery()
    checkpoint = await bench.commit({segment_id: 10}, attempt=(attempt := await _attempt(bench)))
    again = {"expected": before, "checkpoint": checkpoint, "attempt": attempt}
    await bench.commit({segment_id: 10}, **again)  # type: ignore[arg-type]
    assert (await bench.segment(segment_id)).rows == 10, "applied once"
    await bench.commit()
    with pytest.raises(CommitRefused, match="checkpoint"):
        await bench.commit({segment_id: 10}, **again)  # type: ignore[arg-type]
    await bench.coord.stop()


async def _attempt(bench: Bench) -> int:
    return int(await bench.coord.open_attempts(bench.epoch, 1))


async def test_a_commit_whose_caller_gives_up_is_applied_all_the_same(tmp_path: Path) -> None:
    bench, files, offload = await blocked(tmp_path)
    segment_id = await bench.write(10)
    doing = await while_blocked(offload, bench.commit_files([files.rows(segment_id, range(10))], []))
    doing.cancel()
    await settle()
    offload.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert (await bench.segment(segment_id)).rows == 10
    await bench.coord.stop()


async def test_manifests_leave_memory_when_no_record_names_them(tmp_path: Path) -> None:
    bench, files, _ = await blocked(tmp_path)
    manifests = bench.coord.context.manifests
    growing = await bench.write(10)
    for number in range(5):
        await bench.commit_files(
            [files.rows(growing, range(number, number + 1))], [], files.deletes(range(3))
        )
    assert len(manifests) == 2, "the segment's manifest and the vchannel's delta logs, the latest of each"
    await bench.coord.drop_partition(CID, DEFAULT)
    assert len(manifests) == 1
    await bench.coord.drop_collection(CID)
    await bench.coord.channel_dropped(bench.epoch, bench.vchannel)
    assert len(manifests) == 0
    await bench.coord.stop()


async def test_what_is_known_of_a_compacted_segment_goes_with_its_record(tmp_path: Path) -> None:
    bench, _, plan, order = await two_small(tmp_path)
    await bench.coord.commit_compaction(answer(bench, order, rows=20))
    state = bench.coord.context.state
    table = state._segments
    assert table._made
    await state.forget(plan.inputs, ())
    assert table._made == {}
    assert [s.segment_id for s in state.segments_of(CID)] == [plan.output]
    await bench.coord.stop()


class CountingMeta(MemoryMeta):
    transactions = 0

    async def txn(self, *args: Any, **kwargs: Any) -> int:
        self.transactions += 1
        return await super().txn(*args, **kwargs)


async def test_records_are_removed_many_at_a_time(tmp_path: Path) -> None:
    meta = CountingMeta()
    state = DataState(meta)
    await state.start()
    infos = [
        SegmentInfo(SegmentID(n), CID, DEFAULT, "v", SegmentState.DROPPED, 10, NO_TIMESTAMP, NO_TIMESTAMP)
        for n in range(1, 1001)
    ]
    await state.put(infos)
    before = meta.transactions
    await state.forget([info.segment_id for info in infos], ())
    assert meta.transactions - before == 10
    assert await meta.list("datacoord/segment/") == []
    assert list(state.segments()) == state.segments_of(CID) == state.segments_on("v") == []


async def test_the_files_of_a_snapshot_that_is_being_written_are_kept(tmp_path: Path) -> None:
    bench, files, offload = await blocked(tmp_path)
    doing = await while_blocked(offload, await snapshot(bench, files))
    (manifest,) = (await bench.coord.recovery_info(CID)).flushed
    await bench.coord.drop_partition(CID, DEFAULT)
    collector = bench.coord.role._collector
    named = {manifest.insert_logs[0].path, *manifest.stats_logs}
    kept = await collector._pins.pinned_files()
    assert all(path in kept for path in named)
    offload.go_on.set()
    lease = await doing
    kept = await collector._pins.pinned_files()
    assert all(path in kept for path in named | {lease.path})
    await bench.coord.release_snapshot(lease.snapshot_id)
    assert not await collector._pins.pinned_files()
    await bench.coord.stop()


async def test_nothing_is_kept_of_a_snapshot_that_is_released_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, files, _ = await blocked(tmp_path)
    lease = await (await snapshot(bench, files))
    pins = bench.coord.role._pins
    read = pins._manifests.kept_by

    async def released(path: str) -> SnapshotFiles:
        found = await read(path)
        await bench.coord.release_snapshot(lease.snapshot_id)
        return found

    monkeypatch.setattr(pins._manifests, "kept_by", released)
    assert not await pins.pinned_files()
    assert not pins._files
    await bench.coord.stop()
