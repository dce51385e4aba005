"""Snapshots: everything acknowledged before, as of one moment, and its files stay until the lease is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compaction_bench import planned, start
from data_bench import COMPACTION, Bench
from fakes import CID, DEFAULT, OTHER, binlog, collection, settle
from whole_coord import Coord

from elanus.api.connector import SNAPSHOTS, CollectionSnapshot, SnapshotLease
from elanus.core.catalog import Index
from elanus.core.errors import CollectionNotFound, InvalidParameter, TimestampTooOld, Unavailable
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, SegmentID
from elanus.core.path_digests import PathDigests, digests
from elanus.core.pins import Pin
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp, minus_ms
from elanus.datacoord.pins import Pins
from elanus.storage.paths import PREFIXES
from elanus.storage.snapshots import read_snapshot

HOUR_MS = 3_600_000


async def taken(bench: Bench, *partitions: int, lease_ms: int = HOUR_MS) -> SnapshotLease:
    """A snapshot, with a data node that does as it is ordered."""
    taking = asyncio.ensure_future(bench.coord.take_snapshot(CID, partitions, lease_ms))  # type: ignore[arg-type]
    await settle()
    await bench.report()
    while not taking.done():
        await asyncio.sleep(0.1)
        if bench.node.calls.of("sync"):
            bench.node.calls.asked.clear()
            await bench.commit()
    return await taking


def content(bench: Bench, lease: SnapshotLease) -> CollectionSnapshot:
    assert lease.store_url == bench.store.url
    return read_snapshot(bench.store, lease.path, SNAPSHOTS)


async def keeps_just(coord: Coord, paths: Iterable[str] = ()) -> bool:
    kept, wanted = await coord.role._pins.pinned_files(), PathDigests.of(paths)
    return all(digests((), kept.within(p)) == digests((), wanted.within(p)) for p in PREFIXES)


async def test_rows_in_the_log_are_brought_into_files_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    growing = await bench.write(10)
    await bench.report({growing: 10})
    before = bench.root.stamp()
    taking = asyncio.ensure_future(coord.take_snapshot(CID, (), HOUR_MS))
    await asyncio.sleep(1)
    assert bench.node.calls.of("sync") == [], "its data node has not seen that moment yet"
    await bench.report({growing: 10})
    await asyncio.sleep(0.1)
    assert bench.node.calls.of("sync") == [(bench.vchannel, ())]
    assert not taking.done()
    await bench.commit({growing: 10}, delta=binlog("delta_log/1"))
    snapshot = content(bench, await taking)
    assert snapshot.read_ts > before
    assert [(m.segment_id, m.rows) for m in snapshot.segments] == [(growing, 10)]
    assert [log.file.path for log in snapshot.delta_logs[bench.vchannel]] == ["delta_log/1"]
    assert (await bench.segment(growing)).state.name == "GROWING", "a snapshot seals nothing"
    await coord.stop()


async def test_a_snapshot_says_which_rows_have_expired(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await bench.commit(checkpoint=replace(await bench.recovery(), ts=Timestamp(2**60)))
    assert content(bench, await coord.take_snapshot(CID, (), HOUR_MS)).expired_until == 0
    bench.root.collections[CID] = replace(bench.root.collections[CID], properties={TTL_PROPERTY: "3"})
    snapshot = content(bench, await coord.take_snapshot(CID, (), HOUR_MS))
    assert snapshot.expired_until == minus_ms(snapshot.read_ts, 3000)
    await coord.stop()


async def test_a_vchannel_that_is_far_enough_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    later = replace(await bench.recovery(), ts=Timestamp(2**60))
    await bench.commit(checkpoint=later)
    await coord.take_snapshot(CID, (), HOUR_MS)
    assert bench.node.calls.of("sync") == []
    await coord.stop()


async def test_only_the_partitions_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(partitions=(DEFAULT, OTHER)))
    coord = await bench.watched()
    one, other = await bench.write(5), await bench.write(5, OTHER)
    await bench.commit({one: 5, other: 5})
    assert {m.segment_id for m in content(bench, await taken(bench)).segments} == {one, other}
    assert {m.segment_id for m in content(bench, await taken(bench, OTHER)).segments} == {other}
    await coord.stop()


async def test_a_snapshot_is_never_older_than_the_deletes_folded_into_its_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(5)
    await bench.commit({segment: 5})
    folded = Timestamp(bench.root.stamp() + 1000)
    manifest = SegmentManifest(
        SegmentID(segment), CID, DEFAULT, bench.vchannel, (binlog("a", 5),), (), deletes_from=folded
    )
    path = await coord.context.manifests.put(manifest, "folded")
    await coord.context.state.put([replace(await bench.segment(segment), manifest=path)])
    bench.later(1)
    lease = await taken(bench)
    assert lease.read_ts >= folded
    await coord.stop()


async def test_what_a_snapshot_names_is_pinned_until_it_is_released(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(5)
    await bench.commit({segment: 5}, delta=binlog("delta_log/1"))
    lease = await taken(bench)
    snapshot = content(bench, lease)
    assert await keeps_just(coord, snapshot.files | {lease.path})
    assert "delta_log/1" in snapshot.files
    coord = await bench.restart()
    assert await keeps_just(coord, snapshot.files | {lease.path}), "pins outlive the role"
    await coord.release_snapshot(lease.snapshot_id)
    await coord.release_snapshot(lease.snapshot_id)
    assert await keeps_just(coord)
    assert list(bench.store.list("snapshots")) == []
    await coord.stop()


def built(number: int, segment: SegmentID) -> IndexFile:
    return IndexFile(
        BuildID(number),
        IndexID(1),
        FieldID(102),
        segment,
        "HNSW",
        "L2",
        {},
        f"index_files/{number}",
        5,
        9,
        True,
    )


async def with_indexes(bench: Bench) -> CollectionSnapshot:
    await bench.commit(checkpoint=replace(await bench.recovery(), ts=Timestamp(2**60)))
    lease = await bench.coord.take_snapshot(CID, (), HOUR_MS, with_indexes=True)
    snapshot = content(bench, lease)
    assert await keeps_just(bench.coord, snapshot.files | {lease.path})
    return snapshot


async def test_a_snapshot_to_search_names_and_pins_the_index_files_of_its_segments(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(5)
    await bench.commit({segment: 5})
    bench.index.defined = [Index(IndexID(1), CID, FieldID(102), "v", {"index_type": "HNSW"}, Timestamp(1))]
    bench.index.files = [built(1, segment), built(2, SegmentID(999))]
    snapshot = await with_indexes(bench)
    assert [file.path for file in snapshot.index_files] == ["index_files/1"]
    assert [index.name for index in snapshot.indexes] == ["v"]
    assert "index_files/1" in snapshot.files
    plain = content(bench, await coord.take_snapshot(CID, (), HOUR_MS))
    assert (plain.index_files, plain.indexes) == ((), ()), "a reader of rows keeps no index"
    await coord.stop()


async def test_an_index_file_that_goes_out_of_use_while_it_is_pinned_is_not_named(tmp_path: Path) -> None:
    """Each file that a snapshot names was in use after it was kept, so a collection finds it."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(5)
    await bench.commit({segment: 5})
    answers = [[built(1, segment), built(2, segment)], [built(2, segment)]]
    kept: list[bool] = []

    async def index_files(collection_id: CollectionID) -> tuple[IndexFile, ...]:
        kept.append("index_files/2" in await coord.role._pins.pinned_files())
        return tuple(answers.pop(0))

    bench.index.index_files = index_files  # type: ignore[method-assign]
    snapshot = await with_indexes(bench)
    assert [file.path for file in snapshot.index_files] == ["index_files/2"]
    assert kept == [False, True], "the second look is made when the files are kept"
    await coord.stop()


async def test_a_pin_ends_with_its_lease(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    lease = await taken(bench, lease_ms=60_000)
    assert lease.expires_ms <= bench.clock.wall_ms() + 60_000
    await asyncio.sleep(61)
    assert await keeps_just(coord)
    await asyncio.sleep(11)
    assert coord.context.state.pins() == ()
    assert list(bench.store.list("snapshots")) == []
    await coord.stop()


async def test_a_pin_ends_though_its_caller_was_gone_when_it_was_persisted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    state = coord.context.state
    put = state.put

    async def cancelled_amid(*records: Any, **named: Any) -> None:
        call.cancel()
        await put(*records, **named)

    state.put = cancelled_amid  # type: ignore[method-assign]
    call = asyncio.ensure_future(Pins(coord.context).keep_changes(CID, Timestamp(1), "copy", 60_000))
    await asyncio.wait([call])
    state.put = put  # type: ignore[method-assign]
    assert call.cancelled()
    assert len(state.pins()) == 1
    await asyncio.sleep(80)
    assert state.pins() == ()
    await coord.stop()


async def test_a_release_that_was_cut_off_holds_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    lease = await taken(bench)
    bench.store.delete(lease.path)
    assert await keeps_just(coord)
    await coord.stop()


async def test_a_snapshot_that_cannot_be_had(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    for lease_ms in (0, -1, 10**12):
        with pytest.raises(InvalidParameter, match="lease"):
            await coord.take_snapshot(CID, (), lease_ms)
    with pytest.raises(Unavailable, match="is the pipeline process up"):
        await coord.take_snapshot(CID, (), HOUR_MS)
    await coord.drop_collection(CID)
    with pytest.raises(CollectionNotFound):
        await coord.take_snapshot(CID, (), HOUR_MS)
    assert await keeps_just(coord)
    await coord.stop()


async def test_changes_that_compaction_may_have_removed_are_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    plan = replace(bench.compaction.plan, retention_s=60)
    bench.compaction = replace(bench.compaction, plan=plan)
    bench.root.now_ms = 10_000_000
    coord = await bench.watched()
    await bench.commit(checkpoint=replace(await bench.recovery(), ts=Timestamp(2**60)))
    now = bench.root.stamp()
    lease = await coord.take_changes(CID, now, "", HOUR_MS)
    assert lease.read_ts > now
    with pytest.raises(InvalidParameter, match="later than now"):
        await coord.take_changes(CID, Timestamp(now + (1 << 40)), "", HOUR_MS)
    old = minus_ms(now, 61_000)
    with pytest.raises(TimestampTooOld, match=r"Z\)\. Read the collection as a whole"):
        await coord.take_changes(CID, old, "", HOUR_MS)
    await coord.stop()


async def test_a_name_keeps_changes_and_moves_on_with_its_reader(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.compaction = replace(bench.compaction, plan=replace(bench.compaction.plan, retention_s=60))
    bench.root.now_ms = 10_000_000
    coord = await bench.watched()
    await bench.commit(checkpoint=replace(await bench.recovery(), ts=Timestamp(2**60)))
    first = bench.root.stamp()
    await coord.take_changes(CID, first, "copy", HOUR_MS)
    await asyncio.sleep(100)
    bench.root.now_ms += 100_000
    coord = await bench.restart()
    await coord.take_changes(CID, first, "", HOUR_MS)
    kept = [(p.feed, p.read_ts) for p in coord.context.state.pins() if p.feed]
    assert kept == [("copy", first)]
    later = bench.root.stamp()
    await coord.take_changes(CID, later, "copy", 30_000)
    assert [p.read_ts for p in coord.context.state.pins() if p.feed] == [later]
    await asyncio.sleep(100)
    bench.root.now_ms += 100_000
    assert [p for p in coord.context.state.pins() if p.feed] == []
    with pytest.raises(TimestampTooOld):
        await coord.take_changes(CID, later, "copy", HOUR_MS)
    await coord.stop()


async def test_deletes_that_changes_need_are_not_folded_in_while_they_are_being_taken(tmp_path: Path) -> None:
    """Retention passes while the data node brings rows into files."""
    bench, files = await start(tmp_path, plan=replace(COMPACTION.plan, retention_s=60))
    await files.flushed(range(10))
    since = bench.root.stamp()
    await files.flushed(range(10, 20))
    taking = asyncio.ensure_future(bench.coord.take_changes(CID, since, "", HOUR_MS))
    await settle()
    bench.later(61_000)
    (plan,) = await planned(bench)
    assert plan.fold_until == since
    assert not taking.done()
    await bench.commit(checkpoint=replace(await bench.recovery(), ts=Timestamp(2**60)))
    assert (await taking).read_ts > since
    with pytest.raises(TimestampTooOld):
        await bench.coord.take_changes(CID, since, "", HOUR_MS)
    assert bench.coord.context.moments.earliest() == MAX_TIMESTAMP
    await bench.coord.stop()


async def test_deletes_that_a_feed_needs_are_not_folded_in(tmp_path: Path) -> None:
    """With a retention of nothing, everything up to the checkpoint is folded in otherwise."""
    bench, files = await start(tmp_path)
    context = bench.coord.context
    await files.flushed(range(10))
    read_until = bench.root.stamp()
    feed = Pin(1, CID, "", context.clock.wall_ms() + HOUR_MS, read_ts=read_until, feed="copy")
    await context.state.put(pins=[feed])
    await files.flushed(range(10, 20))
    (plan,) = await planned(bench)
    assert plan.fold_until == read_until
    await bench.coord.stop()
