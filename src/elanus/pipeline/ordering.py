"""Rows in the order of their primary keys, as the segments on disk have them. Plain Arrow: no Spark here.

Memory: the scalar columns of all rows, and one row group. Vectors, the bulk of most segments, go through a
mapped file in the scratch directory, from where they are taken in the new order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.nullable import NullableVectors, spread, vector_column
from elanus.core.schema import ROW_ID_FIELD, TIMESTAMP_FIELD, CollectionSchema
from elanus.core.segments import BinlogFile
from elanus.core.types import Matrix, VectorForm
from elanus.core.vector_lists import VectorLists, lists_at
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer
from elanus.storage.insert_logs import InsertLogs
from elanus.storage.local import LocalStore
from elanus.storage.parquet import rows_per_group
from elanus.storage.port import ObjectStore

Rows = npt.NDArray[np.int64]
"""Numbers of rows."""
Vectors = Matrix | NullableVectors | VectorLists


def scalar_columns(schema: CollectionSchema) -> list[str]:
    """Return the columns that `OpenRows` needs."""
    scalars = (field.name for field in schema.scalar_fields if not field.is_searched)
    return [ROW_ID_FIELD, TIMESTAMP_FIELD, *scalars]


def in_order(table: pa.Table, primary_key: str, rows: Rows) -> Rows:
    """Return the rows' numbers, by primary key and then by timestamp."""
    keys = table.select([primary_key, TIMESTAMP_FIELD]).take(pa.array(rows))
    order = pc.sort_indices(keys, sort_keys=[(primary_key, "ascending"), (TIMESTAMP_FIELD, "ascending")])
    sorted_rows: Rows = rows[order.to_numpy()]
    return sorted_rows


class OpenRows:
    """The rows of files, to be taken in any order, and in parts.

    ``table``: the files' `scalar_columns`. ``vectors``: those of each vector field, in mapped files. Raises
    what `InsertLogs.vectors` raises.
    """

    def __init__(self, table: pa.Table, logs: InsertLogs, schema: CollectionSchema) -> None:
        self._table = table
        self._schema = schema
        self.vectors: Mapping[str, Vectors] = {f.name: logs.vectors(f) for f in schema.searched_fields}

    def batches(self, rows: Rows, key: SegmentKey) -> Iterator[pa.RecordBatch]:
        """These rows, as rows of an insert log, a row group at a time."""
        file_schema = insert_log_schema(self._schema, key)
        vector_bytes = sum(v.nbytes for v in self.vectors.values()) // max(1, self._table.num_rows)
        # Sparse vectors may be longer than the estimate.
        group_rows = rows_per_group(max(self._schema.row_bytes_estimate, vector_bytes))
        for start in range(0, len(rows), group_rows):
            taken = rows[start : start + group_rows]
            yield _taken(self._table, self.vectors, taken, self._schema, file_schema)


def _vectors_at(form: VectorForm, vectors: Vectors, rows: Rows) -> pa.Array:
    if isinstance(vectors, VectorLists):
        return lists_at(vectors, rows)
    if isinstance(vectors, NullableVectors) and isinstance(vectors.vectors, VectorLists):
        valid = vectors.valid[rows]
        places = np.cumsum(vectors.valid) - 1
        return spread(lists_at(vectors.vectors, places[rows[valid]]), valid)
    return vector_column(form, vectors, rows)


def written_by_key(
    rows: pa.Table, store: ObjectStore, path: str, schema: CollectionSchema, key: SegmentKey, scratch: Path
) -> BinlogFile:
    """Return an insert log at ``path`` with these rows, which are one row group, sorted by primary key.

    Raises `DiskFull`.
    """
    rows = rows.combine_chunks()
    order = in_order(rows, schema.primary_field.name, np.arange(rows.num_rows))
    with insert_log_writer(store, path, schema, key, scratch, by_time=False) as writer:
        for batch in rows.take(pa.array(order)).to_batches():
            writer.write(batch)
        return writer.finish()


def rewritten_by_key(
    unsorted: BinlogFile,
    store: ObjectStore,
    path: str,
    schema: CollectionSchema,
    key: SegmentKey,
    scratch: Path,
) -> BinlogFile:
    """Return an insert log at ``path`` with the rows of a file in the scratch directory, sorted by primary
    key.

    Raises `DiskFull`.
    """
    with InsertLogs(LocalStore(scratch), [(unsorted,)], schema, scratch) as logs:
        table = logs.columns(scalar_columns(schema), schema.searched_fields).combine_chunks()
        opened = OpenRows(table, logs, schema)
    rows = in_order(table, schema.primary_field.name, np.arange(table.num_rows))
    with insert_log_writer(store, path, schema, key, scratch, by_time=False) as writer:
        for batch in opened.batches(rows, key):
            writer.write(batch)
        return writer.finish()


def _taken(
    table: pa.Table,
    vectors: Mapping[str, Vectors],
    rows: Rows,
    schema: CollectionSchema,
    file_schema: pa.Schema,
) -> pa.RecordBatch:
    scalars = table.take(pa.array(rows))
    columns = [
        _vectors_at(schema.by_name[name].vector, vectors[name], rows)
        if name in vectors
        else scalars.column(name).combine_chunks()
        for name in file_schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=file_schema)
