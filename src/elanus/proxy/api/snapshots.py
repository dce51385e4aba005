"""The verbs of snapshots, clones and dropped collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elanus.api.snapshots import RestoreJob, SnapshotView
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp


class SnapshotVerbs(Protocol):
    """A snapshot belongs to a collection, and outlives it: the collection's last name still finds it.

    Raises `SnapshotNotFound` for a snapshot, and `CollectionNotFound` for a collection that was never there.
    """

    def create_snapshot(
        self, database: str, collection: str, name: str, description: str, timeout_s: float | None = None
    ) -> None:
        """``timeout_s``: how long the client waits (None: as long as the server does).

        Raises `InvalidParameter` for a name that is illegal or taken, `Unavailable` without a pipeline, and
        `DeadlineExceeded`: the wait for the files has ended then, and no snapshot is made.
        """
        ...

    def drop_snapshot(self, database: str, collection: str, name: str) -> None:
        """Dropping one that does not exist succeeds."""
        ...

    def list_snapshots(self, database: str, collection: str = "") -> Sequence[str]:
        """Return the names, of one collection or of the whole database."""
        ...

    def describe_snapshot(self, database: str, collection: str, name: str) -> SnapshotView: ...
    def restore_snapshot(
        self, database: str, collection: str, name: str, target_database: str, target: str
    ) -> RestoreJob:
        """Make a new collection of a snapshot. Raises `CollectionAlreadyExists`."""
        ...

    def restore_jobs(self, database: str, collection: str = "") -> Sequence[RestoreJob]:
        """Return the restores into collections that exist. ``collection``: the target."""
        ...

    def restore_job(self, job_id: int) -> RestoreJob:
        """Raises `JobNotFound`."""
        ...

    def pin_snapshot(self, database: str, collection: str, name: str, ttl_s: int) -> int:
        """Keep a snapshot's files, even if it is dropped. ``ttl_s`` 0: until `unpin_snapshot`."""
        ...

    def unpin_snapshot(self, pin_id: int) -> None: ...
    def place_of_pin(self, pin_id: int) -> tuple[str, str] | None:
        """Return the database and the name of the collection that a pin, of whatever kind, is of.

        For a restore: of the one that it will make. None for a pin that has ended; the database is `ANY` and
        the name "" for one of a collection that is gone.
        """
        ...

    def clone_collection(
        self,
        database: str,
        collection: str,
        target_database: str,
        target: str,
        moment: Timestamp = NO_TIMESTAMP,
    ) -> RestoreJob:
        """Make a new collection of another one as of ``moment`` (0: now).

        Raises `CollectionAlreadyExists`, `TimestampTooOld`.
        """
        ...

    def undrop_collection(self, database: str, collection: str, target: str = "") -> RestoreJob:
        """Bring the collection back that was dropped last under this name, as ``target`` if given.

        Raises `CollectionNotFound` if none was, or its files may be gone.
        """
        ...
