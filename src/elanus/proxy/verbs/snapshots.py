"""Snapshots of collections by name, for readers that open the files themselves."""

from __future__ import annotations

from collections.abc import Callable

from elanus.api.connector import SnapshotApi, SnapshotLease
from elanus.core.rate_limits import Action
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.verbs.family import partition_ids


class Snapshots:
    """``current`` returns the proxy role's running instance; it raises `NotReady` while there is none."""

    def __init__(self, current: Callable[[], Proxy], snapshots: SnapshotApi) -> None:
        self._current = current
        self._snapshots = snapshots

    def take(
        self,
        database: str,
        collection: str,
        partitions: tuple[str, ...],
        lease_ms: int,
        timeout_s: float | None,
        *,
        with_indexes: bool = False,
    ) -> SnapshotLease:
        """``timeout_s``: how long the reader waits (None: as long as the server does).

        Raises `CollectionNotFound`, `PartitionNotFound`, and what `SnapshotApi.take_snapshot` does.
        """
        proxy = self._current()
        cached = proxy.collection(database, collection)
        proxy.admission.allow(Action.READING, cached)
        ids = partition_ids(cached, partitions)
        taking = self._snapshots.take_snapshot(cached.collection_id, ids, lease_ms, with_indexes)
        return proxy.call(taking, timeout_s)

    def take_changes(
        self,
        database: str,
        collection: str,
        since: Timestamp,
        name: str,
        lease_ms: int,
        timeout_s: float | None,
    ) -> SnapshotLease:
        """As `take`. Raises `CollectionNotFound`, and what `SnapshotApi.take_changes` does."""
        proxy = self._current()
        cached = proxy.collection(database, collection)
        proxy.admission.allow(Action.READING, cached)
        taking = self._snapshots.take_changes(cached.collection_id, since, name, lease_ms)
        return proxy.call(taking, timeout_s)

    def release(self, snapshot_id: int) -> None:
        self._current().call(self._snapshots.release_snapshot(snapshot_id))
