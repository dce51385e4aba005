"""Rows of many segments, collected in one file and read back segment by segment.

A range may touch thousands of segments, and each open Parquet writer costs a file descriptor and a row
group of memory. Rows of segments that have no writer are kept here: up to `HELD_BYTES` in memory, then as
one Arrow record batch per segment in a scratch file. Reading maps the file and returns the batches of one
segment in the order in which they came.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pyarrow as pa

from elanus.core.ids import SegmentID
from elanus.storage.local import disk_full_reported

HELD_BYTES = 16 * 1024 * 1024


class Spill:
    """Batches by segment, all of one schema (metadata aside). A context manager: leaving it removes the file.

    Memory: `HELD_BYTES` and one batch. Raises `DiskFull` when there is no space left.
    """

    def __init__(self, scratch: Path) -> None:
        self._path = scratch / f"{uuid.uuid4().hex}.spill"
        self._held: dict[SegmentID, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._places: dict[SegmentID, list[int]] = {}
        self._written = 0
        self._open = contextlib.ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(self, segment_id: SegmentID, batch: pa.RecordBatch) -> None:
        self._places.setdefault(segment_id, [])
        self._held.setdefault(segment_id, []).append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= HELD_BYTES:
            self._write_held()

    @contextlib.contextmanager
    def reading(self) -> Iterator[_SpilledRows]:
        """Read what was added. Nothing can be added after this."""
        if self._writer is None:
            yield _SpilledRows(None, {}, self._held)
            return
        self._write_held()
        with disk_full_reported(str(self._path)):
            self._open.close()
        with pa.memory_map(str(self._path)) as mapped:
            yield _SpilledRows(pa.ipc.open_file(mapped), self._places, {})

    def _write_held(self) -> None:
        with disk_full_reported(str(self._path)):
            for segment_id, batches in self._held.items():
                batch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
                self._opened(batch.schema).write_batch(batch)
                self._places[segment_id].append(self._written)
                self._written += 1
        self._held, self._held_bytes = {}, 0

    def _opened(self, schema: pa.Schema) -> pa.RecordBatchFileWriter:
        if self._writer is None:
            sink = self._open.enter_context(pa.OSFile(str(self._path), "wb"))
            self._writer = self._open.enter_context(pa.ipc.new_file(sink, schema.remove_metadata()))
        return self._writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(OSError):  # after an error; closing writes a footer that nobody reads
            self._open.close()
        self._path.unlink(missing_ok=True)


class _SpilledRows:
    """Threads may read different segments at the same time."""

    def __init__(
        self,
        file: pa.RecordBatchFileReader | None,
        places: dict[SegmentID, list[int]],
        held: dict[SegmentID, list[pa.RecordBatch]],
    ) -> None:
        self._file = file
        self._reading = threading.Lock()
        self._places = places
        self._held = held

    def of(self, segment_id: SegmentID, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the segment's batches in order, with the metadata of ``schema``."""
        for batch in self._batches(segment_id):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def _batches(self, segment_id: SegmentID) -> Iterable[pa.RecordBatch]:
        if self._file is None:
            return self._held[segment_id]
        return map(partial(self._read, self._file), self._places[segment_id])

    def _read(self, file: pa.RecordBatchFileReader, place: int) -> pa.RecordBatch:
        with self._reading:
            return file.get_batch(place)
