"""Metadata in one SQLite file: the store of a standalone.

It uses a write-ahead log with a full fsync per transaction. There is one connection, on its own thread, so
the event loop never waits for the disk and transactions run one after the other. The file is locked as long
as the store is open; a second process is refused. The last revision is kept in a row of its own, because the
key that carried it may be deleted.

Every lease holder lives in this process and ends with it. So leases are kept in memory, on the same thread.
The file only records which keys are bound to a lease; those keys are removed when the file is next opened.

Every entry is checked when the file is opened, and whenever it is read.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from elanus.core.errors import DiskFull
from elanus.meta.checks import check_transaction, check_ttl
from elanus.meta.checksums import (
    REMEDY,
    add_checksums,
    check_all,
    check_entry,
    checksum,
    of_lease,
    of_revision,
)
from elanus.meta.embedded import ExpiryChecks, Hub, Leases, changes_of
from elanus.meta.port import (
    Change,
    Compare,
    CompareFailed,
    DamagedMeta,
    Delete,
    LeaseID,
    Listing,
    MetaFailed,
    MetaInUse,
    Put,
    StoreClosed,
    UnknownMetaFormat,
    Versioned,
)

T = TypeVar("T")
_log = structlog.get_logger("meta")

FORMAT_VERSION = 3
"""Version 2 added the table ``leased``, version 3 checksums (`elanus.meta.checksums`). A file of an earlier
format is upgraded when it is opened."""

_NOT_FROM_SQLITE = 0xFF
_FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""A damaged file raises the second where SQLite's own message quotes it."""

_TABLES = """
CREATE TABLE entry (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counter (revision INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
"""
_TABLES_OF_FORMAT_2 = "CREATE TABLE leased (key TEXT PRIMARY KEY) WITHOUT ROWID;"


class SqliteMeta:
    """The SQLite adapter of `elanus.meta.port.MetaStore`. May be made outside of any event loop.

    A caller that is cancelled does not know whether its transaction was applied.
    """

    def __init__(
        self, path: Path, *, fsync: bool = True, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Open the file, creating it if necessary.

        Raises `MetaInUse`, `UnknownMetaFormat`, `DamagedMeta`, `MetaFailed` and `DiskFull`.

        ``fsync`` off: transactions survive a crash of the process, not of the machine. ``monotonic_s``: the
        clock of the leases.
        """
        self._path = path
        self._hub = Hub()
        self._leases = Leases(monotonic_s)
        self._checks = ExpiryChecks(self._end_leases)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elanus-meta")
        self._closed = False
        try:
            self._connection = self._thread.submit(_open, path, fsync).result()
            self._hub.begin_at(self._thread.submit(_last_revision, self._connection).result())
        except BaseException:
            self._thread.shutdown()
            raise

    async def get(self, key: str) -> Versioned | None:
        return await self._run(lambda db: _get(self._path, db, key))

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        return await self._run(lambda db: _list(self._path, db, prefix))

    async def listing(self, prefix: str) -> Listing:
        return await self._run(lambda db: Listing(_list(self._path, db, prefix), _last_revision(db)))

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        """As in the port. Raises `DiskFull`, with nothing applied, when there is no space left."""
        check_transaction(operations, compares)
        operations, compares = tuple(operations), tuple(compares)
        loop = asyncio.get_running_loop()
        return await self._run(lambda db: self._commit(db, loop, operations, compares))

    async def grant_lease(self, ttl_s: int) -> LeaseID:
        check_ttl(ttl_s)
        self._checks.begin()
        return await self._run(lambda db: self._leases.grant(ttl_s))

    async def renew_lease(self, lease: LeaseID) -> int:
        return await self._run(lambda db: self._leases.renew(lease))

    async def revoke_lease(self, lease: LeaseID) -> None:
        loop = asyncio.get_running_loop()
        await self._run(lambda db: self._end(db, loop, lease))

    def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        return self._hub.watch(prefix, after)

    async def close(self) -> None:
        """Wait for running calls, then close. Closing twice has no further effect."""
        if not self._closed:
            self._closed = True
            self._hub.close()
            await self._checks.stop()
            await asyncio.wrap_future(self._thread.submit(self._connection.close))
            self._thread.shutdown()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreClosed(f"the metadata store {self._path} is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)
        except _FAILURES as error:
            raise _translated(self._path, error) from error

    async def _end_leases(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await self._run(lambda db: self._end_all(db, loop))
        except (DiskFull, MetaFailed) as error:
            _log.warning("keys of expired leases not removed; trying again", error=str(error))

    # on the thread of the connection

    def _commit(
        self,
        db: sqlite3.Connection,
        loop: asyncio.AbstractEventLoop,
        operations: Sequence[Put | Delete],
        compares: Sequence[Compare] = (),
    ) -> int:
        self._leases.check(operations)
        there = {o.key for o in operations if isinstance(o, Put) or _revision_of(db, o.key)}
        revision = _txn(db, operations, compares)
        self._leases.applied(operations)
        if there:
            changes = [c for c in changes_of(operations, revision) if c.key in there]
            loop.call_soon_threadsafe(self._hub.publish, changes)
        return revision

    def _end_all(self, db: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        for lease in self._leases.over():
            self._end(db, loop, lease)

    def _end(self, db: sqlite3.Connection, loop: asyncio.AbstractEventLoop, lease: LeaseID) -> None:
        """End the lease, once its keys are removed; if removing them fails, the next check tries again."""
        if removals := self._leases.removals(lease):
            self._commit(db, loop, removals)
        self._leases.end(lease)


def _open(path: Path, fsync: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=True)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if fsync else 'OFF'}")
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            version = 1
        if not 1 <= version <= FORMAT_VERSION:
            raise UnknownMetaFormat(
                f"{path} has metadata format {version}, this release reads {FORMAT_VERSION}"
            )
        if version == 1:
            connection.execute(_TABLES_OF_FORMAT_2)
        if version < FORMAT_VERSION:
            add_checksums(connection)
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
        check_all(path, connection)
        leased = connection.execute("SELECT key FROM leased").fetchall()
        _apply(connection, [Delete(key) for (key,) in leased], _last_revision(connection))
        connection.execute("COMMIT")
    except BaseException as error:
        connection.close()
        if not isinstance(error, _FAILURES):
            raise
        code = _code(error)
        if code == sqlite3.SQLITE_BUSY:
            raise MetaInUse(f"the metadata store {path} is open in another process") from error
        if code == sqlite3.SQLITE_NOTADB:
            raise UnknownMetaFormat(f"{path} is not a metadata store") from error
        raise _translated(path, error) from error
    return connection


def _translated(path: Path, error: BaseException) -> MetaFailed | DiskFull:
    if _code(error) == sqlite3.SQLITE_FULL:
        return DiskFull(f"no room left for the metadata in {path}; free disk space, then retry")
    if _code(error) in (sqlite3.SQLITE_CORRUPT, _NOT_FROM_SQLITE):
        return DamagedMeta(f"the metadata in {path} is damaged ({error}): {REMEDY}")
    return MetaFailed(f"the metadata in {path} cannot be used: {error}")


def _code(error: BaseException) -> int:
    """Return the primary result code; Python's own errors, of a text that is not UTF-8, have none."""
    return getattr(error, "sqlite_errorcode", _NOT_FROM_SQLITE) & 0xFF


def _get(path: Path, db: sqlite3.Connection, key: str) -> Versioned | None:
    row = db.execute("SELECT value, revision, checksum FROM entry WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    value, revision, expected = row
    check_entry(path, key, revision, value, expected)
    return Versioned(value, revision)


def _list(path: Path, db: sqlite3.Connection, prefix: str) -> Sequence[tuple[str, Versioned]]:
    # Keys are ASCII, so no key with the prefix sorts at or after prefix + DEL.
    rows = db.execute(
        "SELECT key, value, revision, checksum FROM entry WHERE key >= ? AND key < ? ORDER BY key",
        (prefix, prefix + "\x7f"),
    )
    found = []
    for key, value, revision, expected in rows:
        check_entry(path, key, revision, value, expected)
        found.append((key, Versioned(value, revision)))
    return found


def _txn(db: sqlite3.Connection, operations: Sequence[Put | Delete], compares: Sequence[Compare]) -> int:
    db.execute("BEGIN IMMEDIATE")
    try:
        if changed := [c.key for c in compares if _revision_of(db, c.key) != c.revision]:
            raise CompareFailed(changed)
        revision = _last_revision(db)
        if operations:
            revision += 1
            _apply(db, operations, revision)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return revision


def _apply(db: sqlite3.Connection, operations: Sequence[Put | Delete], revision: int) -> None:
    """Change the entries, and the digest with them. ``operations``: at most one for each key."""
    before, digest = db.execute("SELECT revision, digest FROM counter").fetchone()
    digest ^= of_revision(before) ^ of_revision(revision)
    for operation in operations:
        key = operation.key
        row = db.execute("SELECT checksum FROM entry WHERE key = ?", (key,)).fetchone()
        if row is not None:
            digest ^= row[0]
        if db.execute("DELETE FROM leased WHERE key = ?", (key,)).rowcount:
            digest ^= of_lease(key)
        if isinstance(operation, Delete):
            db.execute("DELETE FROM entry WHERE key = ?", (key,))
            continue
        own = checksum(key, revision, operation.value)
        db.execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", (key, operation.value, revision, own))
        digest ^= own
        if operation.lease:
            db.execute("INSERT INTO leased VALUES (?)", (key,))
            digest ^= of_lease(key)
    db.execute("UPDATE counter SET revision = ?, digest = ?", (revision, digest))


def _last_revision(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT revision FROM counter").fetchone()[0])


def _revision_of(db: sqlite3.Connection, key: str) -> int:
    row = db.execute("SELECT revision FROM entry WHERE key = ?", (key,)).fetchone()
    return 0 if row is None else int(row[0])
