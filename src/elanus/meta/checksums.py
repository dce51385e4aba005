"""Checksums of the metadata in SQLite, which has none of its own.

Each entry has a checksum over its key, revision and value. The row ``counter`` has a *digest*: the checksums
of everything in the file, combined by exclusive or. So a transaction updates it at the cost of the entries
that it changes, and a file that lost an entry, has one too many, or an older one, does not fit its digest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import xxhash

from elanus.meta.port import DamagedMeta

REMEDY = (
    "start from a copy of the whole data directory, or restore the collections from a backup into a new one "
    "(docs/backup.md)"
)


def checksum(key: str, revision: int, value: bytes) -> int:
    """Return the checksum of an entry: XXH64, as the signed 64-bit integer that SQLite stores."""
    return _signed(f"e{key}\0{revision}\0".encode() + value)


def of_lease(key: str) -> int:
    """Return the checksum of the note that a key is bound to a lease."""
    return _signed(f"l{key}".encode())


def of_revision(revision: int) -> int:
    """Return the checksum of the last revision."""
    return _signed(f"r{revision}".encode())


def combined(checksums: Iterable[int]) -> int:
    """Return the digest of these checksums, in any order."""
    digest = 0
    for one in checksums:
        digest ^= one
    return digest


def check_entry(path: object, key: str, revision: int, value: bytes, expected: int) -> None:
    """Raise `DamagedMeta`, which names the key, for an entry that its checksum does not fit."""
    if type(value) is not bytes or checksum(key, revision, value) != expected:
        raise DamagedMeta(f"the metadata in {path} is damaged at the record {key!r}: {REMEDY}")


def check_all(path: object, db: sqlite3.Connection) -> None:
    """Check every entry, and that none is missing. Reads the whole file.

    Raises `DamagedMeta`, and `sqlite3.DatabaseError` where SQLite finds its own structure damaged.
    """
    counters = db.execute("SELECT revision, digest FROM counter").fetchall()
    expected = counters[0][1] if len(counters) == 1 else None
    digest = combined(of_revision(revision) for revision, _ in counters)
    for key, value, at, own in db.execute("SELECT key, value, revision, checksum FROM entry"):
        check_entry(path, key, at, value, own)
        digest ^= own
    if digest ^ _digest_of_leases(db) != expected:
        raise DamagedMeta(
            f"the metadata in {path} is damaged (records are missing, or older than others): {REMEDY}"
        )


def add_checksums(db: sqlite3.Connection) -> None:
    """Give a file of an earlier format its checksums. Within a transaction."""
    db.execute("ALTER TABLE entry ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE counter ADD COLUMN digest INTEGER NOT NULL DEFAULT 0")
    rows = db.execute("SELECT key, revision, value FROM entry").fetchall()
    sums = [(checksum(*row), row[0]) for row in rows]
    db.executemany("UPDATE entry SET checksum = ? WHERE key = ?", sums)
    (revision,) = db.execute("SELECT revision FROM counter").fetchone()
    digest = combined(own for own, _ in sums) ^ of_revision(revision) ^ _digest_of_leases(db)
    db.execute("UPDATE counter SET digest = ?", (digest,))


def _digest_of_leases(db: sqlite3.Connection) -> int:
    return combined(of_lease(key) for (key,) in db.execute("SELECT key FROM leased"))


def _signed(content: bytes) -> int:
    unsigned = xxhash.xxh64_intdigest(content)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned
