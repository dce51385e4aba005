"""Imported segments: their rows count from the commit, and join a collection in one step for good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from channel_world import A, B, Cluster
from channel_world import scenario as on_channels
from insert_log_files import write_insert_log
from node_rows import Row
from node_world import COLLECTION, VCHANNEL, Segment, World, scenario

from elanus.core.errors import TimestampTooOld
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode.pack_absorber import PackAbsorber
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns

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
    segments = [imported(world, 50, [1, 2], commit_ts), imported(world, 51, [3], commit_ts)]
    await world.hand_off(segments, visible_from=world.stamp())
    assert [s.visible for s in (await world.node.status()).segments if s.sealed] == [False, False]
    after = await world.stamp_and_tick()
    assert [s.visible for s in (await world.node.status()).segments if s.sealed] == [True, True]
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
    unseen = await world.stamp_and_tick()
    moment = world.stamp()
    await world.hand_off([segment_id], visible_from=moment)
    seen = await world.stamp_and_tick()
    world.build_index(segment_id)
    await world.hand_off([segment_id], visible_from=moment)
    assert (world.keys(ts=unseen), world.keys(ts=seen)) == ([], [1, 2])


@scenario()
async def test_a_collection_that_is_loaded_later_has_them_from_their_commit_on(world: World) -> None:
    before = await world.stamp_and_tick()
    imported(world, 50, [1, 2], world.stamp())
    since = await world.stamp_and_tick()
    await world.restart()
    await world.stamp_and_tick()
    assert (world.keys(ts=before), world.keys(ts=since)) == ([], [1, 2])


@scenario(partitions=(1,))
async def test_a_partition_that_is_loaded_again_has_them_at_once(world: World) -> None:
    """The node goes by what the version says, not by what it has served itself."""
    segment_id = imported(world, 50, [1, 2], world.stamp())
    await world.hand_off([segment_id], visible_from=world.stamp())
    seen = await world.stamp_and_tick()
    await world.node.load_collection(world.load_request((1, 2)))
    await world.node.watch_vchannel(world.watch_request())
    await world.node.set_partitions(COLLECTION, (PartitionID(2),))
    await world.node.load_collection(world.load_request((1, 2)))
    await world.node.watch_vchannel(world.watch_request())
    await world.hand_off([segment_id])
    await world.node.set_partitions(COLLECTION, (PartitionID(1), PartitionID(2)))
    assert world.keys(ts=seen) == world.keys(ts=world.node.service_time(COLLECTION)) == [1, 2]


@scenario()
async def test_what_compaction_made_of_them_refuses_reads_that_would_see_a_part(world: World) -> None:
    await world.insert([(9, 9)])
    world.seal()
    await world.tick()
    (old,) = world.flush()
    await world.hand_off([old])
    young = imported(world, 50, [1, 2], world.stamp())
    before = await world.stamp_and_tick()
    moment = world.stamp()
    await world.hand_off([young], visible_from=moment)
    after = await world.stamp_and_tick()
    await world.hand_off([world.compact([old, young])], [old, young], visible_from=moment)
    assert world.keys(ts=after) == [1, 2, 9]
    with pytest.raises(TimestampTooOld, match=f"up to {moment}: read a later moment"):
        world.keys(ts=before)


@on_channels
async def test_a_segment_that_moves_counts_from_where_it_counted_before(cluster: Cluster) -> None:
    segment_id = imported(cluster, 50, [1, 2, 3], cluster.stamp())
    unseen = await cluster.stamp_and_tick()
    cluster.visible_from[segment_id] = Timestamp(cluster.stamp())
    await cluster.load(A, [segment_id])
    await cluster.place({segment_id: A})
    seen = await cluster.stamp_and_tick()
    assert [await counted(cluster, ts) for ts in (unseen, seen)] == [0, 3]
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.stamp_and_tick()
    assert [await counted(cluster, ts) for ts in (unseen, seen)] == [0, 3]


@on_channels
async def test_nodes_at_different_ticks_show_an_import_from_one_moment_on(cluster: Cluster) -> None:
    commit_ts = cluster.stamp()
    first, second = imported(cluster, 50, [1, 2], commit_ts), imported(cluster, 51, [3], commit_ts)
    await cluster.load(A, [first])
    await cluster.load(B, [second])
    await cluster.stamp_and_tick()
    collection = cluster.nodes[B]._collections[COLLECTION]
    follower = collection.channels[VCHANNEL].follower
    assert follower is not None
    with patch.object(follower, "_held", (follower.tick, follower.position)):  # B applies something for long
        ahead = await cluster.stamp_and_tick()
        moment = cluster.stamp()
        cluster.visible_from = dict.fromkeys((first, second), Timestamp(moment))
        await cluster.place({first: A, second: B})
        early = asyncio.create_task(counted(cluster, ahead))
        await asyncio.sleep(0)
    PackAbsorber(collection).absorbed(follower)
    assert await early == 0
    await cluster.tick()
    assert [await counted(cluster, ts) for ts in (ahead, moment)] == [0, 3]


@on_channels
async def test_a_node_that_joins_a_channel_gets_the_moments_in_force(cluster: Cluster) -> None:
    segment_id = imported(cluster, 50, [1, 2, 3], cluster.stamp())
    unseen = await cluster.stamp_and_tick()
    cluster.visible_from[segment_id] = Timestamp(cluster.stamp())
    await cluster.load(A, [segment_id])
    await cluster.place({segment_id: A})
    await cluster.stamp_and_tick()
    cluster.version += 1
    cluster.sealed[segment_id] = B
    cluster.channel = "query-2"
    await cluster.channels.create(cluster.channel)
    await cluster.load(B, [segment_id])
    for node in cluster.nodes.values():
        await node.add_query_channel(cluster.info())
    await cluster.channels.remove("query-1")
    assert [await counted(cluster, ts) for ts in (unseen, cluster.tick_ts)] == [0, 3]


async def counted(cluster: Cluster, ts: int) -> int:
    return await asyncio.to_thread(cluster.proxy.count, cluster.node_query(ts=ts), Patience(5.0))
