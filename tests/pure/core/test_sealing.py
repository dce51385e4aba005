"""When a segment is sealed and why, when a sealed one may be flushed, and which steps its life may take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.sealing import SealPolicy, may_flush, seal_cause
from elanus.core.segments import SegmentInfo, SegmentState, may_become
from elanus.core.timestamps import compose

POLICY = SealPolicy(proportion=0.75, age_s=3600, idle_s=600)
S = SegmentState
GROWING = SegmentInfo(
    SegmentID(1),
    CollectionID(2),
    PartitionID(3),
    "v",
    S.GROWING,
    max_rows=1000,
    created=compose(10_000_000),
    last_expire=compose(10_002_000),
)


@pytest.mark.parametrize(
    ("rows", "now_ms", "cause"),
    [
        (749, 10_100_000, None),
        (750, 10_100_000, "size"),
        (1, 10_002_000 + 599_999, None),
        (1, 10_002_000 + 600_000, "idle"),
        (1, 10_000_000 + 3_600_000, "age"),
        (750, 10_000_000 + 3_600_000, "size"),
        (0, 10_000_000 + 9_999_999, None),
    ],
)
def test_size_before_age_before_idleness_and_an_empty_segment_for_none(
    rows: int, now_ms: int, cause: str | None
) -> None:
    assert seal_cause(GROWING, rows, POLICY, compose(now_ms)) == cause


def test_an_outstanding_allocation_keeps_a_segment_from_idling() -> None:
    busy = replace(GROWING, last_expire=compose(10_900_000))
    assert seal_cause(busy, 1, POLICY, compose(11_499_999)) is None


@pytest.mark.parametrize("state", [s for s in S if s is not S.GROWING])
def test_only_a_growing_segment_is_sealed(state: SegmentState) -> None:
    assert seal_cause(replace(GROWING, state=state), 1000, POLICY, compose(99_000_000)) is None


@pytest.mark.parametrize(("tick", "may"), [(499, False), (500, True), (501, True)])
def test_a_sealed_segment_may_be_flushed_when_the_tick_has_reached_its_seal(tick: int, may: bool) -> None:
    sealed = replace(GROWING, state=S.SEALED, sealed_at=compose(500))
    assert may_flush(sealed, compose(tick)) is may


@pytest.mark.parametrize("state", [s for s in S if s is not S.SEALED])
def test_nothing_but_a_sealed_segment_is_flushed(state: SegmentState) -> None:
    assert not may_flush(replace(GROWING, state=state, sealed_at=compose(1)), compose(500))


def test_a_segment_without_a_seal_is_not_flushed() -> None:
    assert not may_flush(replace(GROWING, state=S.SEALED), compose(500))


def test_the_steps_of_a_segments_life() -> None:
    allowed = {(a, b) for a in S for b in S if may_become(a, b)}
    assert allowed == {
        (S.GROWING, S.SEALED),
        (S.SEALED, S.FLUSHING),
        (S.FLUSHING, S.SEALED),
        (S.FLUSHING, S.FLUSHED),
        *((state, S.DROPPED) for state in (S.GROWING, S.SEALED, S.FLUSHING, S.FLUSHED)),
    }
