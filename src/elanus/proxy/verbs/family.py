"""The base of all verb families: the proxy they work through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elanus.core.errors import InvalidParameter
from elanus.core.ids import PartitionID
from elanus.proxy.api.introspection import ComponentView
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.verbs.pressure import Pressure


class VerbFamily:
    """``current`` returns the proxy role's running instance; it raises `NotReady` while there is none.

    ``pressure`` slows or refuses writes before memory or disk run out; ``components`` returns the state of
    every role of the system.
    """

    def __init__(
        self,
        current: Callable[[], Proxy],
        pressure: Pressure,
        components: Callable[[], Sequence[ComponentView]],
    ) -> None:
        self._current = current
        self._pressure = pressure
        self._components = components

    @property
    def _proxy(self) -> Proxy:
        return self._current()

    def _collection(self, database: str, name: str) -> CachedCollection:
        return self._proxy.collection(database, name)


def refuse_partitions(cached: CachedCollection, doing: str) -> None:
    """Raises `InvalidParameter` for a collection whose partitions belong to its partition key."""
    if cached.view.schema.partition_key is not None:
        raise InvalidParameter(
            f"disable {doing} if partition key mode is used: collection {cached.view.name}, "
            f"partition key {cached.view.schema.partition_key.name}"
        )


def partition_ids(cached: CachedCollection, names: tuple[str, ...]) -> tuple[PartitionID, ...]:
    """Raises `PartitionNotFound`."""
    return tuple(dict.fromkeys(cached.partition_id(name) for name in names))
