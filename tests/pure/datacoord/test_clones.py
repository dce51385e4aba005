"""Clones in datacoord: the files of the source, as of a moment, under garbage collection."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import COMPACTION, Bench
from fakes import CID, DEFAULT, collection, settle
from test_collecting import GC_SETTLE_S, Store

from elanus.api.datacoord import RangeCommit
from elanus.api.gc import IndexReferences
from elanus.api.snapshots import CloneSource, DroppedCollection, HeldSource, NewSnapshot
from elanus.core.catalog import Checkpoint, Collection, Index, Origin
from elanus.core.clustering import Cluster
from elanus.core.errors import CollectionNotFound, InvalidParameter, SnapshotNotFound, TimestampTooOld
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, SegmentID
from elanus.core.segments import IndexFile, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, before, compose, physical_ms
from elanus.storage.manifests import read_delta_list, read_manifest
from elanus.storage.paths import index_file_path

CLONE = CollectionID(900)
LATE = Timestamp(2**60)


class Source(Store):
    """A collection with real files, and what rootcoord does to clone it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.compaction = replace(COMPACTION, plan=replace(COMPACTION.plan, retention_s=600))

    async def far(self) -> None:
        """The vchannel's checkpoint is later than any moment that is asked for."""
        now = self.root.stamp()
        await self.coord.commit_range(
            RangeCommit(
                self.epoch,
                self.vchannel,
                await self.recovery(),
                Checkpoint(LATE, physical_ms(now), now, 1),
                (),
                None,
                (),
            )
        )

    def defined(self, held: HeldSource, moment: Timestamp | None = None) -> Collection:
        """The clone's definition, as rootcoord's catalog has it before datacoord learns of it."""
        vchannels = tuple(name.replace(str(CID), str(CLONE)) for name in held.collection.vchannels)
        origin = Origin(7, held.snapshot, "c", CID, held.pin.path, held.pin.pin_id, held.pin.read_ts, (), 1)
        if moment is not None:
            origin = replace(origin, moment=moment)
        start = Checkpoint(self.root.stamp(), 0, self.root.stamp(), 1)
        clone = replace(
            held.collection,
            collection_id=CLONE,
            name="clone",
            vchannels=vchannels,
            starts=dict.fromkeys(vchannels, start),
            origin=origin,
        )
        self.root.collections[CLONE] = clone
        return clone

    async def cloned(self, moment: Timestamp = NO_TIMESTAMP) -> Collection:
        held = await self.coord.hold_source(CloneSource(CID, moment=moment))
        clone = self.defined(held)
        await self.coord.watch_channels(clone)
        await self.coord.unpin_snapshot(held.pin.pin_id)
        return clone

    async def dropped(self, record: bool = True) -> None:
        """The collection is dropped, and its data node has read the message."""
        gone = replace(self.collections[0], dropped=self.root.stamp())
        del self.root.collections[CID]
        if record:
            await self.coord.remember_dropped(DroppedCollection(gone, ()))
        await self.coord.drop_collection(CID)
        await self.coord.channel_dropped(await self.epoch_of(), self.vchannel)

    async def epoch_of(self) -> int:
        found = self.coord.context.state.vchannel(self.vchannel)
        assert found is not None
        return found.epoch

    async def collected(self) -> None:
        await asyncio.sleep(GC_SETTLE_S)
        report = await self.collect()
        assert not report.error, report.error

    def in_files(self) -> set[str]:
        return {info.path for info in self.store.list("")}

    def segments(self, of: CollectionID = CLONE) -> list[SegmentID]:
        state = self.coord.context.state
        return [s.segment_id for s in state.segments_of(of) if s.state is not SegmentState.DROPPED]


async def begun(tmp_path: Path) -> Source:
    bench = Source(tmp_path)
    await bench.watched()
    return bench


async def test_a_clone_names_the_files_of_its_source_and_writes_no_row(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    segment = await bench.written(delta=True)
    await bench.far()
    source = await bench.segment(segment)
    files = {p for p in bench.in_files() if not p.startswith(("manifests/", "snapshots/"))}
    clone = await bench.cloned()
    (own,) = bench.segments()
    info = await bench.segment(own)
    assert (info.state, info.rows, info.lender) == (SegmentState.FLUSHED, source.rows, segment)
    manifest = read_manifest(bench.store, info.manifest)
    assert manifest.insert_logs == read_manifest(bench.store, source.manifest).insert_logs
    assert (manifest.collection_id, manifest.vchannel) == (CLONE, clone.vchannels[0])
    assert manifest.partition_id == DEFAULT, "deletes name partitions by id"
    vchannel = bench.coord.context.state.vchannel(clone.vchannels[0])
    assert vchannel is not None
    (log,) = read_delta_list(bench.store, vchannel.deltas)
    assert (log.vchannel, vchannel.lenders) == (clone.vchannels[0], (bench.vchannel,))
    assert {p for p in bench.in_files() if not p.startswith(("manifests/", "snapshots/"))} == files
    await bench.coord.stop()


async def test_clusters_stay_clusters_in_a_clone(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    segment_id = await bench.written()
    state, manifests = bench.coord.context.state, bench.coord.context.manifests
    (manifest,) = await manifests.of_segments([state.segment(segment_id)])
    cluster = Cluster(FieldID(100), 1, 5)
    path = await manifests.put(replace(manifest, cluster=cluster), "a1-cluster")
    await state.put(segments=[replace(state.segment(segment_id), manifest=path, clustering=77)])
    await bench.far()
    await bench.cloned()
    (made,) = bench.segments()
    assert state.segment(made).clustering, "compaction does not merge it with others"
    assert read_manifest(bench.store, state.segment(made).manifest).cluster == cluster
    await bench.coord.stop()


async def test_rows_and_deletes_after_the_moment_are_cut_off(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    segment = await bench.written(delta=True)
    assert await bench.written() == segment, "a second file"
    bench.later(1000)
    moment = bench.root.stamp()
    info = await bench.segment(segment)
    manifest = read_manifest(bench.store, info.manifest)
    first, second = manifest.insert_logs
    files = (replace(first, ts_min=before(moment), ts_max=LATE), replace(second, ts_min=LATE, ts_max=LATE))
    path = await bench.coord.context.manifests.put(replace(manifest, insert_logs=files), "wide")
    await bench.coord.context.state.put([replace(info, manifest=path)])
    await bench.far()
    bench.later(1000)
    bench.root.collections[CID] = replace(bench.root.collections[CID], created=Timestamp(1))
    await bench.cloned(moment)
    (own,) = bench.segments()
    (file,) = read_manifest(bench.store, (await bench.segment(own)).manifest).insert_logs
    assert (file.ts_max, file.until) == (moment, moment)
    await bench.coord.stop()


async def test_files_stay_as_long_as_a_clone_needs_them_and_go_then(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    await bench.written(delta=True)
    await bench.far()
    clone = await bench.cloned()
    (own,) = bench.segments()
    borrowed = {f.path for f in read_manifest(bench.store, (await bench.segment(own)).manifest).insert_logs}
    await bench.dropped()
    await bench.after(30_000)
    await bench.collected()
    await bench.collected()
    assert borrowed <= bench.in_files(), "the source is gone, its clone is not"
    assert any(p.startswith("delta_log/") for p in bench.in_files())
    await bench.coord.drop_collection(CLONE)
    state = bench.coord.context.state
    vchannel = state.vchannel(clone.vchannels[0])
    assert vchannel is not None
    await bench.coord.channel_dropped(vchannel.epoch, vchannel.vchannel)
    await bench.collected()
    assert borrowed <= bench.in_files(), "a query node may read it, and the drop is recent"
    await bench.after(30_000)
    for _ in range(3):
        await bench.collected()
    assert not [p for p in bench.in_files() if p.startswith(("insert_log/", "delta_log/", "manifests/"))]
    await bench.coord.stop()


async def test_a_clone_that_was_cut_off_is_made_once(tmp_path: Path) -> None:
    """Neither repeated orders nor a crash after the manifests are written give rows twice, or only some."""
    bench = await begun(tmp_path)
    await bench.written(delta=True)
    await bench.far()
    held = await bench.coord.hold_source(CloneSource(CID))
    clone = bench.defined(held)
    put = bench.coord.context.state.put
    writing = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        writing.set()
        await asyncio.sleep(1e6)

    bench.coord.context.state.put = never  # type: ignore[method-assign]
    task = asyncio.ensure_future(bench.coord.watch_channels(clone))
    await writing.wait()
    task.cancel()
    bench.coord.context.state.put = put  # type: ignore[method-assign]
    await bench.restart()
    assert bench.segments() == []
    await asyncio.gather(*(bench.coord.watch_channels(clone) for _ in range(3)))
    assert len(bench.segments()) == 1
    await bench.coord.watch_channels(clone)
    assert len(bench.segments()) == 1
    await bench.coord.stop()


async def test_the_pin_of_a_clone_outlives_its_time_until_the_clone_is_made(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    await bench.written()
    await bench.far()
    held = await bench.coord.hold_source(CloneSource(CID))
    clone = bench.defined(held)
    await bench.after(2 * 3600)
    await asyncio.sleep(60)
    assert [p.pin_id for p in bench.coord.context.state.pins()] == [held.pin.pin_id]
    assert clone.origin is not None
    bench.root.collections[CLONE] = replace(clone, origin=replace(clone.origin, is_done=True))
    await asyncio.sleep(60)
    assert bench.coord.context.state.pins() == ()
    await bench.coord.stop()


async def test_a_dropped_collection_comes_back_as_of_what_its_files_have(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    segment = await bench.written(delta=True)
    complete = (await bench.recovery()).ts
    await bench.write(5)  # in the log alone
    await bench.dropped()
    assert [c.collection_id for c in await bench.coord.dropped_collections()] == [CID]
    held = await bench.coord.hold_source(CloneSource(CID))
    assert held.pin.read_ts == complete
    await bench.coord.watch_channels(bench.defined(held))
    (own,) = bench.segments()
    assert (await bench.segment(own)).lender == segment
    await bench.coord.stop()


async def test_a_dropped_collection_is_gone_with_its_files(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    await bench.written()
    await bench.dropped()
    await bench.after(4000)
    assert await bench.coord.dropped_collections() == ()
    with pytest.raises(CollectionNotFound):
        await bench.coord.hold_source(CloneSource(CID))
    assert bench.coord.context.state.pins() == ()
    await bench.coord.stop()


async def test_a_moment_out_of_reach_is_refused(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    await bench.written()
    await bench.far()
    bench.later(10_000_000)
    now = bench.root.stamp()
    for moment, error, text in (
        (compose(physical_ms(now) + 1000), InvalidParameter, "Z .* has not come yet, it is .*Z "),
        (compose(1), InvalidParameter, r"created at 1970-01-01T00:00:00.002Z .* 1970-01-01T00:00:00.001Z \("),
        (compose(physical_ms(now) - 700_000), TimestampTooOld, "Z .* is 700 s ago"),
    ):
        bench.root.collections[CID] = replace(bench.root.collections[CID], created=compose(2))
        with pytest.raises(error, match=text):
            await bench.coord.hold_source(CloneSource(CID, moment=Timestamp(moment)))
    await bench.coord.stop()


async def test_snapshots_have_names_and_may_be_pinned_again(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    await bench.written()
    await bench.far()
    pin = await bench.coord.create_snapshot(NewSnapshot(CID, "daily", "before the change"))
    with pytest.raises(InvalidParameter, match="snapshot name daily already exists"):
        await bench.coord.create_snapshot(NewSnapshot(CID, "daily"))
    assert await bench.coord.named_snapshots() == (pin,)
    found = await bench.coord.named_snapshot(pin.pin_id)
    assert (found.collection, found.pin.description) == (collection().name, "before the change")
    assert found.partitions == tuple(p.name for p in collection().partitions)
    again = await bench.coord.pin_snapshot(pin.pin_id, 0)
    await bench.coord.pin_snapshot(pin.pin_id, 1)  # which has expired
    await bench.restart()
    with pytest.raises(InvalidParameter, match=f"1 active pins, unpin before .*pins={again.pin_id}"):
        await bench.coord.drop_snapshot(CID, "daily")
    assert await bench.coord.named_snapshots() == (pin,)
    await bench.coord.unpin_snapshot(again.pin_id)
    await bench.coord.drop_snapshot(CID, "daily")
    assert await bench.coord.named_snapshots() == ()
    for call in (bench.coord.named_snapshot(pin.pin_id), bench.coord.pin_snapshot(pin.pin_id, 0)):
        with pytest.raises(SnapshotNotFound):
            await call
    await bench.coord.drop_snapshot(CID, "daily")
    await bench.coord.stop()


async def test_what_a_pin_is_of_is_known_after_the_drop_too(tmp_path: Path) -> None:
    """The guard asks before a pin is released."""
    bench = await begun(tmp_path)
    await bench.written()
    await bench.far()
    name = collection().name
    daily = await bench.coord.create_snapshot(NewSnapshot(CID, "daily"))
    again = await bench.coord.pin_snapshot(daily.pin_id, 0)
    lease = await bench.coord.take_snapshot(CID, (), 3_600_000)

    async def names() -> list[str | None]:
        ids = (daily.pin_id, again.pin_id, lease.snapshot_id)
        found = [(await bench.coord.pinned_collection(pin_id)).collection for pin_id in ids]
        return [None if one is None else one.name for one in found]

    assert await names() == [name, name, name]
    await bench.dropped(record=False)
    assert await names() == [name, name, None], "a reader's snapshot has no definition"
    await bench.coord.release_snapshot(daily.pin_id)
    assert await bench.coord.named_snapshots() == (daily,), "a name is dropped by its own call"
    await bench.coord.release_snapshot(lease.snapshot_id)
    with pytest.raises(SnapshotNotFound):
        await bench.coord.pinned_collection(lease.snapshot_id)
    await bench.coord.stop()


async def test_a_snapshot_of_a_dropped_collection_is_restored(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    segment = await bench.written(delta=True)
    await bench.far()
    pin = await bench.coord.create_snapshot(NewSnapshot(CID, "last"))
    await bench.dropped()
    await bench.after(30_000)
    await bench.collected()
    await bench.collected()
    held = await bench.coord.hold_source(CloneSource(CID, pin.pin_id))
    assert held.snapshot == "last"
    await bench.coord.drop_snapshot(CID, "last")
    await bench.coord.watch_channels(bench.defined(held))
    await bench.coord.unpin_snapshot(held.pin.pin_id)
    await bench.collected()
    (own,) = bench.segments()
    info = await bench.segment(own)
    assert info.lender == segment
    assert {f.path for f in read_manifest(bench.store, info.manifest).insert_logs} <= bench.in_files()
    await bench.coord.stop()


async def test_an_expired_snapshot_is_no_source_even_when_the_clock_is_set_back(
    tmp_path: Path,
) -> None:
    """Its files may have been deleted since, although its record is still there."""
    bench = await begun(tmp_path)
    await bench.written()
    await bench.far()
    expires_ms = int(bench.clock.wall_ms()) + 60_000
    pin = await bench.coord.create_snapshot(NewSnapshot(CID, "short", expires_ms=expires_ms))
    bench.clock.step_ms(60_000)
    with pytest.raises(SnapshotNotFound, match="expired"):
        await bench.coord.hold_source(CloneSource(CID, pin.pin_id))
    bench.clock.step_ms(-60_000)
    with pytest.raises(SnapshotNotFound, match="expired"):
        await bench.coord.hold_source(CloneSource(CID, pin.pin_id))
    await asyncio.sleep(11)
    assert bench.coord.context.state.pins() == ()
    await bench.coord.stop()


async def test_a_snapshot_keeps_the_index_files_for_its_restores(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    segment = await bench.written()
    await bench.far()
    rows = (await bench.segment(segment)).rows
    path = index_file_path(BuildID(5), 1, DEFAULT, segment, "a1-x")
    bench.store.put(path, b"index")
    built = IndexFile(BuildID(5), IndexID(1), FieldID(102), segment, "HNSW", "L2", {}, path, rows, 5, True)
    bench.index.files = [built]
    bench.index.defined = [Index(IndexID(1), CID, FieldID(102), "v", {"index_type": "HNSW"}, Timestamp(1))]
    pin = await bench.coord.create_snapshot(NewSnapshot(CID, "daily"))
    bench.index.files = []  # the collection builds it again, or is dropped

    async def unused() -> IndexReferences:
        return IndexReferences((), {}, 100)

    bench.index.index_references = unused  # type: ignore[method-assign]
    os.utime(bench.store.local_path(path, tmp_path), (0, 0))
    await bench.collected()
    await bench.collected()
    assert path in bench.in_files()
    held = await bench.coord.hold_source(CloneSource(CID, pin.pin_id))
    clone = bench.defined(held)
    await bench.coord.watch_channels(clone)
    (borrowed,) = await bench.coord.borrowed_indexes(clone)
    assert (borrowed.path, borrowed.segment_id) == (path, bench.segments()[0])
    await bench.coord.unpin_snapshot(held.pin.pin_id)
    await bench.coord.drop_snapshot(CID, "daily")
    await bench.collected()
    await bench.collected()
    assert path not in bench.in_files(), "nothing names it any more"
    await bench.coord.stop()


async def test_compaction_folds_in_nothing_later_than_a_moment_that_is_looked_at(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    taking = asyncio.ensure_future(coord.take_snapshot(CID, (), 1000))
    await settle()
    earliest = coord.context.moments.earliest()
    assert earliest < bench.root.stamp()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert coord.context.moments.earliest() > bench.root.stamp()
    await coord.stop()


async def test_a_round_reports_what_snapshots_and_clones_hold(tmp_path: Path) -> None:
    bench = await begun(tmp_path)
    segment = await bench.written()
    await bench.far()
    await bench.coord.create_snapshot(NewSnapshot(CID, "daily"))
    await bench.cloned()
    await bench.dropped()
    await asyncio.sleep(GC_SETTLE_S)
    report = await bench.collect(delete=False)
    assert [(h.holder, h.collection_id, h.until_ms) for h in report.held] == [
        ("snapshot daily", CID, 0),
        ("a clone", CLONE, 0),
    ]
    (stays,) = [p for p in report.pinned if p.segment_id == segment]
    assert stays.read_by == "a clone and snapshot daily"
    assert (stays.bytes > 0, stays.until_ms > stays.dropped_ms) == (True, True)
    await bench.coord.stop()
