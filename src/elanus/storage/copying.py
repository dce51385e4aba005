"""Copies of objects from one store to another, with a checksum of every byte that was read.

An object is read once: its checksum is computed from the same bytes that are written. A file of a local store
is read through its mapping; one of a remote store goes through a scratch file, so memory does not depend on
the sizes of objects.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import xxhash

from elanus.storage.port import CorruptObject, ObjectExists, ObjectStore

T = TypeVar("T")
R = TypeVar("R")
_BLOCK_BYTES = 8 * 1024 * 1024
_AT_ONCE_MAX = 8


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An object and its XXH3 checksum of 128 bits, 32 hex digits."""

    path: str
    size_bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Copy:
    """``checksum``: what the source must have; "" if nobody knows."""

    path: str
    to: str
    checksum: str = ""


class Interrupted(Exception):
    """The work was ended before it was complete."""


def checksum_of(data: pa.Buffer | memoryview) -> str:
    digest = xxhash.xxh3_128()
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_BYTES):
        digest.update(view[start : start + _BLOCK_BYTES])
    return digest.hexdigest()


def digest_of(store: ObjectStore, path: str) -> StoredFile:
    """Read an object and return its checksum. Raises `ObjectMissing`."""
    with _read(store, path) as (data, _):
        return StoredFile(path, data.size, checksum_of(data))


def copy_object(source: ObjectStore, target: ObjectStore, copy: Copy) -> StoredFile:
    """Copy one object. Returns what is in the target then.

    An object of that name in the target stays as it is: names are used once. Raises `ObjectMissing`, and
    `CorruptObject` if the source has another checksum than it must have: nothing is written then.
    """
    with _read(source, copy.path) as (data, scratch):
        found = checksum_of(data)
        if copy.checksum and found != copy.checksum:
            raise CorruptObject(
                f"{copy.path} in {source.url} is damaged: its checksum is {copy.checksum}, its content has "
                f"{found}"
            )
        size_bytes = data.size
        with contextlib.suppress(ObjectExists):
            if scratch is None:
                target.put(copy.to, data)
            else:
                target.put_file(copy.to, scratch)
    return StoredFile(copy.to, size_bytes, found)


@contextmanager
def _read(store: ObjectStore, path: str) -> Iterator[tuple[pa.Buffer, Path | None]]:
    """The content of an object, and the scratch file that holds it if the store is not local."""
    with tempfile.TemporaryDirectory(prefix="elanus-copy-") as directory:
        file = store.local_path(path, Path(directory))
        if file.parent != Path(directory):
            yield store.get(path), None
        elif file.stat().st_size == 0:
            yield pa.py_buffer(b""), file
        else:
            with pa.memory_map(str(file)) as mapped:
                yield mapped.read_buffer(), file


def in_threads(work: Callable[[T], R], items: Iterable[T], at_once: int, done: Callable[[R], None]) -> None:
    """Run ``work`` for each, some at a time; ``done`` is called in this thread, as each ends.

    Raises the first error once those that run have ended, and `KeyboardInterrupt` in the same way.
    """
    ended = threading.Event()

    def one(item: T) -> R:
        if ended.is_set():
            raise Interrupted
        return work(item)

    waiting: set[Future[R]] = set()
    with ThreadPoolExecutor(at_once, thread_name_prefix="elanus-copy") as pool:
        try:
            for item in items:
                waiting.add(pool.submit(one, item))
                if len(waiting) >= 2 * at_once:
                    waiting = _collected(waiting, done)
            while waiting:
                waiting = _collected(waiting, done)
        finally:
            ended.set()


def _collected(waiting: set[Future[R]], done: Callable[[R], None]) -> set[Future[R]]:
    finished, rest = wait(waiting, return_when=FIRST_COMPLETED)
    for future in finished:
        done(future.result())
    return rest


def threads_for(target: ObjectStore) -> int:
    """Return how many copies at a time gain something."""
    return min(target.writes_at_once, _AT_ONCE_MAX)
