"""`elanus backup`: copy a consistent state of a server, or of one collection, to a directory or bucket.

The server pins all collections as of one moment, so writes, compaction and garbage collection go on while
the files are copied. Files are copied by this process, from the server's object store.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from elanus import __version__
from elanus.api.backups import BackupApi, BackupSource, ServerContents, copied_files
from elanus.api.connector import SNAPSHOTS, CollectionSnapshot, SnapshotLease
from elanus.cli.asking import ask
from elanus.cli.backup_files import (
    BackedUp,
    BackedUpRows,
    Backup,
    BackupFailed,
    BackupFiles,
    last_places,
    path_of,
    place_of,
)
from elanus.cli.import_command import Server
from elanus.core.access import AccessPolicy
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.storage.copying import Copy, StoredFile, copy_object, digest_of, in_threads, threads_for
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing, ObjectStore
from elanus.storage.snapshots import read_snapshot

_HELD_AT_ONCE = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The subject of a backup, and its name ("": the time). ``collection`` "": the whole server.
    ``indexes``: index files, too."""

    database: str
    collection: str
    name: str
    lease_ms: int
    indexes: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    source: BackupSource
    lease: SnapshotLease


def back_up(server: Server, files: BackupFiles, wanted: Wanted, console: Console) -> Backup:
    """Make a backup and return it. After an error or Ctrl-C nothing is pinned, and what was copied is used
    by the next one. Raises `BackupFailed`, `elanus.core.errors.ElanusError`."""
    name = wanted.name or time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    if not _NAME.fullmatch(name):
        raise BackupFailed(f"--name {name}: use letters, digits, dots, dashes and underscores, up to 100")
    earlier = files.backups()
    if any(backup.name == name for backup in earlier):
        raise BackupFailed(f"there is a backup {name} in {files.store.url} already: use another --name")
    places = last_places(earlier)
    contents, access = ask(server, BackupApi, lambda own: _contents(own, wanted))
    held = ask(server, BackupApi, lambda own: _held(own, contents.collections, wanted))
    try:
        done = [
            _copied(files, places, name, number, one, console, wanted.indexes)
            for number, one in enumerate(held)
        ]
    finally:
        leases = [one.lease for one in held]
        ask(server, BackupApi, lambda own: _released(own, leases))
    moment = max((one.lease.read_ts for one in held), default=NO_TIMESTAMP)
    named = {collection.database for collection in done} if wanted.collection else None
    databases = tuple(d for d in contents.databases if named is None or d.name in named)
    backup = Backup(name, moment, __version__, contents.last_id, databases, tuple(done), access)
    files.put(backup)
    return backup


async def _contents(own: BackupApi, wanted: Wanted) -> tuple[ServerContents, AccessPolicy | None]:
    if wanted.collection:
        return await own.describe(wanted.database, wanted.collection), None
    return await own.contents(), await own.users()


async def _held(own: BackupApi, sources: Sequence[BackupSource], wanted: Wanted) -> list[Held]:
    """Pin all of them as of one moment: that of the first. Those that were created later, or dropped
    meanwhile, are left out, unless one alone is wanted."""
    held: list[Held] = []
    at_once = asyncio.Semaphore(_HELD_AT_ONCE)

    async def hold(source: BackupSource, moment: Timestamp) -> None:
        async with at_once:
            try:
                lease = await own.hold(source.database, source.name, moment, wanted.lease_ms)
            except CollectionNotFound:
                if wanted.collection:
                    raise
                return
            held.append(Held(source, lease))

    try:
        rest = list(sources)
        while rest and not held:
            await hold(rest.pop(0), NO_TIMESTAMP)
        if held:
            moment = held[0].lease.read_ts
            await asyncio.gather(*(hold(source, moment) for source in rest if source.created <= moment))
    except BaseException:
        await _released(own, [one.lease for one in held])
        raise
    return sorted(held, key=lambda one: (one.source.database, one.source.name))


async def _released(own: BackupApi, leases: Sequence[SnapshotLease]) -> None:
    await asyncio.gather(*(own.release(lease.snapshot_id) for lease in leases))


def _copied(
    files: BackupFiles,
    places: Mapping[tuple[CollectionID, Timestamp], str],
    name: str,
    number: int,
    held: Held,
    console: Console,
    indexes: bool,
) -> BackedUp:
    """``places``: see `last_places`; ``number``: of the collection in the backup ``name``. ``indexes``: with
    index files, as far as the server has them; without one, a restore builds the index."""
    store, snapshot = opened(held.lease)
    if not indexes:
        snapshot = replace(snapshot, index_files=())
    collection = snapshot.collection
    if collection is None:
        raise BackupFailed("the server's snapshot has no definition: this command is of another release")
    present, known = files.present(collection), files.checksums(places.get(place_of(collection), ""))
    stored, copies = _divided(files, collection, snapshot, present, known)
    sizes = {path_of(collection, path): max(0, size_bytes) for path, size_bytes in copied_files(snapshot)}
    with progress_bar(console, held.source.name, sum(sizes[copy.to] for copy in copies)) as advance:

        def done(file: StoredFile) -> None:
            stored[file.path] = file
            advance(sizes[file.path])

        lost = _copy_files(store, files.store, snapshot, copies, present, done)
    if lost:
        console.print(
            f"{len(lost)} index files are gone, such as {min(lost)}: a restore builds these indexes"
        )
        kept = tuple(file for file in snapshot.index_files if file.path not in lost)
        snapshot = replace(snapshot, index_files=kept)
    ordered = tuple(stored[path_of(collection, path)] for path, _ in copied_files(snapshot))
    path = files.put_rows(name, number, BackedUpRows(held.source.database, snapshot, ordered))
    return BackedUp(
        held.source.database,
        collection.name,
        collection.collection_id,
        collection.created,
        path,
        sum(manifest.rows for manifest in snapshot.segments),
        len(ordered),
        sum(file.size_bytes for file in ordered),
        sum(copy.to not in present for copy in copies),
    )


def _divided(
    files: BackupFiles,
    collection: Collection,
    snapshot: CollectionSnapshot,
    present: dict[str, int],
    known: Mapping[str, StoredFile],
) -> tuple[dict[str, StoredFile], list[Copy]]:
    """Return the files that an earlier backup copied, by path, and those to copy.

    ``present``: the sizes of the files in the target, by path. One with a wrong size is deleted, there too.
    """
    stored: dict[str, StoredFile] = {}
    copies: list[Copy] = []
    for path, size_bytes in copied_files(snapshot):
        to = path_of(collection, path)
        if to in present and size_bytes not in (-1, present[to]):
            files.store.delete(to)  # no file that this command wrote: those are whole
            del present[to]
        if to in present and to in known and known[to].size_bytes == present[to]:
            stored[to] = known[to]
        else:
            copies.append(Copy(path, to))
    return stored, copies


def _copy_files(
    source: ObjectStore,
    target: ObjectStore,
    snapshot: CollectionSnapshot,
    copies: Sequence[Copy],
    present: Container[str],
    done: Callable[[StoredFile], None],
) -> set[str]:
    """Copy in threads, and call ``done`` for each file. Returns the index files that the server has lost."""
    of_indexes = {file.path for file in snapshot.index_files}
    lost: set[str] = set()

    def work(copy: Copy) -> StoredFile:
        try:
            if copy.to in present:  # of a backup that was interrupted
                return replace(digest_of(source, copy.path), path=copy.to)
            return copy_object(source, target, copy)
        except ObjectMissing:
            if copy.path not in of_indexes:
                raise
            lost.add(copy.path)
            return StoredFile(copy.to, 0, "")

    in_threads(work, copies, threads_for(target), done)
    return lost


def opened(lease: SnapshotLease) -> tuple[ObjectStore, CollectionSnapshot]:
    """Return the server's object store and the snapshot in it. Raises `BackupFailed` if this machine cannot
    read it."""
    store = open_store(lease.store_url)
    try:
        return store, read_snapshot(store, lease.path, SNAPSHOTS)
    except ObjectMissing:
        raise BackupFailed(
            f"the server's files are in {store.url}, which this machine does not have: run the command on "
            "the server's machine, or use a server with objects in a bucket (storage.url)"
        ) from None


class Advance:
    """Moves a progress bar by bytes."""

    def __init__(self, progress: Progress, name: str, total_bytes: int) -> None:
        self._progress = progress
        self._bar = progress.add_task(name, total=total_bytes)

    def __call__(self, size_bytes: int) -> None:
        self._progress.advance(self._bar, size_bytes)


@contextlib.contextmanager
def progress_bar(console: Console, name: str, total_bytes: int) -> Iterator[Advance]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield Advance(progress, name, total_bytes)
