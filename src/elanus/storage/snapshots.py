"""Snapshots as objects: JSON, written once, read by the holder of the lease."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from elanus.storage.paths import FORMAT_VERSION
from elanus.storage.port import CorruptObject, ObjectStore

T = TypeVar("T")


def write_snapshot(store: ObjectStore, path: str, snapshot: object) -> None:
    """Write a snapshot. Raises `ObjectExists`."""
    store.put(path, msgspec.json.encode({"format_version": FORMAT_VERSION, "snapshot": snapshot}))


def read_snapshot(store: ObjectStore, path: str, snapshots: msgspec.json.Decoder[T]) -> T:
    """Read a snapshot with the decoder ``snapshots``, created at import (see `elanus.storage.manifests`).

    Raises `ObjectMissing`, and `CorruptObject` for anything that is not a snapshot of this format.
    """
    try:
        document = msgspec.json.decode(store.get(path), type=dict[str, msgspec.Raw])
        version = msgspec.json.decode(document["format_version"], type=int)
        if version != FORMAT_VERSION:
            raise CorruptObject(
                f"{path} has format version {version}, this release reads {FORMAT_VERSION}: "
                "install the server's release of elanus"
            )
        return snapshots.decode(document["snapshot"])
    except (ValueError, KeyError) as error:  # msgspec's errors are ValueErrors too
        raise CorruptObject(f"{path} is not a snapshot: {error}") from error
