"""Insert logs: the rows of one segment in one range, as one Parquet file. Writing and reading them.

A file holds the two system columns, then the collection's fields under their own names, each with
its field id. Rows are sorted by primary key, and rows of one key by timestamp. `docs/segment-format.md` is
the specification; it is all that the online side, the Spark jobs and other engines have to agree on.

Readers prune columns, and memory-map the file if the store is local. `VectorReader` fills one contiguous
matrix row group by row group, so that reading n bytes of vectors needs n bytes and one row group.

Not in this module: deletes (`elanus.storage.delta_log`) and key statistics (`elanus.storage.stats_log`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elanus.core.errors import FieldNotFound, Internal
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.nullable import NullableVectors, Valid
from elanus.core.rows import absent_column
from elanus.core.schema import (
    FIELD_ID_KEY,
    ROW_ID_FIELD,
    TIMESTAMP_FIELD,
    CollectionSchema,
    DataType,
    FieldSchema,
)
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.sparse import SparseRows
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.core.types import Matrix
from elanus.core.vector_lists import VectorLists
from elanus.storage.parquet import (
    ROW_GROUP_BYTES,
    BinlogWriter,
    file_metadata,
    numbered,
    opened,
    rows_per_group,
    vector_form,
    worth_threads,
)
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import CorruptObject, ObjectStore
from elanus.storage.vectors import Filling, FillingLists, filling_of

ROW_ID_FIELD_ID = FieldID(0)
TIMESTAMP_FIELD_ID = FieldID(1)
Files = SegmentManifest | Sequence[BinlogFile]


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The segment that a file belongs to."""

    collection_id: CollectionID
    partition_id: PartitionID
    segment_id: SegmentID
    vchannel: str


def insert_log_schema(schema: CollectionSchema, key: SegmentKey) -> pa.Schema:
    """Return the Arrow schema of a segment's insert logs, including field ids and file metadata."""
    fields = [
        numbered(pa.field(ROW_ID_FIELD, pa.int64(), nullable=False), ROW_ID_FIELD_ID, DataType.INT64),
        numbered(pa.field(TIMESTAMP_FIELD, pa.int64(), nullable=False), TIMESTAMP_FIELD_ID, DataType.INT64),
    ]
    fields += [numbered(schema.arrow_schema.field(f.name), f.field_id, f.data_type) for f in schema.fields]
    owner: dict[str, int | str] = {
        "collection": key.collection_id,
        "partition": key.partition_id,
        "segment": key.segment_id,
        "vchannel": key.vchannel,
    }
    return pa.schema(fields, metadata=file_metadata(INSERT_LOG, owner))


def with_system_columns(
    rows: pa.RecordBatch, row_id_start: int, ts: Timestamp, file_schema: pa.Schema
) -> pa.RecordBatch:
    """Return a message's rows as rows of an insert log: row ids count up from ``row_id_start``, all at
    ``ts``.

    ``file_schema`` is an `insert_log_schema`. Raises `Internal` when the rows lack one of its columns.
    The user columns are shared, not copied.
    """
    names = file_schema.names[2:]
    if missing := set(names) - set(rows.schema.names):
        raise Internal(f"rows without {sorted(missing)}: the log and the collection's schema disagree")
    row_ids = np.arange(row_id_start, row_id_start + rows.num_rows, dtype=np.int64)
    timestamps = np.full(rows.num_rows, ts, dtype=np.int64)
    columns = [pa.array(row_ids), pa.array(timestamps), *(rows.column(name) for name in names)]
    return pa.RecordBatch.from_arrays(columns, schema=file_schema)


def insert_log_writer(
    store: ObjectStore,
    path: str,
    schema: CollectionSchema,
    key: SegmentKey,
    scratch: Path,
    *,
    by_time: bool = True,
) -> BinlogWriter:
    """Return a writer for one insert log, to be used as a context manager; ``scratch`` is a local directory.

    ``by_time``: rows must be in the order of their timestamps; the writer enforces it.
    """
    group_rows = rows_per_group(schema.row_bytes_estimate)
    file_schema, primary = insert_log_schema(schema, key), schema.primary_field.name
    return BinlogWriter(store, path, file_schema, group_rows, scratch, by_time=by_time, key=primary)


def read_columns(
    store: ObjectStore, source: Files, names: Sequence[str], added: Sequence[FieldSchema] = ()
) -> pa.Table:
    """Return the named columns of all rows, in the order of the manifest's files; system columns included.

    Only those columns are read. ``added``: fields that files may lack; their default or null is returned
    then. If a manifest has a ``commit_ts``, that is every row's timestamp. Rows later than a file's ``until``
    have `MAX_TIMESTAMP`: row numbers stay those of the file, and of an index over it. Raises
    `ValueError` when there are no files, `FieldNotFound` for a column they lack, and `ObjectMissing` and
    `CorruptObject` naming the file.
    """
    tables = []
    for file in files_of(source):
        with open_insert_log(store, file) as parquet:
            tables.append(columns_of(parquet, file, names, added))
    return with_commit_ts(pa.concat_tables(tables), source)


def columns_of(
    parquet: pq.ParquetFile, file: BinlogFile, names: Sequence[str], added: Sequence[FieldSchema] = ()
) -> pa.Table:
    """Return the named columns of one open insert log: see `read_columns`. Raises `FieldNotFound`."""
    stored = parquet.schema_arrow
    absent = absent_fields(stored, names, added)
    there = [name for name in names if name not in absent]
    _check_columns(stored, file, there)
    table = parquet.read(columns=there, use_threads=worth_threads(parquet))
    for field in absent.values():
        table = table.append_column(field_of(field), absent_column(field, file.rows))
    return hidden_after(table.select(list(names)), file.until)


def absent_fields(
    stored: pa.Schema, names: Iterable[str], added: Sequence[FieldSchema]
) -> dict[str, FieldSchema]:
    """Return those of the wanted columns that a file lacks because the field was added later.

    A column of another type comes from an attempt to add the field that did not succeed: it has no values.
    One with another field id is that of a field that was dropped.
    """
    wanted = frozenset(names)
    return {f.name: f for f in added if f.name in wanted and not _is_of(stored, f)}


def _is_of(stored: pa.Schema, field: FieldSchema) -> bool:
    """Whether a file with these columns has the field's."""
    place = stored.get_field_index(field.name)
    if place < 0:
        return False
    column = stored.field(place)
    number = (column.metadata or {}).get(FIELD_ID_KEY, b"-1")
    return bool(column.type == field.arrow_type and number == str(field.field_id).encode())


def field_of(field: FieldSchema) -> pa.Field:
    """Return the Arrow field of a column that files lack."""
    return pa.field(field.name, field.arrow_type, nullable=field.nullable)


def with_commit_ts(table: pa.Table, source: Files) -> pa.Table:
    """Rows read from the source's files, with the timestamp from its manifest, if that has one."""
    if not isinstance(source, SegmentManifest) or source.commit_ts == NO_TIMESTAMP:
        return table
    place = table.schema.get_field_index(TIMESTAMP_FIELD)
    if place < 0:
        return table
    stamps = pa.array(np.full(table.num_rows, source.commit_ts, dtype=np.int64))
    return table.set_column(place, table.schema.field(place), stamps)


def hidden_after(table: pa.Table, until: Timestamp) -> pa.Table:
    """Rows read from a file, with `MAX_TIMESTAMP` for those that are later than ``until`` (0: none are)."""
    place = table.schema.get_field_index(TIMESTAMP_FIELD)
    if until == NO_TIMESTAMP or place < 0:
        return table
    stamps = table.column(place).to_numpy()
    shown = pa.array(np.where(stamps <= until, stamps, MAX_TIMESTAMP), pa.int64())
    return table.set_column(place, table.schema.field(place), shown)


class VectorReader:
    """Collects a vector column from open insert logs, one file after the other, as one C-contiguous matrix.

    (rows, width) in the form of the field's type (`elanus.core.vectors.VectorForm`); sparse vectors are
    `elanus.core.sparse.SparseRows`, lists of vectors `VectorLists` of bytes (with ``scratch`` only). If some
    rows have no vector, the result is `NullableVectors` of these. ``rows``: those of all files.
    Filled row group by row group: there is never a second copy. With ``scratch``, a local directory, the
    vectors are a memory-mapped file there, so that they need not fit in memory.
    """

    def __init__(self, name: str, rows: int, scratch: Path | None = None) -> None:
        self._name = name
        self._rows = rows
        self._scratch = scratch
        self._filling: Filling | FillingLists | None = None
        self._valid: list[Valid] = [np.empty(0, dtype=np.bool_)]

    def read(self, parquet: pq.ParquetFile, file: BinlogFile) -> None:
        """Append the vectors of the next file. Raises `FieldNotFound` and `DiskFull`."""
        stored = parquet.schema_arrow
        _check_columns(stored, file, [self._name])
        self._begin(stored.field(self._name))
        for group in range(parquet.num_row_groups):
            for chunk in _column_of_group(parquet, group, self._name).chunks:
                self._add(chunk)

    def finish(self) -> Any:
        """Return all vectors. Nothing can be read after this."""
        assert self._filling is not None  # there is at least one file
        vectors: Matrix | SparseRows | VectorLists | NullableVectors = self._filling.finish()
        all_valid = np.concatenate(self._valid)
        if not all_valid.all():
            vectors = NullableVectors(vectors, all_valid)
        if vectors.nbytes >= ROW_GROUP_BYTES:
            pa.default_memory_pool().release_unused()  # the row groups' memory: about 50 MB
        return vectors

    def _begin(self, column: pa.Field) -> None:
        if self._filling is None:
            self._filling = _filling(column, self._rows, self._scratch)

    def _add(self, chunk: pa.Array) -> None:
        assert self._filling is not None  # begun with the file's column
        self._valid.append(chunk.is_valid().to_numpy(zero_copy_only=False))
        self._filling.add(chunk.drop_null() if chunk.null_count else chunk)

    def _add_none(self, rows: int) -> None:
        """Append rows without a vector."""
        self._valid.append(np.zeros(rows, dtype=np.bool_))


def _filling(field: pa.Field, rows: int, scratch: Path | None) -> Filling | FillingLists:
    if not pa.types.is_list(field.type):
        return filling_of(vector_form(field), field.type, rows, scratch)
    if scratch is None:
        raise Internal(f"column {field.name} has lists of vectors: `read_columns` reads them into memory")
    return FillingLists(field.type.value_type.byte_width, scratch)


def _column_of_group(parquet: pq.ParquetFile, group: int, name: str) -> pa.ChunkedArray:
    """Return the column in one row group. Read without threads: one column is one thread's work."""
    return parquet.read_row_group(group, columns=[name], use_threads=False).column(0)


def files_of(source: Files) -> Sequence[BinlogFile]:
    """Return the insert logs. Raises `ValueError` when there are none."""
    files = source.insert_logs if isinstance(source, SegmentManifest) else source
    if not files:
        raise ValueError("a segment without insert logs has no columns to read")
    return files


@contextlib.contextmanager
def open_insert_log(store: ObjectStore, file: BinlogFile) -> Iterator[pq.ParquetFile]:
    """An insert log, opened for reading: see `elanus.storage.parquet.opened`."""
    with opened(store, file.path, INSERT_LOG) as parquet:
        if parquet.metadata.num_rows != file.rows:
            raise CorruptObject(
                f"{file.path} holds {parquet.metadata.num_rows} rows, its manifest says {file.rows}"
            )
        yield parquet


def _check_columns(stored: pa.Schema, file: BinlogFile, names: Sequence[str]) -> None:
    if missing := set(names) - set(stored.names):
        raise FieldNotFound(f"{file.path} has no column {', '.join(sorted(missing))}")
