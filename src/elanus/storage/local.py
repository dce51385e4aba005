"""The object store in a local directory.

It keeps every object as one file below its root. A write first goes to a file in
``.staging``, is made durable there, and then gets its name with a hard link. Linking fails when
the name is taken, so creation is exclusive without a lock, between processes too. Since the
content was durable before the name existed, a crash leaves either a whole object or none. A crash may
leave a file in ``.staging``, which no reader ever reads and `LocalStore.discard_staged` removes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import pyarrow as pa

from elanus.core.errors import DiskFull
from elanus.storage.paths import checked_path
from elanus.storage.port import ObjectExists, ObjectInfo, ObjectMissing, StorageFailed

_STAGING = ".staging"
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_LINK_ATTEMPTS = 8


@contextlib.contextmanager
def disk_full_reported(what: str) -> Iterator[None]:
    """Turn the operating system's "no space left" and "over quota" errors into `DiskFull`.

    "Too many open files" becomes `StorageFailed`, with the limit and the remedy.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFull(f"no room left while writing {what}; free disk space, then retry") from error
        if error.errno in _NO_FILES:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            raise StorageFailed(
                f"{what}: no more files can be opened (this process may have {limit} open): raise the limit "
                "(ulimit -n, or LimitNOFILE of the systemd unit), then restart the server"
            ) from error
        raise


@contextlib.contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turn the operating system's errors into those of the port."""
    try:
        with disk_full_reported(path):
            yield
    except OSError as error:
        raise StorageFailed(f"{path or 'the store'}: the object store's disk failed: {error}") from error


class LocalStore:
    """Objects as files below one directory, on one file system that supports hard links.

    Methods raise `DiskFull` when there is no space left, and `StorageFailed` for any other error of the
    operating system.
    """

    calls_at_once = 1
    writes_at_once = 8
    """A file system makes the writes of several threads durable together."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._staging = root / _STAGING

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def check(self) -> None:
        """Nothing to check: a local directory is created when it is first written to."""

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        target = self._file(path)
        with _errors(path), self._staged() as staged:
            with staged.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._publish(staged, target, path)

    def put_file(self, path: str, source: Path) -> None:
        target = self._file(path)
        with _errors(path):
            fsync(source)
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
        with _errors(path):
            try:
                return pa.memory_map(str(self._file(path))).read_buffer()
            except FileNotFoundError:
                raise ObjectMissing(path) from None

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    def open_unmapped(self, path: str) -> pa.NativeFile:
        with _errors(path):
            try:
                return pa.OSFile(str(self._file(path)))
            except FileNotFoundError:
                raise ObjectMissing(path) from None

    def local_path(self, path: str, scratch: Path) -> Path:
        """Return the object's own file; ``scratch`` is not used."""
        self.head(path)
        return self._file(path)

    def head(self, path: str) -> ObjectInfo:
        file = self._file(path)
        # It may be deleted between the two calls.
        with _errors(path), contextlib.suppress(FileNotFoundError):
            if file.is_file():
                return self._info(file)
        raise ObjectMissing(path)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        start = self._file(prefix) if prefix else self._root
        for directory, subdirectories, files in os.walk(start):
            if directory == str(self._root) and _STAGING in subdirectories:
                subdirectories.remove(_STAGING)
            for name in files:
                # Another process may delete files during the walk.
                with _errors(prefix), contextlib.suppress(FileNotFoundError):
                    yield self._info(Path(directory, name))

    def delete(self, path: str) -> None:
        file = self._file(path)
        with _errors(path):
            if not file.is_file():
                return
            file.unlink(missing_ok=True)
            self._remove_empty_directories(file.parent)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def discard_staged(self, unused_for_s: float = 0.0) -> int:
        """Remove the files that interrupted writes left behind. Returns how many.

        ``unused_for_s``: only those that nobody has written to for so long; 0 only while nothing else uses
        the store.
        """
        until_s = time.time() - unused_for_s
        removed = 0
        for file in list(self._staging.iterdir()) if self._staging.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another process has finished with it
                if not unused_for_s or file.stat().st_mtime < until_s:
                    file.unlink()
                    removed += 1
        return removed

    def _file(self, path: str) -> Path:
        return self._root.joinpath(*checked_path(path).split("/"))

    def _info(self, file: Path) -> ObjectInfo:
        status = file.stat()
        name = PurePosixPath(file.relative_to(self._root)).as_posix()
        version = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
        return ObjectInfo(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC), version)

    @contextlib.contextmanager
    def _staged(self) -> Iterator[Path]:
        """A new name in the staging directory; its file is removed at the end."""
        make_directories(self._staging)
        staged = self._staging / uuid.uuid4().hex
        try:
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def _put_copy(self, path: str, source: Path, target: Path) -> None:
        with self._staged() as staged:
            shutil.copyfile(source, staged)
            fsync(staged)
            self._publish(staged, target, path)

    def _publish(self, durable: Path, target: Path, path: str) -> None:
        """Give a durable file its name, and make the name durable."""
        for _ in range(_LINK_ATTEMPTS):
            try:
                make_directories(target.parent)
                os.link(durable, target)
            except FileExistsError:
                raise ObjectExists(path) from None
            except FileNotFoundError:
                # A delete removed the directory between the two steps, because it was empty.
                if not durable.exists():
                    raise
                continue
            fsync(target.parent)
            return
        raise OSError(errno.EAGAIN, f"directory keeps vanishing: {target.parent}")

    def _remove_empty_directories(self, directory: Path) -> None:
        while directory != self._root:
            try:
                directory.rmdir()
            except OSError:  # not empty, or already removed: either way there is nothing to remove above it
                return
            directory = directory.parent


def make_directories(directory: Path) -> None:
    """Create missing directories and make each new name durable in its parent."""
    if directory.is_dir():
        return
    if not directory.parent.exists():
        make_directories(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
    fsync(directory.parent)


def fsync(path: Path) -> None:
    """Make a file's content, or a directory's entries, durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
