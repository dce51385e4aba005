"""The object store's port. Paths are relative, ``/``-separated; objects are written once, whole.

Adapters are made from a URL (`elanus.storage.objects.open_store`), which is what travels to Spark
tasks: ``file:///var/lib/elanus/files`` or ``s3://bucket/prefix``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size_bytes: int
    modified: datetime


class ObjectStore(Protocol):
    """Synchronous: callers on an event loop go through a thread. Safe to use from many threads."""

    @property
    def url(self) -> str: ...

    def check(self) -> None:
        """Raises `elanus.core.errors.ElanusError` when the store cannot be used: what to ask at a start."""
        ...

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Write one object atomically and durably: a reader sees all of it or nothing.

        Raises `ObjectExists` when the path is taken, `elanus.core.errors.DiskFull` when there is no
        room; then nothing is left behind.
        """
        ...

    def put_file(self, path: str, source: Path) -> None:
        """As `put`, from a local file (streamed; a local store moves it into place)."""
        ...

    def get(self, path: str) -> pa.Buffer:
        """The whole object (memory-mapped where it is local). Raises `ObjectMissing`."""
        ...

    def open(self, path: str) -> pa.NativeFile:
        """The object for reading here and there: mapped where it is local, else by ranges over the network.

        What goes wrong while reading is raised as what the methods here raise. Raises `ObjectMissing`.
        """
        ...

    def local_path(self, path: str, scratch: Path) -> Path:
        """A local file with the object's content: itself when the store is local, else a copy.

        A copy is the caller's to remove. Raises `ObjectMissing`.
        """
        ...

    def head(self, path: str) -> ObjectInfo:
        """Raises `ObjectMissing`."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects below the prefix, streamed (a listing may have millions), in no particular order.

        The prefix names whole path segments (``insert_log/7``, not ``insert_log/7*``); empty means all.
        """
        ...

    def delete(self, path: str) -> None:
        """Deleting what is not there is no error."""
        ...


class ObjectMissing(Exception):
    """No object at that path."""


class ObjectExists(Exception):
    """The path is taken; objects are written once."""


class CorruptObject(Exception):
    """An object is there, but its content is damaged or not what it should be. Names the path."""
