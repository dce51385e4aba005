"""The data directory: its layout, its format version, and the lock that admits one server at a time.

::

    VERSION     the format version, written when the directory is created
    LOCK        held while a server uses the directory
    meta.db     metadata (SQLite)
    log/        the message log
    files/      segments, deletes, indexes, manifests: the object store
    import/     files to import, unless the settings name another place
    run/        sockets between the two processes
    scratch/    Spark's temporary files
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from elanus.server.startup import CannotStart
from elanus.storage.local import fsync, make_directories

FORMAT_VERSION = 1
_SOCKET_PATH_MAX_BYTES = 100


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths within a data directory."""

    root: Path

    @property
    def meta(self) -> Path:
        return self.root / "meta.db"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def local_log_url(self) -> str:
        return self.log.as_uri()

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def local_store_url(self) -> str:
        return (self.root / "files").as_uri()

    def import_url(self, configured: str) -> str:
        """Return the URL of the store that files are imported from; ``configured``: the setting
        imports.root."""
        if "://" in configured:
            return configured
        return (self.root / configured).as_uri()


def paths_of(root: Path) -> Paths:
    return Paths(root.absolute())


def write_durably(path: Path, text: str) -> None:
    """Create a small file: after a crash of the machine it is there as a whole, or not at all."""
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    fsync(path.parent)


class DataDir:
    """An opened data directory, locked until `close`. Raises `CannotStart` when it cannot be used."""

    def __init__(self, root: Path) -> None:
        self.paths = paths_of(root)
        self.root = self.paths.root
        self._short: Path | None = None
        try:
            make_directories(self.root)
            self._lock = self._take_lock()
        except OSError as error:
            raise CannotStart(
                f"the data directory {self.root} cannot be used: {error.strerror}; choose another --data-dir"
            ) from error
        try:
            self._check_version()
            self._check_metadata()
            for name in ("log", "files", "import", "run", "scratch"):
                make_directories(self.root / name)
            (self.root / "run").chmod(0o700)
            # of serving processes: there may be fewer now
            for left in self.paths.scratch.glob("querynode-*"):
                shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            self.close()
            raise CannotStart(f"{error.filename or self.root} cannot be used: {error.strerror}") from error
        except CannotStart:
            self.close()
            raise

    def socket(self, name: str) -> str:
        """Return the gRPC address of a socket of this server, ``unix:PATH``. Removes a stale socket."""
        path = self.root / "run" / f"{name}.sock"
        if len(os.fsencode(path)) > _SOCKET_PATH_MAX_BYTES:
            path = self._short_directory() / f"{name}.sock"
        path.unlink(missing_ok=True)
        return f"unix:{path}"

    def close(self) -> None:
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)
        os.close(self._lock)

    def _short_directory(self) -> Path:
        """Return a directory, removed by `close`, for sockets whose paths in this one would be too long."""
        if self._short is None:
            self._short = Path(tempfile.mkdtemp(prefix="elanus-"))
        return self._short

    def _take_lock(self) -> int:
        descriptor = os.open(self.root / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise CannotStart(
                f"the data directory {self.root} is in use by another server"
                f"{f' (process {owner})' if owner else ''}: stop it, or choose another --data-dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor

    def _check_version(self) -> None:
        version_file = self.root / "VERSION"
        if not version_file.exists():
            if (self.root / "meta.db").exists():
                raise CannotStart(f"{self.root} has data but no VERSION file: it is damaged, or not Elanus's")
            write_durably(version_file, f"{FORMAT_VERSION}\n")
        found = version_file.read_bytes().decode(errors="replace").strip()
        if not found.isdecimal():
            raise CannotStart(
                f"{version_file} is damaged: restore it from a copy of the data directory, or write "
                f"{FORMAT_VERSION} into it if this release was the last to use the directory"
            )
        if found != str(FORMAT_VERSION):
            raise CannotStart(
                f"the data directory {self.root} has format version {found}; this release reads and "
                f"writes version {FORMAT_VERSION}: use the release that wrote it, or another --data-dir"
            )

    def _check_metadata(self) -> None:
        """Raise `CannotStart` if rows are there and the metadata is not.

        With new metadata they would belong to no collection, and be removed as garbage.
        """
        if self.paths.meta.exists() and self.paths.meta.stat().st_size:
            return
        for path in (self.paths.log, self.root / "files"):
            if path.is_dir() and any(entry.name != "LOCK" for entry in path.iterdir()):
                raise CannotStart(
                    f"{self.paths.meta} is missing or empty, but {path} has data: restore the metadata "
                    f"from a copy of the data directory, or choose another --data-dir"
                )
