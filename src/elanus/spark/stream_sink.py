"""``df.writeStream.format("elanus")``: each batch of a streaming query is a write of `elanus.spark.sink`.

Batches are named by the query's checkpoint and their numbers, so that a batch that is replayed after a crash
adds nothing. The module needs PySpark 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from elanus.core.errors import InvalidParameter
from elanus.spark.options import WriteOptions
from elanus.spark.releases import arrow_schema
from elanus.spark.sink import Sink


class ElanusStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query: each of its batches is a write, named by the query and the batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if not options.stream_id:
            raise InvalidParameter(
                "a streaming query needs a name that survives restarts: give .option('checkpointLocation', "
                "...) or .option('stream_id', ...)"
            )
        self._sink = Sink(options, arrow_schema(schema))
        self._stream_id = options.stream_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.staging.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self._sink.commit(messages, self._stream_id, batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self._sink.abort(messages)
