"""From which moment on reads see what an import brought: decided once, for every node and for good.

Imported rows count from their commit, but come into service later, when their segments are loaded. Reads
as of moments in between have been answered without them. Asked again (an iterator's next page), they must
be answered so again, by whichever node has the segment by then. So the first version that names imported
segments carries a moment, one for all of them: reads as of an earlier one do not see them. From then on the
moment goes with the segment: to a copy with an index, to other nodes and other replicas, through restarts,
for as long as a version names it.

The moment has to lie above every read that stands before the version, and is needed to write the version.
So it is a fresh timestamp, and `LEAD_MS` more: time to persist it and to have the version told. An import
counts as served when the nodes have passed it (`SegmentServing.visible`). Were a version longer under way,
reads as of the time from the moment to its arrival would be answered without the rows once, and with them
later; likewise in a replica that brings them into service later than another one.

A stamp is persisted before the version is told. After a failure it stays in force if some node has heard of
it; else it has decided nothing, and is replaced by a later one.

No moment is needed where no read can have been answered without the rows: in the first version of a load, or
the first one with their partition. There they count from their commit. Segments that compaction made of
imported ones take over the latest moment of these; as they hold other rows too, a node does not hide them, it
refuses the earlier reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querycoord.state import ReplicaRecord

LEAD_MS = 250
"""By how much the moment lies ahead of the making of the version."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the replicas' versions have settled.

    ``named``: the segments that versions in force name, each with its moment (0: it counts from its commit).
    ``stamped``: moments of versions that may not have been told. ``partitions``: those that can be read;
    None: all. ``found``: segments that nodes serve, whether or not a version in force names them.
    """

    named: Mapping[SegmentID, Timestamp]
    stamped: Mapping[SegmentID, Timestamp]
    partitions: frozenset[PartitionID] | None
    found: Collection[SegmentID]


@dataclass(frozen=True, slots=True)
class Moments:
    """``known``: moments that are decided. ``open``: segments that are to get a new one."""

    known: Mapping[SegmentID, Timestamp]
    open: tuple[SegmentID, ...]


def settled(records: Iterable[ReplicaRecord], found: Collection[SegmentID]) -> Settled:
    """``records``: of all replicas of the collection."""
    named: dict[SegmentID, Timestamp] = {}
    stamped: dict[SegmentID, Timestamp] = {}
    partitions: frozenset[PartitionID] | None = frozenset()
    for record in records:
        stamped |= record.stamps
        info = record.info
        for segment_id in info.sealed:
            moment = info.visible_from.get(segment_id, NO_TIMESTAMP)
            named[segment_id] = max(moment, named.get(segment_id, NO_TIMESTAMP))
        if info.version and partitions is not None:
            partitions = None if record.partitions is None else partitions.union(record.partitions)
    return Settled(named, stamped, partitions, found)


def decide_moments(
    online: Iterable[SegmentID],
    manifests: Mapping[SegmentID, SegmentManifest],
    successors: Mapping[SegmentID, SegmentID],
    before: Settled,
) -> Moments:
    """For the segments that a version brings online. ``successors``: as `RecoveryInfo` has them."""
    inherited: dict[SegmentID, Timestamp] = {}
    for segment_id, moment in before.named.items():
        heir = successors.get(segment_id)
        if heir is not None:
            inherited[heir] = max(moment, inherited.get(heir, NO_TIMESTAMP))
    told = {moment for s, moment in before.stamped.items() if s in before.found}
    known, undecided = {}, []
    for segment_id in online:
        manifest = manifests.get(segment_id)
        stamp = before.stamped.get(segment_id)
        if segment_id in before.named:
            known[segment_id] = before.named[segment_id]
        elif segment_id in inherited:
            known[segment_id] = inherited[segment_id]
        elif stamp in told:
            known[segment_id] = stamp
        elif manifest is not None and _is_late(manifest, before):
            undecided.append(segment_id)
    return Moments({s: moment for s, moment in known.items() if moment}, tuple(undecided))


def _is_late(manifest: SegmentManifest, before: Settled) -> bool:
    """Whether reads may have been answered without rows that count from before them."""
    is_read = before.partitions is None or manifest.partition_id in before.partitions
    return is_read and manifest.commit_ts != NO_TIMESTAMP
