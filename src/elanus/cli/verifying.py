"""`elanus verify`: read all files of a running server, and compare them with their checksums.

The server pins one collection after the other, so writes, compaction and garbage collection go on. The files
are read by this process, from the server's object store, and it makes way for others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from elanus.api.backups import BackupApi, BackupSource, ServerContents, copied_files
from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.cli.pinned_files import let_go, open_snapshot, progress_bar
from elanus.cli.server_calls import Server, ask
from elanus.core.errors import CollectionNotFound, ElanusError, Internal, SegmentUnreadable
from elanus.core.faults import StorageFault
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.index.files import DamagedIndexFile, check_index_file
from elanus.storage.copying import in_threads
from elanus.storage.parquet import check_pages
from elanus.storage.paths import DELTA_LOG, INDEX_FILES, INSERT_LOG, STATS_LOG
from elanus.storage.port import ObjectMissing, ObjectStore
from elanus.storage.stats_log import read_stats_logs

_AT_ONCE = 2
_RESTORE = "put the file back from a copy, or restore the collection from a backup (docs/backup.md)"
REMEDIES = {
    INSERT_LOG: _RESTORE,
    STATS_LOG: _RESTORE,
    DELTA_LOG: _RESTORE,
    INDEX_FILES: "release and load the collection: the index is built again from the rows",
}


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not what was written, or "" where a collection's files could not even be listed."""

    collection: str
    path: str
    said: str
    remedy: str

    @property
    def text(self) -> str:
        """A line for people, which names the file once."""
        where = self.path or self.collection
        said = self.said if self.path and self.path in self.said else f"{where}: {self.said}"
        return f"{said}. Remedy: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Verified:
    """The files of a collection that were read.

    ``collection``: its name, with that of its database. ``unread``: why none could be read just now, else "".
    """

    collection: str
    files: int
    size_bytes: int
    damages: tuple[Damage, ...]
    unread: str = ""


def verify(
    server: Server, database: str, collection: str, lease_ms: int, console: Console
) -> Iterator[Verified]:
    """Verify all collections, or one. After an error or Ctrl-C nothing is pinned.

    Raises `elanus.core.errors.ElanusError` when the server cannot be asked, or has no such collection.
    """

    async def wanted(own: BackupApi) -> ServerContents:
        return await own.describe(database, collection) if collection else await own.contents()

    for source in ask(server, BackupApi, wanted).collections:
        try:
            lease = ask(server, BackupApi, lambda own, s=source: _held(own, s, lease_ms))  # type: ignore[misc]
        except CollectionNotFound:
            continue  # dropped meanwhile
        except (Internal, SegmentUnreadable) as error:
            yield Verified(_name(source), 0, 0, (Damage(_name(source), "", error.message, _RESTORE),))
            continue
        except ElanusError as error:  # nothing is known of its files, as while flushes fail on a full disk
            yield Verified(_name(source), 0, 0, (), error.message)
            continue
        try:
            yield _verified(source, lease, console)
        finally:
            let_go(server, [lease], console)


async def _held(own: BackupApi, source: BackupSource, lease_ms: int) -> SnapshotLease:
    return await own.hold(source.database, source.name, source.collection_id, NO_TIMESTAMP, lease_ms)


def _verified(source: BackupSource, lease: SnapshotLease, console: Console) -> Verified:
    store, snapshot = open_snapshot(lease)
    sizes = sizes_of(snapshot)
    damages: list[Damage] = []
    with progress_bar(console, _name(source), sum(sizes.values())) as advance:

        def done(found: tuple[str, str]) -> None:
            path, said = found
            advance(sizes[path])
            if said:
                damages.append(Damage(_name(source), path, said, REMEDIES[path.partition("/")[0]]))

        in_threads(lambda path: (path, _damage(store, path)), sizes, _AT_ONCE, done)
    in_order = tuple(sorted(damages, key=lambda d: d.path))
    return Verified(_name(source), len(sizes), sum(sizes.values()), in_order)


def _name(source: BackupSource) -> str:
    """Databases may have collections of the same name."""
    return f"{source.database}.{source.name}"


def sizes_of(snapshot: CollectionSnapshot) -> dict[str, int]:
    """Return the files of a collection, each with its size in bytes, or 0 where nobody knows."""
    return {path: max(0, size_bytes) for path, size_bytes in copied_files(snapshot)}


def _damage(store: ObjectStore, path: str) -> str:
    """Return what is wrong with the file, or "" when it is whole."""
    try:
        check_object(store, path)
    except ObjectMissing:
        return "it is missing"
    except (StorageFault, DamagedIndexFile) as error:
        return str(error)
    return ""


def check_object(store: ObjectStore, path: str) -> None:
    """Read an object that a snapshot names. Raises `StorageFault` and `DamagedIndexFile`."""
    prefix = path.partition("/")[0]
    if prefix == STATS_LOG:
        read_stats_logs(store, [path])
    elif prefix == INDEX_FILES:
        with tempfile.TemporaryDirectory(prefix="elanus-verify-") as directory:
            check_index_file(store.local_path(path, Path(directory)))
    else:
        check_pages(store, path, prefix)
