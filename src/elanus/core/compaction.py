"""Compaction, the decisions: which segments to rewrite together, and which deletes nobody needs any more.

A flushed segment is never changed. Compaction writes a new one from one or several of them, without the
rows that are deleted or expired, sorted by primary key, and one commit exchanges it for its inputs.

Two bounds keep it harmless. Deletes are *folded* into the new segment only up to a timestamp that no read
asks for any more (retention) and below which all deletes lie in delta logs (the vchannel's checkpoint);
later ones stay in delta logs, and readers go on applying them. Rows *expire* by their collection's
time-to-live, whatever retention says.

The algorithm is that of Milvus 2.0 (datacoord's compaction policy): segments that hold enough dead rows
are rewritten alone, small ones are packed into buckets. Two differences: the room in a bucket is reduced
by its first segment too, and a small segment that joins a bucket is not rewritten alone before.

Left out: compaction by a clustering key, and of delete files among themselves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.segments import DeltaLog, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp, minus_ms

TTL_PROPERTY = "collection.ttl.seconds"
_TTL_MAX_S = 100 * 366 * 86_400


class CompactionState(StrEnum):
    """A plan's life: planned, then one of the others, for good."""

    PLANNED = "planned"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CompactionThresholds:
    """``deleted_ratio`` and ``deleted_bytes`` (of delta logs): from where on a segment is rewritten for the
    sake of its dead rows. ``merge_segments_min``: how many small segments of a partition and vchannel are
    worth merging."""

    deleted_ratio: float
    deleted_bytes: int
    merge_segments_min: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A flushed segment with what is dead in it.

    ``dead_rows`` and ``dead_bytes`` estimate the rows that deletes within the fold concern, and those
    deletes' part of the delta logs; ``expired_rows`` counts rows of files that have expired whole.
    """

    info: SegmentInfo
    dead_rows: int
    dead_bytes: int
    expired_rows: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What is persisted of one compaction.

    ``manifests`` are the inputs' as they were when it was planned, aligned with ``inputs``: the result is
    right for these only. ``output`` is the id of the segment to come (0: no row was left for it). Rows whose
    delete is not later than ``fold_until`` are left out, and rows not later than ``expire_until``.
    ``trigger_id`` is common to the plans made at once; ``reason`` tells why it came to no result.
    """

    plan_id: int
    trigger_id: int
    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    inputs: tuple[SegmentID, ...]
    manifests: tuple[str, ...]
    output: SegmentID
    fold_until: Timestamp
    expire_until: Timestamp
    state: CompactionState = CompactionState.PLANNED
    reason: str = ""


def time_to_live_s(properties: Mapping[str, str]) -> int | None:
    """The collection's time-to-live; None: its rows do not expire (no such property, or not above 0).

    Raises `InvalidParameter` for what is no whole number of seconds.
    """
    text = properties.get(TTL_PROPERTY)
    if text is None:
        return None
    try:
        seconds = int(text)
    except ValueError:
        seconds = _TTL_MAX_S + 1
    if seconds > _TTL_MAX_S:
        raise InvalidParameter(
            f"{TTL_PROPERTY} is {text!r}: give a whole number of seconds, at most {_TTL_MAX_S}; "
            "0 for rows that do not expire"
        )
    return seconds if seconds > 0 else None


def expire_until(properties: Mapping[str, str], now: Timestamp) -> Timestamp:
    """Rows up to this timestamp have expired; 0 where none do."""
    ttl_s = time_to_live_s(properties)
    return NO_TIMESTAMP if ttl_s is None else minus_ms(now, ttl_s * 1000)


def fold_bound(now: Timestamp, retention_s: float, checkpoint: Timestamp) -> Timestamp:
    """Up to where deletes of a vchannel may be folded in: no read goes back so far, and all are in files."""
    return min(minus_ms(now, int(retention_s * 1000)), checkpoint)


def is_candidate(info: SegmentInfo, taken: Collection[SegmentID]) -> bool:
    """Flushed, with rows, and not ``taken`` by somebody else."""
    return info.state is SegmentState.FLUSHED and bool(info.manifest) and info.segment_id not in taken


def blamed(inputs: Iterable[SegmentID], reason: str) -> tuple[SegmentID, ...]:
    """Of a failed plan's inputs those a file of which its reason names: paths hold the segment's id."""
    return tuple(segment_id for segment_id in inputs if f"/{segment_id}/" in reason)


def concerned_deltas(
    manifest: SegmentManifest, deltas: Iterable[DeltaLog], fold_until: Timestamp
) -> list[DeltaLog]:
    """The delta logs within the fold that may concern rows of the segment, and are not folded in yet."""
    oldest = manifest.commit_ts or min((file.ts_min for file in manifest.insert_logs), default=MAX_TIMESTAMP)
    return [
        delta
        for delta in deltas
        if manifest.deletes_from < delta.file.ts_max <= fold_until and delta.file.ts_max > oldest
    ]


def expired_rows(manifest: SegmentManifest, until: Timestamp) -> int:
    """Rows of the files in which every row has expired."""
    return sum(file.rows for file in manifest.insert_logs if (manifest.commit_ts or file.ts_max) <= until)


def choose(
    candidates: Sequence[Candidate], thresholds: CompactionThresholds, *, force: bool
) -> list[tuple[SegmentInfo, ...]]:
    """Which segments to rewrite, and which of them together. No segment is named twice.

    ``force``: a person asked for it, so two small segments and any dead row are enough.
    """
    groups: dict[tuple[CollectionID, str, PartitionID], list[Candidate]] = {}
    for candidate in candidates:
        info = candidate.info
        groups.setdefault((info.collection_id, info.vchannel, info.partition_id), []).append(candidate)
    chosen = []
    for group in groups.values():
        buckets = _buckets(group, 2 if force else thresholds.merge_segments_min)
        merged = {info.segment_id for bucket in buckets for info in bucket}
        alone = [c for c in group if c.info.segment_id not in merged and _is_worn(c, thresholds, force)]
        chosen += [*buckets, *((c.info,) for c in alone)]
    return chosen


def _is_worn(candidate: Candidate, thresholds: CompactionThresholds, force: bool) -> bool:
    dead_rows = candidate.dead_rows + candidate.expired_rows
    if force:
        return dead_rows > 0
    return (
        dead_rows >= thresholds.deleted_ratio * candidate.info.rows
        or candidate.dead_bytes > thresholds.deleted_bytes
    )


def _buckets(group: Sequence[Candidate], segments_min: int) -> list[tuple[SegmentInfo, ...]]:
    """Small segments packed together, the smallest first, each bucket within one segment's maximum."""
    small = [c.info for c in group if 2 * c.info.rows < c.info.max_rows]
    if len(small) < segments_min:
        return []
    heap = [(info.rows, info.segment_id, info) for info in small]
    heapq.heapify(heap)
    buckets = []
    while heap:
        rows, _, first = heapq.heappop(heap)
        bucket, free = [first], first.max_rows - rows
        while heap and heap[0][0] <= free:
            rows, _, following = heapq.heappop(heap)
            bucket.append(following)
            free -= rows
        if len(bucket) > 1:
            buckets.append(tuple(bucket))
    return buckets


def superseded_deltas(
    deltas: Iterable[DeltaLog],
    segments: Sequence[SegmentManifest],
    bound: Timestamp,
    is_concerned: Callable[[SegmentManifest, DeltaLog], bool],
) -> list[DeltaLog]:
    """The delta logs of a vchannel that no reader has any use for.

    ``segments``: all of the vchannel that are not dropped. ``bound``: as `fold_bound` has it.
    ``is_concerned`` may say for certain that a delta log names no key of a segment; it is asked only
    where the segment has older rows that the deletes are not folded into.
    """
    return [
        delta
        for delta in deltas
        if delta.file.ts_max <= bound
        and not any(concerned_deltas(s, (delta,), bound) and is_concerned(s, delta) for s in segments)
    ]
