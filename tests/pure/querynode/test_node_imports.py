"""Imported segments: their rows count from the commit, and join a collection in one step for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from node_rows import Row
from node_world import COLLECTION, VCHANNEL, Segment, World, scenario

from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns, write_insert_log

WRITTEN = Timestamp(2)
"""The timestamp in the files: older than everything."""


def imported(world: World, number: int, keys: Sequence[int], commit_ts: int) -> SegmentID:
    """A segment that an import has committed."""
    segment_id = SegmentID(number)
    key = SegmentKey(COLLECTION, PartitionID(1), segment_id, VCHANNEL)
    batch = world.batch([Row(world.key(k), k, 1, WRITTEN) for k in keys])
    rows = with_system_columns(batch, 0, WRITTEN, insert_log_schema(world.schema, key))
    path = f"insert_log/{segment_id}/a.parquet"
    file = write_insert_log(world.store, path, world.schema, key, [rows], world.scratch)
    file = replace(file, ts_min=Timestamp(commit_ts), ts_max=Timestamp(commit_ts))
    manifest = SegmentManifest(
        segment_id,
        COLLECTION,
        PartitionID(1),
        VCHANNEL,
        (file,),
        (),
        deletes_from=Timestamp(commit_ts),
        commit_ts=Timestamp(commit_ts),
    )
    world.segments[segment_id] = Segment(manifest, flushed=True)
    return segment_id


@scenario()
async def test_deletes_before_the_commit_spare_the_rows_and_later_ones_hit_them(world: World) -> None:
    await world.delete([1])
    commit_ts = world.stamp()
    await world.delete([2])
    await world.tick()
    await world.hand_off([imported(world, 50, [1, 2, 3], commit_ts)])
    await world.stamp_and_tick()
    assert world.keys() == [1, 3]
    await world.delete([3])
    await world.tick()
    assert world.keys() == [1]


@scenario()
async def test_deletes_in_delta_logs_are_held_against_the_commit_too(world: World) -> None:
    await world.delete([1])
    commit_ts = world.stamp()
    await world.delete([2])
    await world.tick()
    world.flush()
    await world.hand_off([imported(world, 50, [1, 2, 3], commit_ts)])
    await world.stamp_and_tick()
    assert world.keys() == [1, 3]


@scenario()
async def test_a_read_at_an_earlier_moment_never_sees_them(world: World) -> None:
    await world.insert([(9, 9)])
    before = await world.tick()
    commit_ts = world.stamp()
    between = await world.stamp_and_tick()
    assert world.keys(ts=between) == [9]
    await world.hand_off([imported(world, 50, [1, 2], commit_ts), imported(world, 51, [3], commit_ts)])
    after = await world.stamp_and_tick()
    assert world.keys(ts=before) == [9]
    assert world.keys(ts=between) == [9], "a read that was answered without them is answered so again"
    assert world.keys(ts=after) == [1, 2, 3, 9]


@scenario()
async def test_reads_that_began_before_an_import_go_on(world: World) -> None:
    """An iterator's later pages, a read of the past, a weak read before the next tick."""
    await world.insert([(9, 9)])
    before = await world.tick()
    await world.hand_off([imported(world, 50, [1, 2], world.stamp())])
    assert world.keys(ts=before) == [9]
    assert world.keys(ts=world.node.service_time(COLLECTION)) == [9]
    await world.stamp_and_tick()
    assert world.keys(ts=before) == [9]


@scenario()
async def test_another_copy_of_the_segment_does_not_hide_it_again(world: World) -> None:
    segment_id = imported(world, 50, [1, 2], world.stamp())
    await world.hand_off([segment_id])
    seen = await world.stamp_and_tick()
    world.build_index(segment_id)
    await world.hand_off([segment_id])
    assert world.keys(ts=seen) == [1, 2]


@scenario()
async def test_a_collection_that_is_loaded_later_has_them_from_their_commit_on(world: World) -> None:
    before = await world.stamp_and_tick()
    imported(world, 50, [1, 2], world.stamp())
    since = await world.stamp_and_tick()
    await world.restart()
    await world.stamp_and_tick()
    assert (world.keys(ts=before), world.keys(ts=since)) == ([], [1, 2])
