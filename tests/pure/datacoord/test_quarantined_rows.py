"""Rows in quarantine: they are counted, and neither keep a segment open nor take its room."""

from __future__ import annotations

from pathlib import Path

from data_bench import Bench
from fakes import CID
from structlog.testing import capture_logs

from elanus.core.segments import SegmentState

S = SegmentState


async def test_rows_in_quarantine_are_counted_and_keep_no_segment_open(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    mixed, foreign = await bench.write(600), await bench.write(600)
    await bench.coord.flush(CID)
    await bench.report({mixed: 10, foreign: 5})
    with capture_logs() as logs:
        await bench.commit({mixed: 8}, flushed=[mixed, foreign], quarantined={mixed: 2, foreign: 5})
    named = [log for log in logs if log["event"] == "log entry quarantined"]
    assert [(log["segment"], log["rows"], log["log_level"]) for log in named] == [
        (mixed, 2, "error"),
        (foreign, 5, "error"),
    ]
    info, empty = await bench.segment(mixed), await bench.segment(foreign)
    assert (info.state, info.rows) == (S.FLUSHED, 8)
    assert (empty.state, empty.rows) == (S.DROPPED, 0)
    assert await bench.coord.quarantined() == {bench.vchannel: 2}
    await bench.commit()
    assert await bench.coord.quarantined() == {bench.vchannel: 2}, "it is kept"
    await bench.coord.drop_collection(CID)
    await bench.coord.channel_dropped(bench.epoch, bench.vchannel)
    assert await bench.coord.quarantined() == {}
    await bench.coord.stop()


async def test_rows_in_quarantine_leave_their_room_in_the_segment(tmp_path: Path) -> None:
    """A row counts once, in the data node's report or in binlogs, and not forever."""
    bench = Bench(tmp_path)
    await bench.watched()
    segment = await bench.write(600)
    await bench.report({segment: 600})
    await bench.commit({segment: 1}, quarantined={segment: 599})
    assert bench.coord.context.allocator.seen_rows(await bench.segment(segment)) == 0
    await bench.coord.stop()
