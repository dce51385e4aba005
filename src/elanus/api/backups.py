"""Backups, between the roles and for `elanus backup` and `elanus restore`.

The command copies the files; the server only says which, keeps them meanwhile, and takes over what was
copied. So a backup is a pin on a snapshot for as long as the copy takes. A restore is the same from the other
side: the server pins a snapshot of files that do not exist yet, under paths of its own, the command writes
them, and a clone is made of that snapshot. A pin is in the metadata, so both survive a restart of the server,
and what is there already is not copied again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.api.idempotency import repeatable
from elanus.api.snapshots import RestoreJob
from elanus.core.access import AccessPolicy
from elanus.core.attempts import stamped
from elanus.core.catalog import Database
from elanus.core.ids import BuildID, CollectionID, SegmentID
from elanus.core.segments import BinlogFile, DeltaLog, IndexFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.storage.paths import delta_log_path, index_file_path, insert_log_path, stats_log_path

_VERSION = 1
"""The version in the path of a relocated index file. Its build id is new, so there is no other version."""


@dataclass(frozen=True, slots=True)
class BackupSource:
    """A collection of the server. ``created``: when; with its id this makes it unique among all servers."""

    database: str
    name: str
    collection_id: CollectionID
    created: Timestamp


@dataclass(frozen=True, slots=True)
class ServerContents:
    """The contents of a server. ``last_id``: no id above it has been given out."""

    databases: tuple[Database, ...]
    collections: tuple[BackupSource, ...]
    last_id: int


@dataclass(frozen=True, slots=True)
class ForeignRows:
    """The input of a restore: a snapshot of some server, and that server's ``last_id``, above which the own
    ids continue: automatic keys of restored rows are not given out again.

    ``key``: names the restore; a further call with it finds the pin of the first.
    """

    snapshot: CollectionSnapshot
    last_id: int
    key: str
    lease_ms: int


class BackupCalls(Protocol):
    """The part that datacoord implements."""

    async def hold_backup(
        self, collection_id: CollectionID, moment: Timestamp, lease_ms: int
    ) -> SnapshotLease:
        """Pin the collection with its definition as of ``moment`` (0: now), for the length of the lease.

        The collections of one backup are pinned as of the ``read_ts`` of the first: that moment is kept for
        them, however short the retention is.

        Rows that exist only in the log are first written to files. Raises `CollectionNotFound`,
        `InvalidParameter` for a lease out of bounds, `TimestampTooOld`, and `Unavailable` when the rows are
        not written to files in time.
        """
        ...

    @repeatable
    async def receive_rows(self, rows: ForeignRows) -> SnapshotLease:
        """Pin a snapshot of the files that are about to be written, under paths that no other file has.

        Raises `InvalidParameter` for a snapshot without a definition, or later than this server's time.
        """
        ...

    @repeatable
    async def check_received(self, snapshot_id: int, key_begins: str = "") -> CollectionID:
        """Return the collection id that the snapshot is pinned under, if all of its files are there.

        ``key_begins``: how the key of the restore begins. Raises `SnapshotNotFound` if the lease has ended or
        is another restore's, and `InvalidParameter` for a missing file.
        """
        ...


class BackupApi(Protocol):
    """The part that the proxy implements, by name."""

    @repeatable
    async def contents(self) -> ServerContents: ...
    @repeatable
    async def describe(self, database: str, collection: str) -> ServerContents:
        """As `contents`, of one collection by its name or alias. Raises `CollectionNotFound`."""
        ...

    async def hold(
        self, database: str, collection: str, collection_id: CollectionID, moment: Timestamp, lease_ms: int
    ) -> SnapshotLease:
        """As `BackupCalls.hold_backup`; also raises `CollectionNotFound` if another one has the name."""
        ...

    @repeatable
    async def release(self, snapshot_id: int) -> None: ...
    @repeatable
    async def users(self) -> AccessPolicy:
        """Return all users, with the hashes of their passwords, roles, grants, privilege groups, and the
        digests of API keys."""
        ...

    async def restore_users(self, added: AccessPolicy) -> None:
        """Add what a backup holds, all or nothing. Raises `AccessConflict` for what exists already."""
        ...

    @repeatable
    async def restore_database(self, database: str, properties: dict[str, str]) -> None:
        """Create the database unless it exists."""
        ...

    @repeatable
    async def receive(self, database: str, collection: str, rows: ForeignRows) -> SnapshotLease:
        """As `BackupCalls.receive_rows`. Raises `CollectionAlreadyExists` for a name that is taken, too."""
        ...

    async def complete(self, database: str, collection: str, snapshot_id: int) -> RestoreJob:
        """Make the collection of what `receive` pinned; its rows become visible all at once.

        Raises `CollectionAlreadyExists`, and as `BackupCalls.check_received`.
        """
        ...

    @repeatable
    async def restore_aliases(self, database: str, collection: str, aliases: tuple[str, ...]) -> None:
        """Give a restored collection its aliases; one that exists already is left where it is."""
        ...


# the files of a snapshot


def data_files(snapshot: CollectionSnapshot) -> Iterator[tuple[str, int]]:
    """Yield the path and the size in bytes (-1: not known) of every file of rows and deletes.

    In an order that `relocated` keeps. A restore needs all of these.
    """
    for manifest in snapshot.segments:
        for file in manifest.insert_logs:
            yield file.path, file.size_bytes
        for path in manifest.stats_logs:
            yield path, -1
    for vchannel in sorted(snapshot.delta_logs):
        for log in snapshot.delta_logs[vchannel]:
            yield log.file.path, log.file.size_bytes


def copied_files(snapshot: CollectionSnapshot) -> Iterator[tuple[str, int]]:
    """Yield what a backup copies: `data_files`, and then the index files.

    An index file may be missing from a restore: the index is then built.
    """
    yield from data_files(snapshot)
    for file in snapshot.index_files:
        yield file.path, file.size_bytes


def relocated(snapshot: CollectionSnapshot, first_id: int) -> CollectionSnapshot:
    """Return the snapshot with paths that nobody else uses: made of ``first_id``, one id for each segment and
    one for each index file.

    Rows, ids of partitions and timestamps stay what they are.
    """
    home = CollectionID(first_id)
    segments = tuple(
        _segment(manifest, home, SegmentID(first_id + number))
        for number, manifest in enumerate(snapshot.segments, 1)
    )
    deltas = {
        vchannel: tuple(
            _delta(log, home, f"restored-{first_id}", f"{shard}-{number}") for number, log in enumerate(logs)
        )
        for shard, (vchannel, logs) in enumerate(sorted(snapshot.delta_logs.items()))
    }
    owners = {m.segment_id: (m, SegmentID(first_id + n)) for n, m in enumerate(snapshot.segments, 1)}
    indexes = tuple(
        _index(file, home, *owners[file.segment_id], BuildID(first_id + number))
        for number, file in enumerate(snapshot.index_files, 1 + len(segments))
    )
    return replace(snapshot, collection_id=home, segments=segments, delta_logs=deltas, index_files=indexes)


def ids_for(snapshot: CollectionSnapshot) -> int:
    """Return how many ids `relocated` takes."""
    return 1 + len(snapshot.segments) + len(snapshot.index_files)


def _segment(manifest: SegmentManifest, home: CollectionID, owner: SegmentID) -> SegmentManifest:
    partition = manifest.partition_id
    inserts = tuple(
        replace(file, path=insert_log_path(home, partition, owner, stamped(home, f"{number}")))
        for number, file in enumerate(manifest.insert_logs)
    )
    stats = tuple(
        stats_log_path(home, partition, owner, stamped(home, f"{number}"))
        for number in range(len(manifest.stats_logs))
    )
    return replace(manifest, insert_logs=inserts, stats_logs=stats)


def _delta(log: DeltaLog, home: CollectionID, owner: str, name: str) -> DeltaLog:
    file: BinlogFile = replace(log.file, path=delta_log_path(home, owner, stamped(home, name)))
    return replace(log, file=file)


def _index(
    file: IndexFile, home: CollectionID, manifest: SegmentManifest, owner: SegmentID, build: BuildID
) -> IndexFile:
    path = index_file_path(build, _VERSION, manifest.partition_id, owner, stamped(home, "index"))
    return replace(file, build_id=build, path=path)
