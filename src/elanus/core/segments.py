"""Segments: their states, the contents of a manifest, and the allowed steps between states.

::

    Growing ──seal──▶ Sealed ──flush job starts──▶ Flushing ──commit──▶ Flushed ──drop, compaction──▶ Dropped
       └───────────────────────────────── drop collection or partition ──────────────────────────────▶

A *growing* segment takes rows. A *sealed* one gets no new allocations, but rows written under older ones
may still arrive, until every allocation is used, returned or expired. Binlogs of a segment may
exist in any state: a pipeline range holds the rows of all segments of its vchannel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from elanus.core.clustering import Cluster
from elanus.core.ids import NO_SEGMENT, BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp


class SegmentState(IntEnum):
    """The wire's numbers."""

    NONE = 0
    NOT_EXIST = 1
    GROWING = 2
    SEALED = 3
    FLUSHED = 4
    FLUSHING = 5
    DROPPED = 6
    IMPORTING = 7


_STEPS: dict[SegmentState, frozenset[SegmentState]] = {
    SegmentState.GROWING: frozenset({SegmentState.SEALED, SegmentState.DROPPED}),
    SegmentState.SEALED: frozenset({SegmentState.FLUSHING, SegmentState.DROPPED}),
    SegmentState.FLUSHING: frozenset({SegmentState.FLUSHED, SegmentState.SEALED, SegmentState.DROPPED}),
    SegmentState.FLUSHED: frozenset({SegmentState.DROPPED}),
}


def may_become(current: SegmentState, following: SegmentState) -> bool:
    """Whether a segment may go from one state to the other. Flushing → Sealed: its job was abandoned."""
    return following in _STEPS.get(current, frozenset())


@dataclass(frozen=True, slots=True)
class BinlogFile:
    """One Parquet file of a segment (insert log) or of a vchannel's range (delta log).

    ``ts_min`` and ``ts_max`` bound the timestamps of its rows. ``is_sorted``: its rows are in the order of
    their primary keys (not set in files written by earlier releases). ``until``: rows with a larger timestamp
    are in the file, but no part of the collection that names it: a clone as of that moment (0: all are).
    """

    path: str
    rows: int
    size_bytes: int
    ts_min: Timestamp
    ts_max: Timestamp
    is_sorted: bool = False
    until: Timestamp = NO_TIMESTAMP

    @property
    def deletes_ts(self) -> Timestamp:
        """The timestamp of all deletes of a delta log, whatever the file says; 0: they have their own.

        The deletes of a write get theirs when the write is committed. A file that is cut has deletes of
        several timestamps, even if it is cut at the first of them.
        """
        has_one = self.ts_min == self.ts_max and self.until == NO_TIMESTAMP
        return self.ts_max if has_one else NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """The authoritative list of a segment's files: a file that no manifest names does not exist.

    ``deletes_from``: deletes with a larger timestamp are not folded into the files; readers apply the
    vchannel's delta logs beyond it. ``commit_ts``: if set, the timestamp of every row, instead of the
    timestamps in the files; imported rows exist from their commit on. ``cluster``: the range of the
    clustering key that the rows have, if a clustering compaction made the segment.
    """

    segment_id: SegmentID
    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    insert_logs: tuple[BinlogFile, ...]
    stats_logs: tuple[str, ...]
    deletes_from: Timestamp
    parents: tuple[SegmentID, ...] = ()
    commit_ts: Timestamp = NO_TIMESTAMP
    cluster: Cluster | None = None

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.insert_logs)

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.insert_logs)

    @property
    def is_sorted(self) -> bool:
        """Whether every insert log is sorted: the rows form runs, each in the order of the primary keys."""
        return all(f.is_sorted for f in self.insert_logs)

    @property
    def folded_until(self) -> Timestamp:
        """The timestamp up to which deleted rows are gone from the files; 0 if nothing was folded in.

        The same holds for imported files: deletes up to the commit never concerned their rows.
        """
        return self.deletes_from if self.deletes_from > self.commit_ts else NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The deletes of one (vchannel, range): they apply to all older rows of the vchannel."""

    vchannel: str
    file: BinlogFile


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A built index of one field of one segment, as one object.

    ``metric_type``: "" for a scalar field, whose index holds no vectors either. ``params`` are the resolved
    build parameters (index type, metric and so on); ``rows`` equals the segment's rows, in the order of the
    manifest's insert logs. ``disk_bytes``: the part of ``size_bytes`` that stays on disk when it is loaded.
    """

    build_id: BuildID
    index_id: IndexID
    field_id: FieldID
    segment_id: SegmentID
    index_type: str
    metric_type: str
    params: dict[str, str]
    path: str
    rows: int
    size_bytes: int
    has_raw_vectors: bool
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Datacoord's record of a segment.

    ``rows``: the number of rows in binlogs; ``manifest``: the manifest object's path ("" before the first
    commit). ``last_expire``: the latest expiry of any allocation handed out; ``sealed_at``: no row with a
    larger timestamp belongs to the segment (0 while it grows); ``created`` and ``dropped``: the timestamps of
    those events. ``compacted_from``: the segments that compaction made it from. ``is_sorted``: see
    `SegmentManifest.is_sorted`; False before the first commit. ``lender``: the segment that its
    files were written for, if that is another one, of a collection that was cloned (0: it is not).
    ``clustering``: the plan of the clustering compaction that made it, or its input if it was rewritten (0:
    none).
    """

    segment_id: SegmentID
    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    state: SegmentState
    max_rows: int
    created: Timestamp
    last_expire: Timestamp
    sealed_at: Timestamp = NO_TIMESTAMP
    dropped: Timestamp = NO_TIMESTAMP
    rows: int = 0
    size_bytes: int = 0
    manifest: str = ""
    compacted_from: tuple[SegmentID, ...] = ()
    is_sorted: bool = False
    lender: SegmentID = NO_SEGMENT
    clustering: int = 0
