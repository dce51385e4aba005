"""The choice of segments to compact, and of deletes that are folded in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.compaction import (
    INPUTS_MAX,
    Candidate,
    CompactionThresholds,
    choose,
    concerned_deltas,
    expire_until,
    expired_rows,
    fold_bound,
    fold_until,
    is_candidate,
    superseded_deltas,
)
from elanus.core.errors import Internal, InvalidParameter
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.segments import BinlogFile, DeltaLog, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.time_to_live import TTL_PROPERTY, expired_until, time_to_live_s
from elanus.core.timestamps import Timestamp, compose

MAX_ROWS = 100
THRESHOLDS = CompactionThresholds(deleted_ratio=0.2, deleted_bytes=1000, merge_segments_min=10)


def info(number: int, rows: int, *, partition: int = 1, vchannel: str = "v0") -> SegmentInfo:
    return SegmentInfo(
        SegmentID(number),
        CollectionID(1),
        PartitionID(partition),
        vchannel,
        SegmentState.FLUSHED,
        MAX_ROWS,
        compose(1),
        compose(1),
        rows=rows,
        manifest=f"m{number}",
    )


def candidate(
    number: int, rows: int, dead: int = 0, dead_bytes: int = 0, expired: int = 0, **where: object
) -> Candidate:
    return Candidate(info(number, rows, **where), dead, dead_bytes, expired)  # type: ignore[arg-type]


def chosen(candidates: list[Candidate], *, force: bool = False) -> list[list[int]]:
    return [
        sorted(s.segment_id for s in group) for group in choose(candidates, THRESHOLDS, MAX_ROWS, force=force)
    ]


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (None, [[1, 2, 3]]),
        (10, [[1], [2], [3], [4], [5]]),
        (30, [[1, 2], [3], [4], [5]]),
        (60, [[1, 2, 3], [4], [5]]),
        (59, [[1, 2], [3], [4], [5]]),
        (10**9, [[1, 2, 3], [4], [5]]),
    ],
)
def test_segments_are_merged_up_to_the_target_and_the_maximum(
    target: int | None, wanted: list[list[int]]
) -> None:
    candidates = [candidate(number, rows) for number, rows in enumerate((10, 20, 30, 45, 70), start=1)]
    groups = choose(candidates, THRESHOLDS, MAX_ROWS, force=True, rows_target=target)
    assert [sorted(s.segment_id for s in group) for group in groups] == wanted


def test_with_a_target_a_segment_more_than_half_full_takes_part() -> None:
    candidates = [candidate(1, 60), candidate(2, 40)]
    assert chosen(candidates, force=True) == []
    (group,) = choose(candidates, THRESHOLDS, MAX_ROWS, force=True, rows_target=10**9)
    assert [s.segment_id for s in group] == [2, 1]


def test_a_plan_has_at_most_so_many_inputs() -> None:
    count = 2 * INPUTS_MAX + 1
    candidates = [candidate(number, 1) for number in range(count)]
    groups = choose(candidates, THRESHOLDS, 10 * count, force=False)
    assert [len(group) for group in groups] == [INPUTS_MAX, INPUTS_MAX]  # the last one waits for others
    groups = choose(candidates, THRESHOLDS, 10 * count, force=True, rows_target=10 * count)
    assert [len(group) for group in groups] == [INPUTS_MAX, INPUTS_MAX, 1]


def file(first: int, last: int, rows: int = 10) -> BinlogFile:
    return BinlogFile(f"f{first}-{last}", rows, rows, compose(first), compose(last))


def manifest(*files: BinlogFile, folded: int = 0, number: int = 1) -> SegmentManifest:
    deletes_from = compose(folded) if folded else Timestamp(0)
    return SegmentManifest(
        SegmentID(number), CollectionID(1), PartitionID(1), "v0", files, ("s",), deletes_from
    )


def delta(first: int, last: int) -> DeltaLog:
    return DeltaLog("v0", file(first, last))


@pytest.mark.parametrize(
    ("dead", "dead_bytes", "expired", "wanted"),
    [(19, 0, 0, False), (20, 0, 0, True), (0, 1000, 0, False), (0, 1001, 0, True), (10, 0, 10, True)],
)
def test_a_worn_segment_is_rewritten_alone(dead: int, dead_bytes: int, expired: int, wanted: bool) -> None:
    assert chosen([candidate(1, 100, dead, dead_bytes, expired)]) == ([[1]] if wanted else [])


def test_a_person_asks_for_less() -> None:
    assert chosen([candidate(1, 100, dead=1)], force=True) == [[1]]
    assert chosen([candidate(1, 100, expired=1)], force=True) == [[1]]
    assert chosen([candidate(1, 100, dead_bytes=5)], force=True) == [], "no row is dead"
    assert chosen([candidate(1, 10), candidate(2, 10)], force=True) == [[1, 2]]
    assert chosen([candidate(1, 10)], force=True) == []


def test_small_segments_are_merged_when_there_are_enough() -> None:
    small = [candidate(n, 5) for n in range(1, 11)]
    assert chosen(small[:9]) == []
    assert chosen(small) == [list(range(1, 11))]
    half = candidate(11, 50)
    assert chosen([*small[:9], half]) == [], "half of the maximum is not small"


def test_partitions_and_vchannels_do_not_mix() -> None:
    parts = [candidate(1, 5), candidate(2, 5, partition=2), candidate(3, 5, vchannel="v1")]
    assert chosen(parts, force=True) == []


def test_the_first_of_a_bucket_takes_room_too() -> None:
    """With the room not reduced by the first, these three would make a segment of 120 rows."""
    assert chosen([candidate(n, 40) for n in (1, 2, 3)], force=True) == [[1, 2]]


def test_a_worn_segment_that_is_merged_is_not_rewritten_alone_too() -> None:
    assert chosen([candidate(1, 10, dead=10), candidate(2, 10)], force=True) == [[1, 2]]
    assert chosen([candidate(1, 49, dead=49), candidate(2, 49), candidate(3, 49, dead=1)], force=True) == [
        [1, 2],
        [3],
    ]


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 100)), max_size=40), st.booleans())
def test_no_segment_is_named_twice_and_none_grows_too_large(rows: list[tuple[int, int]], force: bool) -> None:
    groups = choose(
        [candidate(n, count, min(dead, count)) for n, (count, dead) in enumerate(rows, 1)],
        THRESHOLDS,
        MAX_ROWS,
        force=force,
    )
    named = [s.segment_id for group in groups for s in group]
    assert len(named) == len(set(named))
    assert all(sum(s.rows for s in group) <= MAX_ROWS for group in groups)


def test_candidates_are_flushed_with_files_and_free() -> None:
    flushed = info(1, 5)
    assert is_candidate(flushed, ())
    assert not is_candidate(flushed, {SegmentID(1)})
    assert not is_candidate(replace(flushed, manifest=""), ())
    for state in set(SegmentState) - {SegmentState.FLUSHED}:
        assert not is_candidate(replace(flushed, state=state), ())


def test_the_fold_ends_at_retention_and_at_the_checkpoint() -> None:
    now = compose(100_000)
    assert fold_bound(now, 10, compose(99_000)) == compose(90_000)
    assert fold_bound(now, 0, compose(99_000)) == compose(99_000)


def test_deltas_that_concern_a_segment() -> None:
    rows = manifest(file(10, 20), file(30, 40), folded=25)
    deltas = [delta(1, 10), delta(1, 25), delta(20, 26), delta(50, 60), delta(70, 80)]
    assert concerned_deltas(rows, deltas, compose(60)) == [deltas[2], deltas[3]]
    assert concerned_deltas(manifest(), deltas, compose(60)) == [], "no rows, nothing to concern"
    imported = replace(manifest(file(1, 2)), commit_ts=compose(60))
    assert concerned_deltas(imported, deltas, compose(90)) == [deltas[4]], "its rows are from their commit"


def test_a_delta_is_done_with_when_nobody_has_older_rows_without_it() -> None:
    deltas = [delta(1, 10), delta(11, 20), delta(21, 30)]

    def done_with(*segments: SegmentManifest, bound: int = 100, concerned: bool = True) -> list[DeltaLog]:
        return superseded_deltas(deltas, segments, compose(bound), lambda *_: concerned)

    assert done_with() == deltas
    assert done_with(manifest(file(5, 6))) == []
    assert done_with(manifest(file(5, 6), folded=20)) == deltas[:2]
    assert done_with(manifest(file(5, 6), folded=20), manifest(file(15, 16))) == deltas[:1]
    assert done_with(manifest(file(5, 6)), concerned=False) == deltas, "it has none of their keys"
    assert done_with(bound=25) == deltas[:2], "a read of the past may ask for the last"


def test_time_to_live() -> None:
    now = compose(100_000)
    assert expire_until({TTL_PROPERTY: "10"}, now, 0) == compose(90_000)
    assert expire_until({TTL_PROPERTY: "10"}, now, 30) == compose(60_000), "when no read is from before"
    assert expire_until({}, now, 5) == 0
    assert time_to_live_s({TTL_PROPERTY: "0"}) is None
    assert time_to_live_s({TTL_PROPERTY: "-1"}) is None
    for wrong in ("soon", "1.5", "", "99999999999999", "-2"):
        with pytest.raises(InvalidParameter, match="whole number of seconds"):
            time_to_live_s({TTL_PROPERTY: wrong})
    assert expired_until(None, now) == 0
    assert expired_until(10, now) == compose(90_000)
    assert expired_until(101, now) == 0, "nothing is that old"
    assert expired_until(None, now, compose(99_000)) == compose(99_000), "truncated then"
    assert expired_until(10, now, compose(80_000)) == compose(90_000)
    assert expired_until(None, compose(98_000), compose(99_000)) == 0, "an earlier read finds the rows"
    assert expire_until({}, now, 5, compose(96_000)) == 0, "a read may still be earlier"
    assert expire_until({}, now, 5, compose(94_000)) == compose(94_000)
    rows = manifest(file(1, 10, rows=3), file(5, 20, rows=4))
    assert expired_rows(rows, compose(10)) == 3
    assert expired_rows(replace(rows, commit_ts=compose(50)), compose(49)) == 0


def imported(number: int, rows: int) -> Candidate:
    """As earlier releases recorded imported segments: their maximum was what they had."""
    return Candidate(replace(info(number, rows), max_rows=rows), 0, 0, 0)


def test_small_imported_segments_are_merged() -> None:
    groups = choose([imported(n, 1) for n in range(1000)], THRESHOLDS, MAX_ROWS, force=False)
    assert [len(group) for group in groups] == [MAX_ROWS] * 10


def test_a_segment_that_was_made_with_a_larger_maximum_keeps_it() -> None:
    small = [candidate(n, 40) for n in (1, 2)]
    (group,) = choose(small, THRESHOLDS, 50, force=True)
    assert len(group) == 2


def test_deletes_are_folded_in_as_far_as_all_inputs_need_and_files_reach() -> None:
    plain, folded = manifest(file(1, 5)), manifest(file(1, 5), folded=7)
    fresh = replace(manifest(file(30, 30), folded=30), commit_ts=compose(30))
    checkpoint = compose(20)
    assert fold_until(compose(4), [plain], checkpoint) == compose(4)
    assert fold_until(compose(4), [plain, folded], checkpoint) == compose(7)
    assert fold_until(compose(4), [plain, folded, fresh], checkpoint) == compose(7), (
        "deletes before an import never concerned its rows; those of the others are in the log"
    )
    with pytest.raises(Internal, match="files"):
        fold_until(compose(4), [folded], compose(6))
