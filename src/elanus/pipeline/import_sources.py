"""The files of an import, whatever their format: their rows in groups, and each group in record batches.

Parquet, JSON, JSON lines and CSV files are tables by themselves; the NumPy files of one directory are the
columns of one table. The columns of each format are turned into columns that a Parquet file could
have; `elanus.pipeline.import_columns` does the rest for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from elanus.core.errors import InvalidParameter
from elanus.core.imports import COMMAS, CsvFormat
from elanus.core.schema import CollectionSchema
from elanus.pipeline.import_csv import CsvSource
from elanus.pipeline.import_input import READ_BYTES, InputFile, check_version, input_file
from elanus.pipeline.import_json import JsonLinesSource, JsonSource
from elanus.pipeline.import_numpy import NumpySource
from elanus.pipeline.import_place import Place
from elanus.pipeline.import_plain_types import plain_rows, plain_schema
from elanus.pipeline.import_plan import FileRows, RowGroup
from elanus.pipeline.import_utf8 import check_texts
from elanus.storage.port import ObjectStore

_BATCH_BYTES = 64 << 20
"""The size of a batch of a Parquet file whose rows are larger than those of the collection usually are."""
_NO_MEMORY = "bad_alloc"
"""In the text of an error of Arrow's about a footer for which there is no memory."""
_NUMPY, _CSV = ".npy", ".csv"
_FORMATS = {".json": "JSON", ".jsonl": "JSON lines", ".ndjson": "JSON lines", _CSV: "CSV", _NUMPY: "NumPy"}
"""By the ending of a file's name. With any other it is read as Parquet."""


class Source(Protocol):
    """One open table."""

    def groups(self) -> Iterator[RowGroup]:
        """Return the groups that tasks may take, in the order of their rows."""
        ...

    def schemas(self) -> Iterator[pa.Schema]:
        """Return the columns, if the head of the table has them: none if only its rows do."""
        ...

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[Any]:
        """Return a group's rows, at most ``batch_rows`` at a time, as what `columns` takes: a record batch,
        or a list."""
        ...

    def columns(self, rows: Any, place: Place) -> pa.RecordBatch:
        """Return rows of `batches`, or some of them, as columns. Raises `InvalidParameter`."""
        ...

    def place(self, group: RowGroup) -> Place:
        """Return where a group's rows begin, in the words of its format."""
        ...


class ParquetSource:
    """Implements `Source`."""

    def __init__(self, name: str, file: pq.ParquetFile, column: str = "") -> None:
        self._name = name
        self._file = file
        self._columns = [column] if column and column in file.schema_arrow.names else None

    def schemas(self) -> Iterator[pa.Schema]:
        yield plain_schema(self._file.schema_arrow)

    def groups(self) -> Iterator[RowGroup]:
        first_row, metadata = 0, self._file.metadata
        for number in range(metadata.num_row_groups):
            rows = metadata.row_group(number).num_rows
            yield RowGroup(number, first_row, rows)
            first_row += rows

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[pa.RecordBatch]:
        metadata = self._file.metadata.row_group(group.number)
        row_bytes = metadata.total_byte_size // max(1, metadata.num_rows)  # a bound of nothing: files lie
        batch_rows = max(1, min(batch_rows, _BATCH_BYTES // max(1, row_bytes)))
        yield from self._file.iter_batches(
            batch_rows, row_groups=[group.number], columns=self._columns, use_threads=False
        )

    def columns(self, rows: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        rows = plain_rows(rows)
        check_texts(rows, place)
        return rows

    def place(self, group: RowGroup) -> Place:
        return Place(self._name, group.number, group.first_row)


def tables(files: Sequence[str], csv: CsvFormat = COMMAS) -> Iterator[FileRows]:
    """Return the tables that files are, without their groups: the NumPy files of a directory are one.

    ``csv``: the format of CSV files.
    """
    columns: dict[PurePosixPath, list[str]] = {}
    for file in files:
        path = PurePosixPath(file)
        if path.suffix == _NUMPY:
            columns.setdefault(path.parent, []).append(file)
        else:
            yield FileRows(file, (), csv=csv if path.suffix == _CSV else COMMAS)
    for names in columns.values():
        yield FileRows(names[0], (), tuple(names))


@contextlib.contextmanager
def opened(
    store: ObjectStore, table: FileRows, schema: CollectionSchema, column: str = ""
) -> Iterator[Source]:
    """A user's table. Raises `InvalidParameter` if a name or the content is wrong.

    If ``column`` names one, a format that stores columns apart reads that one only.

    Its files are the ones that were surveyed, from the first byte that is read to the last, if ``table`` has
    their versions.
    """
    files = [input_file(store, name) for name in table.names]
    _check_versions(table, files)
    suffix = PurePosixPath(table.file).suffix
    try:
        with contextlib.ExitStack() as opening:
            yield _source(files, table, schema, opening, column)
    except MemoryError:  # also Arrow's, which is one of its exceptions
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: about names of columns
        if _NO_MEMORY in str(error):
            raise MemoryError from error
        _check_versions(table, [input_file(store, name) for name in table.names])
        what = _FORMATS.get(suffix, "Parquet")
        if suffix not in (*_FORMATS, ".parquet"):
            what += f", which a file is if its name does not end in {', '.join(_FORMATS)}"
        raise InvalidParameter(f"{table.file} cannot be read as {what}: {error}") from error
    _check_versions(table, [input_file(store, name) for name in table.names] if table.versions else ())


def pinned(store: ObjectStore, table: FileRows) -> FileRows:
    """Return a table with the versions and sizes of its files as they are now."""
    infos = [input_file(store, name).info for name in table.names]
    return replace(
        table,
        versions=tuple(info.version for info in infos),
        sizes_bytes=tuple(info.size_bytes for info in infos),
    )


def _check_versions(table: FileRows, files: Sequence[InputFile]) -> None:
    if table.versions:
        for file, version in zip(files, table.versions, strict=True):
            check_version(file, version)


def _source(
    files: Sequence[InputFile],
    table: FileRows,
    schema: CollectionSchema,
    opening: contextlib.ExitStack,
    column: str,
) -> Source:
    file, suffix = files[0], PurePosixPath(table.file).suffix
    if suffix == _NUMPY:
        return NumpySource([f for f in files if PurePosixPath(f.name).stem == column] or files, schema)
    if suffix == ".json":
        return JsonSource(file, schema)
    if suffix == _CSV:
        return CsvSource(file, schema, table.csv)
    if suffix in _FORMATS:
        return JsonLinesSource(file, schema)
    parquet = opening.enter_context(pq.ParquetFile(file.native(), buffer_size=READ_BYTES))
    return ParquetSource(file.name, parquet, column)
