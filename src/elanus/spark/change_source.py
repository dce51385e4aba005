"""Changes as a DataFrame, and as a streaming source, whose offsets are timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.timestamps import Timestamp
from elanus.spark.asking import answered
from elanus.spark.change_rows import (
    PARTITION_ID_COLUMN,
    TS_COLUMN,
    TYPE_COLUMN,
    ChangeRead,
    change_reads,
    read_changes,
)
from elanus.spark.changes import let_go, let_go_on_error, take_changes
from elanus.spark.options import ReadOptions
from elanus.spark.plain_errors import plain_errors
from elanus.spark.releases import SupportsTriggerAvailableNow, arrow_schema
from elanus.spark.snapshot import snapshot_of, store_url
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing

OWN = (
    StructField(TYPE_COLUMN, StringType(), nullable=False),
    StructField(TS_COLUMN, LongType(), nullable=False),
    StructField(PARTITION_ID_COLUMN, LongType(), nullable=False),
)
_COLLECTION = "collection"


class ChangePartition(InputPartition):
    """The changes in one segment or delta log."""

    def __init__(self, read: ChangeRead) -> None:
        super().__init__(read)


class _Tasks:
    """The part that tasks run: they get this object."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def _partitions(
        self, lease: SnapshotLease, snapshot: CollectionSnapshot, since: Timestamp
    ) -> list[InputPartition]:
        from elanus.spark.source import check_fields

        fields = self._schema.fields[: -len(OWN)]
        check_fields(snapshot.schema, fields, "begin the stream again, with the columns that there are")
        names = tuple(column.name for column in fields)
        url = store_url(self._options, lease)
        return [ChangePartition(read) for read in change_reads(snapshot, url, since, names)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task. Without changes there is one partition of Spark's own making."""
        from elanus.spark.source import as_spark

        read = partition.value
        if read is None:
            return
        target = arrow_schema(self._schema)
        with plain_errors():
            try:
                for batch in read_changes(read, open_store(read.store_url)):
                    yield as_spark(batch.select(target.names), read.schema, target)
            except ObjectMissing as error:
                raise InvalidParameter(
                    f"{error} is gone from {read.store_url}: the lease of the changes has ended; read them "
                    "again, with a larger lease_s"
                ) from error


class ElanusChangeReader(_Tasks, DataSourceReader):
    """A batch: the changes from ``changes_from`` up to the moment of the load."""

    def __init__(self, options: ReadOptions, lease: SnapshotLease, schema: StructType) -> None:
        super().__init__(options, schema)
        self._lease = lease

    @plain_errors()
    def partitions(self) -> Sequence[InputPartition]:
        snapshot = snapshot_of(self._options, self._lease)
        assert self._options.changes_from is not None, "changes are read from a timestamp on"
        return self._partitions(self._lease, snapshot, self._options.changes_from)


class ElanusStreamReader(_Tasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: an offset is the timestamp up to which changes have been read, and the id of the collection
    that they are from. One at which nothing has been read yet has no id."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.changes_from is None:
            raise InvalidParameter(
                "a stream reads changes: give the timestamp to begin at, .option('changes_from', ...)"
            )
        super().__init__(options, schema)
        self._latest: tuple[Timestamp, SnapshotLease, CollectionSnapshot] | None = None
        self._held: list[tuple[Timestamp, SnapshotLease]] = []
        """The leases of batches that are being read, each with the end of its batch."""
        self._looks_once = False
        self._has_looked = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"ts": self._options.changes_from}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what there is at the next look, which finds all of it, and no more.

        Without this, Spark runs a single batch: after a failure only that one again.
        """
        self._looks_once = True

    @plain_errors()
    def latestOffset(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:  # noqa: N802
        self.commit(start)  # batches that end here have been processed: Spark looks for the next one
        if self._looks_once and self._has_looked:
            return start
        self._has_looked = True
        since = Timestamp(start["ts"])
        self._drop_latest()
        lease = self._taken(since)
        with let_go_on_error(self._options, lease):
            snapshot = self._snapshot(lease, start)
            found = self._partitions(lease, snapshot, since)
        if not found:
            let_go(self._options, lease)
            return start
        self._latest = since, lease, snapshot
        return {"ts": snapshot.read_ts, _COLLECTION: snapshot.collection_id}

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A batch can be repeated at any time: a later snapshot has the same changes up to ``end``.

        Mostly the batch is the one that `latestOffset` has just found. Its snapshot is used once.
        """
        since, until = Timestamp(start["ts"]), Timestamp(end["ts"])
        if since == until:
            return []
        latest = self._latest
        if latest is not None and (latest[0], latest[2].read_ts) == (since, until):
            self._latest = None
            self._held.append((until, latest[1]))
            return self._partitions(latest[1], latest[2], since)
        self._drop_latest()
        lease = self._taken(since)
        self._held.append((until, lease))  # also if it fails: the next commit lets it go
        return self._partitions(lease, up_to(self._snapshot(lease, end), until), since)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the files of batches go that have been processed. The changes that are kept under a name follow
        the offset that the next batch begins at. Spark calls this when the next batch begins."""
        done = [lease for until, lease in self._held if until <= end["ts"]]
        self._held = [held for held in self._held if held[0] > end["ts"]]
        for lease in done:
            let_go(self._options, lease)

    def stop(self) -> None:
        """Let all files go: a query that begins again takes a version of its own.

        Spark kills the process of a query that is stopped: what is being read then stays for its lease.
        """
        self._drop_latest()
        held, self._held = self._held, []
        for _, lease in held:
            let_go(self._options, lease)

    def _taken(self, since: Timestamp) -> SnapshotLease:
        """The server may restart meanwhile: a query that runs for months outlasts that."""
        return answered(lambda: take_changes(self._options, since))

    def _snapshot(self, lease: SnapshotLease, offset: dict[str, Any]) -> CollectionSnapshot:
        """Raises `InvalidParameter` if the name means another collection than the one read before: that its
        rows are gone is no change of this one."""
        snapshot = snapshot_of(self._options, lease)
        if offset.get(_COLLECTION, snapshot.collection_id) != snapshot.collection_id:
            raise InvalidParameter(
                f"{self._options.collection} is another collection than the one that this stream has read: "
                "it was dropped and created again, or an alias was switched; begin a new stream, with a new "
                "checkpointLocation"
            )
        return snapshot

    def _drop_latest(self) -> None:
        """Let the files of a snapshot go that no batch has used."""
        latest, self._latest = self._latest, None
        if latest is not None:
            let_go(self._options, latest[1])


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read: each call of Spark raises why.

    An error raised by `DataSource.streamReader` itself is lost: Spark's runner (4.0 to 4.3) then stops the
    reader that it does not have, and reports only that error, an `UnboundLocalError`.
    """

    def __init__(self, reason: ElanusError) -> None:
        self._reason = reason

    @plain_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._reason

    @plain_errors()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        raise self._reason

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._reason

    @plain_errors()
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._reason


def up_to(snapshot: CollectionSnapshot, until: Timestamp) -> CollectionSnapshot:
    """Return the snapshot for reading changes up to an earlier timestamp."""
    return replace(snapshot, read_ts=until)
