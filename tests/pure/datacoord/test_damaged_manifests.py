"""A manifest that cannot be read concerns its segment alone, a list of delta logs its vchannel's segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from compaction_bench import Files, start
from data_bench import Bench
from fakes import CID, OTHER
from test_collecting import DROP_S, running

from elanus.core.ids import SegmentID
from elanus.core.segments import SegmentState
from elanus.storage.manifests import read_delta_list, read_manifest
from elanus.storage.paths import DELTA_LOG
from elanus.storage.port import CorruptObject, ObjectStore


def overwrite(store: ObjectStore, path: str, content: bytes = b"{}") -> bytes:
    """Replace an object; return its content before."""
    before = bytes(store.get(path))
    store.delete(path)
    store.put(path, content)
    return before


async def manifest_of(bench: Bench, segment_id: SegmentID) -> str:
    return (await bench.segment(segment_id)).manifest


async def grown(bench: Bench, files: Files, rows: int) -> SegmentID:
    """A growing segment that has binlogs."""
    segment_id = await bench.write(rows)
    await bench.commit_files([files.rows(segment_id, range(rows))], [])
    return segment_id


async def test_recovery_leaves_out_the_damaged_segments_and_names_them(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    one = await files.flushed(range(10))
    other = await files.flushed(range(10, 20), OTHER)
    growing = await grown(bench, files, 5)
    first, second = await manifest_of(bench, one), await manifest_of(bench, growing)
    await bench.restart()
    content = overwrite(bench.store, first)
    bench.store.delete(second)
    recovery = await bench.coord.recovery_info(CID)
    assert [m.segment_id for m in recovery.flushed] == [other]
    (damaged,) = recovery.damaged
    assert (damaged.manifest.segment_id, damaged.manifest.insert_logs) == (one, ())
    assert first in damaged.reason
    (vchannel,) = recovery.vchannels
    assert vchannel.growing == ()
    assert [(d.manifest.segment_id, d.reason) for d in vchannel.damaged] == [
        (growing, f"{second}: no such object")
    ]
    overwrite(bench.store, first, content)
    recovery = await bench.coord.recovery_info(CID)
    assert {m.segment_id for m in recovery.flushed} == {one, other}
    await bench.coord.stop()


async def test_a_damaged_list_of_deletes_concerns_all_segments_of_its_vchannel(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    segment_id = await files.flushed(range(10))
    await bench.commit_files([], [], files.deletes(range(3)))
    growing = await grown(bench, files, 5)
    path = bench.coord.context.state.vchannel(bench.vchannel).deltas  # type: ignore[union-attr]
    await bench.restart()
    overwrite(bench.store, path)
    recovery = await bench.coord.recovery_info(CID)
    assert recovery.flushed == ()
    assert [d.manifest.segment_id for d in recovery.damaged] == [segment_id]
    assert [d.manifest.segment_id for d in recovery.vchannels[0].damaged] == [growing]
    assert all(path in d.reason for d in (*recovery.damaged, *recovery.vchannels[0].damaged))
    await bench.coord.stop()


async def test_a_commit_continues_a_damaged_manifest_and_holds_up_no_other_segment(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    growing = await grown(bench, files, 5)
    before = await manifest_of(bench, growing)
    (old,) = read_manifest(bench.store, before).insert_logs
    await bench.restart()
    await bench.register()
    content = overwrite(bench.store, before)
    intact = await bench.write(10, OTHER)
    await bench.coord.flush(CID)
    await bench.report({intact: 10, growing: 2})
    outputs = [files.rows(growing, range(5, 7)), files.rows(intact, range(10), OTHER)]
    await bench.commit_files(outputs, [growing, intact])
    for segment_id in (growing, intact):
        assert (await bench.segment(segment_id)).state is SegmentState.FLUSHED
    assert (await bench.segment(growing)).rows == 7
    recovery = await bench.coord.recovery_info(CID)
    assert [m.segment_id for m in recovery.flushed] == [intact]
    (damaged,) = recovery.damaged
    assert (damaged.manifest.segment_id, before in damaged.reason) == (growing, True)
    with pytest.raises(CorruptObject, match=before):
        read_manifest(bench.store, await manifest_of(bench, growing))
    overwrite(bench.store, before, content)
    recovery = await bench.coord.recovery_info(CID)
    (whole,) = [m for m in recovery.flushed if m.segment_id == growing]
    assert whole.insert_logs == (old, *outputs[0].insert_logs), "the rows of both are there again"
    await bench.coord.stop()


async def test_a_commit_continues_a_damaged_list_of_deletes(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    await bench.commit_files([], [], old := files.deletes(range(3)))
    vchannel = bench.coord.context.state.vchannel(bench.vchannel)
    assert vchannel is not None
    await bench.restart()
    await bench.register()
    content = overwrite(bench.store, vchannel.deltas)
    await bench.commit_files([], [], new := files.deletes(range(3, 6)))
    await bench.commit_files([], [], newest := files.deletes(range(6, 9)))
    current = bench.coord.context.state.vchannel(bench.vchannel)
    assert current is not None
    with pytest.raises(CorruptObject, match=vchannel.deltas):
        read_delta_list(bench.store, current.deltas)
    overwrite(bench.store, vchannel.deltas, content)
    (recovered,) = (await bench.coord.recovery_info(CID)).vchannels
    assert [log.file for log in recovered.delta_logs] == [old, new, newest]
    await bench.coord.stop()


async def test_garbage_collection_keeps_what_a_continued_manifest_needs(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written(delta=True)
        before = (await bench.segment(segment)).manifest
        deltas = bench.coord.context.state.vchannel(bench.vchannel).deltas  # type: ignore[union-attr]
        await bench.restart()
        await bench.register()
        contents = {path: overwrite(bench.store, path) for path in (before, deltas)}
        attempt = await bench.coord.open_attempts(bench.epoch, 1)
        await bench.committed(bench.files(segment, attempt), attempt=attempt, delta=bench.delta(attempt))
        kept = bench.of(segment) | bench.left(DELTA_LOG) | {deltas}
        await bench.after(DROP_S * 10)
        assert (await bench.collect()).error == ""
        assert bench.left() >= kept, "while it is damaged"
        for path, content in contents.items():
            overwrite(bench.store, path, content)
        await bench.after(DROP_S * 10)
        assert (await bench.collect()).error == ""
        assert bench.left() >= kept, "when it can be read again"
        attempt = await bench.coord.open_attempts(bench.epoch, 1)
        await bench.committed(bench.files(segment, attempt), attempt=attempt, delta=bench.delta(attempt))
        await bench.after(DROP_S * 10)
        assert (await bench.collect()).error == ""
        assert bench.left() & {before, deltas} == set(), "the manifests of now list all files"


async def test_the_other_segments_of_the_vchannel_are_compacted(tmp_path: Path) -> None:
    bench, files = await start(tmp_path)
    damaged = await files.flushed(range(10))
    one, two = await files.flushed(range(10, 20)), await files.flushed(range(20, 30))
    path = await manifest_of(bench, damaged)
    await bench.restart()
    await bench.register()
    overwrite(bench.store, path)
    await bench.coord.compact(CID)
    plans = bench.coord.context.state.planned()
    assert [set(plan.inputs) for plan in plans] == [{one, two}]
    await bench.coord.stop()
