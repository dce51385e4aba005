"""The identity of a cluster: a random id, stored in the metadata and with the objects.

Metadata that is empty, or of another cluster, refers to none of the objects and to nothing in the log. A
cluster that went on with it would answer as if there were no collections, and would remove what nothing
refers to: the log at once, and with it rows that are nowhere else. So every process compares the two at its
start, and a role again whenever it joins, because etcd may come back with other data while the process runs.
"""

from __future__ import annotations

import asyncio
import uuid

import structlog

from elanus.core.errors import Unavailable
from elanus.core.faults import StorageFault
from elanus.core.offload import Offload
from elanus.meta.port import Compare, CompareFailed, MetaStore, Put
from elanus.storage.port import ObjectExists, ObjectMissing, ObjectStore

KEY = "cluster"
"""Where the metadata has the id."""
PATH = "cluster"
"""The object that has it."""
_log = structlog.get_logger("cluster")


class ClusterIdentity:
    """Made by `open`. ``meta_url`` and ``store_url`` are for errors."""

    def __init__(self, meta: MetaStore, cluster_id: str, meta_url: str, store_url: str) -> None:
        self._meta = meta
        self._id = cluster_id
        self._meta_url, self._store_url = (url.partition("?")[0] for url in (meta_url, store_url))

    @classmethod
    async def open(
        cls,
        meta: MetaStore,
        store: ObjectStore,
        *,
        meta_url: str,
        store_url: str,
        offload: Offload = asyncio.to_thread,
    ) -> ClusterIdentity:
        """Compare the ids, or give a new cluster one. Raises `Unavailable` when they differ."""
        try:
            stored: str = await offload(_read, store)
            if not stored:
                stored = await offload(_write, store, await _take(meta))
        except StorageFault as error:
            raise Unavailable(f"the cluster's id at {store_url} cannot be read: {error}") from error
        identity = cls(meta, stored, meta_url, store_url)
        await identity.check()
        return identity

    async def check(self) -> None:
        """Raises `Unavailable` when the metadata is not that of the objects, or cannot be read."""
        found = await self._meta.get(KEY)
        if found is not None and found.value.decode() == self._id:
            return
        what = "is empty" if found is None else f"is that of cluster {found.value.decode(errors='replace')}"
        raise Unavailable(
            f"the metadata at {self._meta_url} {what}, but the objects at {self._store_url} belong to "
            f"cluster {self._id}: restore etcd from its snapshot, or correct meta.url or storage.url. For "
            f"a new cluster use other prefixes. If this metadata is the right one, remove the object "
            f"{PATH!r} from there"
        )


async def _take(meta: MetaStore) -> str:
    """Return the id in the metadata, after giving it one if it has none."""
    while True:
        found = await meta.get(KEY)
        if found is not None:
            return found.value.decode()
        cluster_id = uuid.uuid4().hex
        try:
            await meta.txn([Put(KEY, cluster_id.encode())], [Compare(KEY, 0)])
        except CompareFailed:
            continue  # another process was the first
        _log.info("cluster named", cluster=cluster_id)
        return cluster_id


def _read(store: ObjectStore) -> str:
    try:
        return bytes(store.get(PATH)).decode()
    except ObjectMissing:
        return ""


def _write(store: ObjectStore, cluster_id: str) -> str:
    """Store the id, unless another process was the first. Returns the stored one."""
    try:
        store.put(PATH, cluster_id.encode())
    except ObjectExists:
        return _read(store)
    return cluster_id
