"""Manifests as objects: JSON, one object per version of a segment's manifest.

Metadata points to the current manifest; writing a new one changes nothing until the pointer moves.
"""

from __future__ import annotations

import msgspec

from elanus.core.segments import SegmentManifest
from elanus.storage.paths import FORMAT_VERSION, manifest_path
from elanus.storage.port import CorruptObject, ObjectStore


class _Document(msgspec.Struct, frozen=True):
    format_version: int
    manifest: SegmentManifest


# Created at import: two threads that first decode a dataclass at the same moment crash the process, because
# msgspec publishes its information about the class before it is complete.
_documents = msgspec.json.Decoder(_Document)


def write_manifest(store: ObjectStore, manifest: SegmentManifest, name: str) -> str:
    """Write a manifest under a name never used before. Returns its path. Raises `ObjectExists`."""
    path = manifest_path(manifest.collection_id, manifest.segment_id, name)
    store.put(path, msgspec.json.encode(_Document(FORMAT_VERSION, manifest)))
    return path


def read_manifest(store: ObjectStore, path: str) -> SegmentManifest:
    """Read a manifest. Raises `ObjectMissing`, and `CorruptObject` if it is not a manifest of this format."""
    try:
        document = _documents.decode(store.get(path))
    except ValueError as error:  # msgspec's errors are ValueErrors too
        raise CorruptObject(f"{path} is not a manifest: {error}") from error
    if document.format_version != FORMAT_VERSION:
        raise CorruptObject(
            f"{path} has format version {document.format_version}, this release reads {FORMAT_VERSION}"
        )
    return document.manifest
