"""Requests from external programs beyond the Milvus API: snapshots to read, imports to follow.

Served on the port that Milvus clients use, so that a program that reaches the server needs no other address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from elanus.api.idempotency import repeatable
from elanus.api.snapshots import RestoreJob, SnapshotView
from elanus.core.catalog import Collection, Index
from elanus.core.ids import CollectionID, PartitionID, TaskID
from elanus.core.imports import ImportTask, WriteMode, WritePlace
from elanus.core.schema import CollectionSchema
from elanus.core.segments import DeltaLog, IndexFile, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp


@dataclass(frozen=True, slots=True)
class CollectionSnapshot:
    """A collection as of ``read_ts``: its rows with a timestamp up to that, less the deletes up to that.

    Some files also contain later rows and later deletes; a reader leaves them out, and the rows whose
    timestamp is not later than ``expired_until`` as well (0: rows do not expire). ``delta_logs`` are all
    deletes of each vchannel that any of the segments may need. ``collection`` and ``indexes``: its definition
    then, for a clone; not in snapshots of earlier releases. ``index_files``: the built indexes of some
    segments, if they were asked for. ``created``: when the collection was created, 0 in snapshots of
    earlier releases.
    """

    collection_id: CollectionID
    schema: CollectionSchema
    read_ts: Timestamp
    segments: tuple[SegmentManifest, ...]
    delta_logs: Mapping[str, tuple[DeltaLog, ...]]
    expired_until: Timestamp = NO_TIMESTAMP
    collection: Collection | None = None
    indexes: tuple[Index, ...] = ()
    index_files: tuple[IndexFile, ...] = ()
    created: Timestamp = NO_TIMESTAMP

    @property
    def files(self) -> frozenset[str]:
        """The paths of everything a reader of the snapshot opens."""
        inserts = {file.path for manifest in self.segments for file in manifest.insert_logs}
        stats = {path for manifest in self.segments for path in manifest.stats_logs}
        deletes = {log.file.path for logs in self.delta_logs.values() for log in logs}
        indexes = {file.path for file in self.index_files}
        return frozenset(inserts | stats | deletes | indexes)


SNAPSHOTS = msgspec.json.Decoder(CollectionSnapshot)


@dataclass(frozen=True, slots=True)
class SnapshotLease:
    """Where a snapshot is (``path`` in the store at ``store_url``), and until when its files are kept.

    ``expires_ms`` is Unix time on the server's clock.
    """

    snapshot_id: int
    store_url: str
    path: str
    read_ts: Timestamp
    expires_ms: int


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where a write goes, and the schema that its rows have to fit."""

    place: WritePlace
    schema: CollectionSchema


class SnapshotApi(Protocol):
    """The part that datacoord implements."""

    async def take_snapshot(
        self,
        collection_id: CollectionID,
        partition_ids: tuple[PartitionID, ...],
        lease_ms: int,
        with_indexes: bool = False,
    ) -> SnapshotLease:
        """Pin everything acknowledged before the call, of these partitions (none named: all).

        ``with_indexes``: the built indexes too, as far as the segments have them by then. Rows that exist
        only in the log are first written to files; this seals nothing. Raises `CollectionNotFound`,
        `InvalidParameter` for a lease out of bounds, and `Unavailable` when the rows are not written to files
        in time.
        """
        ...

    async def take_changes(
        self, collection_id: CollectionID, since: Timestamp, name: str, lease_ms: int
    ) -> SnapshotLease:
        """As `take_snapshot`, of a collection whose files hold every change later than ``since``.

        With a ``name`` the changes later than ``since`` are kept for the length of the lease, and the name no
        longer keeps what it did before. Raises `TimestampTooOld` when some of them are gone, which names the
        moment and the remedy, and `InvalidParameter` for a ``since`` in the future.
        """
        ...

    @repeatable
    async def release_snapshot(self, snapshot_id: int) -> None:
        """Stop pinning the files. A snapshot with a name stays; one that is gone is not an error."""
        ...


class ConnectorApi(Protocol):
    """The part that the proxy implements, by name."""

    async def snapshot(
        self,
        database: str,
        collection: str,
        partitions: tuple[str, ...],
        lease_ms: int,
        with_indexes: bool = False,
    ) -> SnapshotLease:
        """Raises `CollectionNotFound`, `PartitionNotFound`, and what `SnapshotApi.take_snapshot` does."""
        ...

    async def changes(
        self, database: str, collection: str, since: Timestamp, name: str, lease_ms: int
    ) -> SnapshotLease:
        """Raises `CollectionNotFound`, and what `SnapshotApi.take_changes` does."""
        ...

    @repeatable
    async def release(self, snapshot_id: int) -> None: ...

    async def create_snapshot(
        self, database: str, collection: str, name: str, description: str
    ) -> SnapshotView:
        """These six are as in `elanus.proxy.api.snapshots.SnapshotVerbs`."""
        ...

    @repeatable
    async def drop_snapshot(self, database: str, collection: str, name: str) -> None: ...
    @repeatable
    async def snapshots(self, database: str, collection: str) -> tuple[SnapshotView, ...]: ...
    async def restore_snapshot(
        self, database: str, collection: str, name: str, target: str
    ) -> RestoreJob: ...
    async def clone_collection(
        self, database: str, collection: str, target: str, moment: Timestamp
    ) -> RestoreJob: ...
    async def undrop_collection(self, database: str, collection: str, target: str) -> RestoreJob: ...
    @repeatable
    async def import_directory(self) -> str:
        """Return the URL of the directory or store that files are imported from."""
        ...

    async def start_import(
        self,
        database: str,
        collection: str,
        partition: str,
        files: tuple[str, ...],
        options: dict[str, str],
    ) -> ImportTask:
        """``partition`` "": the default one. ``options``: those of the client's Import.

        Raises what `elanus.proxy.api.imports.ImportVerbs.start_import` does, and `InvalidParameter` for an
        option.
        """
        ...

    @repeatable
    async def write_schema(
        self, database: str, collection: str, partition: str, mode: WriteMode
    ) -> CollectionSchema:
        """Return the schema of `write_target`, for connectors of former releases."""
        ...

    @repeatable
    async def write_target(
        self, database: str, collection: str, partition: str, mode: WriteMode
    ) -> WriteTarget:
        """Return where such a write would go now. Raises what `write_files` would."""
        ...

    @repeatable
    async def write_files(
        self,
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
        """As `start_import`, once for each ``write_id``: a further call returns the task of the first, unless
        that failed. ``batch``: its number, where ``write_id`` names a stream of writes, of which one that is
        not above the last is not written again; ``query_id``: who writes the stream, "" if that is not known.
        The task that is returned has the batch and the query that were written. ``place``: what the names
        meant when the write began (`write_target`), None if that is not known. Raises `InvalidParameter` for
        an empty or too long ``write_id``, a ``mode`` that does not fit the collection, and where the names
        mean another place by now."""
        ...

    @repeatable
    async def import_task(self, task_id: TaskID) -> ImportTask: ...
    @repeatable
    async def commit_import(self, task_id: TaskID) -> None:
        """Commit a task with the option ``auto_commit=false`` whose files are written; nothing for one that
        has committed. Raises `InvalidParameter` for a task in another state, and if the collection or the
        partition is gone, what says so."""
        ...

    @repeatable
    async def cancel_import(self, task_id: TaskID) -> None:
        """Raises `InvalidParameter` for a task that has committed."""
        ...
