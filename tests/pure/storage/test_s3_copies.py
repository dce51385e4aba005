"""Local copies of objects on S3."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from elanus.core.errors import DiskFull
from elanus.storage.s3 import S3Store

NO_ROOM = "No space left on device"


class HalfAnObject:
    """An answer that a disk has room for half of."""

    def stream(self, _chunk_bytes: int) -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, NO_ROOM)


def test_a_copy_on_a_full_disk_is_a_clear_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore, "get", lambda _store, _path: HalfAnObject())
    store = S3Store("s3://bucket/prefix?region=us-east-1&endpoint=http://127.0.0.1:9")
    with pytest.raises(DiskFull, match=f"no room left while writing {tmp_path}.*index-7"):
        store.local_path("index_files/index-7", tmp_path)
    assert not list(tmp_path.iterdir())
