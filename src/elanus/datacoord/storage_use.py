"""How much space the files of collections take."""

from __future__ import annotations

from elanus.core.ids import CollectionID
from elanus.datacoord.state import DataState


class StorageUse:
    """Implements `elanus.api.storage_use.StorageCalls`."""

    def __init__(self, state: DataState) -> None:
        self._state = state

    async def stored_bytes(self, collection_ids: tuple[CollectionID, ...]) -> int:
        return self._state.stored_bytes(collection_ids or None)
