"""From which moment on imported segments are seen: given once, by the first version that names them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import msgspec
from fakes import CID, DEFAULT, OTHER, collection, compose, index, manifest, recovery
from query_bench import NODE, Bench

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querynode import SealedSegmentsChange
from elanus.core.heirs import Heirs
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp, plus_ms
from elanus.querycoord.state import LoadState, ReplicaRecord
from elanus.querycoord.visible_from import LEAD_MS, Moments, Settled, decide_moments, settled

TWO_PARTITIONS = collection(partitions=(DEFAULT, OTHER))
COMMIT, MOMENT, LATER = compose(20), compose(30), compose(40)


def imported(number: int, partition_id: PartitionID = DEFAULT) -> SegmentManifest:
    return replace(manifest(number, partition_id=partition_id), commit_ts=COMMIT, deletes_from=COMMIT)


def ids(moments: Mapping[int, Timestamp]) -> dict[SegmentID, Timestamp]:
    return {SegmentID(s): moment for s, moment in moments.items()}


# the decision


def decided(
    *online: SegmentManifest,
    named: Mapping[int, Timestamp] | None = None,
    stamped: Mapping[int, Timestamp] | None = None,
    partitions: frozenset[PartitionID] | None = None,
    found: tuple[int, ...] = (),
    successors: Mapping[int, int] | None = None,
) -> Moments:
    before = Settled(ids(named or {}), ids(stamped or {}), partitions, tuple(map(SegmentID, found)))
    heirs = Heirs({SegmentID(s): SegmentID(heir) for s, heir in (successors or {}).items()})
    manifests = {m.segment_id: m for m in online}
    return decide_moments(tuple(manifests), manifests, heirs, before)


def test_only_an_import_that_reads_may_have_missed_gets_a_moment() -> None:
    assert decided(manifest(1), imported(2)) == Moments({}, (SegmentID(2),))
    assert decided(imported(2), partitions=frozenset()) == Moments({}, ()), "no version is in force"
    chosen = decided(imported(2), imported(3, OTHER), partitions=frozenset({DEFAULT}))
    assert chosen.open == (2,), "of the other partition nothing could be read"


def test_what_a_version_has_named_keeps_its_moment_and_the_lack_of_one() -> None:
    assert decided(imported(2), imported(3), named={2: MOMENT, 3: Timestamp(0)}) == Moments({2: MOMENT}, ())


def test_a_stamp_counts_for_all_when_one_of_its_segments_was_announced() -> None:
    stamped = {2: MOMENT, 3: MOMENT}
    assert decided(imported(2), imported(3), stamped=stamped, found=(2,)) == Moments(ids(stamped), ())
    assert decided(imported(2), imported(3), stamped=stamped).open == (2, 3)


def test_an_output_takes_over_the_latest_moment_of_its_inputs() -> None:
    output = replace(manifest(9), parents=(SegmentID(1), SegmentID(2), SegmentID(3)))
    named = {1: MOMENT, 2: LATER, 3: Timestamp(0)}
    assert decided(output, named=named, successors=dict.fromkeys(named, 9)) == Moments({9: LATER}, ())


def test_replicas_settle_it_for_each_other() -> None:
    def record(number: int, version: int, sealed: Mapping[int, Timestamp]) -> ReplicaRecord:
        places = {SegmentID(s): NODE for s in sealed}
        info = QueryChannelInfo(CID, number, "c", version, places, {}, visible_from=ids(sealed))
        return ReplicaRecord(info, partitions=(DEFAULT,) if number else (OTHER,))

    first, second = record(0, 1, {2: MOMENT}), record(1, 0, {})
    before = settled([first, second], ())
    assert (before.named, before.partitions) == ({2: MOMENT}, {OTHER})
    assert settled([replace(first, partitions=None), record(1, 1, {})], ()).partitions is None


def test_an_older_record_is_read_as_of_a_load_that_is_served() -> None:
    info = {
        "collection_id": 1,
        "replica": 0,
        "channel": "c",
        "version": 3,
        "sealed": {"2": 5},
        "vchannels": {},
    }
    record = msgspec.json.decode(msgspec.json.encode({"info": info}), type=ReplicaRecord)
    assert settled([record], ()) == Settled({SegmentID(2): Timestamp(0)}, {}, None, ())


# what comes of it


def last(bench: Bench) -> SealedSegmentsChange:
    change: SealedSegmentsChange = bench.node.calls.of("announce")[-1]
    return change


async def serving(*segments: SegmentManifest, partition_ids: tuple[PartitionID, ...] = ()) -> Bench:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, *segments))
    await bench.start()
    await bench.coord.load(CID, partition_ids, 1)
    await asyncio.sleep(1)
    return bench


async def importing() -> tuple[Bench, Mapping[SegmentID, Timestamp]]:
    """An import into a collection that is served."""
    bench = await serving(manifest(1))
    bench.set_data(recovery(TWO_PARTITIONS, manifest(1), imported(2), imported(3)))
    await asyncio.sleep(1)
    return bench, last(bench).visible_from


async def test_all_of_an_import_gets_one_moment_above_every_read_before() -> None:
    bench = await serving(manifest(1))
    before = bench.root.stamp()
    bench.set_data(recovery(TWO_PARTITIONS, manifest(1), imported(2), imported(3)))
    await asyncio.sleep(1)
    moments = last(bench).visible_from
    assert set(moments) == {2, 3}
    assert len(set(moments.values())) == 1
    assert moments[SegmentID(2)] > plus_ms(before, LEAD_MS)
    await bench.coord.stop()


async def test_it_stays_through_another_index_a_restarted_node_and_a_new_coordinator() -> None:
    bench, moments = await importing()
    bench.index.defined.append(index())
    bench.add_file(imported(2))
    await asyncio.sleep(1)
    assert (last(bench).online, last(bench).visible_from) == ((2,), {2: moments[SegmentID(2)]})
    bench.node.restart()
    await asyncio.sleep(3)
    assert (last(bench).online, last(bench).visible_from) == ((1, 2, 3), moments)
    await bench.coord.stop()
    bench.node.restart()
    await bench.start()
    await asyncio.sleep(3)
    assert (last(bench).online, last(bench).visible_from) == ((1, 2, 3), moments)
    await bench.coord.stop()


async def test_what_was_there_before_a_load_counts_from_its_commit() -> None:
    bench = await serving(imported(2), imported(3, OTHER), partition_ids=(DEFAULT,))
    await bench.coord.load(CID, (OTHER,), 1)
    await asyncio.sleep(1)
    announced = [(change.online, dict(change.visible_from)) for change in bench.node.calls.of("announce")]
    assert announced == [((2,), {}), ((3,), {})]
    bench.set_data(recovery(TWO_PARTITIONS, imported(2), imported(3, OTHER), imported(4, OTHER)))
    await asyncio.sleep(1)
    assert set(last(bench).visible_from) == {4}, "by now that partition is read"
    await bench.coord.stop()


async def test_a_partition_that_is_loaded_again_counts_from_the_commit() -> None:
    bench = await serving(partition_ids=(DEFAULT, OTHER))
    bench.set_data(recovery(TWO_PARTITIONS, imported(2)))
    await asyncio.sleep(1)
    await bench.coord.release(CID, (DEFAULT,))
    await asyncio.sleep(1)
    await bench.coord.load(CID, (DEFAULT,), 1)
    await asyncio.sleep(1)
    assert (last(bench).online, last(bench).visible_from) == ((2,), {})
    await bench.coord.stop()


async def test_a_version_that_arrived_keeps_its_moment_though_its_answer_was_lost() -> None:
    bench = await serving(manifest(1))
    bench.node.loses_answers = True
    bench.set_data(recovery(TWO_PARTITIONS, manifest(1), imported(2)))
    await asyncio.sleep(0.2)
    kept = last(bench).visible_from
    await bench.coord.stop()
    bench.node.loses_answers = False
    await bench.start()
    await asyncio.sleep(2)
    (record,) = await LoadState(bench.meta).replicas(CID)
    assert kept
    assert record.info.visible_from == kept
    assert record.stamps == {}
    await bench.coord.stop()


async def test_what_compaction_made_of_an_import_takes_its_moment_over() -> None:
    bench, moments = await importing()
    output = replace(manifest(9), parents=(SegmentID(1), SegmentID(2)))
    compacted = recovery(TWO_PARTITIONS, output, imported(3))
    heirs = {SegmentID(1): SegmentID(9), SegmentID(2): SegmentID(9)}
    bench.set_data(replace(compacted, successors=heirs))
    await asyncio.sleep(1)
    assert (last(bench).online, last(bench).visible_from) == ((9,), {9: moments[SegmentID(2)]})
    (record,) = await LoadState(bench.meta).replicas(CID)
    assert record.info.visible_from == {9: moments[SegmentID(2)], 3: moments[SegmentID(3)]}
    await bench.coord.stop()
