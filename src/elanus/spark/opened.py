"""One version of a collection, opened for engines: Spark, DuckDB, Arrow.

::

    import elanus

    with elanus.open("docs", uri="http://127.0.0.1:19530") as docs:
        duck = docs.to_duckdb()
        print(duck.sql("select color, count(*) from docs group by color"))

Opening pins the version: its files stay until it is closed, or its lease ends. No further call goes to the
server. The engine reads the files itself, so it needs the server's object store under the URL that the server
knows, or under that of the option ``store``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.core.errors import ElanusError, InvalidParameter, NotSupported
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.spark.asking import ask
from elanus.spark.options import ReadOptions, parse_options
from elanus.spark.rows import rows_of
from elanus.spark.scan import ScanPlan, scan_plan
from elanus.spark.snapshot import snapshot_of, store_url
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

_log = structlog.get_logger("spark")


def open_collection(collection: str, *, as_of: int | str | None = None, **options: str) -> OpenCollection:
    """Pin a collection as of now, or as of a moment of the past, and open it.

    ``as_of``: a hybrid timestamp, or a time as text (ISO 8601; UTC unless it has an offset). ``options``:
    those of the format ``elanus`` for reading (`elanus.spark.options`), ``uri`` for example. Without
    ``lease_s`` the files stay for an hour at most.

    Raises the server's errors, `FieldNotFound`, `InvalidParameter`, and `TimestampTooOld` for an ``as_of``
    of which compaction has removed rows that were deleted since.
    """
    return pinned(collection, as_of, options)


def table(
    spark: SparkSession, collection: str, *, as_of: int | str | None = None, **options: str
) -> DataFrame:
    """Return the rows of a collection as a frame over Spark's own Parquet reader.

    It prunes columns and row groups as Spark does, and needs no Python in the executors. Columns have the
    types in which they are stored: vectors of floats are arrays, all other vectors their bytes. ``as_of`` and
    ``options``: as for `open_collection`, which this calls; it says what is raised. The
    files stay until the lease ends; to let them go earlier, use ``elanus.open(…).to_spark(spark)``.
    """
    return open_collection(collection, as_of=as_of, **options).to_spark(spark)


def pinned(
    collection: str, as_of: int | str | None, options: Mapping[str, str], *, with_indexes: bool = False
) -> OpenCollection:
    """As `open_collection`. ``with_indexes``: pin the built indexes too."""
    given = {**options, "collection": collection} | ({} if as_of is None else {"as_of": str(as_of)})
    parsed = parse_options(given)
    if parsed.changes_from is not None:
        raise InvalidParameter("changes_from does not apply here: use elanus.spark.changes.changes")
    lease = ask(
        parsed,
        lambda server: server.snapshot(
            parsed.database, parsed.collection, parsed.partitions, parsed.lease_ms, with_indexes=with_indexes
        ),
    )
    opened = OpenCollection(parsed, lease)
    try:
        opened.check()
    except BaseException:
        opened.close()
        raise
    return opened


class OpenCollection:
    """A pinned version. Made by `open_collection`; a context manager, which closes it."""

    def __init__(self, options: ReadOptions, lease: SnapshotLease) -> None:
        self.options = options
        self.lease = lease
        self._snapshot: CollectionSnapshot | None = None
        self._closed = False

    @property
    def snapshot(self) -> CollectionSnapshot:
        """The files of the version, and which of their rows count."""
        if self._closed:
            raise InvalidParameter(f"collection {self.name} has been closed: open it again")
        if self._snapshot is None:
            self._snapshot = snapshot_of(self.options, self.lease)
        return self._snapshot

    @property
    def name(self) -> str:
        return self.options.collection

    @property
    def schema(self) -> CollectionSchema:
        return self.snapshot.schema

    @property
    def read_ts(self) -> Timestamp:
        """The timestamp as of which rows are read."""
        return self.snapshot.read_ts

    @property
    def store_url(self) -> str:
        return store_url(self.options, self.lease)

    def check(self) -> None:
        """Raise the errors that a read would raise for the options: `FieldNotFound`, `InvalidParameter`."""
        compile_filter(self.options.filter, self.schema)
        for column in self.options.columns:
            self.schema.field(column)

    def to_arrow(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches. Each call begins a stream of its own."""
        return rows_of(self.snapshot, self.store_url, self.options.columns, self.options.filter)

    def to_duckdb(self, connection: DuckDBPyConnection | None = None, name: str = "") -> DuckDBPyConnection:
        """Return a DuckDB connection with the rows as a temporary view, named as the collection or ``name``.

        ``connection``: the one to use, a new one in memory if not given. DuckDB reads only the columns and
        row groups that a query needs. Raises `NotSupported` with the option ``filter`` (use ``where``), for
        columns that functions compute, and for columns that differ in case only.
        """
        import duckdb

        from elanus.spark.duck import attach_view

        plan = self._plan("a where in the query")
        connection = connection if connection is not None else duckdb.connect()
        attach_view(connection, name or self.name, plan, self.store_url)
        return connection

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a frame over Spark's own Parquet reader. Raises as `to_duckdb` does."""
        from elanus.spark.native import native_frame

        return native_frame(spark, self._plan("where on the frame"), self.store_url)

    def close(self) -> None:
        """Let the files go. Frames, views and streams of this version may fail afterwards.

        Where the server refuses that, or does not answer, they stay until the lease ends, and a log line says
        so: a user needs the privilege UnpinSnapshotData.
        """
        if self._closed:
            return
        self._closed = True
        try:
            ask(self.options, lambda server: server.release(self.lease.snapshot_id))
        except ElanusError as error:
            _log.warning("lease not released", collection=self.name, error=str(error))

    def __enter__(self) -> OpenCollection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get no token, and no snapshot, which they read again from the store."""
        return self.__dict__ | {"_snapshot": None, "options": replace(self.options, token="")}

    def _plan(self, instead: str) -> ScanPlan:
        if self.options.filter:
            raise NotSupported(f"the engine does not know the filter language: use {instead}, not filter")
        try:
            return scan_plan(self.snapshot, open_store(self.store_url), self.options.columns)
        except ObjectMissing as error:
            raise InvalidParameter(
                f"{error} is gone from {self.store_url}: the lease of the version has ended; open the "
                "collection again, with a larger lease_s"
            ) from error
