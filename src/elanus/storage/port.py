"""The object store's port. Paths are relative, ``/``-separated; objects are written once, as a whole.

Adapters are created from a URL (`elanus.storage.objects.open_store`), which is what is sent to Spark
tasks: ``file:///var/lib/elanus/files`` or ``s3://bucket/prefix``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from elanus.core.backends import Backend
from elanus.core.faults import StorageFault

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size_bytes: int
    modified: datetime
    version: str = ""
    """Differs after the object was written again, which only files of users are: S3's etag, for example."""


@dataclass(frozen=True, slots=True)
class StoreFailures:
    """``count``: requests that failed since the last one that was answered. ``first_s`` and ``last_s``: how
    long ago the first and the last of them failed, in seconds. ``text``: the last one's error."""

    count: int
    first_s: float
    last_s: float
    text: str


class ObjectStore(Protocol):
    """Synchronous: callers on an event loop use a thread. Safe to use from many threads."""

    @property
    def url(self) -> str: ...

    @property
    def calls_at_once(self) -> int:
        """How many threads gain from calling the store at the same time: 1 for a store without latency."""
        ...

    @property
    def writes_at_once(self) -> int:
        """How many threads gain from writing at the same time: each write waits until it is durable."""
        ...

    def check(self) -> None:
        """Check the store at startup. Raises `elanus.core.errors.ElanusError` when it cannot be used."""
        ...

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Write one object atomically and durably: a reader sees all of it or nothing.

        Raises `ObjectExists` when the path is taken, `elanus.core.errors.DiskFull` when there is no
        space left; then nothing is left behind.
        """
        ...

    def put_file(self, path: str, source: Path) -> None:
        """Like `put`, from a local file (streamed; a local store moves it into place)."""
        ...

    def get(self, path: str) -> pa.Buffer:
        """Return the whole object (memory-mapped if it is local). Raises `ObjectMissing`."""
        ...

    def open(self, path: str) -> pa.NativeFile:
        """Return the object, opened for random access: memory-mapped if it is local, else read by ranges.

        Ranges are read over the network. Errors while reading are raised as the errors of the methods here.
        Raises `ObjectMissing`.
        """
        ...

    def open_unmapped(self, path: str) -> pa.NativeFile:
        """As `open`, for a file of a user: read by ranges, never mapped.

        A mapped file that its owner truncates would end this process. Raises `ObjectMissing`.
        """
        ...

    def local_path(self, path: str, scratch: Path) -> Path:
        """Return a local file with the object's content: the object's own file if the store is local, else a
        copy.

        The caller has to remove a copy. Raises `ObjectMissing`.
        """
        ...

    def head(self, path: str) -> ObjectInfo:
        """Return the object's `ObjectInfo`. Raises `ObjectMissing`."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects below the prefix, streamed (a listing may have millions), in no particular order.

        The prefix names whole path segments (``insert_log/7``, not ``insert_log/7*``); empty means all.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete the object. Deleting an object that does not exist is not an error."""
        ...

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete many objects in few requests. Those that do not exist are no error.

        After an error some of them may be deleted.
        """
        ...


@runtime_checkable
class ReportingStore(ObjectStore, Protocol):
    """A store that is a service, and may fail to answer."""

    def failures(self) -> StoreFailures | None:
        """Return the failures of this process's requests since the last one that was answered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageBackend(Backend):
    """How the object stores of a scheme are opened. The functions import what they need when they are called.

    ``identity(url)``: the part of the URL that may not change once there is data. ``open(url)`` writes
    nothing and opens no connection. ``clean(url, unused_for_s)`` removes what interrupted writes left and
    nobody has written to for that long, at the start of a server. They raise
    `elanus.core.errors.ElanusError`.
    """

    identity: Callable[[str], str]
    open: Callable[[str], ObjectStore]
    clean: Callable[[str, float], object]


class ObjectMissing(StorageFault):
    """No object at that path."""


class ObjectExists(StorageFault):
    """The path is taken; objects are written once."""


class CorruptObject(StorageFault):
    """The object exists, but its content is damaged or not what it should be. Names the path."""


class StorageFailed(StorageFault):
    """The store could not read or write: its disk or its file system reports an error. Names the path."""
