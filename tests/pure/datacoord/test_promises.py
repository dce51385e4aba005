"""The promises of `elanus gc --dry-run` after a drop or a delete: how much disk becomes free, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CID, OTHER
from test_collecting import DROP_S, Store, running

from elanus.api.gc import GcReport
from elanus.api.snapshots import NewSnapshot
from elanus.core.gc import Verdict
from elanus.core.ids import SegmentID
from elanus.core.segments import SegmentState
from elanus.core.timestamps import compose

LEASE_S = 3 * DROP_S


async def drop_partition(bench: Store, segment: SegmentID) -> None:
    await bench.coord.drop_partition(CID, OTHER)


async def drop_collection(bench: Store, segment: SegmentID) -> None:
    bench.root.collections.clear()
    await bench.coord.channel_dropped(bench.epoch, bench.vchannel)


async def delete_all_rows(bench: Store, segment: SegmentID) -> None:
    """A compaction finds that deletes left none of the segment's rows."""
    info, dropped = await bench.segment(segment), await bench.root.alloc_timestamp(1)
    await bench.coord.context.state.put([replace(info, state=SegmentState.DROPPED, dropped=dropped)])


def promised(report: GcReport) -> int:
    """Return the bytes that are kept only until their time."""
    return sum(found.bytes for found in report.findings if found.verdict is Verdict.PINNED)


Ending = Callable[[Store, SegmentID], Awaitable[None]]


@pytest.mark.parametrize("end", [drop_partition, drop_collection, delete_all_rows])
async def test_the_promised_bytes_are_freed_at_the_promised_time(tmp_path: Path, end: Ending) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written(OTHER, delta=True)
        await end(bench, segment)
        report = await bench.collect(delete=False)
        (one,) = report.pinned
        assert (one.segment_id, one.read_by) == (segment, "")
        assert one.until_ms - one.dropped_ms == DROP_S * 1000
        assert 0 < one.bytes < promised(report)
        await bench.after(DROP_S - 10)
        early = await bench.collect()
        assert (early.reclaimed_bytes, early.pinned) == (0, report.pinned)
        await bench.after(11)
        due = await bench.collect()
        assert (due.reclaimed_bytes, due.pinned) == (promised(report), ())
        assert bench.of(segment) == set()


async def far(bench: Store) -> None:
    """Everything up to any moment is in files, as far as the vchannel's checkpoint says."""
    await bench.commit(checkpoint=replace(await bench.recovery(), ts=compose(2**40)))


async def test_a_lease_delays_what_is_freed_until_it_expires(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written(OTHER)
        await far(bench)
        lease = await bench.coord.take_snapshot(CID, (), LEASE_S * 1000)
        await bench.coord.drop_partition(CID, OTHER)
        report = await bench.collect(delete=False)
        (one,) = report.pinned
        assert (one.until_ms, one.read_by) == (lease.expires_ms, "a reader")
        await bench.after(DROP_S + 1)
        early = await bench.collect()
        assert (early.reclaimed_bytes, early.pinned) == (0, report.pinned)
        assert (await bench.coord.gc_status()).waiting_bytes == one.bytes
        await bench.after(LEASE_S - DROP_S)
        due = await bench.collect()
        assert (due.segments_reclaimed, due.pinned, bench.of(segment)) == (1, (), set())
        assert due.reclaimed_bytes >= promised(report)  # and the snapshot's own object


async def test_a_named_snapshot_delays_it_until_it_is_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written(OTHER)
        await far(bench)
        await bench.coord.create_snapshot(NewSnapshot(CID, "daily"))
        await bench.coord.drop_partition(CID, OTHER)
        await bench.after(10 * DROP_S)
        (one,) = (await bench.collect()).pinned
        assert (one.segment_id, one.read_by) == (segment, "snapshot daily")
        assert (await bench.coord.gc_status()).waiting_bytes == one.bytes
        await bench.coord.drop_snapshot(CID, "daily")
        assert (await bench.collect()).pinned == ()
        assert bench.of(segment) == set()


async def test_a_snapshot_that_was_taken_later_delays_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        segment = await bench.written(OTHER)
        await far(bench)
        await bench.coord.drop_partition(CID, OTHER)
        await bench.coord.create_snapshot(NewSnapshot(CID, "late"))
        await bench.after(DROP_S + 1)
        assert (await bench.collect()).pinned == ()
        assert bench.of(segment) == set()
