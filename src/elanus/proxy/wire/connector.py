"""The calls of the Spark connector and of `elanus import`: snapshots to read, imports to follow.

They arrive on the port for Milvus clients, and are operations like the RPCs of the Milvus service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elanus.api.connector import SnapshotLease, WriteTarget
from elanus.api.snapshots import RestoreJob, SnapshotView
from elanus.core.errors import CollectionNotFound, InvalidParameter
from elanus.core.ids import TaskID
from elanus.core.imports import ImportTask, WriteMode, WritePlace
from elanus.core.privileges import ANY
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE, requires
from elanus.proxy.api.imports import ImportOptions
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.import_options import check_key, import_options
from elanus.proxy.wire.pins import Place, place_of_pin

if TYPE_CHECKING:  # the proxy's role imports what the wire does not need
    from elanus.proxy.verbs.snapshots import Snapshots


class Connector:
    """Implements `elanus.api.connector.ConnectorApi`, as `elanus.proxy.wire.interfaces` describes.

    ``import_url``: the directory or store that files are imported from.
    """

    def __init__(self, verbs: Verbs, snapshots: Snapshots, import_url: str) -> None:
        self._verbs = verbs
        self._snapshots = snapshots
        self._import_url = import_url

    @requires("PrivilegeQuery", on="collection")
    def snapshot(
        self,
        caller: Caller,
        database: str,
        collection: str,
        partitions: tuple[str, ...],
        lease_ms: int,
        with_indexes: bool = False,
    ) -> SnapshotLease:
        """A snapshot contains nothing that a query of all rows would not return."""
        place = database, collection, partitions
        return self._snapshots.take(*place, lease_ms, caller.time_left_s, with_indexes=with_indexes)

    @requires("PrivilegeQuery", on="collection")
    def changes(
        self, caller: Caller, database: str, collection: str, since: Timestamp, name: str, lease_ms: int
    ) -> SnapshotLease:
        return self._snapshots.take_changes(database, collection, since, name, lease_ms, caller.time_left_s)

    @requires("PrivilegeUnpinSnapshotData", on="snapshot_id", found_by="place_of_pin")
    def release(self, caller: Caller, snapshot_id: int) -> None:
        self._snapshots.release(snapshot_id)

    def place_of_pin(self, pin_id: int) -> Place | None:
        return place_of_pin(self._verbs, pin_id)

    @requires("PrivilegeCreateSnapshot", on="collection")
    def create_snapshot(
        self, caller: Caller, database: str, collection: str, name: str, description: str
    ) -> SnapshotView:
        self._verbs.create_snapshot(database, collection, name, description, caller.time_left_s)
        return self._verbs.describe_snapshot(database, collection, name)

    @requires("PrivilegeDropSnapshot", on="collection")
    def drop_snapshot(self, caller: Caller, database: str, collection: str, name: str) -> None:
        self._verbs.drop_snapshot(database, collection, name)

    @requires("PrivilegeListSnapshots", on="collection")
    def snapshots(self, caller: Caller, database: str, collection: str) -> tuple[SnapshotView, ...]:
        names = self._verbs.list_snapshots(database, collection)
        return tuple(self._verbs.describe_snapshot(database, collection, name) for name in names)

    @requires("PrivilegeRestoreSnapshot", on="collection")
    def restore_snapshot(
        self, caller: Caller, database: str, collection: str, name: str, target: str
    ) -> RestoreJob:
        return self._verbs.restore_snapshot(database, collection, name, database, target)

    @requires("PrivilegeRestoreSnapshot", on="collection")
    def clone_collection(
        self, caller: Caller, database: str, collection: str, target: str, moment: Timestamp
    ) -> RestoreJob:
        return self._verbs.clone_collection(database, collection, database, target, moment)

    @requires("PrivilegeRestoreSnapshot", on="collection")
    def undrop_collection(self, caller: Caller, database: str, collection: str, target: str) -> RestoreJob:
        return self._verbs.undrop_collection(database, collection, target)

    @requires(NO_PRIVILEGE)
    def import_directory(self, caller: Caller) -> str:
        return self._import_url

    @requires("PrivilegeImport", on="collection")
    def start_import(
        self,
        caller: Caller,
        database: str,
        collection: str,
        partition: str,
        files: tuple[str, ...],
        options: dict[str, str],
    ) -> ImportTask:
        return self._verbs.start_import(database, collection, partition, files, import_options(options))

    @requires("PrivilegeImport", on="collection")
    def write_schema(
        self, caller: Caller, database: str, collection: str, partition: str, mode: WriteMode
    ) -> CollectionSchema:
        return self._verbs.write_target(database, collection, partition, mode).schema

    @requires("PrivilegeImport", on="collection")
    def write_target(
        self, caller: Caller, database: str, collection: str, partition: str, mode: WriteMode
    ) -> WriteTarget:
        return self._verbs.write_target(database, collection, partition, mode)

    @requires("PrivilegeImport", on="collection")
    def write_files(
        self,
        caller: Caller,
        database: str,
        collection: str,
        partition: str,
        files: tuple[str, ...],
        write_id: str,
        mode: WriteMode = WriteMode.APPEND,
        batch: int = -1,
        query_id: str = "",
        place: WritePlace | None = None,
    ) -> ImportTask:
        check_key("write_id", write_id)
        if query_id:
            check_key("query_id", query_id)
        options = ImportOptions(write_id, mode=mode, batch=batch, query_id=query_id, place=place)
        return self._verbs.start_import(database, collection, partition, files, options)

    @requires(NO_PRIVILEGE)
    def import_task(self, caller: Caller, task_id: TaskID) -> ImportTask:
        """As GetImportState of the reference, which any user may call: the task's id must be known."""
        return self._verbs.import_task(task_id)

    @requires("PrivilegeImport", on="task_id", found_by="place_of_import")
    def commit_import(self, caller: Caller, task_id: TaskID) -> None:
        self._verbs.commit_import(task_id)

    @requires("PrivilegeImport", on="task_id", found_by="place_of_import")
    def cancel_import(self, caller: Caller, task_id: TaskID) -> None:
        self._verbs.cancel_import(task_id)

    def place_of_import(self, task_id: TaskID) -> tuple[str, tuple[str, ...]]:
        return place_of_import(self._verbs, task_id)


def place_of_import(verbs: Verbs, task_id: int) -> tuple[str, tuple[str, ...]]:
    """Return the database and the collection that a task writes to; everything, if there is none."""
    try:
        collection_id = verbs.import_task(task_id).collection_id
        view = verbs.describe_collection("", "", collection_id)
    except (InvalidParameter, CollectionNotFound):
        return ANY, ()
    return view.database, (view.name,)
