"""Snapshots as objects: JSON, written once, read by the holder of the lease."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from elanus.storage.documents import decode_document, encode_document
from elanus.storage.port import ObjectStore

T = TypeVar("T")


def write_snapshot(store: ObjectStore, path: str, snapshot: object) -> None:
    """Write a snapshot. Raises `ObjectExists`."""
    store.put(path, encode_document("snapshot", snapshot))


def read_snapshot(store: ObjectStore, path: str, snapshots: msgspec.json.Decoder[T]) -> T:
    """Read a snapshot with the decoder ``snapshots``, created at import (see `elanus.storage.documents`).

    Raises `ObjectMissing`, and `CorruptObject` for anything that is damaged, or not a snapshot.
    """
    return decode_document(path, "snapshot", store.get(path), snapshots)
