"""The changes of a collection as Arrow batches, without Spark.

::

    from elanus.spark.changes import changes

    feed = changes("docs", since, uri="http://127.0.0.1:19530", keep_as="my copy")
    for batch in feed:
        ...  # columns of the collection, and _change_type, _commit_ts, _partition_id
    since = feed.until

The files are read by this process, so it needs the server's object store under the URL that the server knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import structlog

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.core.errors import ElanusError
from elanus.core.timestamps import Timestamp
from elanus.spark.asking import ask
from elanus.spark.change_rows import change_reads, read_changes
from elanus.spark.options import ReadOptions, parse_options
from elanus.spark.snapshot import snapshot_of, store_url
from elanus.storage.objects import open_store

_log = structlog.get_logger("spark")


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes later than ``since`` and not later than ``until``, in no order: iterate over batches."""

    since: Timestamp
    until: Timestamp
    snapshot: CollectionSnapshot
    store_url: str
    columns: tuple[str, ...]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        store = open_store(self.store_url)
        for read in change_reads(self.snapshot, self.store_url, self.since, self.columns):
            yield from read_changes(read, store)


def changes(collection: str, since: int, **options: str) -> Changes:
    """Return the changes of a collection later than the hybrid timestamp ``since``, up to now.

    ``options``: those of the format ``elanus`` (`elanus.spark.options`), ``uri`` for example. With
    ``keep_as`` the changes later than ``since`` are kept under that name for ``lease_s``. Raises
    `TimestampTooOld` when some of them are gone, with the remedy, `CollectionNotFound`, and
    `InvalidParameter`. The files stay for ``lease_s``; if there are no changes, they are let go at once.
    """
    parsed = parse_options({**options, "collection": collection, "changes_from": str(since)})
    lease = take_changes(parsed, Timestamp(since))
    snapshot = snapshot_of(parsed, lease)
    url = store_url(parsed, lease)
    if not change_reads(snapshot, url, Timestamp(since), parsed.columns):
        let_go(parsed, lease)
    return Changes(Timestamp(since), snapshot.read_ts, snapshot, url, parsed.columns)


def take_changes(options: ReadOptions, since: Timestamp) -> SnapshotLease:
    """Ask the server for files with every change later than ``since``. Raises as `changes` does."""
    of = options
    return ask(of, lambda server: server.changes(of.database, of.collection, since, of.keep_as, of.lease_ms))


def let_go(options: ReadOptions, lease: SnapshotLease) -> None:
    """Let the files of a snapshot go before its lease ends.

    Where the server refuses that, or does not answer, they stay until then: a user needs the privilege
    UnpinSnapshotData.
    """
    try:
        ask(options, lambda server: server.release(lease.snapshot_id))
    except ElanusError as error:
        _log.info("lease not released", collection=options.collection, error=error.message)
