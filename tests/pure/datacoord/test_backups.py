"""Backups and restores in datacoord: what is pinned, under garbage collection, until the rows are there."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import COMPACTION
from fakes import CID
from test_clones import Source, begun

from elanus.api.backups import ForeignRows, data_files
from elanus.api.connector import SNAPSHOTS, CollectionSnapshot, SnapshotLease
from elanus.api.snapshots import CloneSource
from elanus.core.errors import InvalidParameter, SnapshotNotFound, TimestampTooOld
from elanus.core.pins import PIN_MS_MAX
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, compose, physical_ms
from elanus.storage.manifests import read_delta_list, read_manifest
from elanus.storage.snapshots import read_snapshot

HOUR_MS = 3_600_000


def shown(bench: Source, lease: SnapshotLease) -> CollectionSnapshot:
    return read_snapshot(bench.store, lease.path, SNAPSHOTS)


async def held(tmp_path: Path) -> tuple[Source, SnapshotLease]:
    bench = await begun(tmp_path)
    await bench.written(delta=True)
    await bench.far()
    return bench, await bench.coord.hold_backup(CID, NO_TIMESTAMP, HOUR_MS)


def pins(bench: Source) -> list[int]:
    return [pin.pin_id for pin in bench.coord.context.state.pins()]


def copied(bench: Source, lease: SnapshotLease) -> list[str]:
    """Write the files of a restore; returns their paths."""
    paths = [path for path, _ in data_files(shown(bench, lease))]
    for path in paths:
        bench.store.put(path, b"rows")
    return paths


async def received(bench: Source, lease: SnapshotLease, last_id: int = 0, key: str = "k") -> SnapshotLease:
    return await bench.coord.receive_rows(ForeignRows(shown(bench, lease), last_id, key, HOUR_MS))


async def test_a_backup_has_the_definition_and_keeps_the_files_until_its_lease_ends(tmp_path: Path) -> None:
    bench, lease = await held(tmp_path)
    snapshot = shown(bench, lease)
    assert snapshot.collection == bench.collections[0]
    files = {path for path, _ in data_files(snapshot)}
    assert files == snapshot.files
    assert len(files) == 3, "rows, keys, deletes"
    await bench.dropped()
    await bench.after(HOUR_MS / 1000 - 200)
    await bench.collected()
    assert files <= bench.in_files(), "the collection is gone, the backup is not"
    await bench.after(30_000)
    await asyncio.sleep(60)
    assert pins(bench) == []
    for _ in range(3):
        await bench.collected()
    assert not files & bench.in_files()
    await bench.coord.stop()


async def test_collections_of_one_backup_are_of_one_moment(tmp_path: Path) -> None:
    bench, first = await held(tmp_path)
    bench.root.collections[CID] = replace(bench.root.collections[CID], created=compose(2))
    again = await bench.coord.hold_backup(CID, first.read_ts, HOUR_MS)
    assert again.read_ts == first.read_ts
    await bench.coord.unpin_snapshot(first.snapshot_id)
    await bench.coord.unpin_snapshot(again.snapshot_id)
    assert pins(bench) == []
    for wrong in (0, PIN_MS_MAX + 1):
        with pytest.raises(InvalidParameter, match="a lease of"):
            await bench.coord.hold_backup(CID, NO_TIMESTAMP, wrong)
    await bench.coord.stop()


async def test_files_of_a_restore_are_kept_while_they_arrive_and_become_a_collection(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    before = shown(bench, backup)
    restore = await received(bench, backup)
    await bench.coord.unpin_snapshot(backup.snapshot_id)
    here = shown(bench, restore)
    assert not here.files & before.files, "names that no other file has"
    assert [m.rows for m in here.segments] == [m.rows for m in before.segments]
    with pytest.raises(InvalidParameter, match="3 files of the restored collection are missing"):
        await bench.coord.check_received(restore.snapshot_id)
    paths = copied(bench, restore)
    await bench.dropped()
    await bench.after(HOUR_MS / 1000 - 200)
    await bench.restart()
    await bench.register()
    await bench.collected()
    assert set(paths) <= bench.in_files(), "the pin alone names them"
    home = await bench.coord.check_received(restore.snapshot_id)
    source = await bench.coord.hold_source(CloneSource(home, restore.snapshot_id))
    clone = bench.defined(source)
    await bench.coord.watch_channels(clone)
    await bench.coord.unpin_snapshot(source.pin.pin_id)
    await bench.coord.unpin_snapshot(restore.snapshot_id)
    await bench.after(30_000)
    for _ in range(3):
        await bench.collected()
    (own,) = bench.segments()
    manifest = read_manifest(bench.store, (await bench.segment(own)).manifest)
    vchannel = bench.coord.context.state.vchannel(clone.vchannels[0])
    assert vchannel is not None
    (log,) = read_delta_list(bench.store, vchannel.deltas)
    named = {f.path for f in manifest.insert_logs} | set(manifest.stats_logs) | {log.file.path}
    assert named == set(paths)
    assert named <= bench.in_files()
    await bench.coord.stop()


async def test_a_restore_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    restore = await received(bench, backup)
    paths = copied(bench, restore)
    await bench.after(30_000)
    await asyncio.sleep(60)
    with pytest.raises(SnapshotNotFound, match="begin it again"):
        await bench.coord.check_received(restore.snapshot_id)
    for _ in range(3):
        await bench.collected()
    assert not set(paths) & bench.in_files()
    await bench.coord.stop()


async def test_a_restore_continues_under_its_key_and_a_wrong_size_is_noticed(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    restore = await received(bench, backup)
    paths = copied(bench, restore)
    assert await received(bench, backup) == restore
    assert await received(bench, backup, key="another") != restore
    insert = next(path for path in paths if path.startswith("insert_log/"))
    bench.store.delete(insert)
    bench.store.put(insert, b"half of it")
    with pytest.raises(InvalidParameter, match=insert):
        await bench.coord.check_received(restore.snapshot_id)
    await bench.coord.stop()


async def test_a_restore_is_completed_under_its_own_key_only(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    restore = await received(bench, backup, key="shop/books/1")
    copied(bench, restore)
    assert await bench.coord.check_received(restore.snapshot_id, "shop/books/")
    for other in ("shop/films/", "default/books/"):
        with pytest.raises(SnapshotNotFound, match="begin it again"):
            await bench.coord.check_received(restore.snapshot_id, other)
    await bench.coord.stop()


async def test_automatic_keys_of_restored_rows_are_not_given_out_again(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    last_id = await bench.root.alloc_ids(1) + 5_000
    await received(bench, backup, last_id)
    assert await bench.root.alloc_ids(1) > last_id
    await bench.coord.stop()


async def test_a_false_last_id_leaves_a_server_whose_backups_can_be_restored(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    most = 0
    for key in ("first", "second"):
        with pytest.raises(InvalidParameter, match="restore another one") as refusal:
            await received(bench, backup, 2**62, key)
        most = int(re.findall(r"to (\d+) at most", str(refusal.value))[0])
        await received(bench, backup, most, key)
        bench.root.now_ms += 1000
        following = await bench.root.alloc_ids(100_000)
        assert following > most
    await bench.coord.stop()


async def test_rows_of_the_future_and_snapshots_without_a_definition_are_refused(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    snapshot = shown(bench, backup)
    later = compose(physical_ms(bench.root.stamp()) + 10_000)
    for wrong, text in (
        (replace(snapshot, read_ts=later), "Set the clock"),
        (replace(snapshot, collection=None), "it is no backup"),
    ):
        with pytest.raises(InvalidParameter, match=text):
            await bench.coord.receive_rows(ForeignRows(wrong, 0, "k", HOUR_MS))
    await bench.coord.stop()


async def test_the_pin_of_a_reader_is_no_restore(tmp_path: Path) -> None:
    bench, backup = await held(tmp_path)
    for pin_id in (backup.snapshot_id, 12345):
        with pytest.raises(SnapshotNotFound):
            await bench.coord.check_received(pin_id)
        with pytest.raises(SnapshotNotFound):
            await bench.coord.hold_source(CloneSource(CID, pin_id))
    await bench.coord.stop()


async def test_the_moment_of_a_backup_is_kept_while_it_takes_its_pins(tmp_path: Path) -> None:
    bench = Source(tmp_path)
    bench.compaction = COMPACTION
    assert COMPACTION.plan.retention_s == 0
    await bench.watched()
    await bench.written(delta=True)
    await bench.far()
    bench.root.collections[CID] = replace(bench.root.collections[CID], created=compose(2))
    first = await bench.coord.hold_backup(CID, NO_TIMESTAMP, HOUR_MS)
    moments = bench.coord.context.moments
    for _ in range(3):
        bench.later(15_000)
        await asyncio.sleep(15)
        again = await bench.coord.hold_backup(CID, first.read_ts, HOUR_MS)
        assert again.read_ts == first.read_ts
        assert moments.earliest() <= first.read_ts
    await asyncio.sleep(30)
    assert moments.earliest() == MAX_TIMESTAMP
    with pytest.raises(TimestampTooOld):
        await bench.coord.hold_backup(CID, first.read_ts, HOUR_MS)
    await bench.coord.stop()
