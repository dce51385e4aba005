"""Snapshots and imports by name, for programs that reach the proxy's port and are no Milvus clients."""

from __future__ import annotations

from collections.abc import Callable

from elanus.core.ids import TaskID
from elanus.core.imports import ImportTask
from elanus.proxy.api import DEFAULT_PARTITION
from elanus.proxy.cache import CachedCollection
from elanus.proxy.imports import check_files
from elanus.proxy.proxy import Proxy
from elanus.proxy.verbs import partition_ids
from elanus.rpc.connector import SnapshotApi, SnapshotLease
from elanus.rpc.imports import ImportRequest


class Connector:
    """Implements `elanus.rpc.connector.ConnectorApi`, on the event loop.

    ``current`` finds the proxy role's instance; ``import_url`` is where files are imported from.
    """

    def __init__(self, current: Callable[[], Proxy], snapshots: SnapshotApi, import_url: str) -> None:
        self._current = current
        self._snapshots = snapshots
        self._import_url = import_url

    async def snapshot(
        self, database: str, collection: str, partitions: tuple[str, ...], lease_ms: int
    ) -> SnapshotLease:
        cached = await self._collection(database, collection)
        ids = partition_ids(cached, partitions)
        return await self._snapshots.take_snapshot(cached.collection_id, ids, lease_ms)

    async def release(self, snapshot_id: int) -> None:
        await self._snapshots.release_snapshot(snapshot_id)

    async def import_directory(self) -> str:
        return self._import_url

    async def start_import(
        self, database: str, collection: str, partition: str, files: tuple[str, ...]
    ) -> ImportTask:
        check_files(files)
        cached = await self._collection(database, collection)
        name = partition or DEFAULT_PARTITION
        request = ImportRequest(
            cached.collection_id, cached.view.name, cached.partition_id(name), name, files
        )
        return await self.import_task(await self._current().coordinators.data.start_import(request))

    async def import_task(self, task_id: TaskID) -> ImportTask:
        return await self._current().coordinators.data.import_task(task_id)

    async def cancel_import(self, task_id: TaskID) -> None:
        await self._current().coordinators.data.cancel_import(task_id)

    async def _collection(self, database: str, name: str) -> CachedCollection:
        cache = self._current().cache
        return cache.get(database, name) or await cache.fill(database, name)
