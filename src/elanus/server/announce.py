"""How the tools on this machine find a running server: a small file in its data directory.

The server writes it when it has begun to answer and removes it when it stops, so `elanus status
--data-dir DIR` works whatever ports were taken. A server that was killed leaves the file behind;
readers therefore treat it as a hint and let the connection decide. What forbids a second server on
the directory is a lock of the server's, not this file.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

FILE_NAME = "server.json"


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server answers. ``observe_url`` is empty when the metrics port is not open."""

    version: str
    pid: int
    address: str
    """``host:port`` of the Milvus front, of the first where there are several."""
    other_addresses: tuple[str, ...] = ()
    """Those of further proxies."""
    observe_url: str


def announce(data_dir: Path, announcement: Announcement) -> None:
    """Write the file, whole or not at all."""
    draft = data_dir / f"{FILE_NAME}.{os.getpid()}"
    draft.write_bytes(msgspec.json.encode(announcement))
    draft.replace(data_dir / FILE_NAME)


def withdraw(data_dir: Path) -> None:
    """Remove the file, if it is there."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)


def find(data_dir: Path) -> Announcement | None:
    """What the directory's server announced; ``None`` when none has, or the file is not readable."""
    try:
        return msgspec.json.decode((data_dir / FILE_NAME).read_bytes(), type=Announcement)
    except (OSError, msgspec.DecodeError):
        return None
