"""The base of all verb families: the proxy they work through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elanus.core.errors import CollectionNotFound, InvalidParameter
from elanus.core.ids import CollectionID, PartitionID
from elanus.proxy.access.password_check import PasswordCheck
from elanus.proxy.api.introspection import ComponentView
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.verbs.pressure import Pressure


class VerbFamily:
    """``current`` returns the proxy role's running instance; it raises `NotReady` while there is none.

    ``pressure`` slows or refuses writes before memory or disk run out; ``components`` returns the state of
    every role of the system. ``passwords`` compares those that clients send; None where no such call comes.
    """

    def __init__(
        self,
        current: Callable[[], Proxy],
        pressure: Pressure,
        components: Callable[[], Sequence[ComponentView]],
        passwords: PasswordCheck | None = None,
    ) -> None:
        self._current = current
        self._pressure = pressure
        self._components = components
        self._passwords = passwords or PasswordCheck()

    @property
    def _proxy(self) -> Proxy:
        return self._current()

    def _collection(self, database: str, name: str) -> CachedCollection:
        return self._proxy.collection(database, name)

    def _collection_by_id(self, collection_id: CollectionID) -> CachedCollection:
        """Raises `CollectionNotFound`."""
        root = self._proxy.coordinators.root

        async def find() -> tuple[str, str]:
            found = await root.collection_by_id(collection_id)
            names = {d.database_id: d.name for d in await root.list_databases()}
            return names.get(found.database_id, ""), found.name

        database, name = self._proxy.define("describe collection", find)
        cached = self._collection(database, name) if database else None
        if cached is None or cached.collection_id != collection_id:  # moved or dropped meanwhile
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        return cached


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
