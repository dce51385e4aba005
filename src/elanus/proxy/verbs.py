"""What the families of verbs share: the proxy they work through."""

from __future__ import annotations

from elanus.core.ids import PartitionID
from elanus.proxy.cache import CachedCollection
from elanus.proxy.pressure import Pressure
from elanus.proxy.proxy import Proxy


class Verbs:
    _proxy: Proxy
    _pressure: Pressure

    def _collection(self, database: str, name: str) -> CachedCollection:
        return self._proxy.collection(database, name)


def partition_ids(cached: CachedCollection, names: tuple[str, ...]) -> tuple[PartitionID, ...]:
    """Raises `PartitionNotFound`."""
    return tuple(dict.fromkeys(cached.partition_id(name) for name in names))
