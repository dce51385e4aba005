"""Object stores: opening one by URL, and the adapter for a local directory.

The local adapter keeps every object as one file below its root. A write goes to a file in
``.staging`` first, is made durable there, and then gets its name with a hard link. Linking fails when
the name is taken, so creation is exclusive without a lock, between processes too; and since the
content was durable before the name existed, a crash leaves either a whole object or none. What a crash
can leave is a file in ``.staging``, which no reader ever looks at and `LocalStore.discard_staged`
removes.

Object stores behind a network: `elanus.storage.s3`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from elanus.core.errors import DiskFull, InvalidParameter
from elanus.storage.paths import checked_path
from elanus.storage.port import ObjectExists, ObjectInfo, ObjectMissing, ObjectStore

_STAGING = ".staging"
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_LINK_ATTEMPTS = 8


def open_store(url: str) -> ObjectStore:
    """The store behind a URL. Opening writes nothing.

    ``file:///absolute/directory`` is the local adapter, ``s3://bucket/prefix`` that of `elanus.storage.s3`.
    Raises `InvalidParameter` for anything else.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        root = Path(unquote(parts.path))
        if parts.netloc not in ("", "localhost") or not root.is_absolute():
            raise InvalidParameter(
                f"object store {url!r}: a file URL has three slashes and an absolute directory"
            )
        return LocalStore(root)
    if parts.scheme == "s3":
        from elanus.storage.s3 import S3Store  # who keeps objects in a directory needs no client of S3

        return S3Store(url)
    raise InvalidParameter(
        f"object store {url!r}: expected a URL of the form file:///absolute/directory or s3://bucket/prefix"
    )


@contextlib.contextmanager
def disk_full_reported(what: str) -> Iterator[None]:
    """Turns the operating system's "no room" and "over quota" into `DiskFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFull(f"no room left while writing {what}; free disk space, then retry") from error
        raise


class LocalStore:
    """Objects as files below one directory, which lies on one file system that has hard links."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._staging = root / _STAGING

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def check(self) -> None:
        """A local directory is made when it is first written to."""

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        target = self._file(path)
        with self._staged() as staged, disk_full_reported(path):
            with staged.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._publish(staged, target, path)

    def put_file(self, path: str, source: Path) -> None:
        target = self._file(path)
        with disk_full_reported(path):
            _fsync(source)
            try:
                self._publish(source, target, path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._put_copy(path, source, target)
            source.unlink()

    def get(self, path: str) -> pa.Buffer:
        if self.head(path).size_bytes == 0:
            return pa.py_buffer(b"")  # an empty file cannot be mapped
        try:
            return pa.memory_map(str(self._file(path))).read_buffer()
        except FileNotFoundError:
            raise ObjectMissing(path) from None

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    def local_path(self, path: str, scratch: Path) -> Path:
        """The object's own file; ``scratch`` stays untouched."""
        self.head(path)
        return self._file(path)

    def head(self, path: str) -> ObjectInfo:
        file = self._file(path)
        try:
            if file.is_file():
                return self._info(file)
        except FileNotFoundError:
            pass  # deleted between the two looks
        raise ObjectMissing(path)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        start = self._file(prefix) if prefix else self._root
        for directory, subdirectories, files in os.walk(start):
            if directory == str(self._root) and _STAGING in subdirectories:
                subdirectories.remove(_STAGING)
            for name in files:
                # Another process may delete while we walk.
                with contextlib.suppress(FileNotFoundError):
                    yield self._info(Path(directory, name))

    def delete(self, path: str) -> None:
        file = self._file(path)
        if file.is_file():
            file.unlink(missing_ok=True)
            self._remove_empty_directories(file.parent)

    def discard_staged(self) -> int:
        """Remove what interrupted writes left behind; returns how many files.

        Only for the moment when nobody writes: before a server starts its pipeline.
        """
        left = list(self._staging.iterdir()) if self._staging.is_dir() else []
        for file in left:
            file.unlink()
        return len(left)

    def _file(self, path: str) -> Path:
        return self._root.joinpath(*checked_path(path).split("/"))

    def _info(self, file: Path) -> ObjectInfo:
        status = file.stat()
        name = PurePosixPath(file.relative_to(self._root)).as_posix()
        return ObjectInfo(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    @contextlib.contextmanager
    def _staged(self) -> Iterator[Path]:
        """A fresh name in the staging directory, gone again at the end."""
        self._staging.mkdir(parents=True, exist_ok=True)
        staged = self._staging / uuid.uuid4().hex
        try:
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def _put_copy(self, path: str, source: Path, target: Path) -> None:
        with self._staged() as staged:
            shutil.copyfile(source, staged)
            _fsync(staged)
            self._publish(staged, target, path)

    def _publish(self, durable: Path, target: Path, path: str) -> None:
        """Give a durable file its name, and make the name durable."""
        for _ in range(_LINK_ATTEMPTS):
            try:
                self._make_directories(target.parent)
                os.link(durable, target)
            except FileExistsError:
                raise ObjectExists(path) from None
            except FileNotFoundError:
                # A delete took the directory away between the two steps, for it stood empty.
                if not durable.exists():
                    raise
                continue
            _fsync(target.parent)
            return
        raise OSError(errno.EAGAIN, f"directory keeps vanishing: {target.parent}")

    def _make_directories(self, directory: Path) -> None:
        """Create missing directories and make each new name durable in its parent."""
        if directory.is_dir():
            return
        self._make_directories(directory.parent)
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        _fsync(directory.parent)

    def _remove_empty_directories(self, directory: Path) -> None:
        while directory != self._root:
            try:
                directory.rmdir()
            except OSError:  # not empty, or already gone: either way there is nothing to tidy above it
                return
            directory = directory.parent


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
