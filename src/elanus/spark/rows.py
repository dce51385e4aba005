"""The rows of a collection as a stream of Arrow batches, without Spark: for DuckDB, Polars, pandas.

::

    import duckdb
    from elanus.spark.rows import rows

    docs = rows("docs", uri="http://127.0.0.1:19530", columns="id,price")
    duckdb.sql("select avg(price) from docs")

The files are read by this process, so it needs the server's object store under the URL that the server knows.
Only the columns that are named are read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from elanus.api.connector import CollectionSnapshot
from elanus.core.errors import InvalidParameter
from elanus.expr import compile_filter
from elanus.spark.segment import SegmentRead, read_segment
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing


def rows(collection: str, **options: str) -> pa.RecordBatchReader:
    """Return the rows of a collection as of now, deletes applied. They can be read once.

    ``options``: those of the format ``elanus`` for reading (`elanus.spark.options`). The columns have the
    Arrow types of the files: vectors are lists of fixed size. The files stay until all rows were read, and
    for ``lease_s`` at most. Raises the server's errors, `FieldNotFound`, and `InvalidParameter`; a read whose
    lease has ended raises the latter.
    """
    from elanus.spark.opened import open_collection

    opened = open_collection(collection, **options)
    batches = opened.to_arrow()

    def until_the_end() -> Iterator[pa.RecordBatch]:
        yield from batches
        opened.close()

    return pa.RecordBatchReader.from_batches(batches.schema, until_the_end())


def rows_of(
    snapshot: CollectionSnapshot, url: str, columns: tuple[str, ...] = (), where: str = ""
) -> pa.RecordBatchReader:
    """As `rows`, of a snapshot whose files are in the store at ``url``. ``where``: the filter."""
    schema = snapshot.schema
    compile_filter(where, schema)
    names = columns or tuple(f.name for f in schema.fields if schema.returns(f))
    for name in names:
        schema.field(name)
    reads = [
        SegmentRead(
            store_url=url,
            schema=schema,
            manifest=manifest,
            delta_logs=snapshot.delta_logs.get(manifest.vchannel, ()),
            read_ts=snapshot.read_ts,
            columns=names,
            filter=where,
            expired_until=snapshot.expired_until,
        )
        for manifest in snapshot.segments
    ]
    fields = pa.schema([schema.arrow_schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(fields, _batches(reads, url))


def _batches(reads: list[SegmentRead], url: str) -> Iterator[pa.RecordBatch]:
    store = open_store(url)
    for read in reads:
        try:
            yield from read_segment(read, store)
        except ObjectMissing as error:
            raise InvalidParameter(
                f"{error} is gone from {url}: the snapshot's lease has ended; read the collection again, "
                "with a larger lease_s"
            ) from error
