"""The moment from which reads see imported rows: decided once, permanently, and for every node.

Imported rows count from their commit, but are served only later, when their segments are loaded. Reads as of
timestamps in between have been answered without them. When such a read is repeated (an iterator's next page),
it must be answered without them again, by any node that has the segment by then. So the first version that
names imported segments carries a moment, one for all of them: reads as of an earlier timestamp do not see
them. From then on the moment belongs to the segment: it applies to a copy with an index, on other nodes and
in other replicas, and across restarts, as long as a version names the segment.

The moment must be later than every read that precedes the version on the channel, and it must be known before
the version can be written. It is therefore a fresh timestamp plus `LEAD_MS`, which leaves time to persist it
and to announce the version. An import counts as served when the nodes have passed the moment
(`SegmentServing.visible`). If a version took longer to arrive, reads as of a timestamp between the moment and
its arrival would be answered without the rows at first and with them later. The same applies to a replica
that starts to serve the rows later than another one.

A stamp is persisted before the version is announced. After a failure it stays in force if some node received
the version; otherwise it has had no effect, and is replaced by a later one.

No moment is needed where no read can have been answered without the rows: in the first version of a load, or
in the first version with their partition. There the rows count from their commit. A segment that compaction
made from imported segments inherits the latest of their moments. It holds other rows too, so a node does not
hide it but refuses the earlier reads.

A write that deletes rows has its deletes in delta logs. Reads see them from the same moment as its rows, so
they see all of the write or nothing. Nodes apply them when the version arrives, before the moment: it is
further ahead the more there are.

Once a write is served, its deletes are among those that nodes load, with the timestamp of the commit. A node
that loads them then must not let them take effect before the write's rows do. So the moments of the latest
writes that delete are kept by their commits, which no two writes share and which merging and folding in do
not change, and are part of each request to load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from elanus.core.heirs import Heirs
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querycoord.replica_records import ReplicaRecord

LEAD_MS = 250
"""How far the moment is ahead of the time at which the version is made, in milliseconds."""
DELETES_LEAD_MS = 750
"""How much further it is for a version that brings deletes; one more for as many as `_DELETES_A_MS`."""
_DELETES_A_MS = 100
WRITES_KEPT_MAX = 1024
"""Of how many writes the moments are kept: some 40 KB in a record that is written with every version. Only
reads as of between the commit and the moment of an earlier write differ on a node that loads it later."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The decisions that the replicas' versions contain.

    ``named``: the segments that versions in force name, each with its moment (0: it counts from its commit).
    ``stamped``: moments of versions that may not have been announced. ``partitions``: those that can be read;
    None: all. ``found``: segments that nodes serve, whether or not a version in force names them.
    ``deletes``: the delta logs that versions in force name, each with its moment. ``writes``: the commits of
    writes that delete, each with the moment of its deletes; some may not have been announced.
    """

    named: Mapping[SegmentID, Timestamp]
    stamped: Mapping[SegmentID, Timestamp]
    partitions: frozenset[PartitionID] | None
    found: Collection[SegmentID]
    deletes: Mapping[str, Timestamp] = field(default_factory=dict)
    writes: Mapping[Timestamp, Timestamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moments:
    """``known``: moments that are decided. ``open``: segments that need a new one."""

    known: Mapping[SegmentID, Timestamp]
    open: tuple[SegmentID, ...]


def settled(records: Iterable[ReplicaRecord], found: Collection[SegmentID]) -> Settled:
    """Collect what the versions have decided. ``records``: those of all replicas of the collection."""
    named: dict[SegmentID, Timestamp] = {}
    stamped: dict[SegmentID, Timestamp] = {}
    partitions: frozenset[PartitionID] | None = frozenset()
    deletes: dict[str, Timestamp] = {}
    writes: dict[Timestamp, Timestamp] = {}
    for record in records:
        for commit, moment in record.writes.items():
            writes[commit] = max(moment, writes.get(commit, NO_TIMESTAMP))
        stamped |= record.stamps
        info = record.info
        deletes |= info.deletes
        named = {**dict.fromkeys(info.sealed, NO_TIMESTAMP), **named}
        for segment_id, moment in info.visible_from.items():
            if moment > named.get(segment_id, moment):
                named[segment_id] = moment
        if info.version and partitions is not None:
            partitions = None if record.partitions is None else partitions.union(record.partitions)
    return Settled(named, stamped, partitions, found, deletes, writes)


def decide_moments(
    online: Iterable[SegmentID],
    manifests: Mapping[SegmentID, SegmentManifest],
    heirs: Heirs,
    before: Settled,
    pending: Collection[Timestamp] = (),
) -> Moments:
    """Decide the moments of the segments that a version brings online.

    ``heirs``: of the segments named before. ``pending``: the commits of writes that are not served. Rows of a
    served write whose partition is loaded only now are seen together with its deletes.
    """
    inherited: dict[SegmentID, Timestamp] = {}
    for segment_id, moment in before.named.items():
        for heir in heirs.of(segment_id):
            inherited[heir] = max(moment, inherited.get(heir, NO_TIMESTAMP))
    announced = {moment for s, moment in before.stamped.items() if s in before.found}
    known, undecided = {}, []
    for segment_id in online:
        manifest = manifests.get(segment_id)
        stamp = before.stamped.get(segment_id)
        if segment_id in before.named:
            known[segment_id] = before.named[segment_id]
        elif segment_id in inherited:
            known[segment_id] = inherited[segment_id]
        elif stamp in announced:
            known[segment_id] = stamp
        elif manifest is not None and _is_late(manifest, before):
            undecided.append(segment_id)
        elif manifest is not None and manifest.commit_ts not in pending:
            known[segment_id] = before.writes.get(manifest.commit_ts, NO_TIMESTAMP)
    return Moments({s: moment for s, moment in known.items() if moment}, tuple(undecided))


def lead_ms(deletes: Iterable[DeltaLog]) -> int:
    """Return how far the moment of a version with these deletes is ahead."""
    keys = sum(log.file.rows for log in deletes)
    return LEAD_MS + (DELETES_LEAD_MS + keys // _DELETES_A_MS if keys else 0)


def delete_moments(
    unserved: Iterable[DeltaLog],
    rows: Mapping[SegmentID, Timestamp],
    manifests: Mapping[SegmentID, SegmentManifest],
    before: Settled,
) -> dict[str, Timestamp | None]:
    """Return the moment of each delta log; None for those that need a new one.

    ``rows``: the moments of the version's segments, those named before included.
    """
    of_write = {manifests[s].commit_ts: moment for s, moment in rows.items() if moment and s in manifests}
    is_read = before.partitions is None or bool(before.partitions)
    found: dict[str, Timestamp | None] = {}
    for log in unserved:
        if log.file.path in before.deletes:
            found[log.file.path] = before.deletes[log.file.path]
        elif not is_read:
            found[log.file.path] = NO_TIMESTAMP
        else:
            found[log.file.path] = of_write.get(log.file.ts_max)
    return found


def with_writes(
    before: Mapping[Timestamp, Timestamp],
    unserved: Iterable[DeltaLog],
    deletes: Mapping[str, Timestamp],
) -> dict[Timestamp, Timestamp]:
    """Return the moments of the latest writes by commit, with those of the delta logs of a version."""
    new = {log.file.ts_max: deletes[log.file.path] for log in unserved}
    writes = {**before, **{commit: moment for commit, moment in new.items() if moment}}
    return {commit: writes[commit] for commit in sorted(writes)[-WRITES_KEPT_MAX:]}


def _is_late(manifest: SegmentManifest, before: Settled) -> bool:
    """Whether reads may have been answered without rows that were committed before them."""
    is_read = before.partitions is None or manifest.partition_id in before.partitions
    return is_read and manifest.commit_ts != NO_TIMESTAMP
