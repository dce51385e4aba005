"""With many segments, no step of datacoord looks at all of them several times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from counting import steps_of, turns_of
from data_bench import Bench
from fakes import CID, DEFAULT, collection

from elanus.core.gc import GcPolicy
from elanus.core.ids import SegmentID
from elanus.core.segments import SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import Timestamp
from elanus.datacoord.dropping import drop_segments
from elanus.datacoord.references import Moment

MANY = 1500
"""Three times as many as are looked at before others run."""
STEPS_A_SEGMENT_MAX = 125
"""The price of recovery information for a segment that has not changed: it was 194, with a call for each."""
POLICY = GcPolicy(drop_tolerance_s=0, missing_tolerance_s=0, commit_deadline_s=0, record_retention_s=0)


def records(count: int, vchannel: str, state: SegmentState = SegmentState.FLUSHED) -> list[SegmentInfo]:
    return [
        SegmentInfo(
            SegmentID(5000 + n),
            CID,
            DEFAULT,
            vchannel,
            state,
            max_rows=10,
            created=Timestamp(1),
            last_expire=Timestamp(1),
            dropped=Timestamp(2 if state is SegmentState.DROPPED else 0),
            rows=10,
            size_bytes=100,
            manifest=f"manifests/{n}",
        )
        for n in range(count)
    ]


async def with_segments(directory: Path, count: int) -> Bench:
    """Flushed segments, whose manifests are in memory."""
    bench = Bench(directory, collection())
    await bench.watched()
    infos = records(count, bench.collections[0].vchannels[0])
    await bench.coord.context.state.put(infos)
    reader = bench.coord.context.manifests
    for info in infos:
        reader._segments[info.manifest] = SegmentManifest(
            info.segment_id, CID, DEFAULT, info.vchannel, (), (), Timestamp(0)
        )
    return bench


async def test_recovery_information_costs_little_for_a_segment_that_has_not_changed(tmp_path: Path) -> None:
    costs = []
    for count in (100, 300):
        bench = await with_segments(tmp_path / str(count), count)
        held = tuple(s.segment_id for s in bench.coord.context.state.segments())
        found = await bench.coord.recovery_info(CID, held)
        assert len(found.flushed) == count
        costs.append(await steps_of(lambda b=bench, h=held: b.coord.recovery_info(CID, h)))  # type: ignore[misc]
        await bench.coord.stop()
    assert (costs[1] - costs[0]) / 200 < STEPS_A_SEGMENT_MAX, costs


async def test_others_run_while_many_segments_are_dropped(tmp_path: Path) -> None:
    bench = await with_segments(tmp_path, MANY)
    state = bench.coord.context.state
    turns = await turns_of(lambda: drop_segments(bench.coord.context, tuple(state.segments())))
    assert {s.state for s in state.segments()} == {SegmentState.DROPPED}
    assert turns[0] < 0.1 * sum(turns), "their records are made in turns, before they are stored and shown"
    await bench.coord.stop()


async def test_others_run_while_garbage_is_found_among_many_segments() -> None:
    segments = [*records(MANY, "v", SegmentState.DROPPED)]
    segments[0] = replace(segments[0], state=SegmentState.FLUSHED)
    moment = Moment(Timestamp(1 << 40), 0.0, 0, tuple(segments), (), ())
    held = frozenset({segments[1].segment_id, segments[2].segment_id})
    found: list[SegmentInfo] = []

    async def look() -> None:
        found[:] = await moment.reclaimable(POLICY, held)

    assert max(await turns_of(look)) < 1000 * 200
    assert [s.segment_id for s in found] == [s.segment_id for s in segments[3:]]

    async def list_pinned() -> None:
        pinned = await moment.pinned(POLICY, found, held)
        assert {one.segment_id for one in pinned} == held

    turns = await turns_of(list_pinned)
    assert max(turns) < 0.75 * sum(turns), turns
