"""Whole insert logs, written and read in one call, as tests want them; the jobs go batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile
from elanus.storage.binlog import (
    Files,
    SegmentKey,
    VectorReader,
    files_of,
    insert_log_writer,
    open_insert_log,
)
from elanus.storage.port import ObjectStore


def write_insert_log(
    store: ObjectStore,
    path: str,
    schema: CollectionSchema,
    key: SegmentKey,
    batches: Iterable[pa.RecordBatch],
    scratch: Path,
) -> BinlogFile:
    """Write batches with system columns, in the order of their timestamps, as one insert log."""
    with insert_log_writer(store, path, schema, key, scratch) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def read_vectors(store: ObjectStore, source: Files, name: str, scratch: Path | None = None) -> Any:
    """The vectors of a column by its name: see `VectorReader`."""
    files = files_of(source)
    reader = VectorReader(name, sum(file.rows for file in files), scratch)
    for file in files:
        with open_insert_log(store, file) as parquet:
            reader.read(parquet, file)
    return reader.finish()
