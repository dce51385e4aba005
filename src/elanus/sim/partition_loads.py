"""Which partitions reads may miss, because they are not loaded. For the judge."""

from __future__ import annotations

from collections.abc import Callable

from elanus.core.ids import PartitionID


class PartitionLoads:
    """All partitions are loaded at first."""

    def __init__(self) -> None:
        self._missing: dict[PartitionID, int] = {}
        """How often each has been released."""
        self._releases = 0

    def may_miss(self, partition_id: PartitionID) -> bool:
        return partition_id in self._missing

    @property
    def are_whole(self) -> bool:
        """Whether no partition may be missing."""
        return not self._missing

    def releases(self, partition_id: PartitionID) -> None:
        """Record that a release begins."""
        self._releases += 1
        self._missing[partition_id] = self._releases

    def loaded(self, partition_id: PartitionID) -> Callable[[], None]:
        """Return what demands its rows again, for when reads that began before the load have ended. It does
        nothing if the partition is released meanwhile."""
        release = self._missing.get(partition_id)

        def demand() -> None:
            if self._missing.get(partition_id) == release:
                self._missing.pop(partition_id, None)

        return demand

    def all_loaded(self) -> None:
        """Record that all partitions are loaded, and no read is under way."""
        self._missing.clear()
