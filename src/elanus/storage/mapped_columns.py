"""Columns in a mapped file instead of in memory of the process's own.

The file is a copy made when a segment is loaded: the stored files are compressed, and cannot be mapped. It
has no name, so the system frees it with the last use of its columns. The system may take its pages from
memory at any time, and reads them again when they are wanted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from elanus.core.errors import DiskFull
from elanus.storage.local import disk_full_reported

MAPPED_MIN_BYTES = 1 << 20
"""Smaller columns stay in memory: each file takes one of the 65,530 mappings that a process has."""


def mapped(columns: Mapping[str, pa.Array], scratch: Path) -> dict[str, pa.Array]:
    """The same columns, of one length, from a mapped file in ``scratch``.

    They stay as they are if they are small, or if the disk is full.
    """
    if sum(column.nbytes for column in columns.values()) < MAPPED_MIN_BYTES:
        return dict(columns)
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    path = scratch / f"{uuid.uuid4().hex}.columns"
    try:
        with (
            disk_full_reported(str(path)),
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, batch.schema) as writer,
        ):
            writer.write_batch(batch)
        with pa.memory_map(str(path)) as file:  # closed again: the columns keep the mapping, not the file
            return dict(zip(columns, pa.ipc.open_file(file).get_batch(0).columns, strict=True))
    except DiskFull:
        return dict(columns)
    finally:
        path.unlink(missing_ok=True)
