"""The space that the files of collections take, for disk limits."""

from __future__ import annotations

from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.core.ids import CollectionID


class StorageCalls(Protocol):
    """The space that files take, for disk limits."""

    @repeatable
    async def stored_bytes(self, collection_ids: tuple[CollectionID, ...]) -> int:
        """Return the size of the insert logs of these collections together; of all if none is named.

        Files that wait for garbage collection, delete logs and indexes do not count.
        """
        ...
