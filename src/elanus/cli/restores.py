"""`elanus restore`: make collections of a backup, on the server that it is of or on another one.

A collection appears when all of its files are there, with all of its rows at once. A restore that was
interrupted continues: the server remembers, for as long as the lease, where the files belong.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash
from rich.console import Console

from elanus.api.backups import BackupApi, ForeignRows, data_files
from elanus.api.snapshots import RestoreJob
from elanus.cli.asking import ask
from elanus.cli.backup_files import BackedUp, Backup, BackupFailed, BackupFiles
from elanus.cli.backups import opened, progress_bar
from elanus.cli.import_command import Server
from elanus.core.errors import CollectionAlreadyExists
from elanus.storage.copying import Copy, StoredFile, copy_object, in_threads, threads_for
from elanus.storage.paths import DELTA_LOG, INSERT_LOG, STATS_LOG


@dataclass(frozen=True, slots=True)
class Restoring:
    """The subject of a restore. ``collection`` "": all; ``as_name`` and ``into``: another name and database
    for it, "" for its own. ``users``: users, roles and grants, too."""

    backup: str
    database: str
    collection: str
    as_name: str
    into: str
    users: bool
    lease_ms: int


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
    properties = {database.name: dict(database.properties) for database in backup.databases}
    said: list[str] = []
    for one in chosen:
        database, name = wanted.into or one.database, wanted.as_name or one.name
        own_properties = properties.get(one.database, {})
        ask(server, BackupApi, lambda own, d=database, p=own_properties: own.restore_database(d, p))  # type: ignore[misc]
        try:
            _restore_one(server, files, backup, one, (database, name), wanted.lease_ms, console)
        except CollectionAlreadyExists as error:
            if wanted.collection:
                raise
            said.append(error.message)
        else:
            said.append(f"{database}.{name}: {one.rows:,} rows; load it to read them")
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


def _restore_one(
    server: Server,
    files: BackupFiles,
    backup: Backup,
    one: BackedUp,
    place: tuple[str, str],
    lease_ms: int,
    console: Console,
) -> RestoreJob:
    """``place``: the database and the name."""
    rows = files.rows(one.path)
    collection = rows.snapshot.collection
    aliases = collection.aliases if collection is not None and place == (one.database, one.name) else ()
    whence = f"{files.store.url} {backup.name} {backup.moment} {one.path} {place[0]} {place[1]}"
    wanted = ForeignRows(rows.snapshot, backup.last_id, xxhash.xxh3_128_hexdigest(whence.encode()), lease_ms)
    lease = ask(server, BackupApi, lambda own: own.receive(*place, wanted))
    store, here = opened(lease)
    present = {
        info.path: info.size_bytes
        for prefix in (INSERT_LOG, STATS_LOG, DELTA_LOG)
        for info in store.list(f"{prefix}/{here.collection_id}")
    }
    pairs = [(file, path) for file, (path, _) in zip(rows.files, data_files(here), strict=True)]
    missing = [(file, path) for file, path in pairs if present.get(path) != file.size_bytes]
    with progress_bar(console, place[1], sum(file.size_bytes for file, _ in missing)) as advance:

        def done(file: StoredFile) -> None:
            advance(file.size_bytes)

        in_threads(
            lambda copy: copy_object(files.store, store, copy),
            (Copy(file.path, path, file.checksum) for file, path in missing),
            threads_for(store),
            done,
        )
    return ask(server, BackupApi, lambda own: own.complete(*place, lease.snapshot_id, aliases))
