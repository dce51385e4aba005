"""Snapshots of `FakeVerbs`: names of collections, and of the clones that were made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from elanus.api.snapshots import RestoreJob, SnapshotView
from elanus.core.errors import CollectionAlreadyExists, CollectionNotFound, JobNotFound, SnapshotNotFound
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, compose


class FakeSnapshots:
    held: dict[tuple[str, str], Any]

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: dict[tuple[str, str, str], SnapshotView] = {}
        self.snapshot_timeouts_s: list[float | None] = []
        self.jobs: dict[int, RestoreJob] = {}
        self.snapshot_pins: list[tuple[str, int]] = []
        self.undropped: list[tuple[str, str, str]] = []

    def create_snapshot(
        self, database: str, collection: str, name: str, description: str, timeout_s: float | None = None
    ) -> None:
        if (database, collection) not in self.held:
            raise CollectionNotFound(f"collection not found[database={database}][collection={collection}]")
        view = SnapshotView(name, description, collection, ("_default",), compose(5), "file:///s/1", 10)
        self.snapshots[database, collection, name] = view
        self.snapshot_timeouts_s.append(timeout_s)

    def drop_snapshot(self, database: str, collection: str, name: str) -> None:
        self.snapshots.pop((database, collection, name), None)

    def list_snapshots(self, database: str, collection: str = "") -> Sequence[str]:
        return [n for d, c, n in self.snapshots if d == database and collection in ("", c)]

    def describe_snapshot(self, database: str, collection: str, name: str) -> SnapshotView:
        found = self.snapshots.get((database, collection, name))
        if found is None:
            raise SnapshotNotFound(f"collection {collection}: snapshot not found[snapshot={name}]")
        return found

    def restore_snapshot(
        self, database: str, collection: str, name: str, target_database: str, target: str
    ) -> RestoreJob:
        self.describe_snapshot(database, collection, name)
        return self._cloned(target_database, target, name, compose(5))

    def clone_collection(
        self,
        database: str,
        collection: str,
        target_database: str,
        target: str,
        moment: Timestamp = NO_TIMESTAMP,
    ) -> RestoreJob:
        if (database, collection) not in self.held:
            raise CollectionNotFound(f"collection not found[database={database}][collection={collection}]")
        return self._cloned(target_database, target, "", moment or compose(6))

    def undrop_collection(self, database: str, collection: str, target: str = "") -> RestoreJob:
        self.undropped.append((database, collection, target))
        return self._cloned(database, target or collection, "", compose(7))

    def _cloned(self, database: str, name: str, snapshot: str, moment: Timestamp) -> RestoreJob:
        if (database, name) in self.held:
            raise CollectionAlreadyExists(f"collection already exists[collection={name}]")
        job = RestoreJob(len(self.jobs) + 1, snapshot, database, name, moment, True, 9, 2)
        self.jobs[job.job_id] = job
        return job

    def restore_jobs(self, database: str, collection: str = "") -> Sequence[RestoreJob]:
        return [j for j in self.jobs.values() if j.database == database and collection in ("", j.collection)]

    def restore_job(self, job_id: int) -> RestoreJob:
        if job_id not in self.jobs:
            raise JobNotFound(f"restore job not found[job={job_id}]")
        return replace(self.jobs[job_id])

    def pin_snapshot(self, database: str, collection: str, name: str, ttl_s: int) -> int:
        self.describe_snapshot(database, collection, name)
        self.snapshot_pins.append((name, ttl_s))
        return len(self.snapshot_pins)

    def place_of_pin(self, pin_id: int) -> tuple[str, str] | None:
        return None

    def unpin_snapshot(self, pin_id: int) -> None:
        self.snapshot_pins[pin_id - 1 : pin_id] = [("", 0)]
