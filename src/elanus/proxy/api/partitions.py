"""The verbs of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elanus.core.catalog import Partition


class PartitionVerbs(Protocol):
    """Collections with a partition key make and drop their partitions themselves, and refuse it here."""

    def create_partition(self, database: str, collection: str, partition: str) -> None: ...
    def drop_partition(self, database: str, collection: str, partition: str) -> None:
        """Raises `InvalidParameter` for one that is loaded. If it does not exist this succeeds."""
        ...

    def has_partition(self, database: str, collection: str, partition: str) -> bool: ...
    def list_partitions(self, database: str, collection: str) -> Sequence[Partition]: ...
    def partition_rows(self, database: str, collection: str, partition: str) -> int:
        """As `CollectionVerbs.collection_rows`. Raises `PartitionNotFound`."""
        ...
