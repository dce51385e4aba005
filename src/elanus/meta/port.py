"""The metadata port: a small ordered key-value store with revisions, leases and watches.

Keys are ``/``-separated ASCII. Each put gives the key a new revision, larger than every revision
handed out before it in this store. Values are small; bulk data (manifests) is kept on the object
store, and the metadata points to it. The limits are etcd's, so that code that works on SQLite works on
etcd: `TXN_OPERATIONS_MAX` operations and a few more comparisons in a transaction, `TXN_MAX_BYTES` of keys
and values, and no key written twice. A larger change is first written as a whole under one key and then
carried out in portions (`elanus.datacoord.records`). The port does not split transactions, because the
parts would not be atomic.

A **lease** must be renewed by its holder before it expires, or the store removes every key that was put
under it. A **watch** yields the changes under a prefix in order, each once. When the store no longer has
every change since the watch's position, it says so, and the watcher lists again (`elanus.meta.view`
does both).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from elanus.core.backends import Backend
from elanus.core.errors import Unavailable
from elanus.core.faults import MetaFault

TXN_OPERATIONS_MAX = 120
"""etcd accepts 128 by default; the rest is for the fence and for the adapter."""
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
    """``lease``: the key is removed when that lease ends. A later put of the key replaces this binding."""

    key: str
    value: bytes
    lease: LeaseID = NO_LEASE


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries under a prefix, in key order, as of ``revision``: watch from there."""

    entries: Sequence[tuple[str, Versioned]]
    revision: int


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a key at a revision. ``entry`` is ``None`` when it was removed."""

    key: str
    revision: int
    entry: Versioned | None


class MetaStore(Protocol):
    """Every method may raise `Unavailable` (the store cannot be reached), and `StoreClosed` after `close`."""

    async def get(self, key: str) -> Versioned | None: ...

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        """Return all entries whose key starts with the prefix, in key order."""
        ...

    async def listing(self, prefix: str) -> Listing:
        """Like `list`, with the revision at which the entries were read."""
        ...

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        """Apply all operations durably in one transaction if every comparison holds.

        Returns the revision of the puts (without operations: a revision at which the comparisons held).
        Raises `CompareFailed` and `LeaseExpired` (a put names a lease that is over), with nothing applied,
        and `ValueError` for a transaction outside the limits. `Unavailable` means that nothing was or will
        be applied, its subclass `OutcomeUnknown` that this is not known.
        """
        ...

    async def grant_lease(self, ttl_s: int) -> LeaseID:
        """Grant a new lease. It ends ``ttl_s`` after its last renewal, or somewhat later, never earlier.

        Raises `ValueError` for a time outside [`LEASE_TTL_MIN_S`, `LEASE_TTL_MAX_S`].
        """
        ...

    async def renew_lease(self, lease: LeaseID) -> int:
        """Renew the lease. Returns the seconds it lasts at least: its granted time. Raises `LeaseExpired`."""
        ...

    async def revoke_lease(self, lease: LeaseID) -> None:
        """End the lease and remove its keys. A lease that is already over is not an error."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        """Return the changes under a prefix whose revision is larger than ``after``, in order, in batches.

        Does not end by itself. Raises `WatchBroken` when it cannot continue without a gap, and
        `Unavailable`; the watcher then lists again. Close it (``aclose``) when it is no longer needed.
        """
        ...

    async def close(self) -> None:
        """Close the store. Every later call raises `StoreClosed`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaBackend(Backend):
    """How the metadata of a scheme is opened. ``open(url, owner)`` imports what it needs when it is called;
    ``owner``: a name that no other process uses. It raises `elanus.core.errors.ElanusError`."""

    open: Callable[[str, str], MetaStore]


class StoreClosed(MetaFault):
    """The store was closed."""

    lasting = True


class CompareFailed(MetaFault):
    """A comparison did not hold; ``keys`` names those that did not. Nothing was applied."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"changed meanwhile: {', '.join(keys)}")
        self.keys = tuple(keys)


class LeaseExpired(MetaFault):
    """The lease is over: it was not renewed in time, or was revoked. It never comes back."""


class WatchBroken(MetaFault):
    """The store no longer has every change since the watch's position. List again."""


class MetaFailed(MetaFault):
    """The store cannot read or write its file. Nothing was applied."""


class DamagedMeta(MetaFailed):
    """The store's file does not hold what was written. Names the file, and the record where there is one."""


class MetaInUse(MetaFault):
    """Another process has this store open. Names the file."""


class UnknownMetaFormat(MetaFault):
    """The file was written by another release, in a format this one does not read, or is no metadata file."""

    lasting = True


class OutcomeUnknown(Unavailable):
    """The answer to a transaction was lost, and whether it was applied could not be determined."""
