"""Manifests as objects: JSON, one object per version of a segment's manifest or of a vchannel's delta logs.

Metadata points to the current manifest; writing a new one changes nothing until the pointer moves.
"""

from __future__ import annotations

import msgspec

from elanus.core.ids import CollectionID
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.storage.documents import decode_document, encode_document
from elanus.storage.paths import delta_list_path, manifest_path
from elanus.storage.port import CorruptObject, ObjectStore

_manifests = msgspec.json.Decoder(SegmentManifest)  # at import, see `elanus.storage.documents`
_delta_lists = msgspec.json.Decoder(tuple[DeltaLog, ...])


def write_manifest(store: ObjectStore, manifest: SegmentManifest, name: str) -> str:
    """Write a manifest under a name never used before. Returns its path. Raises `ObjectExists`."""
    path = manifest_path(manifest.collection_id, manifest.segment_id, name)
    store.put(path, encode_document("manifest", manifest))
    return path


def read_manifest(store: ObjectStore, path: str) -> SegmentManifest:
    """Read a manifest. Raises `ObjectMissing`, and `CorruptObject` if it is damaged, or not a manifest."""
    return decode_document(path, "manifest", store.get(path), _manifests)


def write_delta_list(
    store: ObjectStore, collection_id: CollectionID, vchannel: str, logs: tuple[DeltaLog, ...], name: str
) -> str:
    """Write the list of a vchannel's delta logs under a new name. Returns its path."""
    path = delta_list_path(collection_id, vchannel, name)
    store.put(path, encode_document("delta_logs", logs))
    return path


def read_delta_list(store: ObjectStore, path: str) -> tuple[DeltaLog, ...]:
    """Read a list of delta logs. Raises `ObjectMissing`, and `CorruptObject` if it is damaged."""
    data = store.get(path)
    if bytes(memoryview(data)[:1]) != b"[":
        return decode_document(path, "delta_logs", data, _delta_lists)
    try:
        return _delta_lists.decode(data)  # the first format: the list alone
    except ValueError as error:
        raise CorruptObject(f"{path} is not a list of delta logs: {error}") from error
