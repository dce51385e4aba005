"""The rules of garbage collection: what stays, what goes, and that a verdict once true stays true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elanus.core.gc import (
    GcPolicy,
    ObjectName,
    SweepRules,
    Verdict,
    keeps_files,
    may_forget,
    may_reclaim,
    verdict,
)
from elanus.core.ids import BuildID, CollectionID, PartitionID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, compose

OLD_MS, NOW_MS, FUTURE_MS = 1_000.0, 500_000.0, 900_000.0
RULES = SweepRules(
    named=b"",
    kept=frozenset({"8"}),
    gone=frozenset({"9"}),
    attempts_below=50,
    builds_below=70,
    unfinished={BuildID(60): 3},
    modified_before_ms=NOW_MS - 10_000,
    unnumbered_before_ms=NOW_MS - 60_000,
)
CLOSED, OPEN = 49, 50


def judged(name: ObjectName | None, modified_ms: float = OLD_MS) -> Verdict:
    return verdict(name, modified_ms, RULES)


def test_what_nothing_refers_to_goes_when_no_job_can_commit_it_and_it_is_old() -> None:
    assert judged(ObjectName("7", CLOSED)) is Verdict.SUPERSEDED
    assert judged(ObjectName("7", OPEN)) is Verdict.OPEN
    assert judged(ObjectName("7", CLOSED), NOW_MS - 9_000) is Verdict.YOUNG


def test_objects_from_the_future_are_young() -> None:
    assert judged(ObjectName("7", CLOSED), FUTURE_MS) is Verdict.YOUNG
    assert judged(ObjectName("7"), FUTURE_MS) is Verdict.YOUNG


def test_what_carries_no_number_is_kept_for_the_longer_time() -> None:
    assert judged(ObjectName("7"), NOW_MS - 20_000) is Verdict.YOUNG
    assert judged(ObjectName("7"), NOW_MS - 61_000) is Verdict.SUPERSEDED


def test_what_was_dropped_goes_whatever_its_age_and_stays_while_it_is_pinned() -> None:
    for attempt, modified_ms in ((CLOSED, OLD_MS), (OPEN, FUTURE_MS), (0, NOW_MS)):
        assert judged(ObjectName("9", attempt), modified_ms) is Verdict.DROPPED
        assert judged(ObjectName("8", attempt), modified_ms) is Verdict.PINNED


def test_names_that_are_not_ours_stay() -> None:
    assert judged(None) is Verdict.FOREIGN


@pytest.mark.parametrize(
    ("build_id", "version", "expected"),
    [
        (60, 2, Verdict.SUPERSEDED),
        (60, 3, Verdict.OPEN),
        (60, 4, Verdict.OPEN),
        (61, 9, Verdict.SUPERSEDED),
        (70, 1, Verdict.OPEN),
        (99, 1, Verdict.OPEN),
    ],
)
def test_index_files_of_older_versions_and_unknown_builds_go(
    build_id: int, version: int, expected: Verdict
) -> None:
    for owner in ("7", "9"):
        assert judged(ObjectName(owner, build_id=build_id, version=version)) is expected
    assert judged(ObjectName("7", build_id=61, version=1), NOW_MS) is Verdict.YOUNG


@settings(deadline=None)
@given(attempt=st.integers(0, 200), modified_ms=st.floats(0, 1e6), later=st.integers(0, 100))
def test_an_object_that_may_be_deleted_may_be_deleted_later_too(
    attempt: int, modified_ms: float, later: int
) -> None:
    """Rules of a later moment let go of whatever those of an earlier one did."""
    following = replace(
        RULES,
        attempts_below=RULES.attempts_below + later,
        modified_before_ms=RULES.modified_before_ms + later,
        unnumbered_before_ms=RULES.unnumbered_before_ms + later,
    )
    name = ObjectName("7", attempt)
    if verdict(name, modified_ms, RULES).goes:
        assert verdict(name, modified_ms, following).goes


# segments

POLICY = GcPolicy(drop_tolerance_s=10, missing_tolerance_s=100, commit_deadline_s=50, record_retention_s=1000)
DROPPED_MS = 1_000_000
NOBODY: frozenset[SegmentID] = frozenset()


def segment(state: SegmentState = SegmentState.DROPPED, manifest: str = "m") -> SegmentInfo:
    dropped = compose(DROPPED_MS) if state is SegmentState.DROPPED else NO_TIMESTAMP
    return SegmentInfo(
        SegmentID(7),
        CollectionID(1),
        PartitionID(2),
        "v0",
        state,
        max_rows=10,
        created=compose(1),
        last_expire=compose(2),
        dropped=dropped,
        manifest=manifest,
    )


def after(seconds: float) -> Timestamp:
    return compose(DROPPED_MS + int(seconds * 1000))


def test_files_of_a_dropped_segment_go_after_the_tolerance() -> None:
    assert not may_reclaim(segment(), after(9.9), POLICY, NOBODY)
    assert may_reclaim(segment(), after(10), POLICY, NOBODY)


def test_not_while_a_query_node_reads_them_nor_twice() -> None:
    assert not may_reclaim(segment(), after(99), POLICY, frozenset({SegmentID(7)}))
    assert not may_reclaim(segment(manifest=""), after(99), POLICY, NOBODY)


@pytest.mark.parametrize("state", [s for s in SegmentState if s is not SegmentState.DROPPED])
def test_files_of_segments_that_live_never_go(state: SegmentState) -> None:
    assert not keeps_files(segment(state))
    assert not may_reclaim(segment(state), after(1e6), POLICY, NOBODY)
    assert not may_forget(segment(state, manifest=""), None, after(1e6), POLICY)


def test_a_record_goes_when_its_files_are_gone_and_its_story_is_old() -> None:
    gone = segment(manifest="")
    assert may_forget(gone, None, after(1000), POLICY)
    assert not may_forget(gone, None, after(999), POLICY)
    assert not may_forget(segment(), None, after(1000), POLICY)


def test_a_record_stays_while_readers_of_the_log_must_skip_the_segment() -> None:
    gone = segment(manifest="")
    assert not may_forget(gone, compose(DROPPED_MS - 1), after(5000), POLICY)
    assert may_forget(gone, compose(DROPPED_MS), after(5000), POLICY)


def test_tolerances_are_points_in_time() -> None:
    assert POLICY.modified_before_ms(500_000) == 400_000
    assert POLICY.unnumbered_before_ms(500_000) == 400_000
    strict = replace(POLICY, missing_tolerance_s=0)
    assert strict.modified_before_ms(500_000) == 500_000
    assert strict.unnumbered_before_ms(500_000) == 450_000, "only its age speaks for it"
