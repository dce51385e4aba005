"""Columns in a mapped file instead of in memory of the process's own.

The file is a copy made when a segment is loaded: the stored files are compressed, and cannot be mapped. It
has no name, so the system frees it with the last use of its columns. The system may take its pages from
memory at any time, and reads them again when they are wanted.

Several processes that load the same segments make the same copy, and should have it in memory once. So the
first of them gives its file a name made of its content, by which the others find it, for as long as it uses
the columns itself. A process that finds no such file has a copy of its own.

The file has the same name in the process's own directory: if the process is killed, its successor finds there
which of the names it had given, and removes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from elanus.core.errors import DiskFull
from elanus.storage.local import disk_full_reported

MAPPED_MIN_BYTES = 1 << 20
"""Smaller columns stay in memory: each file takes one of the 65,530 mappings that a process has."""


def mapped(columns: Mapping[str, pa.Array], scratch: Path, shared: Path | None = None) -> dict[str, pa.Array]:
    """The same columns, of one length, from a mapped file in ``scratch``.

    They stay as they are if they are small, or if the disk is full. ``shared``: a directory on the same disk
    where other processes leave the same files, None: there are no others.
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
        if shared is None:
            return dict(zip(columns, _columns_in(path), strict=True))
        return dict(zip(columns, _shared_columns_in(path, shared), strict=True))
    except DiskFull:
        return dict(columns)
    finally:
        path.unlink(missing_ok=True)


def _columns_in(path: Path) -> list[pa.Array]:
    with pa.memory_map(str(path)) as file:  # closed again: the columns keep the mapping, not the file
        columns: list[pa.Array] = pa.ipc.open_file(file).get_batch(0).columns
    return columns


def _shared_columns_in(path: Path, shared: Path) -> list[pa.Array]:
    """As `_columns_in`, from another process's file with this content, or from this one, named for others."""
    with path.open("rb") as file:
        name = shared / f"{hashlib.file_digest(file, 'sha256').hexdigest()}.columns"
    own = path.with_name(name.name)
    try:
        _give_name(path, own, name)
    except FileExistsError:
        try:
            return _columns_in(name)
        except FileNotFoundError:  # the other process has just ceased to use it
            return _columns_in(path)
    except OSError:  # no such directory, or another disk
        return _columns_in(path)
    columns = _columns_in(path)
    _when_all_gone(columns, own, shared)
    return columns


def _give_name(path: Path, own: Path, name: Path) -> None:
    if own != name:
        os.link(path, own)
    try:
        os.link(path, name)
    except OSError:
        if own != name:
            own.unlink()
        raise


def _when_all_gone(columns: Sequence[pa.Array], own: Path, shared: Path) -> None:
    """Remove the names once none of these columns is used any more."""
    left = list(range(len(columns)))

    def one_gone() -> None:
        left.pop()
        if not left:
            forget_name(own, shared)

    for column in columns:
        weakref.finalize(column, one_gone)


def forget_name(own: Path, shared: Path) -> None:
    """Remove a file from a process's own directory, and from ``shared`` if it is this one that others find
    there. Those who use its columns keep them."""
    name = shared / own.name
    with contextlib.suppress(FileNotFoundError):
        if name.samefile(own):
            name.unlink(missing_ok=True)
    own.unlink(missing_ok=True)
