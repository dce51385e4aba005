"""The metadata port: a small ordered key-value store with revisions and compare-and-set.

Keys are ``/``-separated ASCII. Each put gives the key a new revision, larger than every revision
handed out before it in this store. What is kept here is small; bulk (manifests) lies on the object
store and is pointed to from here. The limits are etcd's, so that code which works on SQLite works on
etcd: `TXN_OPERATIONS_MAX` operations and as many comparisons in a transaction, `TXN_MAX_BYTES` of keys
and values, and no key written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

TXN_OPERATIONS_MAX = 128
TXN_MAX_BYTES = 1_400_000
VALUE_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Versioned:
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds when the key's revision is exactly this; revision 0: the key does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


class MetaStore(Protocol):
    async def get(self, key: str) -> Versioned | None: ...

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        """All entries whose key starts with the prefix, in key order."""
        ...

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        """Apply all operations durably in one transaction if every comparison holds.

        Returns the revision the puts got (without any operation: the store's last). Raises
        `CompareFailed` (nothing applied), and `ValueError` for a transaction outside the limits.
        """
        ...

    async def close(self) -> None:
        """Every call after it raises `StoreClosed`."""
        ...


class StoreClosed(Exception):
    """The store was closed."""


class CompareFailed(Exception):
    """A comparison did not hold; ``keys`` names those that did not. Nothing was applied."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"changed meanwhile: {', '.join(keys)}")
        self.keys = tuple(keys)
