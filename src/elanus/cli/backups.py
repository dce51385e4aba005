"""`elanus backup`: copy a consistent state of a server, or of one collection, to a directory or bucket.

The server pins all collections as of one moment, so writes, compaction and garbage collection go on while
the files are copied. Files are copied by this process, from the server's object store.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from rich.console import Console

from elanus import __version__
from elanus.api.backups import BackupApi, BackupSource, ServerContents, copied_files
from elanus.api.connector import CollectionSnapshot, SnapshotLease
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
from elanus.cli.pinned_files import let_go, open_snapshot, progress_bar, released
from elanus.cli.server_calls import Server, ask
from elanus.core.access import AccessPolicy
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotFound, Unavailable
from elanus.core.ids import CollectionID
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.storage.copying import Copy, StoredFile, copy_object, digest_of, in_threads, threads_for
from elanus.storage.port import ObjectMissing, ObjectStore

_HELD_AT_ONCE = 8
_HOLDS_MAX = 5
"""So often a collection is tried to be pinned, each time for a minute."""
_LOOKS_MAX = 3
"""So often collections are looked for that others have renamed."""
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
    """A collection whose files are pinned."""

    source: BackupSource
    lease: SnapshotLease


def back_up(server: Server, files: BackupFiles, wanted: Wanted, console: Console) -> Backup:
    """Make a backup and return it. After an error or Ctrl-C nothing is pinned, and what was copied is used
    by the next one. Raises `BackupFailed`, `elanus.core.errors.ElanusError`."""
    name = wanted.name or time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    if not _NAME.fullmatch(name):
        raise BackupFailed(f"--name {name}: use letters, digits, dots, dashes and underscores, up to 100")
    files.check_writable()
    earlier = files.backups()
    if any(backup.name == name for backup in earlier):
        raise BackupFailed(f"there is a backup {name} in {files.store.url} already: use another --name")
    copying = _Copying(files, name, last_places(earlier), wanted.indexes, console)
    contents, access = ask(server, BackupApi, lambda own: _contents(own, wanted))
    held = ask(server, BackupApi, lambda own: _held(own, contents.collections, wanted))
    try:
        done = [copying.copy(number, one) for number, one in enumerate(held)]
    finally:
        let_go(server, [one.lease for one in held], console)
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
    meanwhile, are left out, unless one alone is wanted. One that was renamed meanwhile is found again, and
    keeps its first name: no other in the backup has it."""
    held: list[Held] = []
    at_once = asyncio.Semaphore(_HELD_AT_ONCE)

    async def hold(source: BackupSource, now: BackupSource, moment: Timestamp) -> None:
        async with at_once:
            try:
                lease = await _pinned(own, source, now, moment, wanted.lease_ms)
            except CollectionNotFound:
                if wanted.collection:
                    raise
                return
            held.append(Held(source, lease))

    try:
        rest = list(zip(sources, sources, strict=True))
        for _ in range(_LOOKS_MAX):
            while rest and not held:
                await hold(*rest.pop(0), NO_TIMESTAMP)
            if held:
                moment = held[0].lease.read_ts
                await asyncio.gather(*(hold(*one, moment) for one in rest if one[0].created <= moment))
            missing = _missing(sources, held)
            if not missing:
                break
            rest = _named_now(missing, (await own.contents()).collections)
    except BaseException:
        await released(own, [one.lease for one in held])
        raise
    return sorted(held, key=lambda one: (one.source.database, one.source.name))


async def _pinned(
    own: BackupApi, source: BackupSource, now: BackupSource, moment: Timestamp, lease_ms: int
) -> SnapshotLease:
    """Pin a collection. Its rows that only the log has are first written to files, for which one call waits
    for a minute: on a slow machine, or for many rows, that is too short."""
    for _ in range(_HOLDS_MAX - 1):
        with suppress(Unavailable):
            return await own.hold(now.database, now.name, source.collection_id, moment, lease_ms)
    return await own.hold(now.database, now.name, source.collection_id, moment, lease_ms)


def _missing(sources: Sequence[BackupSource], held: Sequence[Held]) -> list[BackupSource]:
    """Return those that were not found, though they were there at the moment."""
    there = {one.source.collection_id for one in held}
    moment = held[0].lease.read_ts if held else MAX_TIMESTAMP
    return [one for one in sources if one.collection_id not in there and one.created <= moment]


def _named_now(
    missing: Sequence[BackupSource], present: Sequence[BackupSource]
) -> list[tuple[BackupSource, BackupSource]]:
    """Return those that are still present, each with its present name."""
    by_id = {one.collection_id: one for one in present}
    return [(source, by_id[source.collection_id]) for source in missing if source.collection_id in by_id]


class _Copying:
    """Copies collections into the backup ``name``. ``places``: see `last_places`.

    ``indexes``: with index files, as far as the server has them; without one, a restore builds the index.
    """

    def __init__(
        self,
        files: BackupFiles,
        name: str,
        places: Mapping[tuple[CollectionID, Timestamp], str],
        indexes: bool,
        console: Console,
    ) -> None:
        self._files = files
        self._name = name
        self._places = places
        self._indexes = indexes
        self._console = console

    def copy(self, number: int, held: Held) -> BackedUp:
        """Copy one collection's files. ``number``: of the collection in the backup."""
        store, snapshot = open_snapshot(held.lease)
        if not self._indexes:
            snapshot = replace(snapshot, index_files=())
        collection = snapshot.collection
        if collection is None:
            raise BackupFailed("the server's snapshot has no definition: this command is of another release")
        collection = replace(collection, name=held.source.name)
        snapshot = replace(snapshot, collection=collection)
        present = self._files.present(collection)
        stored, copies = self._divided(collection, snapshot, present)
        sizes = {path_of(collection, path): max(0, size_bytes) for path, size_bytes in copied_files(snapshot)}
        total_bytes = sum(sizes[copy.to] for copy in copies)
        with progress_bar(self._console, held.source.name, total_bytes) as advance:

            def done(file: StoredFile) -> None:
                stored[file.path] = file
                advance(sizes[file.path])

            lost = self._copy_files(store, snapshot, copies, present, done)
        snapshot = self._without(lost, snapshot)
        ordered = tuple(stored[path_of(collection, path)] for path, _ in copied_files(snapshot))
        rows = BackedUpRows(held.source.database, snapshot, ordered)
        return BackedUp(
            held.source.database,
            collection.name,
            collection.collection_id,
            collection.created,
            self._files.put_rows(self._name, number, rows),
            sum(manifest.rows for manifest in snapshot.segments),
            len(ordered),
            sum(file.size_bytes for file in ordered),
            sum(copy.to not in present for copy in copies),
        )

    def _divided(
        self, collection: Collection, snapshot: CollectionSnapshot, present: dict[str, int]
    ) -> tuple[dict[str, StoredFile], list[Copy]]:
        """Return the files that an earlier backup copied, by path, and those to copy.

        ``present``: the sizes of the files in the target, by path. One with a wrong size is deleted, there
        too.
        """
        known = self._files.checksums(self._places.get(place_of(collection), ""))
        stored: dict[str, StoredFile] = {}
        copies: list[Copy] = []
        for path, size_bytes in copied_files(snapshot):
            to = path_of(collection, path)
            if to in present and size_bytes not in (-1, present[to]):
                self._files.store.delete(to)  # no file that this command wrote: those are whole
                del present[to]
            if to in present and to in known and known[to].size_bytes == present[to]:
                stored[to] = known[to]
            else:
                copies.append(Copy(path, to))
        return stored, copies

    def _copy_files(
        self,
        source: ObjectStore,
        snapshot: CollectionSnapshot,
        copies: Sequence[Copy],
        present: Container[str],
        done: Callable[[StoredFile], None],
    ) -> set[str]:
        """Copy in threads, and call ``done`` for each file. Returns the index files that the server has
        lost."""
        target = self._files.store
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

    def _without(self, lost: set[str], snapshot: CollectionSnapshot) -> CollectionSnapshot:
        """Return the snapshot without the index files that are gone."""
        if not lost:
            return snapshot
        self._console.print(
            f"{len(lost)} index files are gone, such as {min(lost)}: a restore builds these indexes"
        )
        kept = tuple(file for file in snapshot.index_files if file.path not in lost)
        return replace(snapshot, index_files=kept)
