"""How every Parquet file of Elanus is laid out, written and opened.

Measured with 768 to 784 float columns on one core (uncompressed plain pages = 1.00):

====================================  ============  =============  ===========
vector column                         write speed   read speed     size
====================================  ============  =============  ===========
plain, uncompressed                   1.00          1.00           1.00
pyarrow's defaults (dictionary)       0.43 – 0.83   0.7 – 1.3      0.08 – 1.02
byte stream split, zstd level 1       0.64 – 0.84   0.77 – 0.87    0.08 – 0.85
====================================  ============  =============  ===========

Hence the choice: vectors split into byte planes and packed with zstd level 1, never a dictionary,
never statistics (the smallest float of a column of vectors prunes nothing). Row groups hold about
`ROW_GROUP_BYTES`: speed and size do not depend on it between 1k and 16k rows, while the memory of
a writer and the cost of fetching a single row do. Page checksums are written and verified.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from elanus.core.errors import Internal
from elanus.core.schema import ROW_ID_FIELD, TIMESTAMP_FIELD
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.storage.objects import disk_full_reported
from elanus.storage.paths import FORMAT_VERSION
from elanus.storage.port import CorruptObject, ObjectStore

ROW_GROUP_BYTES = 8 * 1024 * 1024
ROW_GROUP_ROWS_MAX = 16_384
_ZSTD_LEVEL = 1
_SINK_BUFFER_BYTES = 256 * 1024
"""A Parquet writer hands out every page header by itself."""
_THREADS_ROWS_MIN = 4096
_KEY_PREFIX = "elanus."


def file_metadata(kind: str, values: Mapping[str, int | str]) -> dict[str, str]:
    """Key-value metadata of a file: its kind, the format version, and what it belongs to."""
    pairs = {"kind": kind, "format_version": FORMAT_VERSION, **values}
    return {_KEY_PREFIX + key: str(value) for key, value in pairs.items()}


def rows_per_group(row_bytes: int) -> int:
    """How many rows of that width make a row group: at least 1, at most `ROW_GROUP_ROWS_MAX`."""
    return max(1, min(ROW_GROUP_ROWS_MAX, ROW_GROUP_BYTES // max(1, row_bytes)))


class BinlogWriter:
    """Streams record batches, sorted by timestamp unless ``by_time`` is off, into one new Parquet object.

    Rows go to a scratch file, which `finish` puts into the store, durably. Memory: one row group and
    the batch being written. A context manager: left without `finish`, nothing reaches the store, and
    the scratch file is gone in any case. Raises `DiskFull` when there is no room.
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
    ) -> None:
        self._by_time = by_time
        self._store = store
        self._path = path
        self._schema = schema
        self._group_rows = group_rows
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._rows = 0
        self._ts_min, self._ts_max = MAX_TIMESTAMP, NO_TIMESTAMP
        self._file = scratch / f"{uuid.uuid4().hex}.parquet"
        with disk_full_reported(path):
            self._sink = pa.BufferedOutputStream(pa.OSFile(str(self._file), "wb"), _SINK_BUFFER_BYTES)
            self._writer = pq.ParquetWriter(self._sink, schema, **writer_options(schema))

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises `Internal` when their schema is not the file's, or a timestamp goes back."""
        if not batch.schema.equals(self._schema):
            raise Internal(f"{self._path}: got columns\n{batch.schema}\nwhere the file has\n{self._schema}")
        self._follow_timestamps(batch)
        while self._pending_rows + batch.num_rows >= self._group_rows:
            room = self._group_rows - self._pending_rows
            self._keep(batch.slice(0, room))
            self._write_group()
            batch = batch.slice(room)
        if batch.num_rows:
            self._keep(batch)

    def finish(self) -> BinlogFile:
        """Complete the file and put it into the store, durably. Nothing can be written after it."""
        if self._pending_rows:
            self._write_group()
        with disk_full_reported(self._path):
            self._writer.close()
            self._sink.close()
        size_bytes = self._file.stat().st_size
        self._store.put_file(self._path, self._file)
        return BinlogFile(self._path, self._rows, size_bytes, self._ts_min, self._ts_max)

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

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._rows += batch.num_rows

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._pending, self._schema)
        with disk_full_reported(self._path):
            self._writer.write_table(table, row_group_size=self._group_rows)
        self._pending, self._pending_rows = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        # After an error, closing writes a footer nobody will read, and may meet the same error again.
        with contextlib.suppress(OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        self._file.unlink(missing_ok=True)


def writer_options(schema: pa.Schema) -> dict[str, object]:
    """How a file of that schema is written, as `pyarrow.parquet.ParquetWriter` takes it.

    Only columns with an encoding named here go without dictionary; vectors go without statistics.
    """
    scalars = [field.name for field in schema if not is_vector(field.type)]
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


def is_vector(data_type: pa.DataType) -> bool:
    """Whether a column of that type holds vectors (`elanus.core.schema` says which types do)."""
    return bool(pa.types.is_fixed_size_list(data_type) or pa.types.is_fixed_size_binary(data_type))


@contextlib.contextmanager
def opened(store: ObjectStore, path: str, kind: str) -> Iterator[pq.ParquetFile]:
    """A Parquet object of that kind, opened for reading (memory-mapped where the store is local).

    Whatever pyarrow finds wrong with the content inside the block becomes `CorruptObject` naming the
    path; so does another kind of file, or another format version. Raises `ObjectMissing`.
    """
    data = store.open(path)
    remote = not isinstance(data, pa.BufferReader)
    try:
        # of a store behind a network, neighbouring pieces are fetched together
        with pq.ParquetFile(data, page_checksum_verification=True, pre_buffer=remote) as file:
            _check_header(path, kind, file.metadata.metadata or {})
            yield file
    except (pa.ArrowException, OSError) as error:
        raise CorruptObject(f"{path} cannot be read as Parquet: {error}") from error


def worth_threads(file: pq.ParquetFile) -> bool:
    """Whether reading gains from several threads: handing a small file to them costs more than it saves."""
    return bool(file.metadata.num_rows >= _THREADS_ROWS_MIN)


def _check_header(path: str, kind: str, metadata: Mapping[bytes, bytes]) -> None:
    header = {key.decode(): value.decode() for key, value in metadata.items()}
    for key, expected in file_metadata(kind, {}).items():
        if header.get(key) != expected:
            raise CorruptObject(f"{path}: {key} is {header.get(key)!r}, this release reads {expected!r}")
