"""Named snapshots and clones, between the roles: what datacoord does for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.core.catalog import Collection, Index
from elanus.core.ids import CollectionID
from elanus.core.pins import NEVER, Pin
from elanus.core.segments import IndexFile
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """``expires_ms``: Unix time at which it is dropped by itself, or `NEVER`."""

    collection_id: CollectionID
    name: str
    description: str = ""
    expires_ms: int = NEVER


@dataclass(frozen=True, slots=True)
class CloneSource:
    """The source of a clone: the snapshot with ``pin_id``, else the collection as of ``moment`` (0: now).

    A collection that was dropped is cloned as of the last moment that its files have completely.
    ``lease_ms``: it is held for a backup, for so long; 0: for a clone, until that is made.
    """

    collection_id: CollectionID
    pin_id: int = 0
    moment: Timestamp = NO_TIMESTAMP
    lease_ms: int = 0


@dataclass(frozen=True, slots=True)
class HeldSource:
    """A source whose files stay until the clone is made. ``pin``: see `elanus.core.pins.Pin`; ``snapshot``:
    the name of the named snapshot, or ""; ``collection`` and ``indexes``: the source's definition."""

    pin: Pin
    snapshot: str
    collection: Collection
    indexes: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class DroppedCollection:
    """The definition of a dropped collection, with its indexes."""

    collection: Collection
    indexes: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """A named snapshot and where it is. ``bytes``: the size of the rows' files that it keeps."""

    pin: Pin
    location: str
    database_id: int
    collection: str
    partitions: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class PinnedCollection:
    """A pin, and the definition of its collection.

    None for a restore's, whose collection does not exist yet, and for a collection that is gone.
    """

    pin: Pin
    collection: Collection | None


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """``location``: the URL of the snapshot's object. ``moment``: what it shows; it was taken then.
    ``bytes``: the size of the rows' files that it keeps."""

    name: str
    description: str
    collection: str
    partitions: tuple[str, ...]
    moment: Timestamp
    location: str
    bytes: int


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """A clone and how it came to be. ``snapshot``: "" for a clone as of a moment."""

    job_id: int
    snapshot: str
    database: str
    collection: str
    moment: Timestamp
    is_done: bool
    began_ms: int
    took_ms: int


class SnapshotCalls(Protocol):
    """Snapshots by name, and the sources of clones."""

    async def create_snapshot(self, request: NewSnapshot) -> Pin:
        """Keep everything acknowledged before the call under a name.

        Rows that exist only in the log are first written to files. Raises `CollectionNotFound`,
        `InvalidParameter` for a name that the collection has already, and `Unavailable` when the rows are not
        written to files in time.
        """
        ...

    @repeatable
    async def drop_snapshot(self, collection_id: CollectionID, name: str) -> None:
        """Dropping one that does not exist succeeds. Raises `InvalidParameter` while it is pinned."""
        ...

    @repeatable
    async def named_snapshots(self) -> tuple[Pin, ...]:
        """Return all named snapshots, in the order in which they were made."""
        ...

    @repeatable
    async def named_snapshot(self, pin_id: int) -> NamedSnapshot:
        """Raises `SnapshotNotFound`."""
        ...

    async def pin_snapshot(self, pin_id: int, expires_ms: int) -> Pin:
        """Keep the files of a snapshot whatever happens to it. Raises `SnapshotNotFound`."""
        ...

    @repeatable
    async def unpin_snapshot(self, pin_id: int) -> None:
        """Release what `pin_snapshot` or `hold_source` pinned. It may be gone already."""
        ...

    @repeatable
    async def pinned_collection(self, pin_id: int) -> PinnedCollection:
        """Return what a pin, of whatever kind, is of. Raises `SnapshotNotFound` for one that has ended."""
        ...

    async def hold_source(self, source: CloneSource) -> HeldSource:
        """Pin what is to be cloned. Raises `CollectionNotFound`, `SnapshotNotFound`, `TimestampTooOld` for a
        moment of which deletes are folded in already, and `Unavailable` as `create_snapshot`."""
        ...

    @repeatable
    async def dropped_collections(self) -> tuple[Collection, ...]:
        """Return the dropped collections whose files still exist, the latest drop last."""
        ...


class CloneCalls(Protocol):
    """Clones that are being made."""

    @repeatable
    async def borrowed_indexes(self, clone: Collection) -> tuple[IndexFile, ...]:
        """Return the index files of the source that are right for segments of the clone.

        ``segment_id`` is the clone's segment, ``index_id`` the source's index. Files that are missing, or of
        which the clone shows fewer rows, are left out.
        """
        ...
