"""Which partitions' growing rows a follower takes in.

A follower holds all rows of a partition that are not in finished segments, or none of them. Rows that were
skipped can be recovered only by following the vchannel again from a checkpoint. So a follower's coverage may
shrink while it runs, but never grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from elanus.core.ids import PartitionID


@dataclass(frozen=True, slots=True)
class Coverage:
    """The partitions that a follower takes in.

    ``whole``: every partition, including future ones; otherwise only those ``named``. ``dropped`` partitions
    have no rows.
    """

    whole: bool
    named: frozenset[PartitionID]
    dropped: frozenset[PartitionID] = frozenset()

    @classmethod
    def nothing(cls) -> Coverage:
        """No rows at all: for a vchannel that is followed for its deletes."""
        return cls.of(())

    @classmethod
    def everything(cls) -> Coverage:
        return cls(whole=True, named=frozenset())

    @classmethod
    def of(cls, named: Iterable[PartitionID]) -> Coverage:
        """These partitions, and no other."""
        return cls(whole=False, named=frozenset(named))

    def takes(self, partition_id: PartitionID) -> bool:
        """Whether rows of the partition are wanted."""
        return partition_id not in self.dropped and (self.whole or partition_id in self.named)

    def holds(self, partition_id: PartitionID) -> bool:
        """Whether all rows of the partition have been taken in (a dropped partition has none)."""
        return partition_id in self.dropped or self.takes(partition_id)

    def includes(self, wanted: Coverage) -> bool:
        """Whether everything that ``wanted`` takes is held."""
        if wanted.whole:
            return self.whole
        return all(self.holds(partition_id) for partition_id in wanted.named)

    def without(self, dropped: Iterable[PartitionID]) -> Coverage:
        """Return the coverage after these partitions were dropped."""
        return replace(self, dropped=self.dropped.union(dropped))

    def narrowed(self, named: Iterable[PartitionID]) -> Coverage:
        """Return the coverage reduced to these partitions. All of them must be held."""
        return replace(Coverage.of(named), dropped=self.dropped)
