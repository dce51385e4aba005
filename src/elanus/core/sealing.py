"""When a growing segment is sealed, and when a sealed one may be flushed."""

from __future__ import annotations

from dataclasses import dataclass

from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, physical_ms


@dataclass(frozen=True, slots=True)
class SealPolicy:
    """When to seal. ``proportion`` of the maximum rows at which a segment is full; ages in seconds."""

    proportion: float
    age_s: float
    idle_s: float


def seal_cause(info: SegmentInfo, rows: int, policy: SealPolicy, now: Timestamp) -> str | None:
    """Return why a growing segment is to be sealed now ("size", "age", "idle"), or None.

    ``rows``: its rows seen in the channel so far. An empty segment is never sealed for age or idleness:
    it would be dropped, and the next write would open another.
    """
    if info.state is not SegmentState.GROWING or rows == 0:
        return None
    if rows >= policy.proportion * info.max_rows:
        return "size"
    if physical_ms(now) - physical_ms(info.created) >= policy.age_s * 1000:
        return "age"
    if physical_ms(now) - physical_ms(info.last_expire) >= policy.idle_s * 1000:
        return "idle"
    return None


def may_flush(info: SegmentInfo, channel_tick: Timestamp) -> bool:
    """Whether every row of a sealed segment has been seen: the channel's tick has passed the seal.

    The seal's timestamp is chosen so that no write above it can carry the segment's id: every allocation was
    used or returned before the timestamp was taken, or has expired by it.
    """
    return info.state is SegmentState.SEALED and NO_TIMESTAMP < info.sealed_at <= channel_tick
