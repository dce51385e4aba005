"""``df.write.format("elanus")``: rows written to a collection, exactly once.

Tasks write their rows as Parquet files into the server's import directory. The commit has the server import
all of them at once, under the write's name: the server records the name with the rows, in one transaction,
and a write that it knows is not repeated. So it does not matter how often Spark runs a task or the commit, or
what dies in between. `elanus.spark.stream_sink` writes the batches of streaming queries the same way.

A write that upserts, deletes or overwrites is an import too: its deletes are part of the same commit.

Spark makes the writer, runs its tasks and calls the commit in different Python processes: what they share is
pickled with the writer.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from elanus.api.connector import ConnectorApi, WriteTarget
from elanus.core.errors import DeadlineExceeded, ElanusError, InvalidParameter
from elanus.core.faults import StorageFault
from elanus.core.given_types import check_columns
from elanus.core.import_files import LIST_SUFFIX
from elanus.core.imports import ENDED, ImportState, ImportTask, WriteMode, WritePlace
from elanus.core.limits import IMPORT_FILES_MAX
from elanus.spark.asking import answered, ask
from elanus.spark.options import WriteOptions
from elanus.spark.plain_errors import plain_errors
from elanus.spark.releases import arrow_schema
from elanus.spark.tables import generated_columns
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectStore

_LOOK_S = 0.25
_STAGING = "spark-writes"
_LEFT_BEHIND = timedelta(days=7)
"""From then on no write or import waits for a file any more."""
_COMMITTED = (ImportState.PERSISTED, ImportState.COMPLETED)
_log = structlog.get_logger("spark")

T = TypeVar("T")


@dataclass
class Staged(WriterCommitMessage):
    """A task's file, below the import directory ("": no rows), and its number of rows.

    ``query_id``: the streaming query that the task belongs to, "" if there is none. ``place``: what the names
    of the write meant when it began.
    """

    file: str
    rows: int
    query_id: str = ""
    place: WritePlace | None = None


class Staging:
    """Writes the files of one write, which goes to ``place``, into the import directory at ``url``."""

    def __init__(self, url: str, place: WritePlace | None = None) -> None:
        self._url = url
        self._place = place

    @plain_errors()
    def write(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: put the rows into a file of a new name. Nothing is left behind if it fails."""
        name, rows = f"{_STAGING}/{uuid.uuid4().hex}.parquet", 0
        with TemporaryDirectory() as scratch, contextlib.ExitStack() as closing:
            file, writer = Path(scratch) / "rows.parquet", None
            for batch in batches:
                if writer is None:
                    # vectors have no repeated values: looking for them takes longer than the rest
                    writer = closing.enter_context(pq.ParquetWriter(file, batch.schema, use_dictionary=False))
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is None or not rows:
                return Staged("", 0)
            writer.close()
            self._store().put_file(name, file)
        return Staged(name, rows, place=self._place)

    def write_empty(self, schema: pa.Schema) -> Staged:
        """Put a file without rows."""
        name = f"{_STAGING}/{uuid.uuid4().hex}.parquet"
        with TemporaryDirectory() as scratch:
            file = Path(scratch) / "rows.parquet"
            pq.write_table(schema.empty_table(), file)
            self._store().put_file(name, file)
        return Staged(name, 0, place=self._place)

    @contextlib.contextmanager
    def named(self, files: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the names by which an import takes these files: if they are many, that of a list of them."""
        if len(files) <= IMPORT_FILES_MAX:
            yield tuple(files)
            return
        name = f"{_STAGING}/{uuid.uuid4().hex}{LIST_SUFFIX}"
        self._store().put(name, "\n".join(files).encode())
        try:
            yield (name,)
        finally:
            self._remove([name])

    def remove(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files. Where that fails they stay, and a log line says so: what became of the write is
        decided by then."""
        self._remove(_files(messages))

    def _remove(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                self._store().delete(name)
        except (ElanusError, StorageFault, OSError) as error:
            _log.warning("files of a write stay", files=len(names), first=names[0], error=str(error))

    def check(self) -> None:
        """Raise `InvalidParameter` where the directory cannot be written from here."""
        name = f"{_STAGING}/{uuid.uuid4().hex}.check"
        try:
            store = self._store()
            store.put(name, b"")
            store.delete(name)
        except (ElanusError, StorageFault, OSError) as error:
            raise InvalidParameter(
                f"the import directory {self._url} cannot be written from here: {error}; give the URL under "
                "which driver and executors find it, .option('import_directory', ...)"
            ) from error
        with contextlib.suppress(ElanusError, StorageFault, OSError):  # the next write tries again
            _clear(store)

    def _store(self) -> ObjectStore:
        return open_store(self._url)


class Sink:
    """Brings staged files into the collection.

    Making it raises what can be said before any task has run: the collection, the partition, the operation,
    the rights, the ``columns`` of the frame by their names and types, and the directory. ``waits``: a server
    that does not answer is asked again, as by `commit`.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema, *, waits: bool = False) -> None:
        self._options = options
        target, directory = self._answered(self._target) if waits else self._ask(self._target)
        schema = target.schema
        if options.operation is WriteMode.DELETE:
            _check_only_keys(schema.primary_field.name, columns)
        check_columns(schema, columns, "the frame")
        self.staging = Staging(options.import_directory or directory, target.place)
        self.staging.check()

    async def _target(self, server: ConnectorApi) -> tuple[WriteTarget, str]:
        to = self._options
        target = await server.write_target(to.database, to.collection, to.partition, to.operation)
        return target, await server.import_directory()

    @plain_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], write_id: str, batch: int = -1) -> None:
        """Return when the write is committed: Spark reads it from then on, clients as soon as it is loaded,
        for which this waits as long as ``wait_served_s`` says.

        ``batch``: its number, where ``write_id`` names a streaming query.

        A server that does not answer is asked again (`answered`): it may be restarting, and goes on with the
        write then. Raises `InvalidParameter` for rows that do not fit, with the server's reason:
        none is there then; and for a batch of a query whose later batches are there, or those of another
        query of that name. Raises `DeadlineExceeded` for a write that is committed, but not loaded in time.
        """
        files = _files(messages)
        if not files:
            return
        to = self._options
        staged = [m for m in messages if isinstance(m, Staged) and m.file]
        query_id, place = staged[0].query_id, staged[0].place
        with self.staging.named(files) as names:
            task = self._answered(
                lambda server: server.write_files(
                    to.database,
                    to.collection,
                    to.partition,
                    names,
                    write_id,
                    to.operation,
                    batch,
                    query_id,
                    place,
                )
            )
            _check_is_next(task, write_id, batch, query_id)
            while task.state not in (*ENDED, *_COMMITTED):
                time.sleep(_LOOK_S)
                task = self._task(task)
        self.staging.remove(messages)
        if task.state is ImportState.FAILED:
            reason = _by_partitions(task.reason, messages)
            raise InvalidParameter(f"nothing of write {write_id} is in {to.collection}: {reason}")
        self._wait_until_served(task, write_id)

    def _wait_until_served(self, task: ImportTask, write_id: str) -> None:
        wait_s = self._options.wait_served_s
        until_s = time.monotonic() + wait_s
        while wait_s and task.state is not ImportState.COMPLETED:
            if time.monotonic() >= until_s:
                raise DeadlineExceeded(
                    f"write {write_id} is in {self._options.collection}, but searches and queries do not "
                    f"find it yet after {wait_s:g} s (wait_served_s): its index is still built, or its rows "
                    "are still loaded. Do not write it again under another name; elanus status says what "
                    "the server is doing"
                )
            time.sleep(_LOOK_S)
            task = self._task(task)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.staging.remove(messages)

    def _task(self, task: ImportTask) -> ImportTask:
        return self._answered(lambda server: server.import_task(task.task_id))

    def _answered(self, call: Callable[[ConnectorApi], Awaitable[T]]) -> T:
        """Make a call that may be repeated."""
        return answered(lambda: self._ask(call))

    def _ask(self, call: Callable[[ConnectorApi], Awaitable[T]]) -> T:
        return ask(self._options, call)


class ElanusWriter(DataSourceArrowWriter):
    """A batch write: one partition of the frame is one task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._generated = generated_columns(schema)
        given = [field for field in schema.fields if field.name not in self._generated]
        self._columns = arrow_schema(StructType(given))
        self._sink = Sink(options, self._columns)
        self._replaces = options.operation is WriteMode.OVERWRITE
        self._write_id = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.staging.write(without_generated(batch, self._generated) for batch in iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._replaces and not _files(messages):  # the rows that are there go all the same
            messages = [*messages, self._sink.staging.write_empty(self._columns)]
        self._sink.commit(messages, self._write_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._sink.abort(messages)


def _check_only_keys(key: str, columns: pa.Schema) -> None:
    """Raise `InvalidParameter` for a frame of deletes that has further columns."""
    if key in columns.names and len(columns.names) > 1:
        raise InvalidParameter(
            f"a delete takes a frame of the column {key} alone, this one has {', '.join(columns.names)}: "
            f"give .select('{key}')"
        )


def without_generated(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Leave out the columns that the server makes. Raises `InvalidParameter` where a row has a value."""
    for name in names:
        if batch.column(name).null_count < batch.num_rows:
            raise InvalidParameter(
                f"the server makes the values of {name}: leave the column out of the insert"
            )
    return batch.drop_columns(list(names)) if names else batch


def _check_is_next(task: ImportTask, stream_id: str, batch: int, query_id: str) -> None:
    """Raise `InvalidParameter` if this batch is left out, since the server has a later one of the stream, or
    one of another query.

    Spark repeats the last batch of a query at most. An earlier one has other rows: those of another query, or
    of an older copy of its checkpoint.
    """
    is_other = task.query_id != query_id and "" not in (task.query_id, query_id)
    if task.batch > batch or is_other:
        whose = f" by query {task.query_id}; this is query {query_id}" if is_other else ""
        raise InvalidParameter(
            f"batch {batch} of the streaming query {stream_id} is not written: the server has batch "
            f"{task.batch} of that name already{whose}. A query with a new checkpoint, or an older copy of "
            "one, needs a name of its own: .option('stream_id', ...)"
        )


def _clear(store: ObjectStore) -> None:
    """Remove what tasks that were killed, or ran twice, have left of former writes."""
    before = datetime.now(UTC) - _LEFT_BEHIND
    if left := [found.path for found in store.list(_STAGING) if found.modified < before]:
        store.delete_all(left)


def _by_partitions(reason: str, messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return a text that names the frame's partitions in place of the files that their tasks wrote: these are
    gone by then, and their names say nothing about the frame."""
    for number, message in enumerate(messages):
        if isinstance(message, Staged) and message.file:
            reason = reason.replace(message.file, f"partition {number} of the frame")
    return reason


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [m.file for m in messages if isinstance(m, Staged) and m.file]
