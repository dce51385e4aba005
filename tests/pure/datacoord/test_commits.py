"""A range is committed as a whole, once, by its vchannel's owner; refused, it has changed nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import COMMIT_DEADLINE_S, Bench, moved
from fakes import CID, DEFAULT, OTHER, binlog, checkpoint, collection, schema, settle

from elanus.core.attempts import NO_ATTEMPT
from elanus.core.errors import CollectionNotFound, CommitRefused
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.segments import SegmentState
from elanus.core.timestamps import compose

S = SegmentState


async def unchanged(bench: Bench, attempt: Callable[[], Awaitable[object]]) -> None:
    """It is refused, and nothing that is persisted has changed."""
    before = await bench.snapshot()
    with pytest.raises(CommitRefused):
        await attempt()
    assert await bench.snapshot() == before


async def flushing(bench: Bench) -> SegmentID:
    """A segment of 100 rows whose flush has been ordered."""
    await bench.watched()
    segment = await bench.write(100)
    await bench.coord.flush(CID)
    await bench.report({segment: 100})
    assert (await bench.segment(segment)).state is S.FLUSHING
    return segment


async def test_a_commit_moves_checkpoint_files_and_state_together(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    changes = await bench.coord.wait_change(0, 0)
    made = await bench.commit({segment: 100}, flushed=[segment], delta=binlog("delta_log/1"))
    recovery = await bench.coord.recovery_info(CID)
    (vchannel,) = recovery.vchannels
    assert (vchannel.checkpoint, [d.file.path for d in vchannel.delta_logs]) == (made, ["delta_log/1"])
    (manifest,) = recovery.flushed
    assert (manifest.segment_id, manifest.rows, len(manifest.stats_logs)) == (segment, 100, 1)
    info = await bench.segment(segment)
    assert (info.state, info.rows, info.size_bytes) == (S.FLUSHED, 100, 10_000)
    assert await bench.coord.wait_change(changes, 0) != changes
    await bench.coord.stop()


async def test_ranges_add_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    one, two = await bench.write(600), await bench.write(600)
    await bench.commit({one: 10, two: 20}, delta=binlog("delta_log/1"))
    await bench.commit({two: 5})
    await bench.commit({one: 1}, delta=binlog("delta_log/2"))
    recovery = await bench.coord.recovery_info(CID)
    (vchannel,) = recovery.vchannels
    assert {m.segment_id: [f.rows for f in m.insert_logs] for m in vchannel.growing} == {
        one: [10, 1],
        two: [20, 5],
    }
    assert [d.file.path for d in vchannel.delta_logs] == ["delta_log/1", "delta_log/2"]
    assert recovery.flushed == ()
    await bench.coord.stop()


async def test_an_empty_range_moves_the_checkpoint_alone_and_wakes_nobody(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    changes = await bench.coord.wait_change(0, 0)
    made = await bench.commit()
    assert await bench.coord.wait_change(changes, 0) == changes, "every loader would look for nothing"
    assert await bench.recovery() == made
    assert await bench.commit(checkpoint=made) == made, "it may stand still"
    await bench.coord.stop()


Wrong = Callable[[Bench, SegmentID], Awaitable[object]]


async def earlier_epoch(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1}, epoch=bench.epoch - 1)


async def after_a_new_node(bench: Bench, segment: SegmentID) -> None:
    old = bench.epoch
    await bench.register()
    await bench.commit({segment: 1}, epoch=old)


async def from_another_checkpoint(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1}, expected=moved(await bench.recovery(), -1))


async def from_the_same_time_but_another_place(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1}, expected=replace(await bench.recovery(), position=4711))


async def ending_before_it_begins(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1}, checkpoint=checkpoint(0))


async def flushing_before_the_seal(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1}, [segment], checkpoint=checkpoint(50_000))


async def flushing_a_growing_segment(bench: Bench, segment: SegmentID) -> None:
    growing = await bench.write(5)
    await bench.commit({segment: 1, growing: 5}, flushed=[segment, growing])


async def with_a_segment_nobody_knows(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1, SegmentID(4711): 5}, flushed=[segment])


async def flushing_a_segment_nobody_knows(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1}, flushed=[segment, SegmentID(4711)])


async def with_another_vchannels_segment(bench: Bench, segment: SegmentID) -> None:
    other = await bench.write(5, vchannel=bench.collections[0].vchannels[1])
    await bench.commit({segment: 1, other: 5}, flushed=[segment])


async def of_a_vchannel_nobody_knows(bench: Bench, segment: SegmentID) -> None:
    await bench.commit({segment: 1}, vchannel="dml_0_9v9", expected=checkpoint(1))


@pytest.mark.parametrize(
    "wrong",
    [
        earlier_epoch,
        after_a_new_node,
        from_another_checkpoint,
        from_the_same_time_but_another_place,
        ending_before_it_begins,
        flushing_before_the_seal,
        flushing_a_growing_segment,
        with_a_segment_nobody_knows,
        flushing_a_segment_nobody_knows,
        with_another_vchannels_segment,
        of_a_vchannel_nobody_knows,
    ],
)
async def test_a_commit_that_is_not_what_it_should_be_changes_nothing(tmp_path: Path, wrong: Wrong) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    segment = await flushing(bench)
    files = {o.path for o in bench.store.list("")}
    with pytest.raises(CommitRefused):
        await wrong(bench, segment)
    info = await bench.segment(segment)
    assert info.state in (S.FLUSHING, S.SEALED)
    assert (info.manifest, await bench.recovery()) == ("", checkpoint(1))
    assert {o.path for o in bench.store.list("")} == files, "not even a file that nobody would name"
    await bench.coord.stop()


async def test_a_job_that_ran_twice_commits_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    began = await bench.recovery()
    await bench.commit({segment: 100}, flushed=[segment])
    before = await bench.snapshot()
    with pytest.raises(CommitRefused):
        await bench.commit({segment: 100}, flushed=[segment], expected=began)
    assert await bench.snapshot() == before
    await bench.coord.stop()


async def test_a_flushed_segment_takes_no_more_rows(tmp_path: Path) -> None:
    """Readers hold it, and its index, as it is."""
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    await bench.commit({segment: 100}, flushed=[segment])
    before = await bench.snapshot()
    with pytest.raises(CommitRefused, match="is FLUSHED"):
        await bench.commit({segment: 1})
    assert await bench.snapshot() == before
    await bench.coord.stop()


async def test_what_comes_of_a_dropped_partition_is_ignored(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(partitions=(DEFAULT, OTHER)))
    await bench.watched()
    gone, kept = await bench.write(10, OTHER), await bench.write(10)
    await bench.coord.flush(CID)
    await bench.report({gone: 10, kept: 10})
    await bench.coord.drop_partition(CID, OTHER)
    made = await bench.commit({gone: 10, kept: 10}, flushed=[gone, kept])
    infos = {s: await bench.segment(s) for s in (gone, kept)}
    assert [(i.state, i.rows) for i in infos.values()] == [(S.DROPPED, 0), (S.FLUSHED, 10)]
    recovery = await bench.coord.recovery_info(CID)
    assert [m.segment_id for m in recovery.flushed] == [kept]
    assert recovery.vchannels[0].checkpoint == made
    await bench.coord.stop()


async def test_two_coordinators_cannot_both_commit(tmp_path: Path) -> None:
    """One that was replaced, and does not know it yet, changes nothing."""
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    old, epoch, began = bench.coord, bench.epoch, await bench.recovery()
    await bench.start()
    await bench.register()
    await bench.commit({segment: 100})
    before = await bench.snapshot()
    new, bench.coord, bench.epoch = bench.coord, old, epoch
    with pytest.raises(CommitRefused, match="another coordinator"):
        await bench.commit({segment: 100}, expected=began)
    assert await bench.snapshot() == before
    await old.stop()
    await new.stop()


async def test_a_commit_waits_until_the_log_has_what_lies_behind_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    seen = []

    async def sync(pchannel: str) -> int:
        seen.append((pchannel, await bench.recovery()))
        return 0

    bench.log.sync = sync  # type: ignore[method-assign,assignment]
    await bench.commit({segment: 100}, flushed=[segment])
    assert seen == [("by-dev-rootcoord-dml_0", checkpoint(1))]
    await bench.coord.stop()


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    growing = await bench.write(5)
    await bench.commit({segment: 100, growing: 5}, flushed=[segment], delta=binlog("delta_log/1"))
    before = await bench.coord.recovery_info(CID)
    await bench.restart()
    assert await bench.coord.recovery_info(CID) == before
    assert [s.segment_id for s in await bench.coord.segments(CID)] == [segment, growing]
    (assignment,) = await bench.register()
    assert assignment.checkpoint == before.vchannels[0].checkpoint
    await bench.commit({growing: 1}, delta=binlog("delta_log/2"))
    (vchannel,) = (await bench.coord.recovery_info(CID)).vchannels
    assert [f.rows for f in vchannel.growing[0].insert_logs] == [5, 1]
    assert [d.file.path for d in vchannel.delta_logs] == ["delta_log/1", "delta_log/2"]
    await bench.coord.stop()


# the recovery info of readers


async def test_a_reader_gets_each_row_once_at_every_moment(tmp_path: Path) -> None:
    """In a flushed segment, in a growing one's binlogs, or behind the checkpoint."""
    bench = Bench(tmp_path)
    old = await flushing(bench)
    new = await bench.write(900)
    committed = {old: 0, new: 0}
    for output, flushed in (({old: 40, new: 7}, []), ({old: 60}, []), ({new: 1}, [old]), ({new: 2}, [])):
        await bench.commit(output, flushed)
        for segment, rows in output.items():
            committed[segment] += rows
        recovery = await bench.coord.recovery_info(CID)
        growing = {m.segment_id: m.rows for v in recovery.vchannels for m in v.growing}
        sealed = {m.segment_id: m.rows for m in recovery.flushed}
        assert not growing.keys() & sealed.keys()
        assert growing | sealed == committed
    assert set(sealed) == {old}
    await bench.coord.stop()


async def test_segments_dropped_behind_the_checkpoint_are_excluded_until_it_has_passed(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, collection(partitions=(DEFAULT, OTHER)))
    await bench.watched()
    gone = await bench.write(10, OTHER)
    await bench.coord.drop_partition(CID, OTHER)
    assert (await bench.coord.recovery_info(CID)).vchannels[0].excluded == (gone,)
    await bench.commit()
    assert (await bench.coord.recovery_info(CID)).vchannels[0].excluded == ()
    await bench.coord.stop()


# the end of a collection


async def test_a_collection_ends_when_its_data_node_has_read_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    segment = await flushing(bench)
    coord = bench.coord
    await coord.drop_collection(CID)
    with pytest.raises(CollectionNotFound):
        await coord.recovery_info(CID)
    for vchannel in bench.collections[0].vchannels:
        assert await coord.holds_channels(CID)
        await coord.channel_dropped(bench.epoch, vchannel)
        await coord.channel_dropped(bench.epoch, vchannel)  # said twice
    assert not await coord.holds_channels(CID)
    info = await bench.segment(segment)
    assert info.state is S.DROPPED
    assert info.dropped > compose(100_000)
    with pytest.raises(CommitRefused, match="is dropped"):
        await bench.commit({segment: 100}, expected=checkpoint(1))
    await bench.restart()
    assert not await bench.coord.holds_channels(CID)
    assert (await bench.segment(segment)).state is S.DROPPED
    await bench.coord.stop()


async def test_only_the_owner_may_say_that_a_channel_has_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    with pytest.raises(CommitRefused):
        await bench.coord.channel_dropped(bench.epoch - 1, bench.vchannel)
    with pytest.raises(CommitRefused):
        await bench.coord.report_ticks(bench.epoch - 1, ())
    assert await bench.coord.holds_channels(CID)
    await bench.coord.stop()


async def test_a_drop_outlives_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    await bench.coord.drop_collection(CID)
    await bench.restart()
    await bench.coord.watch_channels(bench.collections[0])  # said again by rootcoord
    with pytest.raises(CollectionNotFound):
        await bench.coord.recovery_info(CID)
    assert [c.vchannel for c in await bench.register()] == [bench.vchannel], "its end is still to be read"
    await bench.coord.stop()


async def test_dropping_a_partition_leaves_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(partitions=(DEFAULT, OTHER)))
    await bench.watched()
    segments = {p: await bench.write(10, p) for p in (DEFAULT, OTHER)}
    await bench.coord.drop_partition(CID, OTHER)
    assert (await bench.segment(segments[DEFAULT])).state is S.GROWING
    assert (await bench.segment(segments[OTHER])).state is S.DROPPED
    await bench.coord.stop()


# the data node


async def test_a_node_gets_the_vchannels_of_collections_made_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    assert await bench.register() == ()
    await bench.coord.watch_channels(bench.collections[0])
    await bench.coord.watch_channels(bench.collections[0])
    await settle()
    assert bench.node.calls.of("watch_channels") == [(bench.vchannel,)]
    await bench.coord.stop()


async def test_collections_are_kept_apart(tmp_path: Path) -> None:
    other = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path, collection(), other)
    await bench.watched()
    mine = await bench.write(10)
    theirs = await bench.write(10, other.partitions[0].partition_id, other.vchannels[0], other.collection_id)
    await bench.coord.flush(CID)
    assert (await bench.segment(theirs)).state is S.GROWING
    assert [s.segment_id for s in await bench.coord.segments(CID)] == [mine]
    assert len(await bench.coord.segments(CollectionID(0))) == 2
    await bench.coord.stop()


# attempts


async def test_files_are_committed_by_an_open_attempt_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    await unchanged(bench, lambda: bench.commit({segment: 100}, attempt=NO_ATTEMPT))
    await unchanged(bench, lambda: bench.commit({segment: 100}, attempt=12345))
    attempt = await bench.coord.open_attempts(bench.epoch, 1)
    await bench.commit({segment: 100}, flushed=[segment], attempt=attempt)
    (manifest,) = (await bench.coord.recovery_info(CID)).flushed
    assert manifest.rows == 100
    await bench.coord.stop()


async def test_a_commit_after_its_deadline_is_refused(tmp_path: Path) -> None:
    """Its files may have been collected as garbage by then."""
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    attempt = await bench.coord.open_attempts(bench.epoch, 1)
    await asyncio.sleep(COMMIT_DEADLINE_S + 1)
    await unchanged(bench, lambda: bench.commit({segment: 100}, attempt=attempt))
    await bench.coord.stop()


async def test_a_commit_that_was_answered_ends_its_attempt(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    attempt = await bench.coord.open_attempts(bench.epoch, 1)
    wrong = moved(await bench.recovery(), 5)
    await unchanged(bench, lambda: bench.commit({segment: 100}, expected=wrong, attempt=attempt))
    await unchanged(bench, lambda: bench.commit({segment: 100}, attempt=attempt))
    await bench.coord.stop()


async def test_a_new_owner_ends_the_attempts_of_the_old_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await flushing(bench)
    attempt = await bench.coord.open_attempts(bench.epoch, 1)
    old = bench.epoch
    await bench.register()
    with pytest.raises(CommitRefused):
        await bench.coord.open_attempts(old, 1)
    await unchanged(bench, lambda: bench.commit({segment: 100}, attempt=attempt))
    await bench.coord.stop()


# the end of a collection


async def test_a_creation_that_arrives_after_the_drop_revives_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (dropped,) = bench.collections
    await bench.watched()
    bench.root.collections.clear()
    await bench.coord.drop_collection(CID)
    await bench.coord.channel_dropped(bench.epoch, bench.vchannel)
    for _ in range(2):
        await bench.coord.watch_channels(dropped)
        assert await bench.register() == ()
        assert not await bench.coord.holds_channels(CID)
        await bench.restart()


async def test_a_drop_before_the_creation_arrived_revives_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (dropped,) = bench.collections
    await bench.start()
    bench.root.collections.clear()
    await bench.coord.drop_collection(CID)
    await bench.coord.watch_channels(dropped)
    assert await bench.register() == ()
    await bench.coord.stop()


async def test_an_empty_live_vchannel_is_recovered_a_dropped_one_is_not(tmp_path: Path) -> None:
    empty = collection(collection_id=CollectionID(500))
    bench = Bench(tmp_path, collection(), empty)
    await bench.watched()
    segment = await bench.write(10)
    await bench.coord.channel_dropped(bench.epoch, bench.vchannel)
    assert (await bench.segment(segment)).state is S.DROPPED
    await bench.restart()
    assert [a.vchannel for a in await bench.register()] == list(empty.vchannels)
    await bench.coord.stop()
