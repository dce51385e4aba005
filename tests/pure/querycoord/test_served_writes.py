"""The deletes of a write keep their moment when it has been served: each node that loads them applies it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fakes import CID, DEFAULT, OTHER, collection, compose, manifest, recovery
from query_bench import Bench

from elanus.api.querynode import LoadSegment, SealedSegmentsChange, WatchVchannel
from elanus.api.recovery import RecoveryInfo
from elanus.core.heirs import Heirs
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import BinlogFile, DeltaLog, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.querycoord import visible_from
from elanus.querycoord.node_requests import segment_request
from elanus.querycoord.target import Target
from elanus.querycoord.visible_from import Settled, decide_moments, with_writes

TWO_PARTITIONS = collection(partitions=(DEFAULT, OTHER))
VCHANNEL = TWO_PARTITIONS.vchannels[0]
COMMIT, MOMENT = compose(20), compose(30)
OLD = manifest(1)


def rows(number: int = 2, partition_id: PartitionID = DEFAULT) -> SegmentManifest:
    return replace(manifest(number, partition_id=partition_id), commit_ts=COMMIT, deletes_from=COMMIT)


def delta_log(commit: Timestamp = COMMIT, first: Timestamp | None = None) -> DeltaLog:
    file = BinlogFile(f"delta_log/{commit}", 1, 100, first or commit, commit)
    return DeltaLog(VCHANNEL, file)


def recovered(
    *segments: SegmentManifest, unserved: tuple[DeltaLog, ...] = (), served: tuple[DeltaLog, ...] = ()
) -> RecoveryInfo:
    info = recovery(TWO_PARTITIONS, *segments)
    first, *others = info.vchannels
    return replace(info, vchannels=(replace(first, unserved=unserved, delta_logs=served), *others))


def last(bench: Bench) -> SealedSegmentsChange:
    change: SealedSegmentsChange = bench.node.calls.of("announce")[-1]
    return change


def moments(bench: Bench) -> tuple[object, object]:
    """Those that the node was last given with its vchannel, and with the old segment."""
    watches: list[WatchVchannel] = bench.node.calls.of("watch_vchannel")
    loads: list[LoadSegment] = bench.node.calls.of("load_segment")
    watched = [request.moments for request in watches if request.vchannel == VCHANNEL]
    loaded = [request.moments for request in loads if request.manifest.segment_id == OLD.segment_id]
    return dict(watched[-1]), dict(loaded[-1])


@pytest.mark.parametrize("written", [(rows(),), ()], ids=["upsert", "delete"])
async def test_a_node_that_loads_later_is_given_the_moment(written: tuple[SegmentManifest, ...]) -> None:
    """Also one that a later coordinator has load the collection, and one after a further write."""
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovered(OLD))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    bench.set_data(recovered(OLD, *written, unserved=(delta_log(),)))
    await asyncio.sleep(1)
    moment = last(bench).deletes[delta_log().file.path]
    assert moment > COMMIT
    bench.set_data(recovered(OLD, *written, served=(delta_log(),)))
    bench.node.restart()
    await asyncio.sleep(3)
    assert moments(bench) == ({COMMIT: moment}, {COMMIT: moment})
    await bench.coord.stop()
    bench.node.restart()
    await bench.start()
    await asyncio.sleep(3)
    assert moments(bench) == ({COMMIT: moment}, {COMMIT: moment})
    second = delta_log(compose(25))
    bench.set_data(recovered(OLD, *written, served=(delta_log(),), unserved=(second,)))
    await asyncio.sleep(1)
    later = last(bench).deletes[second.file.path]
    merged = delta_log(compose(25), first=COMMIT)
    bench.set_data(recovered(OLD, *written, served=(merged,)))
    bench.node.restart()
    await asyncio.sleep(3)
    both = {COMMIT: moment, compose(25): later}
    assert moments(bench) == (both, both), "also if their deletes were merged into one file"
    await bench.coord.stop()


async def test_a_write_before_the_first_version_counts_from_its_commit() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovered(OLD, rows(), unserved=(delta_log(),)))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    assert last(bench).deletes == {delta_log().file.path: 0}
    bench.set_data(recovered(OLD, rows(), served=(delta_log(),)))
    bench.node.restart()
    await asyncio.sleep(3)
    assert moments(bench) == ({}, {})
    await bench.coord.stop()


def requested(of: SegmentManifest, *logs: DeltaLog) -> dict[Timestamp, Timestamp]:
    info = recovered(of, served=logs)
    writes = {COMMIT: MOMENT, compose(25): compose(35)}
    target = Target(TWO_PARTITIONS, (DEFAULT,), info, {of.segment_id: of}, (), {}, (), writes=writes)
    return dict(segment_request(target, of.segment_id).moments)


def test_a_segment_is_given_the_moments_of_writes_that_delete_its_rows() -> None:
    both = {COMMIT: MOMENT, compose(25): compose(35)}
    assert requested(OLD, delta_log(), delta_log(compose(25))) == both
    assert requested(OLD, delta_log(compose(25))) == {compose(25): compose(35)}
    assert requested(OLD) == {}, "no delta log has the deletes"
    folded = replace(OLD, deletes_from=compose(22))
    assert requested(folded, delta_log(compose(25))) == both, "the first was folded in before its moment"
    folded = replace(OLD, deletes_from=compose(33))
    assert requested(folded, delta_log(compose(25))) == {compose(25): compose(35)}


def test_rows_of_a_write_whose_partition_is_loaded_later_are_seen_with_its_deletes() -> None:
    new = rows(3, OTHER)
    before = Settled({}, {}, frozenset({DEFAULT}), (), {}, {COMMIT: MOMENT})
    decided = decide_moments((new.segment_id,), {new.segment_id: new}, Heirs(), before)
    assert decided.known == {SegmentID(3): MOMENT}
    pending = decide_moments((new.segment_id,), {new.segment_id: new}, Heirs(), before, pending={COMMIT})
    assert (pending.known, pending.open) == ({}, ()), "an earlier try may have noted a moment that is over"


def test_the_latest_writes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_from, "WRITES_KEPT_MAX", 2)
    logs = [delta_log(compose(ms)) for ms in (20, 21, 22, 23)]
    deletes = {log.file.path: MOMENT for log in logs} | {logs[3].file.path: Timestamp(0)}
    kept = with_writes({compose(19): compose(29)}, logs, deletes)
    assert kept == {compose(21): MOMENT, compose(22): MOMENT}
