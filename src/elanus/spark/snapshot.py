"""The snapshot that a lease is for, read from the server's object store."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from elanus.api.connector import SNAPSHOTS, CollectionSnapshot, SnapshotLease
from elanus.core.clones import as_of as rows_as_of
from elanus.core.clones import folded_until
from elanus.core.errors import InvalidParameter, TimestampTooOld
from elanus.core.moments import format_moment
from elanus.core.timestamps import Timestamp, compose, physical_ms
from elanus.spark.options import ReadOptions
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing
from elanus.storage.snapshots import read_snapshot


def snapshot_of(options: ReadOptions, lease: SnapshotLease) -> CollectionSnapshot:
    """Return it as of the moment that the options name.

    Raises `InvalidParameter` if there is none: the lease has ended, or the store is elsewhere; and as
    `shown_at` does.
    """
    try:
        store = open_store(store_url(options, lease))
    except InvalidParameter as error:
        if not options.store:
            raise
        raise InvalidParameter(
            f"store is {options.store!r}: give the URL of the server's object store, as the server's setting "
            f"storage.url has it ({error.message})"
        ) from error
    try:
        return shown_at(read_snapshot(store, lease.path, SNAPSHOTS), options.as_of)
    except ObjectMissing as error:
        raise InvalidParameter(
            f"no snapshot {lease.path} in {store.url}: its lease has ended, or the server's object store is "
            "found elsewhere from here (.option('store', ...))"
        ) from error


def store_url(options: ReadOptions, lease: SnapshotLease) -> str:
    return options.store or lease.store_url


def shown_at(snapshot: CollectionSnapshot, as_of: int | datetime | None) -> CollectionSnapshot:
    """Return the snapshot as of an earlier moment: a hybrid timestamp, or a time; None: as it is.

    Raises `InvalidParameter` for a moment after the snapshot, or before the collection was created (a copy
    of another one has rows of earlier moments, too), `TimestampTooOld` where compaction has folded later
    deletes into the files.
    """
    if as_of is None:
        return snapshot
    moment = compose(int(as_of.timestamp() * 1000)) if isinstance(as_of, datetime) else Timestamp(as_of)
    if moment > snapshot.read_ts:
        raise InvalidParameter(
            f"as_of is {moment}, which is later than the snapshot, {snapshot.read_ts}: give a hybrid "
            "timestamp or a time that has passed"
        )
    folded = folded_until(snapshot.segments)
    if folded > moment:
        raise TimestampTooOld(
            f"as_of is {moment}, but deletes up to {folded} ({_time(folded)}) are folded into the files: "
            "name a later moment, or raise datacoord.retention_s"
        )
    if moment < snapshot.created and not rows_as_of(snapshot.segments, moment):
        raise InvalidParameter(
            f"as_of is {moment} ({_time(moment)}), but the collection was created at "
            f"{_time(snapshot.created)}: give a hybrid timestamp, or a time such as 2026-11-23T12:00:00Z"
        )
    return replace(snapshot, read_ts=moment)


def _time(moment: Timestamp) -> str:
    return format_moment(physical_ms(moment) * 1000)
