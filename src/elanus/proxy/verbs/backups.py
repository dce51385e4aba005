"""Backups and restores by name: what the proxy adds to datacoord's part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from elanus.api.backups import BackupCalls, BackupSource, ForeignRows, ServerContents
from elanus.api.connector import SnapshotLease
from elanus.api.rootcoord import CloneRequest
from elanus.api.snapshots import CloneSource, RestoreJob
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionAlreadyExists, CollectionNotFound, InvalidParameter
from elanus.core.ids import CollectionID
from elanus.core.limits import PARTITIONS_MAX
from elanus.core.names import check_collection_name, check_partition_name
from elanus.core.pins import restore_key
from elanus.core.rate_limits import Action
from elanus.core.requests import checked_shards
from elanus.core.schema_rules import check_schema
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.verbs.clones import job_of

_TIMEOUT_S = 120.0
"""Rows that only the log has are written to files first; a restore looks at each of its files."""


class Backups:
    """``current`` returns the proxy role's running instance; it raises `NotReady` while there is none."""

    def __init__(self, current: Callable[[], Proxy]) -> None:
        self._current = current

    def contents(self) -> ServerContents:
        return self._current().call(self._contents(None))

    def describe(self, database: str, collection: str) -> ServerContents:
        cached = self._current().collection(database, collection)
        return self._current().call(self._contents(cached.collection_id))

    def hold(
        self, database: str, collection: str, collection_id: CollectionID, moment: Timestamp, lease_ms: int
    ) -> SnapshotLease:
        proxy = self._current()
        cached = proxy.collection(database, collection)
        if cached.collection_id != collection_id:  # a privilege is on the name: it is not looked up by its id
            raise CollectionNotFound(
                f"collection not found[collection={collection}][id={collection_id}]: another one has the "
                "name now. Repeat the command"
            )
        proxy.admission.allow(Action.READING, cached)
        return proxy.call(self._data.hold_backup(collection_id, moment, lease_ms), _TIMEOUT_S)

    def release(self, snapshot_id: int) -> None:
        self._current().call(self._current().coordinators.data.unpin_snapshot(snapshot_id))

    def receive(self, database: str, collection: str, rows: ForeignRows) -> SnapshotLease:
        check_collection_name(collection)
        if rows.snapshot.collection is not None:
            check_received(rows.snapshot.collection)
        self._current().admission.allow_in(Action.DDL, database)
        return self._current().call(self._received(database, collection, rows), _TIMEOUT_S)

    def complete(self, database: str, collection: str, snapshot_id: int) -> RestoreJob:
        check_collection_name(collection)
        self._current().admission.allow_in(Action.DDL, database)
        return self._current().call(self._completed(database, collection, snapshot_id), _TIMEOUT_S)

    # on the event loop

    @property
    def _data(self) -> BackupCalls:
        return self._current().coordinators.data

    async def _contents(self, only: int | None) -> ServerContents:
        root = self._current().coordinators.root
        databases = await root.list_databases()
        names = {database.database_id: database.name for database in databases}
        collections: Sequence[Collection] = await root.list_collections("")
        found = tuple(
            BackupSource(names[c.database_id], c.name, c.collection_id, c.created)
            for c in collections
            if c.database_id in names and only in (None, c.collection_id)
        )
        return ServerContents(databases, found, await root.alloc_ids(1))

    async def _received(self, database: str, collection: str, rows: ForeignRows) -> SnapshotLease:
        taken = await self._current().coordinators.root.list_collections(database)
        if any(collection == c.name or collection in c.aliases for c in taken):
            raise CollectionAlreadyExists(
                f"collection already exists[database={database}][collection={collection}]: "
                "a restore makes a new collection, give it another name"
            )
        return await self._data.receive_rows(replace(rows, key=restore_key(database, collection, rows.key)))

    async def _completed(self, database: str, collection: str, snapshot_id: int) -> RestoreJob:
        coordinators = self._current().coordinators
        home = await self._data.check_received(snapshot_id, restore_key(database, collection))
        source = CloneSource(home, snapshot_id)
        job_id = await coordinators.root.alloc_ids(1)
        clone = await coordinators.root.clone_collection(CloneRequest(database, collection, source, job_id))
        await coordinators.data.unpin_snapshot(snapshot_id)
        return job_of(clone, database)


def check_received(collection: Collection) -> None:
    """Check the definition in a backup as that of a new collection: the file may be of anybody.

    Raises `InvalidParameter` and its subclasses, `NotSupported`.
    """
    schema = collection.schema
    check_schema(schema)
    if len(schema.by_id) != len(schema.fields):
        raise InvalidParameter(f"two fields of collection {collection.name} have one id: it is no backup")
    checked_shards(len(collection.vchannels) or -1)
    partitions = collection.partitions
    if not 0 < len(partitions) <= PARTITIONS_MAX:
        raise InvalidParameter(
            f"collection {collection.name} has {len(partitions)} partitions, and 1 to {PARTITIONS_MAX} are "
            "allowed: it is no backup"
        )
    for partition in partitions:
        check_partition_name(partition.name)
    for what in ({p.name for p in partitions}, {p.partition_id for p in partitions}):
        if len(what) != len(partitions):
            raise InvalidParameter(
                f"two partitions of collection {collection.name} have one name or one id: it is no backup"
            )
