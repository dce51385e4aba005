"""Compaction decisions: which segments to rewrite together, and which deletes are no longer needed.

A flushed segment is never changed. Compaction writes a new segment from one or more flushed ones, without
deleted and expired rows, sorted by primary key. One commit replaces the inputs with it.

Two rules make this safe for readers. Deletes are *folded* into the new segment only up to a timestamp that no
read asks for any more (retention) and below which all deletes are in delta logs (the vchannel's checkpoint);
later deletes stay in delta logs, and readers keep applying them. Rows *expire* by their collection's
time-to-live, and reads do not see them from then on (`elanus.core.time_to_live`). A row is removed when it
has been expired for as long as the retention, so no read is pinned to a time at which it had not expired.

The algorithm is that of Milvus 2.0 (datacoord's compaction policy): segments with enough dead rows are
rewritten alone, small ones are packed into buckets. There are two differences: the first segment of a bucket
also reduces its room, and a small segment that joins a bucket is not first rewritten alone. A plan has at
most `INPUTS_MAX` inputs: its record must fit in a value of the metadata store, and its job must end in time.

A compaction by a clustering key makes several segments from its inputs (`elanus.core.clustering`). These are
never merged with others, which would undo it: they are rewritten alone.

Delta logs are merged by `elanus.core.delta_merging`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from elanus.core.clustering import Clustering, cluster_count
from elanus.core.errors import Internal, InvalidParameter
from elanus.core.ids import NO_SEGMENT, CollectionID, PartitionID, SegmentID
from elanus.core.segments import DeltaLog, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.time_to_live import expired_until, time_to_live_s
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp, minus_ms

_MB = 1024 * 1024
INPUTS_MAX = 2000
"""How many segments one plan rewrites. A plan's record holds about 110 bytes for each."""
EXCHANGE_MAX = 40_000
"""How many segments a plan rewrites times how many it makes: the record of each that is made names all that
were rewritten, about 20 bytes each. About 190 full segments are rewritten by their clustering key at a time;
a filter that concerns one of that many clusters skips all but one of each plan."""


class CompactionState(StrEnum):
    """The state of a plan: first planned, then one of the others, which is final."""

    PLANNED = "planned"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CompactionThresholds:
    """When a segment is worth rewriting, and when delta logs are.

    ``deleted_ratio`` and ``deleted_bytes`` (of delta logs): thresholds from which on a segment is
    rewritten because of its dead rows. ``merge_segments_min``: how many small segments of a partition and
    vchannel are worth merging; ``merge_delta_logs_min``: how many small delta logs of a vchannel are.
    """

    deleted_ratio: float
    deleted_bytes: int
    merge_segments_min: int
    merge_delta_logs_min: int = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A flushed segment, with its dead rows and their deletes.

    ``dead_rows`` and ``dead_bytes`` estimate the rows that deletes within the fold bound concern, and the
    size of those deletes in the delta logs; ``expired_rows`` counts the rows of fully expired files.
    """

    info: SegmentInfo
    dead_rows: int
    dead_bytes: int
    expired_rows: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The persistent record of one compaction.

    ``manifests`` are the manifests of the inputs at planning time, aligned with ``inputs``: the result is
    valid for these only. ``output`` is the id of the new segment (0: no row was left for it). Rows whose
    delete is not later than ``fold_until`` are omitted, and so are rows not later than ``expire_until``.
    Plans made together share a ``trigger_id``; ``reason`` says why the plan has no result.

    A plan with ``deltas``, the paths of delta logs, merges these into one, and has no inputs and no output.
    A plan with ``clustering`` makes several segments, and has no ``output``: ``outputs`` are those that it
    made.
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
    deltas: tuple[str, ...] = ()
    clustering: Clustering | None = None
    outputs: tuple[SegmentID, ...] = ()

    @property
    def made(self) -> tuple[SegmentID, ...]:
        """The segments that a completed plan has made: none if no row was left."""
        return self.outputs if self.output == NO_SEGMENT else (self.output,)


def expire_until(
    properties: Mapping[str, str],
    now: Timestamp,
    retention_s: float,
    truncated: Timestamp = NO_TIMESTAMP,
) -> Timestamp:
    """Return the timestamp up to which expired rows may be removed; 0 if the collection's rows do not expire.

    These rows had expired at every time that a read may still be pinned to. ``truncated``: see
    `elanus.core.catalog.Collection`.
    """
    ttl_s = time_to_live_s(properties)
    return expired_until(ttl_s, minus_ms(now, int(retention_s * 1000)), truncated)


def check_target(target_bytes: int, segment_bytes_max: int) -> None:
    """Check the size up to which a client has segments merged. Raises `InvalidParameter`.

    A smaller one would not merge segments but have them rewritten: the reference refuses it, too.
    """
    if target_bytes < segment_bytes_max:
        raise InvalidParameter(
            f"targetSize {target_bytes // _MB} MB should be greater than or equal to "
            f"configMaxSize {segment_bytes_max // _MB} MB: leave target_size out, or give the setting "
            "datacoord.segment_size_max_mb or more"
        )


def fold_bound(now: Timestamp, retention_s: float, checkpoint: Timestamp) -> Timestamp:
    """Return the timestamp up to which a vchannel's deletes may be folded in.

    No read goes back that far, and all deletes up to it are in files.
    """
    return min(minus_ms(now, int(retention_s * 1000)), checkpoint)


def fold_until(bound: Timestamp, inputs: Iterable[SegmentManifest], checkpoint: Timestamp) -> Timestamp:
    """Return the timestamp up to which deletes are folded into the segment that is made from the inputs.

    Deletes that one input has folded in must be folded into all: their rows get one manifest. Imported
    segments have folded in nothing. Their ``deletes_from`` may be beyond the checkpoint, and deletes up to it
    that are still in the log alone concern the other inputs.

    ``bound``: the result of `fold_bound`. Raises `Internal` for a result beyond the checkpoint: readers would
    skip deletes that the new segment does not have.
    """
    folded = max((bound, *(manifest.folded_until for manifest in inputs)))
    if folded > checkpoint:
        raise Internal(
            f"deletes would be folded in up to {folded}, but they are in files up to {checkpoint} only"
        )
    return folded


def is_candidate(info: SegmentInfo, taken: Collection[SegmentID]) -> bool:
    """Whether a segment is flushed, has rows, and is not ``taken`` by another job."""
    return info.state is SegmentState.FLUSHED and bool(info.manifest) and info.segment_id not in taken


def blamed(inputs: Iterable[SegmentID], reason: str) -> tuple[SegmentID, ...]:
    """Return the inputs of a failed plan whose files its reason names: paths contain the segment's id."""
    return tuple(segment_id for segment_id in inputs if f"/{segment_id}/" in reason)


def concerned_deltas(
    manifest: SegmentManifest, deltas: Iterable[DeltaLog], fold_until: Timestamp
) -> list[DeltaLog]:
    """Return the delta logs up to ``fold_until`` that may concern the segment and are not folded in."""
    oldest = manifest.commit_ts or min((file.ts_min for file in manifest.insert_logs), default=MAX_TIMESTAMP)
    return [
        delta
        for delta in deltas
        if manifest.deletes_from < delta.file.ts_max <= fold_until and delta.file.ts_max > oldest
    ]


def expired_rows(manifest: SegmentManifest, until: Timestamp) -> int:
    """Return the number of rows in files that are fully expired."""
    return sum(file.rows for file in manifest.insert_logs if (manifest.commit_ts or file.ts_max) <= until)


def choose(
    candidates: Sequence[Candidate],
    thresholds: CompactionThresholds,
    rows_max: int,
    *,
    force: bool,
    rows_target: int | None = None,
) -> list[tuple[SegmentInfo, ...]]:
    """Choose the segments to rewrite, grouped by the new segment they go to. No segment is named twice.

    ``rows_max``: how many rows a segment of the schema has at most; segments that were made when there were
    more keep their maximum. ``force``: a user asked for it, so two small segments or any dead row are enough.
    ``rows_target``: merge segments up to this many rows, at most a segment's maximum. Every segment is then
    rewritten, even one that fits with no other: clients look for each segment in the plans of such a
    compaction, and request another compaction until they find it. None: merge segments below half of the
    maximum, up to the maximum.
    """
    chosen = []
    for group in _groups(candidates):
        buckets = _buckets(group, rows_max, 2 if force else thresholds.merge_segments_min, rows_target)
        merged = {info.segment_id for bucket in buckets for info in bucket}
        alone = [c for c in group if c.info.segment_id not in merged and _is_worn(c, thresholds, force)]
        chosen += [*buckets, *((c.info,) for c in alone)]
    return chosen


def choose_clusterings(
    candidates: Sequence[Candidate], rows_max: int
) -> tuple[list[tuple[SegmentInfo, ...]], list[Candidate]]:
    """Choose the segments to rewrite by their clustering key, and return the candidates that are left.

    All segments of a partition and vchannel are rewritten together, or as many at a time as `EXCHANGE_MAX`
    allows. Those that one segment can hold are left: there is nothing to be skipped. Segments that the same
    clustering compaction made, without dead rows, are left too, unless they are so few that others can join
    them in one plan.
    """
    chosen, left = [], []
    for group in _groups(candidates):
        settled = _settled_clusters(group, rows_max)
        rest = [c for c in group if c.info.clustering not in settled]
        if cluster_count(sum(c.info.rows for c in rest), rows_max) < 2:
            left += group
        else:
            left += [c for c in group if c.info.clustering in settled]
            chosen += _exchanges([c.info for c in rest], rows_max)
    return chosen, left


def _settled_clusters(group: Sequence[Candidate], rows_max: int) -> set[int]:
    """Return the clustering compactions whose segments are not to be clustered again."""
    members: dict[int, list[Candidate]] = {}
    for candidate in group:
        members.setdefault(candidate.info.clustering, []).append(candidate)
    settled = set()
    for made_by, own in members.items():
        pairs = len(own) * cluster_count(sum(c.info.rows for c in own), rows_max)
        is_whole = len(own) == len(group) or 2 * pairs > EXCHANGE_MAX
        if made_by and is_whole and not any(c.dead_rows + c.expired_rows for c in own):
            settled.add(made_by)
    return settled


def _exchanges(infos: Sequence[SegmentInfo], rows_max: int) -> list[tuple[SegmentInfo, ...]]:
    """Divide segments to rewrite by their clustering key into plans."""
    plans: list[tuple[SegmentInfo, ...]] = []
    first, rows = 0, 0
    for number, info in enumerate(infos):
        inputs, rows = number - first, rows + info.rows
        if inputs and (inputs == INPUTS_MAX or (inputs + 1) * cluster_count(rows, rows_max) > EXCHANGE_MAX):
            plans.append(tuple(infos[first:number]))
            first, rows = number, info.rows
    return [*plans, tuple(infos[first:])]


def _groups(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    """Return the candidates of each partition and vchannel."""
    groups: dict[tuple[CollectionID, str, PartitionID], list[Candidate]] = {}
    for candidate in candidates:
        info = candidate.info
        groups.setdefault((info.collection_id, info.vchannel, info.partition_id), []).append(candidate)
    return groups.values()


def _is_worn(candidate: Candidate, thresholds: CompactionThresholds, force: bool) -> bool:
    dead_rows = candidate.dead_rows + candidate.expired_rows
    if force:
        return dead_rows > 0
    return (
        dead_rows >= thresholds.deleted_ratio * candidate.info.rows
        or candidate.dead_bytes > thresholds.deleted_bytes
    )


def _buckets(
    group: Sequence[Candidate], rows_max: int, segments_min: int, rows_target: int | None
) -> list[tuple[SegmentInfo, ...]]:
    """Pack small segments together, smallest first, each bucket within the maximum of one segment.

    Clusters stay alone.
    """
    small = [
        c.info
        for c in group
        if not c.info.clustering
        if rows_target is not None or 2 * c.info.rows < max(rows_max, c.info.max_rows)
    ]
    alone = [(c.info,) for c in group if c.info.clustering and rows_target is not None]
    if rows_target is None and len(small) < segments_min:
        return []
    small.sort(key=lambda info: (info.rows, info.segment_id))
    buckets: list[tuple[SegmentInfo, ...]] = [*alone]
    first = 0
    while first < len(small):
        most = max(rows_max, small[first].max_rows)
        if rows_target is not None:
            most = min(rows_target, most)
        last, free = first + 1, most - small[first].rows
        while last < len(small) and small[last].rows <= free and last - first < INPUTS_MAX:
            free -= small[last].rows
            last += 1
        if last - first > 1 or rows_target is not None:
            buckets.append(tuple(small[first:last]))
        first = last
    return buckets


def superseded_deltas(
    deltas: Iterable[DeltaLog],
    segments: Sequence[SegmentManifest],
    bound: Timestamp,
    is_concerned: Callable[[SegmentManifest, DeltaLog], bool],
) -> list[DeltaLog]:
    """Return the delta logs of a vchannel that no reader needs.

    ``segments``: all segments of the vchannel that are not dropped. ``bound``: the result of `fold_bound`.
    ``is_concerned`` returns False only if a delta log certainly names no key of a segment; it is called only
    if the segment has older rows that the deletes are not folded into.
    """
    return [
        delta
        for delta in deltas
        if delta.file.ts_max <= bound
        and not any(concerned_deltas(s, (delta,), bound) and is_concerned(s, delta) for s in segments)
    ]
