"""The contents of a backup directory or bucket.

::

    backups/<name>.json                         the backup: its moment, its collections, users and roles
    collections/<name>/<number>.json            a collection of it: definition, segments, files with checksums
    files/<collection>-<created>/<path>         the files, under the paths that the server has them
    probes/<number>                             written and deleted before a backup begins

A file is never changed, and its path is used once, so backups of one collection share what they have in
common: a further backup copies what is new. A collection's id and the moment of its creation are unique
among all servers. The object ``backups/<name>.json`` is written last: without it there is no backup.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elanus.api.connector import CollectionSnapshot
from elanus.core.access import AccessPolicy
from elanus.core.catalog import Collection, Database
from elanus.core.faults import StorageFault
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.storage.copying import Copy, StoredFile, digest_of, in_threads, threads_for
from elanus.storage.documents import decode_document, encode_document
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing, ObjectStore

_BACKUPS = "backups"
_COLLECTIONS = "collections"
_FILES = "files"
_PROBES = "probes"
_SUFFIX = ".json"
_NOT_THERE = -1


class BackupFailed(Exception):
    """The text is for the user."""


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A collection of a backup. ``path``: its object; ``copied``: how many of its files were new."""

    database: str
    name: str
    collection_id: CollectionID
    created: Timestamp
    path: str
    rows: int
    files: int
    size_bytes: int
    copied: int


@dataclass(frozen=True, slots=True)
class Backup:
    """All collections are as of ``moment``. ``last_id``: see `elanus.api.backups.ServerContents`. ``access``:
    users and roles, None if the backup has none."""

    name: str
    moment: Timestamp
    release: str
    last_id: int
    databases: tuple[Database, ...]
    collections: tuple[BackedUp, ...]
    access: AccessPolicy | None = None

    @property
    def size_bytes(self) -> int:
        return sum(collection.size_bytes for collection in self.collections)


@dataclass(frozen=True, slots=True)
class BackedUpRows:
    """A collection as of the backup's moment. ``files``: in the order of `elanus.api.backups.copied_files`,
    with paths as in the target."""

    database: str
    snapshot: CollectionSnapshot
    files: tuple[StoredFile, ...]


_backups = msgspec.json.Decoder(Backup)  # at import, see `elanus.storage.documents`
_rows = msgspec.json.Decoder(BackedUpRows)


def target_url(named: str) -> str:
    """Return the URL of a target: a directory of this machine, or any URL of an object store.

    Raises `BackupFailed` for "", of a variable that is not set: it would be the current directory.
    """
    if not named:
        raise BackupFailed("TARGET is empty: name a directory, . for the current one, or the URL of a bucket")
    return named if "://" in named else Path(named).expanduser().resolve().as_uri()


def place_of(collection: Collection | BackedUp) -> tuple[CollectionID, Timestamp]:
    """Return what makes a collection unique among those of all servers."""
    return collection.collection_id, collection.created


def last_places(backups: Iterable[Backup]) -> dict[tuple[CollectionID, Timestamp], str]:
    """Return for each collection its object in the last backup that has it.

    A further backup shares files with that one, if it shares any. ``backups``: the latest last.
    """
    return {place_of(collection): collection.path for backup in backups for collection in backup.collections}


def path_of(collection: Collection, path: str) -> str:
    """Return where a file of a collection is in a target."""
    return f"{_FILES}/{collection.collection_id}-{collection.created}/{path}"


class BackupFiles:
    """The target of backups, or the source of restores."""

    def __init__(self, url: str) -> None:
        """Raises `elanus.core.errors.ElanusError` for a URL that cannot be used."""
        self.store: ObjectStore = open_store(url)

    def backups(self) -> list[Backup]:
        """Return the backups, the latest moment last. Raises `CorruptObject`."""
        found = [
            decode_document(info.path, "backup", self.store.get(info.path), _backups)
            for info in self.store.list(_BACKUPS)
            if info.path.endswith(_SUFFIX)
        ]
        return sorted(found, key=lambda backup: (backup.moment, backup.name))

    def check_writable(self) -> None:
        """Write a small file and delete it. Raises `BackupFailed` if the target cannot be written to."""
        path = f"{_PROBES}/{uuid.uuid4().hex}"
        try:
            self.store.put(path, b"probe")
            self.store.delete(path)
        except StorageFault as error:
            raise BackupFailed(
                f"the target {self.store.url} cannot be written to: {error.__cause__ or error}: give a "
                "directory or bucket that you may write to"
            ) from error

    def backup(self, name: str) -> Backup:
        """``name`` "": the latest. Raises `BackupFailed`, `CorruptObject`."""
        backups = self.backups()
        if not backups:
            raise BackupFailed(f"there is no backup in {self.store.url}")
        for backup in reversed(backups):
            if name in ("", backup.name):
                return backup
        known = ", ".join(backup.name for backup in backups)
        raise BackupFailed(f"there is no backup {name} in {self.store.url}, but {known}")

    def rows(self, path: str) -> BackedUpRows:
        """Raises `ObjectMissing`, `CorruptObject`."""
        return decode_document(path, "collection_backup", self.store.get(path), _rows)

    def put_rows(self, name: str, number: int, rows: BackedUpRows) -> str:
        path = f"{_COLLECTIONS}/{name}/{number}{_SUFFIX}"
        self.store.delete(path)  # of an attempt under this name that was not completed
        self.store.put(path, encode_document("collection_backup", rows))
        return path

    def put(self, backup: Backup) -> None:
        self.store.put(f"{_BACKUPS}/{backup.name}{_SUFFIX}", encode_document("backup", backup))

    def present(self, collection: Collection) -> dict[str, int]:
        """Return the sizes of the files that are there already, by their paths."""
        prefix = path_of(collection, "x").rpartition("/")[0]
        return {info.path: info.size_bytes for info in self.store.list(prefix)}

    def checksums(self, path: str) -> dict[str, StoredFile]:
        """Return the files of a collection of an earlier backup with their checksums; none for path ""."""
        return {file.path: file for file in self.rows(path).files} if path else {}

    def delete(self, backup: Backup) -> int:
        """Delete a backup and the files that no other one has. Returns how many files these were.

        Not to be called while a backup is being made: it may count on files that go. An interrupted deletion
        leaves files that a further backup uses.
        """
        own = {place_of(collection) for collection in backup.collections}
        others = [other for other in self.backups() if other.name != backup.name]
        kept = {
            file.path
            for other in others
            for collection in other.collections
            if place_of(collection) in own
            for file in self.rows(collection.path).files
        }
        gone = {file.path for c in backup.collections for file in self.rows(c.path).files} - kept
        self.store.delete(f"{_BACKUPS}/{backup.name}{_SUFFIX}")
        for collection in backup.collections:
            self.store.delete(collection.path)
        for path in gone:
            self.store.delete(path)
        return len(gone)

    def verify(self, backup: Backup, progress: Callable[[int], None]) -> list[str]:
        """Read every file of a backup. Returns a line for each that is missing or damaged.

        ``progress`` is called with the size in bytes of each file. Raises as `rows`.
        """
        expected = {file.path: file for c in backup.collections for file in self.rows(c.path).files}
        wrong: list[str] = []

        def digest(copy: Copy) -> StoredFile:
            try:
                return digest_of(self.store, copy.path)
            except ObjectMissing:
                return StoredFile(copy.path, _NOT_THERE, "")

        def compare(found: StoredFile) -> None:
            known = expected[found.path]
            progress(known.size_bytes)
            if found.size_bytes == _NOT_THERE:
                wrong.append(f"{found.path} is missing")
            elif found != known:
                wrong.append(
                    f"{found.path} is damaged: {known.size_bytes} bytes with checksum {known.checksum} were "
                    f"backed up, there are {found.size_bytes} with {found.checksum}"
                )

        in_threads(digest, (Copy(path, "") for path in expected), threads_for(self.store), compare)
        return sorted(wrong)
