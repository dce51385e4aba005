"""The metadata port: a small ordered key-value store with revisions, leases and watches.

Keys are ``/``-separated ASCII. Each put gives the key a new revision, larger than every revision
handed out before it in this store. What is kept here is small; bulk (manifests) lies on the object
store and is pointed to from here. The limits are etcd's, so that code which works on SQLite works on
etcd: `TXN_OPERATIONS_MAX` operations and a few more comparisons in a transaction, `TXN_MAX_BYTES` of keys
and values, and no key written twice. A change that is larger is written down as a whole under one key
first and carried out in portions (`elanus.datacoord.records`); the port splits nothing, because a part
of a transaction is none.

A **lease** is a promise to come back: who holds it renews it before its time is over, or the store
removes every key that was put under it. A **watch** tells of the changes under a prefix in order, each
once; when the store no longer knows what happened since, it says so, and the watcher lists anew
(`elanus.meta.view` does both).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from elanus.core.errors import Unavailable

TXN_OPERATIONS_MAX = 120
"""etcd takes 128 as it is configured out of the box; the rest is for the fence and for the adapter."""
TXN_COMPARES_MAX = 124
TXN_MAX_BYTES = 1_400_000
VALUE_MAX_BYTES = 1_000_000
LEASE_TTL_MIN_S = 1
LEASE_TTL_MAX_S = 3600

LeaseID = NewType("LeaseID", int)
NO_LEASE = LeaseID(0)


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
    """``lease``: the key goes when that lease ends. A later put decides anew."""

    key: str
    value: bytes
    lease: LeaseID = NO_LEASE


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries under a prefix, in key order, as they stood at ``revision``: watch from there."""

    entries: Sequence[tuple[str, Versioned]]
    revision: int


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a key at a revision. ``entry`` is ``None`` when it was removed."""

    key: str
    revision: int
    entry: Versioned | None


class MetaStore(Protocol):
    """Every method may raise `Unavailable`, when the store cannot be reached; `StoreClosed` after `close`."""

    async def get(self, key: str) -> Versioned | None: ...

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        """All entries whose key starts with the prefix, in key order."""
        ...

    async def listing(self, prefix: str) -> Listing:
        """As `list`, with the revision it is true of."""
        ...

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        """Apply all operations durably in one transaction if every comparison holds.

        Returns the revision the puts got (without any operation: one at which the comparisons held).
        Raises `CompareFailed` and `LeaseExpired` (a put names a lease that is over): nothing applied; and
        `ValueError` for a transaction outside the limits. `Unavailable` says that nothing was and will be
        applied, its subclass `OutcomeUnknown` that nobody can tell.
        """
        ...

    async def grant_lease(self, ttl_s: int) -> LeaseID:
        """A new lease: it ends ``ttl_s`` after its last renewal, or somewhat later, never earlier.

        Raises `ValueError` for a time outside [`LEASE_TTL_MIN_S`, `LEASE_TTL_MAX_S`].
        """
        ...

    async def renew_lease(self, lease: LeaseID) -> int:
        """The seconds it lasts from now at least: those it was granted for. Raises `LeaseExpired`."""
        ...

    async def revoke_lease(self, lease: LeaseID) -> None:
        """End the lease, and remove its keys. One that is over already is no error."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        """The changes under a prefix whose revision is larger than ``after``, in order, some at a time.

        Does not end by itself. Raises `WatchBroken` when what follows cannot be told without a gap, and
        `Unavailable`; the watcher then lists anew. Close it (``aclose``) when it is no longer wanted.
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


class LeaseExpired(Exception):
    """The lease is over: it was not renewed in time, or was revoked. It never comes back."""


class WatchBroken(Exception):
    """The store no longer knows every change since where the watch stands. List anew."""


class OutcomeUnknown(Unavailable):
    """The answer to a transaction was lost, and whether it was applied could not be found out."""
