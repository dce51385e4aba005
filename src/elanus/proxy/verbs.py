"""What the families of verbs share: the proxy they work through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elanus.core.ids import PartitionID
from elanus.proxy.api import ComponentView
from elanus.proxy.cache import CachedCollection
from elanus.proxy.pressure import Pressure
from elanus.proxy.proxy import Proxy


class Verbs:
    """``current`` finds the proxy role's running instance; it raises `NotReady` while there is none.

    ``pressure`` slows or refuses writes before memory or disk run out; ``components`` tells the state of
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


def partition_ids(cached: CachedCollection, names: tuple[str, ...]) -> tuple[PartitionID, ...]:
    """Raises `PartitionNotFound`."""
    return tuple(dict.fromkeys(cached.partition_id(name) for name in names))
