"""The progress of one load, in percent: how much of what existed when it began is there by now."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from elanus.core.heirs import Heirs
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.querycoord.fleet import Statuses
from elanus.querycoord.replica import Replica
from elanus.querycoord.target import Target


class LoadProgress:
    """``load_ts``: the load is complete when the nodes have caught up with this timestamp."""

    def __init__(self, load_ts: Timestamp) -> None:
        self.load_ts = load_ts
        self._initial: dict[SegmentID, PartitionID] | None = None
        self._heirs = Heirs()
        self._is_complete = False

    def without(self, released: Collection[PartitionID]) -> LoadProgress:
        """Return the progress of the load after a release of partitions: the rest is not loaded again."""
        rest = LoadProgress(self.load_ts)
        rest._heirs, rest._is_complete = self._heirs, self._is_complete
        if self._initial is not None:
            rest._initial = {s: p for s, p in self._initial.items() if p not in released}
        return rest

    @property
    def has_begun(self) -> bool:
        """Whether a target of the load has been read: before that, nobody knows what belongs to it."""
        return self._initial is not None

    def segments(self) -> tuple[SegmentID, ...]:
        """Return the segments by which progress is measured."""
        return tuple(self._initial or ())

    def begin(self, target: Target) -> None:
        """Measure progress by the segments of the load's first target."""
        damaged = {s: d.manifest for s, d in target.damaged.items()}
        self._initial = {s: m.partition_id for s, m in {**target.segments, **damaged}.items()}

    def update(self, target: Target, served: Sequence[Collection[SegmentID]]) -> None:
        """Replace segments by those that compaction has moved their rows to.

        ``served``: the sealed segments that each replica serves. A segment that all replicas serve counts as
        it is, even if its successor already exists.
        """
        heirs, damaged = target.recovery.heirs, target.damaged
        found = {}
        for segment_id, partition_id in (self._initial or {}).items():
            if all(segment_id in segments for segments in served):
                found[segment_id] = partition_id
                continue
            for current in heirs.of(segment_id) if segment_id in heirs else (segment_id,):
                if current in target.segments or current in damaged:
                    found[current] = partition_id
        self._initial = found

    def note_heirs(self, heirs: Heirs) -> None:
        """``heirs``: as in the latest target."""
        self._heirs = heirs

    def percentages(
        self, partition_ids: Sequence[PartitionID], replicas: Sequence[Replica], statuses: Statuses
    ) -> dict[PartitionID, int]:
        """Return each partition's progress: 100 once all replicas answer as of the load, and as long as
        their nodes follow them.

        A node that serves a collection already has the rows of an added partition before reads there see
        them.
        """
        complete = bool(replicas) and self._is_complete and all(r.is_followed(statuses) for r in replicas)
        are_read = all(r.reads(partition_ids) for r in replicas)
        self._is_complete = is_ready = complete or (are_read and self._is_ready(replicas, statuses))
        here = [replica.here(statuses) | replica.stood_in_for for replica in replicas]
        return {p: 100 if is_ready else self._share(p, here) for p in partition_ids}

    def _is_ready(self, replicas: Sequence[Replica], statuses: Statuses) -> bool:
        is_served = bool(replicas) and all(replica.is_served(statuses) for replica in replicas)
        if not self.has_begun or not is_served or any(r.unrecovered.all() for r in replicas):
            return False
        caught_up = all(
            statuses[node_id].service_times.get(vchannel, 0) >= self.load_ts
            for replica in replicas
            for vchannel, node_id in replica.info.vchannels.items()
        )
        return caught_up and all(
            self._has_initial(r.serving(statuses).keys() | r.stood_in_for) for r in replicas
        )

    def _has_initial(self, served: Collection[SegmentID]) -> bool:
        """Whether all segments that the load began with are served, themselves or as compaction outputs."""
        return all(s in served or self._heirs.one_of(s) in served for s in self.segments())

    def _share(self, partition_id: PartitionID, here: list[set[SegmentID]]) -> int:
        wanted = {s for s, p in (self._initial or {}).items() if p == partition_id}
        if not wanted:
            return 0
        return min((min(99, 100 * len(wanted & there) // len(wanted)) for there in here), default=0)
