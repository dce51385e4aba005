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

import contextlib
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa
import structlog

from elanus.api.connector import SnapshotLease
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.timestamps import Timestamp
from elanus.spark.asking import ask
from elanus.spark.change_rows import change_reads, read_changes
from elanus.spark.options import ReadOptions, parse_options
from elanus.spark.snapshot import snapshot_of, store_url
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing

_log = structlog.get_logger("spark")


class Changes:
    """All changes later than ``since`` and not later than ``until``, in no order: iterate over batches.

    Their files stay until all batches were read, or until it is closed, as a context manager too, and for
    ``lease_s`` at most. They can be read once.
    """

    def __init__(self, options: ReadOptions, since: Timestamp, lease: SnapshotLease) -> None:
        """Raises `FieldNotFound`."""
        snapshot = snapshot_of(options, lease)
        for name in options.columns:
            snapshot.schema.field(name)
        self.since = since
        self.until = snapshot.read_ts
        self.store_url = store_url(options, lease)
        self._options = options
        self._lease: SnapshotLease | None = lease
        self._reads = change_reads(snapshot, self.store_url, since, options.columns)
        if not self._reads:
            self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises `InvalidParameter` if the files have been let go."""
        if self._reads and self._lease is None:
            raise InvalidParameter(
                f"the changes of {self._options.collection} since {self.since} have been read or closed, and "
                "their files let go: call elanus.spark.changes.changes again"
            )
        store = open_store(self.store_url)
        try:
            for read in self._reads:
                yield from read_changes(read, store)
        except ObjectMissing as error:
            raise InvalidParameter(
                f"{error} is gone from {self.store_url}: the lease of the changes has ended; read them "
                "again, with a larger lease_s"
            ) from error
        self.close()

    def close(self) -> None:
        """Let the files go. Where the server refuses that, they stay until the lease ends (`let_go`)."""
        lease, self._lease = self._lease, None
        if lease is not None:
            let_go(self._options, lease)

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def changes(collection: str, since: int, **options: str) -> Changes:
    """Return the changes of a collection later than the hybrid timestamp ``since``, up to now.

    ``options``: those of the format ``elanus`` (`elanus.spark.options`), ``uri`` for example. With
    ``keep_as`` the changes later than ``since`` are kept under that name for ``lease_s``. Raises
    `TimestampTooOld` when some of them are gone, with the remedy, `CollectionNotFound`, `FieldNotFound`, and
    `InvalidParameter`.
    """
    parsed = parse_options({**options, "collection": collection, "changes_from": str(since)})
    lease = take_changes(parsed, Timestamp(since))
    with let_go_on_error(parsed, lease):
        return Changes(parsed, Timestamp(since), lease)


def take_changes(options: ReadOptions, since: Timestamp) -> SnapshotLease:
    """Ask the server for files with every change later than ``since``. Raises as `changes` does."""
    of = options
    return ask(of, lambda server: server.changes(of.database, of.collection, since, of.keep_as, of.lease_ms))


@contextlib.contextmanager
def let_go_on_error(options: ReadOptions, lease: SnapshotLease) -> Iterator[None]:
    """Let the files go of a version that nobody will read, since what was asked of it is refused."""
    try:
        yield
    except BaseException:
        let_go(options, lease)
        raise


def let_go(options: ReadOptions, lease: SnapshotLease) -> None:
    """Let the files of a snapshot go before its lease ends.

    Where the server refuses that, or does not answer, they stay until then: a user needs the privilege
    UnpinSnapshotData.
    """
    try:
        ask(options, lambda server: server.release(lease.snapshot_id))
    except ElanusError as error:
        _log.info("lease not released", collection=options.collection, error=error.message)
