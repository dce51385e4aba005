"""The files of an import, whatever their format: their rows in groups, and each group in record batches.

Parquet, JSON, JSON lines and CSV files are tables by themselves; the NumPy files of one directory are the
columns of one table. The columns of each format are turned into columns that a Parquet file could
have; `elanus.pipeline.import_columns` does the rest for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from elanus.core.errors import InvalidParameter
from elanus.core.schema import CollectionSchema
from elanus.pipeline.import_csv import CsvSource
from elanus.pipeline.import_json import JsonLinesSource, JsonSource
from elanus.pipeline.import_numpy import NumpySource
from elanus.pipeline.import_plan import FileRows, RowGroup
from elanus.storage.port import ObjectMissing, ObjectStore

_READ_BYTES = 4 * 1024 * 1024
"""Read at a time, and not mapped: who overwrites a file while it is mapped ends the process that reads it."""
_FORMATS = {".json": "JSON", ".jsonl": "JSON lines", ".ndjson": "JSON lines", ".csv": "CSV"}
_NUMPY = ".npy"


class Source(Protocol):
    """One open table."""

    def groups(self) -> Iterator[RowGroup]:
        """Return the groups that tasks may take, in the order of their rows."""
        ...

    def schemas(self) -> Iterator[pa.Schema]:
        """Return the columns, if the head of the table has them: none if only its rows do."""
        ...

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Return a group's rows, at most ``batch_rows`` at a time."""
        ...


class ParquetSource:
    """Implements `Source`."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file

    def schemas(self) -> Iterator[pa.Schema]:
        yield self._file.schema_arrow

    def groups(self) -> Iterator[RowGroup]:
        first_row, metadata = 0, self._file.metadata
        for number in range(metadata.num_row_groups):
            rows = metadata.row_group(number).num_rows
            yield RowGroup(number, first_row, rows)
            first_row += rows

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from self._file.iter_batches(batch_rows, row_groups=[group.number], use_threads=False)


def tables(files: Sequence[str]) -> Iterator[FileRows]:
    """Return the tables that files are, without their groups: the NumPy files of a directory are one."""
    columns: dict[PurePosixPath, list[str]] = {}
    for file in files:
        path = PurePosixPath(file)
        if path.suffix == _NUMPY:
            columns.setdefault(path.parent, []).append(file)
        else:
            yield FileRows(file, ())
    for names in columns.values():
        yield FileRows(names[0], (), tuple(names))


@contextlib.contextmanager
def opened(store: ObjectStore, table: FileRows, schema: CollectionSchema, scratch: Path) -> Iterator[Source]:
    """A user's table. Raises `InvalidParameter` if a name or the content is wrong."""
    with contextlib.ExitStack() as copies:
        paths = {name: copies.enter_context(_local(store, name, scratch)) for name in table.names}
        path, suffix = paths[table.file], PurePosixPath(table.file).suffix
        try:
            if suffix == _NUMPY:
                yield NumpySource(paths, schema)
            elif suffix == ".json":
                yield JsonSource(table.file, path, schema)
            elif suffix == ".csv":
                yield CsvSource(table.file, path, schema)
            elif suffix in _FORMATS:
                yield JsonLinesSource(table.file, path, schema)
            else:
                with pq.ParquetFile(path, buffer_size=_READ_BYTES) as parquet:
                    yield ParquetSource(parquet)
        except (pa.ArrowException, OSError) as error:
            name = _FORMATS.get(suffix, "NumPy" if suffix == _NUMPY else "Parquet")
            raise InvalidParameter(f"{table.file} cannot be read as {name}: {error}") from error


@contextlib.contextmanager
def _local(store: ObjectStore, name: str, scratch: Path) -> Iterator[Path]:
    try:
        path = store.local_path(name, scratch)
    except ObjectMissing:
        raise InvalidParameter(f"{name}: no such file in the import directory {store.url}") from None
    except ValueError as error:
        raise InvalidParameter(f"{name} is no path below the import directory: {error}") from None
    try:
        yield path
    finally:
        if path.parent == scratch:  # a copy
            path.unlink(missing_ok=True)
