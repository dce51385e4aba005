"""`elanus restore`: make collections of a backup, on the server that it is of or on another one.

A collection appears when all of its files are there, with all of its rows at once. A restore that was
interrupted continues: the server remembers, for as long as the lease, where the files belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash
from rich.console import Console

from elanus.api.backups import BackupApi, ForeignRows, copied_files, data_files
from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.cli.backup_files import BackedUp, Backup, BackupFailed, BackupFiles
from elanus.cli.pinned_files import open_snapshot, progress_bar
from elanus.cli.server_calls import Server, ask
from elanus.core.errors import CollectionAlreadyExists, PermissionDenied
from elanus.storage.copying import Copy, StoredFile, copy_object, in_threads, threads_for
from elanus.storage.paths import DELTA_LOG, INSERT_LOG, STATS_LOG
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True)
class Restoring:
    """The subject of a restore. ``collection`` "": all; ``as_name`` and ``into``: another name and database
    for it, "" for its own. ``users``: users, roles and grants, too. ``indexes``: use the index files."""

    backup: str
    database: str
    collection: str
    as_name: str
    into: str
    users: bool
    lease_ms: int
    indexes: bool = True


def restore(server: Server, files: BackupFiles, wanted: Restoring, console: Console) -> list[str]:
    """Restore, and return a line for each collection.

    In a restore of a whole server, collections whose names are taken are left as they are. Raises
    `BackupFailed`, `elanus.core.errors.ElanusError`.
    """
    if wanted.as_name and not wanted.collection:
        raise BackupFailed("--as names one collection: say which with --collection")
    backup = files.backup(wanted.backup)
    chosen = [c for c in backup.collections if _is_wanted(c, wanted)]
    if wanted.collection and not chosen:
        known = ", ".join(f"{c.database}.{c.name}" for c in backup.collections)
        raise BackupFailed(
            f"the backup {backup.name} has no collection {wanted.database}.{wanted.collection}, but {known}"
        )
    if wanted.users:
        _restore_users(server, backup)
    restorer = _Restorer(server, files, backup, wanted, console)
    said: list[str] = []
    for one in chosen:
        try:
            said += restorer.restore(one)
        except CollectionAlreadyExists as error:
            if wanted.collection:
                raise
            said.append(error.message)
    return said


def _is_wanted(collection: BackedUp, wanted: Restoring) -> bool:
    return wanted.collection in ("", collection.name) and (
        not wanted.collection or collection.database == wanted.database
    )


def _restore_users(server: Server, backup: Backup) -> None:
    access = backup.access
    if access is None:
        raise BackupFailed(f"the backup {backup.name} has no users: it is of one collection")
    ask(server, BackupApi, lambda own: own.restore_users(access))


class _Restorer:
    """Restores collections of one backup."""

    def __init__(
        self, server: Server, files: BackupFiles, backup: Backup, wanted: Restoring, console: Console
    ) -> None:
        self._server = server
        self._files = files
        self._backup = backup
        self._wanted = wanted
        self._console = console
        self._properties = {database.name: dict(database.properties) for database in backup.databases}

    def restore(self, one: BackedUp) -> list[str]:
        """Restore a collection, and return lines that say what was done.

        Raises `CollectionAlreadyExists` if its name is taken.
        """
        database, name = self._wanted.into or one.database, self._wanted.as_name or one.name
        place = (database, name)
        properties = self._properties.get(one.database, {})
        ask(self._server, BackupApi, lambda own: own.restore_database(database, properties))
        rows = self._files.rows(one.path)
        snapshot = rows.snapshot if self._wanted.indexes else replace(rows.snapshot, index_files=())
        foreign = ForeignRows(snapshot, self._backup.last_id, self._key(one, place), self._wanted.lease_ms)
        lease = ask(self._server, BackupApi, lambda own: own.receive(*place, foreign))
        lost = self._copy(lease, rows.files, name)
        collection = snapshot.collection
        is_same = collection is not None and place == (one.database, one.name)
        aliases = collection.aliases if collection is not None and is_same else ()
        ask(self._server, BackupApi, lambda own: own.complete(*place, lease.snapshot_id))
        said = [f"{database}.{name}: {one.rows:,} rows; load it to read them"]
        if aliases:
            said += self._restore_aliases(place, aliases)
        if lost:
            said.append(
                f"{database}.{name}: {len(lost)} index files of the backup are damaged or missing, "
                f"such as {lost[0]}; the server builds these indexes"
            )
        return said

    def _restore_aliases(self, place: tuple[str, str], aliases: tuple[str, ...]) -> list[str]:
        """Returns lines that say what was not done: the rows are there, and the restore goes on."""
        try:
            ask(self._server, BackupApi, lambda own: own.restore_aliases(*place, aliases))
        except PermissionDenied as error:
            left_out = f"{'.'.join(place)}: its aliases were not made: {', '.join(aliases)}"
            return [f"{left_out} ({error.message}; it takes the privilege CreateAlias)"]
        return []

    def _key(self, one: BackedUp, place: tuple[str, str]) -> str:
        """Return what the server knows this restore by: the same for a command that is repeated."""
        backup = self._backup
        whence = f"{self._files.store.url} {backup.name} {backup.moment} {one.path} {place[0]} {place[1]}"
        if not self._wanted.indexes:
            whence += " without indexes"
        return xxhash.xxh3_128_hexdigest(whence.encode())

    def _copy(self, lease: SnapshotLease, files: Sequence[StoredFile], name: str) -> list[str]:
        """Copy what is not there yet. Returns the index files of the backup that cannot be used.

        ``files``: of the backup, in the order of `copied_files`. ``name``: of the collection.
        """
        store, here = open_snapshot(lease)
        present = _present(store, here)
        pairs = list(zip(files, (path for path, _ in copied_files(here)), strict=False))
        missing = [(file, path) for file, path in pairs if present.get(path) != file.size_bytes]
        optional = {file.path for file, _ in pairs[sum(1 for _ in data_files(here)) :]}
        lost: list[str] = []

        def work(copy: Copy) -> StoredFile:
            try:
                return copy_object(self._files.store, store, copy)
            except (CorruptObject, ObjectMissing):
                if copy.path not in optional:
                    raise
                lost.append(copy.path)
                return StoredFile(copy.to, 0, "")

        with progress_bar(self._console, name, sum(file.size_bytes for file, _ in missing)) as advance:
            in_threads(
                work,
                (Copy(file.path, path, file.checksum) for file, path in missing),
                threads_for(store),
                lambda file: advance(file.size_bytes),
            )
        return sorted(lost)


def _present(store: ObjectStore, snapshot: CollectionSnapshot) -> dict[str, int]:
    """Return the sizes of the snapshot's files that are there, by their paths."""
    places = [f"{prefix}/{snapshot.collection_id}" for prefix in (INSERT_LOG, STATS_LOG, DELTA_LOG)]
    places += [file.path.rpartition("/")[0] for file in snapshot.index_files]
    return {info.path: info.size_bytes for place in places for info in store.list(place)}
