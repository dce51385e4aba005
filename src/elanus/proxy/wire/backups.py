"""The calls of `elanus backup` and `elanus restore`, on the port for Milvus clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elanus.api.backups import ForeignRows, ServerContents
from elanus.api.connector import SnapshotLease
from elanus.api.snapshots import RestoreJob
from elanus.core.access import AccessPolicy
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import requires
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.pins import Place, place_of_pin

if TYPE_CHECKING:  # the proxy's role imports what the wire does not need
    from elanus.proxy.verbs.backups import Backups


class BackupService:
    """Implements `elanus.api.backups.BackupApi`, as `elanus.proxy.wire.interfaces` describes."""

    def __init__(self, verbs: Verbs, backups: Backups) -> None:
        self._verbs = verbs
        self._backups = backups

    @requires("PrivilegeBackupRBAC")
    def contents(self, caller: Caller) -> ServerContents:
        return self._backups.contents()

    @requires("PrivilegeCreateSnapshot", on="collection")
    def describe(self, caller: Caller, database: str, collection: str) -> ServerContents:
        return self._backups.describe(database, collection)

    @requires("PrivilegeCreateSnapshot", on="collection")
    def hold(
        self,
        caller: Caller,
        database: str,
        collection: str,
        collection_id: CollectionID,
        moment: Timestamp,
        lease_ms: int,
    ) -> SnapshotLease:
        return self._backups.hold(database, collection, collection_id, moment, lease_ms)

    @requires("PrivilegeUnpinSnapshotData", on="snapshot_id", found_by="place_of_pin")
    def release(self, caller: Caller, snapshot_id: int) -> None:
        self._backups.release(snapshot_id)

    def place_of_pin(self, pin_id: int) -> Place | None:
        return place_of_pin(self._verbs, pin_id)

    @requires("PrivilegeBackupRBAC")
    def users(self, caller: Caller) -> AccessPolicy:
        return self._verbs.access_policy()

    @requires("PrivilegeRestoreRBAC")
    def restore_users(self, caller: Caller, added: AccessPolicy) -> None:
        self._verbs.restore_access(added)

    @requires("PrivilegeCreateDatabase")
    def restore_database(self, caller: Caller, database: str, properties: dict[str, str]) -> None:
        if all(known.name != database for known in self._verbs.list_databases()):
            self._verbs.create_database(database, properties)

    @requires("PrivilegeRestoreSnapshot", on="collection")
    def receive(self, caller: Caller, database: str, collection: str, rows: ForeignRows) -> SnapshotLease:
        return self._backups.receive(database, collection, rows)

    @requires("PrivilegeRestoreSnapshot", on="collection")
    def complete(self, caller: Caller, database: str, collection: str, snapshot_id: int) -> RestoreJob:
        return self._backups.complete(database, collection, snapshot_id)

    @requires("PrivilegeCreateAlias", on="collection")
    def restore_aliases(
        self, caller: Caller, database: str, collection: str, aliases: tuple[str, ...]
    ) -> None:
        for alias in aliases:
            if not self._verbs.has_collection(database, alias):
                self._verbs.create_alias(database, collection, alias)
