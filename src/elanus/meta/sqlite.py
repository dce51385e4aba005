"""Metadata in one SQLite file: the store of a standalone.

Write-ahead log with a full fsync per transaction. One connection, on a thread of its own, so the event
loop never waits for the disk and transactions run one after the other. The file is locked as long as the
store is open; a second process is refused. The last revision is kept in a row of its own, because the
key that carried it may be deleted.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from elanus.core.errors import DiskFull
from elanus.meta.checks import check_transaction
from elanus.meta.port import Compare, CompareFailed, Delete, Put, StoreClosed, Versioned

T = TypeVar("T")

FORMAT_VERSION = 1

_TABLES = """
CREATE TABLE entry (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counter (revision INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
"""


class MetaInUse(Exception):
    """Another process has this store open. Names the file."""


class UnknownMetaFormat(Exception):
    """The file was written by another release, in a format this one does not read, or is no such file."""


class SqliteMeta:
    """The SQLite adapter of `elanus.meta.port.MetaStore`. May be used from any event loop.

    A caller that is cancelled does not know whether its transaction was applied.
    """

    def __init__(self, path: Path, *, fsync: bool = True) -> None:
        """Open the file, creating it if need be. Raises `MetaInUse` and `UnknownMetaFormat`.

        ``fsync`` off: transactions survive the process, not the machine.
        """
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elanus-meta")
        self._closed = False
        try:
            self._connection = self._thread.submit(_open, path, fsync).result()
        except BaseException:
            self._thread.shutdown()
            raise

    async def get(self, key: str) -> Versioned | None:
        return await self._run(lambda db: _get(db, key))

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        return await self._run(lambda db: _list(db, prefix))

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        """As the port says. Raises `DiskFull`, with nothing applied, when there is no room."""
        check_transaction(operations, compares)
        operations, compares = tuple(operations), tuple(compares)
        try:
            return await self._run(lambda db: _txn(db, operations, compares))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                text = f"no room left for the metadata in {self._path}; free disk space, then retry"
                raise DiskFull(text) from error
            raise

    async def close(self) -> None:
        """Waits for what is running. Closing twice does nothing more."""
        if not self._closed:
            self._closed = True
            await asyncio.wrap_future(self._thread.submit(self._connection.close))
            self._thread.shutdown()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreClosed(f"the metadata store {self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)


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
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
        elif version != FORMAT_VERSION:
            raise UnknownMetaFormat(
                f"{path} has metadata format {version}, this release reads {FORMAT_VERSION}"
            )
        connection.execute("COMMIT")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise MetaInUse(f"the metadata store {path} is open in another process") from error
        if isinstance(error, sqlite3.DatabaseError) and error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise UnknownMetaFormat(f"{path} is no metadata store") from error
        raise
    return connection


def _get(db: sqlite3.Connection, key: str) -> Versioned | None:
    row = db.execute("SELECT value, revision FROM entry WHERE key = ?", (key,)).fetchone()
    return None if row is None else Versioned(*row)


def _list(db: sqlite3.Connection, prefix: str) -> Sequence[tuple[str, Versioned]]:
    # Keys are ASCII, so none that has the prefix sorts at or behind prefix + DEL.
    rows = db.execute(
        "SELECT key, value, revision FROM entry WHERE key >= ? AND key < ? ORDER BY key",
        (prefix, prefix + "\x7f"),
    )
    return [(key, Versioned(value, revision)) for key, value, revision in rows]


def _txn(db: sqlite3.Connection, operations: Sequence[Put | Delete], compares: Sequence[Compare]) -> int:
    db.execute("BEGIN IMMEDIATE")
    try:
        if changed := [c.key for c in compares if _revision_of(db, c.key) != c.revision]:
            raise CompareFailed(changed)
        revision = int(db.execute("SELECT revision FROM counter").fetchone()[0])
        if operations:
            revision += 1
            db.execute("UPDATE counter SET revision = ?", (revision,))
        puts = [(o.key, o.value, revision) for o in operations if isinstance(o, Put)]
        db.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", puts)
        db.executemany(
            "DELETE FROM entry WHERE key = ?", [(o.key,) for o in operations if isinstance(o, Delete)]
        )
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return revision


def _revision_of(db: sqlite3.Connection, key: str) -> int:
    row = db.execute("SELECT revision FROM entry WHERE key = ?", (key,)).fetchone()
    return 0 if row is None else int(row[0])
