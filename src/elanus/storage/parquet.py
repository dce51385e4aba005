"""The layout of all Parquet files of Elanus, and how they are written and opened.

Measured with 768 to 784 float columns on one core (uncompressed plain pages = 1.00):

====================================  ============  =============  ===========
vector column                         write speed   read speed     size
====================================  ============  =============  ===========
plain, uncompressed                   1.00          1.00           1.00
pyarrow's defaults (dictionary)       0.43 – 0.83   0.7 – 1.3      0.08 – 1.02
byte stream split, zstd level 1       0.64 – 0.84   0.77 – 0.87    0.08 – 0.85
====================================  ============  =============  ===========

Hence the choice: vectors are split into byte planes and compressed with zstd level 1, without a dictionary
and without statistics (the smallest float of a column of vectors prunes nothing). Row groups hold about
`ROW_GROUP_BYTES`: speed and size do not depend on it between 1k and 16k rows, while the memory of
a writer and the cost of fetching a single row do. Checksums of the pages, and of the footer
(`elanus.storage.footers`), are written and verified.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elanus.core.errors import Internal
from elanus.core.ids import FieldID
from elanus.core.schema import FIELD_ID_KEY, ROW_ID_FIELD, TIMESTAMP_FIELD, DataType
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.core.types import KINDS, Family, VectorForm
from elanus.storage.footers import KEY, UNSEALED, read_footer, seal
from elanus.storage.local import disk_full_reported
from elanus.storage.paths import FORMAT_VERSION
from elanus.storage.port import CorruptObject, ObjectStore

ROW_GROUP_BYTES = 8 * 1024 * 1024
ROW_GROUP_ROWS_MAX = 16_384
ROW_GROUP_BYTES_MAX = 4 * ROW_GROUP_BYTES
"""A row group ends here, however many rows it has: texts and sparse vectors may be longer than estimated."""
_ZSTD_LEVEL = 1
_SINK_BUFFER_BYTES = 256 * 1024
"""The writes are buffered because a Parquet writer writes every page header separately."""
_THREADS_ROWS_MIN = 4096
_KEY_PREFIX = "elanus."
_DATA_TYPE = b"elanus.data_type"


def file_metadata(kind: str, values: Mapping[str, int | str]) -> dict[str, str]:
    """Key-value metadata of a file: its kind, the format version, and its owner (``values``)."""
    pairs = {"kind": kind, "format_version": FORMAT_VERSION, **values}
    return {_KEY_PREFIX + key: str(value) for key, value in pairs.items()}


def numbered(field: pa.Field, field_id: FieldID, data_type: DataType) -> pa.Field:
    """Return the file column of a field, with its id and its data type, which the Arrow type does not
    determine."""
    return field.with_metadata({FIELD_ID_KEY: str(field_id).encode(), _DATA_TYPE: data_type.name.encode()})


def rows_per_group(row_bytes: int) -> int:
    """Return the number of rows of that width in a row group: at least 1, at most `ROW_GROUP_ROWS_MAX`."""
    return max(1, min(ROW_GROUP_ROWS_MAX, ROW_GROUP_BYTES // max(1, row_bytes)))


class BinlogWriter:
    """Streams record batches, sorted by timestamp unless ``by_time`` is off, into one new Parquet object.

    ``key``: the column of primary keys, which the writer checks: the file records whether they are in order.
    Rows go to a scratch file, which `finish` puts into the store, durably. It is created with the first row
    group: few rows may be written in another order instead (`held`). Memory: one row group and the batch
    being written. A context manager: if it is left without `finish`, nothing reaches the store; the scratch
    file is removed in any case. Raises `DiskFull` when there is no space left.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        schema: pa.Schema,
        group_rows: int,
        scratch: Path,
        *,
        by_time: bool = True,
        key: str = "",
    ) -> None:
        self._by_time = by_time
        self._key = key
        self._last_key: pa.Scalar | None = None
        self._is_sorted = bool(key)
        self._store = store
        self._path = path
        self._schema = schema
        self._group_rows = group_rows
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._rows = 0
        self._ts_min, self._ts_max = MAX_TIMESTAMP, NO_TIMESTAMP
        self._file = scratch / f"{uuid.uuid4().hex}.parquet"
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises `Internal` if their schema is not the file's, or a timestamp decreases."""
        if not batch.schema.equals(self._schema):
            raise Internal(f"{self._path}: got columns\n{batch.schema}\nwhere the file has\n{self._schema}")
        self._follow_timestamps(batch)
        self._follow_keys(batch)
        while self._pending_rows + batch.num_rows >= self._group_rows:
            room = self._group_rows - self._pending_rows
            self._keep(batch.slice(0, room))
            self._write_group()
            batch = batch.slice(room)
        if batch.num_rows:
            self._keep(batch)
        if self._pending_bytes >= ROW_GROUP_BYTES_MAX:
            self._write_group()

    @property
    def is_sorted(self) -> bool:
        """Whether all rows so far came in the order of their keys."""
        return self._is_sorted

    def held(self) -> pa.Table | None:
        """Return all rows so far, if none of them is in the scratch file yet; otherwise None."""
        if self._pending_rows < self._rows:
            return None
        return pa.Table.from_batches(self._pending, self._schema)

    def finish(self) -> BinlogFile:
        """Complete the file and put it into the store, durably. Nothing can be written after this."""
        file = self.close()
        self._store.put_file(self._path, self._file)
        return replace(file, path=self._path)

    def close(self) -> BinlogFile:
        """Complete the file, and leave it in the scratch directory until the context ends or `finish`.

        Its ``path`` is the name there. Nothing can be written after this.
        """
        if self._pending_rows:
            self._write_group()
        with disk_full_reported(self._path):
            writer, sink = self._opened()
            if writer.is_open:
                writer.add_key_value_metadata({KEY: UNSEALED})
                writer.close()
                sink.close()
                seal(self._file)
        size_bytes = self._file.stat().st_size
        name, bounds = self._file.name, (self._ts_min, self._ts_max)
        return BinlogFile(name, self._rows, size_bytes, *bounds, is_sorted=self._is_sorted)

    def _follow_timestamps(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        ts = batch.column(TIMESTAMP_FIELD).to_numpy()
        if not self._by_time:
            first, last = int(ts.min()), int(ts.max())
        elif ts[0] < self._ts_max or (ts[1:] < ts[:-1]).any():
            raise Internal(f"{self._path}: rows must come in the order of their timestamps")
        else:
            first, last = int(ts[0]), int(ts[-1])
        self._ts_min = Timestamp(min(self._ts_min, first))
        self._ts_max = Timestamp(max(self._ts_max, last))

    def _follow_keys(self, batch: pa.RecordBatch) -> None:
        if not self._is_sorted or not batch.num_rows:
            return
        keys = batch.column(self._key)
        is_sorted = pc.all(pc.greater_equal(keys[1:], keys[:-1]), min_count=0).as_py()
        if is_sorted and self._last_key is not None:
            is_sorted = pc.greater_equal(keys[0], self._last_key).as_py()
        self._is_sorted, self._last_key = is_sorted, keys[-1]

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        self._rows += batch.num_rows

    def _opened(self) -> tuple[pq.ParquetWriter, pa.NativeFile]:
        """The writer of the scratch file, and the file, which the first call creates."""
        if self._sink is None:
            self._sink = pa.BufferedOutputStream(pa.OSFile(str(self._file), "wb"), _SINK_BUFFER_BYTES)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, self._schema, **writer_options(self._schema))
        return self._writer, self._sink

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._pending, self._schema)
        with disk_full_reported(self._path):
            writer, _ = self._opened()
            writer.write_table(table, row_group_size=self._group_rows)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._sink is None:
            return
        # After an error, closing writes a footer that is never read, and may fail with the same error.
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        self._file.unlink(missing_ok=True)


def writer_options(schema: pa.Schema) -> dict[str, object]:
    """Return the options of `pyarrow.parquet.ParquetWriter` for a file of that schema.

    Only columns with an encoding named here are written without a dictionary; vectors have no statistics.
    """
    scalars = [_leaf(field) for field in schema if not _is_vector(field)]
    encodings = {
        f"{field.name}.list.element": "BYTE_STREAM_SPLIT"
        for field in schema
        if pa.types.is_fixed_size_list(field.type)
    }
    if ROW_ID_FIELD in schema.names:
        encodings[ROW_ID_FIELD] = "DELTA_BINARY_PACKED"  # consecutive numbers: a few bytes per thousand
    return {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": [name for name in scalars if name not in encodings],
        "column_encoding": encodings,
        "write_statistics": scalars,
        "write_page_checksum": True,
    }


def _leaf(field: pa.Field) -> str:
    """Return the path of the values in the file: those of a list are below the column."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def vector_form(field: pa.Field) -> VectorForm:
    """Return the form of a file's vector column. Raises `Internal` for a column of scalars."""
    data_type = data_type_of(field)
    form = None if data_type is None else KINDS[data_type].vector
    if form is None:
        raise Internal(f"column {field.name} of type {field.type} holds no vectors")
    return form


def data_type_of(field: pa.Field) -> DataType | None:
    """Return the data type that a file's column was written as; None if the column does not record it.

    Files that were written before columns recorded it hold vectors of two types, which differ in their
    Arrow types. Raises `CorruptObject` for a type that this release does not know.
    """
    name = (field.metadata or {}).get(_DATA_TYPE)
    if name is None:
        if pa.types.is_fixed_size_list(field.type):
            return DataType.FLOAT_VECTOR
        return DataType.BINARY_VECTOR if pa.types.is_fixed_size_binary(field.type) else None
    data_type = DataType.__members__.get(name.decode())
    if data_type not in KINDS:
        raise CorruptObject(f"column {field.name} has data type {name.decode()}, which this release lacks")
    return data_type


def _is_vector(field: pa.Field) -> bool:
    data_type = data_type_of(field)
    return data_type is not None and KINDS[data_type].family is Family.VECTOR


@contextlib.contextmanager
def opened(store: ObjectStore, path: str, kind: str) -> Iterator[pq.ParquetFile]:
    """A Parquet object of that kind, opened for reading (memory-mapped if the store is local).

    Any error that pyarrow finds in the content inside the block becomes `CorruptObject` naming the
    path; so does another kind of file, or another format version. Raises `ObjectMissing`.
    """
    data = store.open(path)
    remote = not isinstance(data, pa.BufferReader)
    with damage_named(path):
        footer = read_footer(path, data)
        # from a network store, neighboring pieces are fetched together
        reader = pq.ParquetFile(data, metadata=footer, page_checksum_verification=True, pre_buffer=remote)
        with reader as file:
            _check_header(path, kind, file.metadata.metadata or {})
            yield file


@contextlib.contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Turn the errors that pyarrow finds in the content of a file into `CorruptObject` naming the path."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptObject(f"{path} cannot be read as Parquet: {error}") from error


def check_pages(store: ObjectStore, path: str, kind: str) -> None:
    """Read all pages of a Parquet object and compare their checksums. Memory: one row group.

    Raises as `opened` does.
    """
    with opened(store, path, kind) as file:
        for number in range(file.num_row_groups):
            file.read_row_group(number)


def worth_threads(file: pq.ParquetFile) -> bool:
    """Whether reading is faster with several threads: for a small file they cost more than they save."""
    return bool(file.metadata.num_rows >= _THREADS_ROWS_MIN)


def _check_header(path: str, kind: str, metadata: Mapping[bytes, bytes]) -> None:
    for key, expected in file_metadata(kind, {}).items():
        value = metadata.get(key.encode())
        if value is None or value.decode() != expected:
            found = None if value is None else value.decode()
            raise CorruptObject(f"{path}: {key} is {found!r}, this release reads {expected!r}")
