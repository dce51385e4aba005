"""How tools on this machine find a running server: a small file in its data directory.

The server writes the file once it answers and removes it when it stops, so `elanus status
--data-dir DIR` works whichever ports the server uses. A server that was killed leaves the file behind;
readers therefore treat it as a hint and let the connection decide. A lock held by the server, not this
file, prevents a second server on the same directory.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from elanus.server.startup import CannotStart

FILE_NAME = "server.json"


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a server. ``observe_url`` is empty when the metrics port is not open."""

    version: str
    pid: int
    address: str
    """``host:port`` of the Milvus port; the first one if there are several proxies."""
    other_addresses: tuple[str, ...] = ()
    """The addresses of further proxies."""
    observe_url: str
    http_url: str = ""
    """The URL of the REST API; empty when its port is not open."""


def announce(data_dir: Path, announcement: Announcement) -> None:
    """Write the file atomically. Raises `CannotStart`."""
    draft = data_dir / f"{FILE_NAME}.{os.getpid()}"
    try:
        draft.write_bytes(msgspec.json.encode(announcement))
        draft.replace(data_dir / FILE_NAME)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CannotStart(f"{data_dir / FILE_NAME} cannot be written: {error.strerror}") from error


def withdraw(data_dir: Path) -> None:
    """Remove the file if it exists."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)


def find(data_dir: Path) -> Announcement | None:
    """Return what the directory's server announced; ``None`` if there is no readable announcement."""
    try:
        return msgspec.json.decode((data_dir / FILE_NAME).read_bytes(), type=Announcement)
    except (OSError, msgspec.DecodeError):
        return None
