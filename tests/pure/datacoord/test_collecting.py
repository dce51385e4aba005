"""Garbage collection as datacoord leads it: what is in use stays, what was dropped goes in its time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import COMMIT_DEADLINE_S, GC_INTERVAL_S, GC_SETTLE_S, Bench
from fakes import CID, DEFAULT, OTHER, collection

from elanus.api.datacoord import RangeCommit, SegmentOutput
from elanus.api.gc import GcReport, GcState, IndexReferences
from elanus.core.attempts import stamped
from elanus.core.catalog import Checkpoint
from elanus.core.errors import CommitRefused, Unavailable
from elanus.core.gc import Verdict
from elanus.core.ids import BuildID, PartitionID, SegmentID
from elanus.core.path_digests import PathDigests
from elanus.core.segments import BinlogFile, SegmentState
from elanus.core.timestamps import compose, physical_ms
from elanus.storage.paths import (
    DELTA_LOG,
    INDEX_FILES,
    INSERT_LOG,
    MANIFESTS,
    SNAPSHOTS,
    STATS_LOG,
    delta_log_path,
    index_file_path,
    insert_log_path,
    snapshot_path,
    stats_log_path,
)

DROP_S, MISSING_S, RETENTION_S = 3600, 7200, 10_000
LONG_S = MISSING_S + 1


class Store(Bench):
    """A bench with real files, whose age is that of the bench's clock."""

    def files(self, segment: SegmentID, attempt: int, partition: PartitionID = DEFAULT) -> SegmentOutput:
        """Write what a job writes for a segment."""
        insert = insert_log_path(CID, partition, segment, stamped(attempt, "x"))
        stats = stats_log_path(CID, partition, segment, stamped(attempt, "x"))
        self.store.put(insert, b"rows")
        self.store.put(stats, b"keys")
        return SegmentOutput(segment, (self.binlog(insert),), (stats,))

    def delta(self, attempt: int) -> BinlogFile:
        path = delta_log_path(CID, self.vchannel, stamped(attempt, "x"))
        self.store.put(path, b"deletes")
        return self.binlog(path)

    @staticmethod
    def binlog(path: str) -> BinlogFile:
        return BinlogFile(path, 10, 4, compose(1), compose(2))

    async def committed(self, *outputs: SegmentOutput, attempt: int, delta: BinlogFile | None = None) -> None:
        now = self.root.stamp()
        await self.coord.commit_range(
            RangeCommit(
                self.epoch,
                self.vchannel,
                await self.recovery(),
                Checkpoint(now, physical_ms(now), now, 1),
                outputs,
                delta,
                (),
                attempt,
            )
        )

    async def written(self, partition: PartitionID = DEFAULT, *, delta: bool = False) -> SegmentID:
        """A segment with a row in files, and deletes in another file if asked for."""
        segment = await self.write(10, partition)
        attempt = await self.coord.open_attempts(self.epoch, 1)
        output = self.files(segment, attempt, partition)
        await self.committed(output, attempt=attempt, delta=self.delta(attempt) if delta else None)
        return segment

    async def after(self, seconds: float) -> None:
        """Time passes on the clocks of the date; what was written by now is that old then."""
        stamp_s = self.clock.wall_ms() / 1000
        for info in self.store.list(""):
            file = self.store.local_path(info.path, Path())
            if file.stat().st_mtime > stamp_s:
                os.utime(file, (stamp_s, stamp_s))
        self.later(int(seconds * 1000))
        self.clock.step_ms(int(seconds * 1000))

    async def take(self, seconds: float) -> None:
        """Time passes on every clock."""
        await self.after(seconds)
        await asyncio.sleep(seconds)

    async def collect(self, *, delete: bool = True) -> GcReport:
        rounds = (await self.coord.gc_status()).rounds
        await self.coord.collect_garbage(delete)
        for _ in range(60):
            await asyncio.sleep(0.5)
            status = await self.coord.gc_status()
            if status.rounds > rounds and status.last is not None:
                return status.last
        raise AssertionError("the round does not come to its end")

    def left(self, prefix: str = "") -> set[str]:
        return {info.path for info in self.store.list(prefix)}

    def of(self, segment: SegmentID) -> set[str]:
        return {path for path in self.left() if f"/{segment}/" in path}


@asynccontextmanager
async def running(directory: Path, bench: Store | None = None) -> AsyncIterator[Store]:
    bench = bench or Store(directory, collection(partitions=(DEFAULT, OTHER)))
    await bench.watched()
    await bench.take(GC_SETTLE_S)
    yield bench
    await bench.coord.stop()


def objects_by_verdict(report: GcReport) -> dict[Verdict, int]:
    counts: dict[Verdict, int] = {}
    for finding in report.findings:
        counts[finding.verdict] = counts.get(finding.verdict, 0) + finding.objects
    return counts


async def test_files_in_use_are_never_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written(delta=True)
        before = bench.left()
        await bench.after(1_000_000)
        report = await bench.collect()
        assert bench.left() == before
        assert (objects_by_verdict(report), report.error) == ({Verdict.NAMED: 5}, "")
        assert len(bench.of(segment)) == 3


async def test_a_superseded_manifest_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written()
        (first,) = bench.left(MANIFESTS)
        attempt = await bench.coord.open_attempts(bench.epoch, 1)
        await bench.committed(bench.files(segment, attempt), attempt=attempt)
        await bench.after(MISSING_S - 1)
        assert objects_by_verdict(await bench.collect())[Verdict.YOUNG] == 1
        assert first in bench.left()
        await bench.after(2)
        assert objects_by_verdict(await bench.collect())[Verdict.SUPERSEDED] == 1
        assert first not in bench.left()
        (manifest,) = (await bench.coord.recovery_info(CID)).vchannels[0].growing
        assert {f.path for f in manifest.insert_logs} == bench.left(INSERT_LOG)


async def test_files_of_a_dropped_partition_go_after_the_drop_tolerance(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        kept, dropped = await bench.written(), await bench.written(OTHER)
        await bench.coord.drop_partition(CID, OTHER)
        await bench.after(DROP_S - 100)
        report = await bench.collect()
        assert len(bench.of(dropped)) == 3
        (pinned,) = report.pinned
        assert (pinned.segment_id, pinned.bytes, pinned.read_by) == (dropped, 4, "")
        assert pinned.until_ms == pinned.dropped_ms + DROP_S * 1000
        assert (await bench.coord.gc_status()).waiting_bytes == 4
        await bench.after(101)
        report = await bench.collect()
        assert bench.of(dropped) == set()
        assert len(bench.of(kept)) == 3
        assert (report.segments_reclaimed, report.pinned) == (1, ())
        status = await bench.coord.gc_status()
        assert (status.waiting_bytes, status.reclaimed_bytes) == (0, report.reclaimed_bytes)
        assert report.reclaimed_bytes > 8
        info = await bench.segment(dropped)
        assert (info.state, info.manifest, info.rows) == (SegmentState.DROPPED, "", 10)


async def test_a_dropped_vchannel_leaves_nothing_and_its_records_go_last(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written(delta=True)
        bench.root.collections.clear()
        await bench.coord.channel_dropped(bench.epoch, bench.vchannel)
        await bench.after(DROP_S - 100)
        await bench.collect()
        assert len(bench.left(DELTA_LOG)) == 1
        await bench.after(101)
        await bench.collect()
        assert bench.left() == set()
        assert await bench.segment(segment)
        await bench.after(RETENTION_S)
        report = await bench.collect()
        assert report.records_forgotten == 1
        assert await bench.coord.segments_by_id((segment,)) == ()
        keys = [key for key, _ in await bench.meta.list("datacoord/")]
        assert not [key for key in keys if "segment/" in key or "vchannel/" in key]
        assert await bench.register() == ()


async def test_a_record_stays_while_the_log_may_bring_rows_of_the_segment(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        dropped = await bench.written(OTHER)
        await bench.coord.drop_partition(CID, OTHER)
        await bench.after(DROP_S + RETENTION_S)
        await bench.collect()
        assert (await bench.collect()).records_forgotten == 0
        assert (await bench.segment(dropped)).manifest == ""
        await bench.written()  # moves the checkpoint past the drop
        assert (await bench.collect()).records_forgotten == 1


async def test_files_of_a_segment_that_a_query_node_reads_stay(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        dropped = await bench.written(OTHER)
        await bench.coord.drop_partition(CID, OTHER)
        bench.query.reading = (dropped,)
        await bench.after(LONG_S)
        report = await bench.collect()
        assert len(bench.of(dropped)) == 3
        assert [p.read_by for p in report.pinned] == ["a query node"]
        bench.query.reading = ()
        await bench.collect()
        assert bench.of(dropped) == set()


async def test_records_that_lead_from_a_served_segment_to_what_holds_its_rows_stay(tmp_path: Path) -> None:
    """A handoff that lags behind compactions would take the segment for one whose rows are all gone."""
    async with running(tmp_path) as bench:
        first = await bench.written()
        second, third = SegmentID(first + 1_000_000), SegmentID(first + 2_000_000)
        dropped = await bench.root.alloc_timestamp(1)
        flushed, state = await bench.segment(first), bench.coord.context.state
        gone = replace(flushed, state=SegmentState.DROPPED, dropped=dropped)
        middle = replace(gone, segment_id=second, manifest="", compacted_from=(first,))
        last = replace(flushed, segment_id=third, compacted_from=(second,))
        await state.put([gone, middle, last])
        bench.query.reading = (first,)
        await bench.after(LONG_S + RETENTION_S)
        await bench.written()  # moves the checkpoint past the drop
        assert (await bench.collect()).records_forgotten == 0
        assert (await bench.coord.recovery_info(CID, (first,))).successors[first] == third
        bench.query.reading = ()
        assert sum([(await bench.collect()).records_forgotten for _ in range(2)]) == 2


async def test_nothing_goes_while_query_nodes_cannot_be_asked(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.written(OTHER)
        await bench.coord.drop_partition(CID, OTHER)
        bench.query.calls.failing["held_segments"] = Unavailable("restarting")
        await bench.after(LONG_S)
        before = bench.left()
        report = await bench.collect()
        assert (report.error, bench.left()) == ("restarting", before)
        assert bench.sweeper.orders == []


# jobs under way


async def test_files_of_an_open_attempt_are_never_taken(tmp_path: Path) -> None:
    """However old they seem, and with no tolerance at all."""
    bench = Store(tmp_path)
    bench.gc_policy = replace(bench.gc_policy, drop_tolerance_s=0, missing_tolerance_s=0)
    async with running(tmp_path, bench):
        segment = await bench.write(10)
        given_up, attempt = [await bench.coord.open_attempts(bench.epoch, 1) for _ in range(2)]
        bench.files(segment, given_up)
        output = bench.files(segment, attempt)
        await bench.take(COMMIT_DEADLINE_S - 10)
        await bench.collect()
        assert len(bench.left(INSERT_LOG)) == 2
        await bench.committed(output, attempt=attempt)
        recovery = await bench.coord.recovery_info(CID)
        assert [f.path for f in recovery.vchannels[0].growing[0].insert_logs] == [output.insert_logs[0].path]
        await bench.take(11)
        await bench.collect()
        assert bench.left(INSERT_LOG) == {output.insert_logs[0].path}, "the other one's deadline has passed"


async def test_a_job_that_wakes_up_too_late_finds_its_commit_refused(tmp_path: Path) -> None:
    bench = Store(tmp_path)
    bench.gc_policy = replace(bench.gc_policy, missing_tolerance_s=0)
    async with running(tmp_path, bench):
        segment = await bench.write(10)
        attempt = await bench.coord.open_attempts(bench.epoch, 1)
        output = bench.files(segment, attempt)
        await bench.take(COMMIT_DEADLINE_S + 1)
        await bench.collect()
        assert bench.left() == set()
        try:
            await bench.committed(output, attempt=attempt)
        except CommitRefused:
            return
        raise AssertionError("its files are gone, and it was committed")


async def test_what_a_failed_job_wrote_goes_at_once_and_what_its_zombie_writes_after_that_too(
    tmp_path: Path,
) -> None:
    bench = Store(tmp_path)
    bench.gc_policy = replace(bench.gc_policy, missing_tolerance_s=0)
    async with running(tmp_path, bench):
        segment = await bench.write(10)
        failed = await bench.coord.open_attempts(bench.epoch, 1)
        bench.files(segment, failed)
        await bench.after(1)
        await bench.collect()
        assert len(bench.left(INSERT_LOG)) == 1, "it may still commit"
        for _ in range(2):
            await bench.coord.close_attempts((failed,))
        await bench.collect()
        assert bench.left() == set()
        output = bench.files(segment, failed)
        with pytest.raises(CommitRefused, match=f"attempt {failed} is not open"):
            await bench.committed(output, attempt=failed)
        await bench.after(1)
        await bench.collect()
        assert bench.left() == set()


async def test_what_a_lost_data_node_wrote_goes(tmp_path: Path) -> None:
    bench = Store(tmp_path)
    bench.gc_policy = replace(bench.gc_policy, missing_tolerance_s=0)
    async with running(tmp_path, bench):
        segment = await bench.write(10)
        bench.files(segment, await bench.coord.open_attempts(bench.epoch, 1))
        await bench.register()
        mine = await bench.coord.open_attempts(bench.epoch, 1)
        output = bench.files(segment, mine)
        await bench.after(1)
        await bench.collect()
        assert bench.left(STATS_LOG) == set(output.stats_logs)


async def test_after_its_start_the_role_waits_a_little(tmp_path: Path) -> None:
    """Jobs that the previous coordinator ordered may still end."""
    async with running(tmp_path) as bench:
        await bench.restart()
        await bench.register()
        await bench.coord.collect_garbage(True)
        await asyncio.sleep(GC_SETTLE_S - 1)
        assert bench.sweeper.orders == []
        await asyncio.sleep(2)
        assert bench.sweeper.orders


# index files


async def test_index_files_are_judged_by_what_indexcoord_says(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        paths = [
            index_file_path(BuildID(b), v, DEFAULT, SegmentID(7), "a1-x") for b, v in ((5, 1), (5, 2), (6, 1))
        ]
        for path in paths:
            bench.store.put(path, b"index")
        bench.index.references = IndexReferences((paths[1],), {BuildID(6): 1}, 100)
        await bench.after(LONG_S)
        await bench.collect()
        assert bench.left(INDEX_FILES) == {paths[1], paths[2]}


# rounds


async def test_a_dry_run_reports_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.written(OTHER)
        await bench.coord.drop_partition(CID, OTHER)
        await bench.after(LONG_S)
        files, records = bench.left(), await bench.snapshot()
        dry = await bench.collect(delete=False)
        assert (bench.left(), dry.deleted, dry.reclaimed_bytes) == (files, False, 0)
        assert [r for r in await bench.snapshot() if r not in records] == []
        real = await bench.collect()
        assert objects_by_verdict(dry) == objects_by_verdict(real) == {Verdict.DROPPED: 3}
        assert bench.left() == set()


async def test_a_round_that_died_half_way_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        dropped = await bench.written(OTHER)
        await bench.coord.drop_partition(CID, OTHER)
        await bench.after(LONG_S)
        bench.sweeper.deletions_left = 1
        report = await bench.collect()
        assert (report.error, len(bench.of(dropped))) == ("the job died", 2)
        assert (await bench.segment(dropped)).manifest, "nothing is recorded"
        await bench.restart()
        await bench.register()
        bench.sweeper.deletions_left = 100
        assert (await bench.collect()).segments_reclaimed == 1
        assert bench.of(dropped) == set()


async def test_a_data_node_that_is_lost_amid_a_sweep_is_replaced_by_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.written(OTHER)
        await bench.coord.drop_partition(CID, OTHER)
        await bench.after(LONG_S)
        bench.sweeper.errors = [Unavailable("the process ended"), Unavailable("the process ended")]
        report = await bench.collect()
        assert (report.error, bench.left()) == ("", set())


async def test_a_sweep_that_hangs_with_its_process_is_given_up(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.sweeper.go_on.clear()
        await bench.coord.collect_garbage(True)
        await asyncio.sleep(10)
        assert (await bench.coord.gc_status()).state is GcState.SWEEPING
        assert len(bench.sweeper.orders) == 1
        await bench.register()
        bench.sweeper.go_on = asyncio.Event()
        bench.sweeper.go_on.set()
        await asyncio.sleep(10)
        status = await bench.coord.gc_status()
        assert (status.state, status.rounds) == (GcState.IDLE, 1)


async def test_it_runs_by_itself_when_enabled(tmp_path: Path) -> None:
    bench = Store(tmp_path)
    bench.gc_enabled = True
    async with running(tmp_path, bench):
        await asyncio.sleep(GC_INTERVAL_S + 1)
        assert (await bench.coord.gc_status()).rounds == 1
    other = Store(tmp_path)
    async with running(tmp_path, other):
        await asyncio.sleep(3 * GC_INTERVAL_S)
        assert (await other.coord.gc_status()).rounds == 0
        await other.collect()


async def test_a_segment_whose_manifest_cannot_be_read_is_kept_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        broken, whole = await bench.written(), await bench.written(OTHER)
        info = await bench.segment(broken)
        file = bench.store.local_path(info.manifest, Path())
        file.write_bytes(b"{")
        await bench.restart()
        await bench.register()
        await bench.after(LONG_S)
        assert (await bench.collect()).error == ""
        assert (len(bench.of(broken)), len(bench.of(whole))) == (3, 3)


async def test_files_that_a_reader_outside_has_pinned_stay(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        dropped = await bench.written(OTHER)
        insert = next(path for path in bench.of(dropped) if path.startswith(INSERT_LOG))

        async def pinned() -> PathDigests:
            return PathDigests.of([insert])

        bench.coord.role._collector._pins.pinned_files = pinned
        await bench.coord.drop_partition(CID, OTHER)
        await bench.after(LONG_S)
        await bench.collect()
        assert bench.of(dropped) == {insert}


async def test_a_snapshot_without_a_pin_is_swept_and_a_pinned_one_stays(tmp_path: Path) -> None:
    """A crash between the object and its record leaves an object that no lease can release."""
    async with running(tmp_path) as bench:
        later = replace(await bench.recovery(), ts=compose(2**40))
        await bench.commit(checkpoint=later)
        lease = await bench.coord.take_snapshot(CID, (), 10 * LONG_S * 1000)
        orphan = snapshot_path(CID, stamped(1, "x"))
        bench.store.put(orphan, b"left by a crash")
        await bench.after(LONG_S)
        report = await bench.collect()
        assert bench.left(SNAPSHOTS) == {lease.path}
        assert (SNAPSHOTS, Verdict.SUPERSEDED) in {(f.prefix, f.verdict) for f in report.findings}
