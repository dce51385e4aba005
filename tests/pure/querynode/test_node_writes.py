"""Writes that delete: reads see new rows and deletes from one moment on, wherever the old rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from node_world import COLLECTION, VCHANNEL, World, scenario
from test_node_imports import imported

from elanus.api.querynode import SealedSegmentsChange
from elanus.core.errors import NotReady, TimestampTooOld
from elanus.core.ids import ALL_PARTITIONS, SegmentID
from elanus.core.segments import DeltaLog
from elanus.core.timestamps import Timestamp
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer


def deletes(world: World, keys: Sequence[int], commit_ts: int) -> DeltaLog:
    """A delta log that a write has committed: in the file its deletes have another timestamp."""
    schema = delta_log_schema(world.schema.primary_field, COLLECTION, VCHANNEL)

    path = f"delta_log/write-{commit_ts}.parquet"
    with delta_log_writer(world.store, path, schema, world.scratch) as writer:
        writer.write(delete_rows(pa.array(keys), Timestamp(2), ALL_PARTITIONS, schema))
        file = writer.finish()
    return DeltaLog(VCHANNEL, replace(file, ts_min=Timestamp(commit_ts), ts_max=Timestamp(commit_ts)))


async def serve(world: World, log: DeltaLog, segments: Sequence[SegmentID], moment: int) -> None:
    """The version that brings a write online, as querycoord announces it."""
    await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))
    for segment_id in segments:
        await world.node.load_segment(world.segment_request(segment_id))
    world.version += 1
    change = SealedSegmentsChange(
        COLLECTION,
        world.version,
        tuple(segments),
        (),
        visible_from=dict.fromkeys(segments, Timestamp(moment)),
        deletes={log.file.path: Timestamp(moment)},
    )
    await world.node.announce(change)


@scenario()
async def test_all_of_an_upsert_is_seen_from_its_moment_on(world: World) -> None:
    """Keys 1 and 2 are in a sealed segment, 3 and 4 are growing, 5 is new."""
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    world.seal()
    await world.hand_off(world.flush())
    await world.insert([(3, 30), (4, 40)])
    await world.tick()
    commit_ts = world.stamp()
    await world.insert([(4, 44)])  # a later write of a client wins
    between = await world.stamp_and_tick()
    moment = world.stamp() + 5
    await serve(
        world, deletes(world, [1, 3, 4, 5], commit_ts), [imported(world, 50, [1, 3, 5], commit_ts)], moment
    )
    assert sorted(world.node.query(world.node_query(ts=between))["value"].to_pylist()) == [10, 20, 30, 44]
    world.now = moment
    await world.tick()
    assert sorted(world.node.query(world.node_query())["value"].to_pylist()) == [1, 3, 5, 20, 44]
    assert sorted(world.node.query(world.node_query(ts=between))["value"].to_pylist()) == [10, 20, 30, 44]


@scenario()
async def test_rows_that_are_read_from_the_log_after_the_version_are_deleted_too(world: World) -> None:
    await world.insert([(1, 10)])
    await world.tick()
    early = world.stamp()
    commit_ts = world.stamp()
    await serve(world, deletes(world, [1, 2], commit_ts), [], commit_ts + 5)
    await world.insert([(2, 20)], ts=early)
    await world.insert([(3, 30)])
    world.now = commit_ts + 5
    await world.tick()
    assert world.keys() == [3]


@scenario()
async def test_a_node_that_lags_keeps_the_deletes_until_it_has_read_the_rows(world: World) -> None:
    """The data node is ahead: the checkpoint has passed the commit, and rows that are yet to be read here."""
    await world.insert([(1, 10)])
    await world.tick()
    early = world.stamp()
    commit_ts = world.stamp()
    await serve(world, deletes(world, [1, 2], commit_ts), [], commit_ts + 5)
    await world.node.forget_deletes(COLLECTION, VCHANNEL, Timestamp(commit_ts + 1))
    await world.insert([(2, 20)], ts=early)
    await world.insert([(3, 30)])
    world.now = commit_ts + 5
    await world.tick()
    assert world.keys() == [3]


@scenario()
async def test_a_segment_that_was_asked_for_before_the_version_gets_the_deletes(world: World) -> None:
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    world.seal()
    (segment,) = world.flush()
    asked = world.segment_request(segment)
    commit_ts = world.stamp()
    await serve(world, deletes(world, [1], commit_ts), [], commit_ts + 5)
    world.now = commit_ts + 5
    await world.tick()
    assert world.keys() == [2]
    await world.node.load_segment(asked)
    await world.announce([segment])
    assert world.keys() == [2], "the sealed copy has the delete as the growing one had"


@scenario()
async def test_deletes_that_are_unserved_elsewhere_are_kept_for_what_lacks_them(world: World) -> None:
    """This node serves them, another one does not yet: a load that was requested meanwhile lacks them."""
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    world.seal()
    (segment,) = world.flush()
    asked = world.segment_request(segment)
    commit_ts = world.stamp()
    log = deletes(world, [1], commit_ts)
    await serve(world, log, [], commit_ts + 5)
    world.now = commit_ts + 5
    await world.tick()
    await world.node.forget_deletes(COLLECTION, VCHANNEL, Timestamp(commit_ts + 1))
    newer = replace(asked.checkpoint, ts=Timestamp(commit_ts + 1))
    await world.node.load_segment(replace(asked, checkpoint=newer, unserved=(log.file.path,)))
    await world.announce([segment])
    assert world.keys() == [2]


async def served_by_others(world: World, log: DeltaLog, commit_ts: int, moment: int) -> None:
    """Other nodes have served the write: the next round of the coordinator reads a target that says so."""
    world.delta_logs = (*world.delta_logs, log)
    world.moments = {Timestamp(commit_ts): Timestamp(moment)}
    await world.node.watch_vchannel(world.watch_request())


@pytest.mark.parametrize("moment", [0, 5])
def test_a_node_that_serves_nothing_yet_gets_the_deletes_that_others_serve(tmp_path, moment: int) -> None:  # type: ignore[no-untyped-def]
    """It has loaded a segment and growing rows while the write was unserved; then the round failed."""

    @scenario()
    async def play(world: World) -> None:
        await world.insert([(1, 10), (2, 20)])
        await world.tick()
        world.seal()
        (segment,) = world.flush()
        await world.insert([(3, 30), (4, 40)])
        commit_ts = world.stamp()
        log = deletes(world, [1, 3], commit_ts)
        await world.stamp_and_tick()
        await world.node.release_collection(COLLECTION)
        await world.node.load_collection(world.load_request())
        await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))
        await world.node.load_segment(replace(world.segment_request(segment), unserved=(log.file.path,)))
        await served_by_others(world, log, commit_ts, moment and commit_ts + moment)
        await world.announce([segment])
        world.now = commit_ts + 5
        await world.tick()
        assert world.keys() == [2, 4]

    play(tmp_path)


async def busy(world: World) -> tuple[DeltaLog, int]:
    """A node that serves keys 1 and 2 sealed, 5 and 6 growing, and a write that deletes 1 and 5."""
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    world.seal()
    await world.hand_off(world.flush())
    await world.insert([(5, 50), (6, 60)])
    await world.tick()
    commit_ts = world.stamp()
    log = deletes(world, [1, 5], commit_ts)
    await world.stamp_and_tick()
    return log, commit_ts


@scenario()
async def test_a_mirror_that_was_busy_meanwhile_gets_the_deletes(world: World) -> None:
    log, commit_ts = await busy(world)
    await served_by_others(world, log, commit_ts, commit_ts + 5)
    await world.hand_off([imported(world, 50, [9], commit_ts)])
    world.now = commit_ts + 5
    await world.tick()
    assert world.keys() == [2, 6, 9]


@scenario()
async def test_deletes_are_found_in_a_file_that_compaction_has_merged_meanwhile(world: World) -> None:
    log, commit_ts = await busy(world)
    schema = delta_log_schema(world.schema.primary_field, COLLECTION, VCHANNEL)
    with delta_log_writer(world.store, "delta_log/merged.parquet", schema, world.scratch) as writer:
        writer.write(delete_rows(pa.array([7]), Timestamp(3), ALL_PARTITIONS, schema))
        writer.write(delete_rows(pa.array([1, 5]), Timestamp(commit_ts), ALL_PARTITIONS, schema))
        merged = writer.finish()
    assert (merged.ts_min, merged.ts_max) == (3, commit_ts)
    await served_by_others(world, replace(log, file=merged), commit_ts, commit_ts + 5)
    world.now = commit_ts + 5
    await world.tick()
    assert world.keys() == [2, 6]


@scenario()
async def test_a_version_that_is_taken_after_the_write_was_complete_changes_nothing(world: World) -> None:
    """The node lags: the coordinator announced the deletes, the others have them, and it goes on."""
    log, commit_ts = await busy(world)
    await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))
    await served_by_others(world, log, commit_ts, commit_ts + 5)
    await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))  # a late request
    world.version += 1
    named = {log.file.path: Timestamp(commit_ts + 5)}
    await world.node.announce(SealedSegmentsChange(COLLECTION, world.version, (), (), deletes=named))
    world.now = commit_ts + 5
    await world.tick()
    assert world.keys() == [2, 6]


@scenario()
async def test_an_outdated_request_does_not_bring_deletes_into_effect(world: World) -> None:
    """It was made before the write, and arrives after one that lists its deletes as unserved."""
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    outdated = world.watch_request()
    world.flush()
    commit_ts = world.stamp()
    log = deletes(world, [1], commit_ts)
    await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))
    await world.node.watch_vchannel(outdated)
    await world.stamp_and_tick()
    assert world.keys() == [1, 2]


@scenario()
async def test_an_outdated_request_that_says_served_leaves_it_to_a_later_one(world: World) -> None:
    log, commit_ts = await busy(world)
    outdated = world.watch_request()
    world.flush()
    await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))
    moments = {Timestamp(commit_ts): Timestamp(commit_ts + 5)}
    await world.node.watch_vchannel(replace(outdated, delta_logs=(log,), moments=moments))
    assert world.keys() == [1, 2, 5, 6]
    await served_by_others(world, log, commit_ts, commit_ts + 5)
    world.now = commit_ts + 5
    await world.tick()
    assert world.keys() == [2, 6]


@scenario()
async def test_a_load_that_was_requested_too_long_ago_is_refused(world: World) -> None:
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    world.seal()
    (segment,) = world.flush()
    with pytest.raises(NotReady, match="request it again"):
        await world.node.load_segment(replace(world.segment_request(segment), unserved=("forgotten",)))


@pytest.mark.parametrize("is_read_later", [False, True])
def test_a_node_that_starts_afresh_deletes_the_same(tmp_path, is_read_later: bool) -> None:  # type: ignore[no-untyped-def]
    """The write is served by then, so its deletes are in what is loaded; rows older than the commit may still
    be in the log alone."""

    @scenario()
    async def play(world: World) -> None:
        await world.insert([(1, 10), (2, 20)])
        await world.tick()
        world.seal()
        if not is_read_later:
            world.flush()
        commit_ts = world.stamp()
        await world.insert([(2, 22)])
        world.delta_logs = (*world.delta_logs, deletes(world, [1, 2], commit_ts))
        await world.restart()
        await world.stamp_and_tick()
        assert world.node.query(world.node_query())["value"].to_pylist() == [22]

    play(tmp_path)


@scenario()
async def test_a_refused_version_changes_nothing(world: World) -> None:
    await world.insert([(1, 10)])
    await world.tick()
    commit_ts = world.stamp()
    log = deletes(world, [1], commit_ts)
    await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))
    change = SealedSegmentsChange(
        COLLECTION, 9, (SegmentID(99),), (), deletes={log.file.path: Timestamp(commit_ts)}
    )
    with pytest.raises(Exception, match="not ready here"):
        await world.node.announce(change)
    await world.stamp_and_tick()
    assert world.keys() == [1]


async def served_upsert(world: World, *, folded: bool = False) -> tuple[Timestamp, Timestamp, SegmentID]:
    """An upsert of key 1 that has been served, and the node starts afresh. Key 2 stays as it was.

    Returns a moment between the commit and that of the upsert, the latter, and the segment of the old rows.
    ``folded``: compaction has folded the delete into it.
    """
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    world.seal()
    (old,) = world.flush()
    commit_ts = Timestamp(world.stamp())
    between = Timestamp(await world.stamp_and_tick())
    moment = Timestamp(world.stamp() + 5)
    new = imported(world, 50, [1], commit_ts)
    world.delta_logs = (*world.delta_logs, deletes(world, [1], commit_ts))
    world.now = moment
    await world.tick()
    world.moments = {commit_ts: moment}
    if folded:
        info = world.segments[old]
        info.manifest = replace(info.manifest, deletes_from=commit_ts)
    await world.restart()
    for segment_id in (old, new):
        await world.node.load_segment(world.segment_request(segment_id))
    world.version += 1
    change = SealedSegmentsChange(COLLECTION, world.version, (old, new), (), visible_from={new: moment})
    await world.node.announce(change)
    return between, moment, old


@scenario()
async def test_a_node_that_loads_a_served_upsert_shows_all_of_it_from_its_moment_on(world: World) -> None:
    """An earlier read is repeated on a node that has loaded the collection since."""
    between, moment, _ = await served_upsert(world)
    assert sorted(world.node.query(world.node_query(ts=between))["value"].to_pylist()) == [10, 20]
    assert sorted(world.node.query(world.node_query(ts=moment))["value"].to_pylist()) == [1, 20]


@scenario()
async def test_what_an_upsert_folded_in_has_deleted_is_not_read_before_its_moment(world: World) -> None:
    between, moment, _ = await served_upsert(world, folded=True)
    with pytest.raises(TimestampTooOld, match="read a later moment"):
        world.node.query(world.node_query(ts=between))
    world.node.query(world.node_query(ts=moment))


@scenario()
async def test_deletes_that_are_followed_by_their_rows_take_effect_from_the_moment_too(world: World) -> None:
    """The write's commit is later than the checkpoint, and an older row is in the log alone."""
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    commit_ts = Timestamp(world.stamp())
    between = await world.stamp_and_tick()
    moment = Timestamp(world.stamp() + 5)
    world.delta_logs = (*world.delta_logs, deletes(world, [1], commit_ts))
    world.now = moment
    await world.tick()
    world.moments = {commit_ts: moment}
    await world.restart()
    assert sorted(world.node.query(world.node_query(ts=between))["value"].to_pylist()) == [10, 20]
    assert world.node.query(world.node_query(ts=moment))["value"].to_pylist() == [20]
