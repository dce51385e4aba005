"""The insert logs of segments, opened once for everything that is read from them.

Opening a file takes as long as reading a small one: its footer is fetched, checked and parsed. On a network
store that is two requests. At most one file is open at a time.

The columns come first, because what they show may decide what becomes of the rows. If all files together are
small, the vectors that will be wanted are read with the columns, file by file. If they are large, vectors
next to the columns would take memory, or would be read for rows of which none is left. So they are read
field by field afterwards: one file has stayed open since, several are opened again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segments import BinlogFile
from elanus.storage.binlog import (
    Files,
    absent_fields,
    columns_of,
    files_of,
    open_insert_log,
    with_commit_ts,
)
from elanus.storage.computed import FieldReader
from elanus.storage.parquet import damage_named
from elanus.storage.port import ObjectStore

TOGETHER_BYTES_MAX = 16 << 20
"""Files of up to so many bytes in all are read as a whole, columns and vectors."""


class InsertLogs:
    """The insert logs of some sources, in their order. A context manager, for one thread.

    ``scratch``: a local directory; with it, vectors are mapped files there. Methods raise `ObjectMissing` and
    `CorruptObject` naming the file, and `FieldNotFound`.
    """

    def __init__(
        self,
        store: ObjectStore,
        sources: Sequence[Files],
        schema: CollectionSchema,
        scratch: Path | None = None,
    ) -> None:
        """Raises `ValueError` for a source without insert logs."""
        self._store = store
        self._sources = sources
        self._files = [file for source in sources for file in files_of(source)]
        self._schema = schema
        self._scratch = scratch
        self._open = contextlib.ExitStack()
        self._opened: tuple[str, pq.ParquetFile] | None = None
        self._stored: dict[str, pa.Schema] = {}
        """The columns of the files, if fields were added to the collection."""
        self._ahead: dict[FieldID, Any] = {}
        """Vectors that were read with the columns."""

    def columns(self, names: Sequence[str], wanted: Sequence[FieldSchema] = ()) -> pa.Table:
        """Return the named columns of all rows, as `elanus.storage.binlog.read_columns` does.

        ``wanted``: fields whose `vectors` will be read afterwards. Raises `DiskFull`.
        """
        added = self._schema.added_fields
        are_small = sum(file.size_bytes for file in self._files) <= TOGETHER_BYTES_MAX
        readers = {field.field_id: self._reader(field) for field in wanted} if are_small else {}
        tables = []
        for source in self._sources:
            parts = []
            for file in files_of(source):
                with self._reading(file) as parquet:
                    parts.append(columns_of(parquet, file, names, added))
                    for reader in readers.values():
                        reader.read(parquet, file)
            tables.append(with_commit_ts(pa.concat_tables(parts), source))
        self._ahead = {field_id: reader.finish() for field_id, reader in readers.items()}
        if are_small or not wanted:
            self.close()
        return pa.concat_tables(tables)

    def vectors(self, field: FieldSchema) -> Any:
        """Return the vectors of a field, once: see `elanus.storage.computed.read_field_vectors`."""
        if field.field_id in self._ahead:
            return self._ahead.pop(field.field_id)
        reader = self._reader(field)
        for file in self._files:
            with self._reading(file) as parquet:
                reader.read(parquet, file)
        return reader.finish()

    def lacks(self, field: FieldSchema) -> bool:
        """Whether a file lacks the field's column because the field was added later. After `columns`."""
        return field.is_added and any(
            absent_fields(self._stored[file.path], [field.name], [field]) for file in self._files
        )

    def close(self) -> None:
        """Close the file that is open. Later reads open files again."""
        self._opened = None
        self._open.close()

    def _reader(self, field: FieldSchema) -> FieldReader:
        return FieldReader(field, self._schema, sum(file.rows for file in self._files), self._scratch)

    @contextlib.contextmanager
    def _reading(self, file: BinlogFile) -> Iterator[pq.ParquetFile]:
        """The open file, which stays open until another is read."""
        with damage_named(file.path):
            if self._opened is None or self._opened[0] != file.path:
                self.close()
                parquet = self._open.enter_context(open_insert_log(self._store, file))
                self._opened = file.path, parquet
                if self._schema.added_fields:
                    self._stored[file.path] = parquet.schema_arrow
            yield self._opened[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
