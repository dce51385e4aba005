"""The snapshot that a lease is for, read from the server's object store."""

from __future__ import annotations

from elanus.api.connector import SNAPSHOTS, CollectionSnapshot, SnapshotLease
from elanus.core.errors import InvalidParameter
from elanus.spark.options import ReadOptions
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing
from elanus.storage.snapshots import read_snapshot


def snapshot_of(options: ReadOptions, lease: SnapshotLease) -> CollectionSnapshot:
    """Raises `InvalidParameter` if there is none: the lease has ended, or the store is elsewhere."""
    store = open_store(store_url(options, lease))
    try:
        return read_snapshot(store, lease.path, SNAPSHOTS)
    except ObjectMissing as error:
        raise InvalidParameter(
            f"no snapshot {lease.path} in {store.url}: its lease has ended, or the server's object store is "
            "found elsewhere from here (.option('store', ...))"
        ) from error


def store_url(options: ReadOptions, lease: SnapshotLease) -> str:
    return options.store or lease.store_url
