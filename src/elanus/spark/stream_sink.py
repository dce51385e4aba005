"""``df.writeStream.format("elanus")``: each batch of a streaming query is a write of `elanus.spark.sink`.

Batches are named by the query's checkpoint and their numbers, so that a batch that is replayed after a crash
adds nothing. Tasks add the id that Spark has given to the query, so that a new query of an old name is
refused instead. The module needs PySpark 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from elanus.core.errors import InvalidParameter
from elanus.spark.options import WriteOptions
from elanus.spark.releases import arrow_schema
from elanus.spark.sink import Sink

_QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark passes the id of a streaming query to its tasks."""


class ElanusStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query: each of its batches is a write, named by the query and the batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if not options.stream_id:
            raise InvalidParameter(
                "a streaming query needs a name that survives restarts: give .option('checkpointLocation', "
                "...) or .option('stream_id', ...)"
            )
        # Spark makes a writer to plan each batch and another to commit it: the server may restart meanwhile
        self._sink = Sink(options, arrow_schema(schema), waits=True)
        self._stream_id = options.stream_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        staged = self._sink.staging.write(iterator)
        return replace(staged, query_id=_query_id())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self._sink.commit(messages, self._stream_id, batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self._sink.abort(messages)


def _query_id() -> str:
    """In a task: return the id of the query, which its checkpoint keeps: a new checkpoint is a new query."""
    context = TaskContext.get()
    return "" if context is None else context.getLocalProperty(_QUERY_ID) or ""
