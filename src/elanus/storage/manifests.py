"""Manifests as objects: JSON, one object per version of a segment's manifest or of a vchannel's delta logs.

Metadata points to the current manifest; writing a new one changes nothing until the pointer moves.

A manifest lists all files, so each one is made from the one before. Where that one is damaged, the new one
*continues* it: it lists its own files and the path of the one before, whose files come first. Both are
readable as one again when the damaged object is restored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import msgspec

from elanus.core.ids import CollectionID
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.storage.documents import decode_document, encode_document, is_document
from elanus.storage.paths import delta_list_path, manifest_path
from elanus.storage.port import CorruptObject, ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Continued:
    """``before``: the path of the manifest that this one continues."""

    before: str
    manifest: SegmentManifest


@dataclass(frozen=True, slots=True)
class _ContinuedList:
    before: str
    delta_logs: tuple[DeltaLog, ...]


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """``befores``: the paths of the manifests that the one read continues."""

    content: T
    befores: tuple[str, ...] = ()


_manifests = msgspec.json.Decoder(SegmentManifest)  # at import, see `elanus.storage.documents`
_delta_lists = msgspec.json.Decoder(tuple[DeltaLog, ...])
_continued = msgspec.json.Decoder(_Continued)
_continued_lists = msgspec.json.Decoder(_ContinuedList)


def write_manifest(store: ObjectStore, manifest: SegmentManifest, name: str, before: str = "") -> str:
    """Write a manifest under a name never used before. Returns its path.

    ``before``: the path of a damaged manifest that it continues. Raises `ObjectExists`.
    """
    path = manifest_path(manifest.collection_id, manifest.segment_id, name)
    if before:
        data = encode_document("continued_manifest", _Continued(before, manifest))
    else:
        data = encode_document("manifest", manifest)
    store.put(path, data)
    return path


def read_manifest(store: ObjectStore, path: str) -> SegmentManifest:
    """Read a manifest. Raises `ObjectMissing`, and `CorruptObject` if it is damaged, or not a manifest."""
    return find_manifest(store, path).content


def find_manifest(store: ObjectStore, path: str) -> Found[SegmentManifest]:
    """As `read_manifest`, with the manifests that it continues."""
    data = store.get(path)
    if not is_document("continued_manifest", data):
        return Found(decode_document(path, "manifest", data, _manifests))
    own = decode_document(path, "continued_manifest", data, _continued)
    first, manifest = find_manifest(store, own.before), own.manifest
    merged = replace(
        manifest,
        insert_logs=(*first.content.insert_logs, *manifest.insert_logs),
        stats_logs=(*first.content.stats_logs, *manifest.stats_logs),
    )
    return Found(merged, (*first.befores, own.before))


def write_delta_list(
    store: ObjectStore,
    collection_id: CollectionID,
    vchannel: str,
    logs: tuple[DeltaLog, ...],
    name: str,
    before: str = "",
) -> str:
    """Write the list of a vchannel's delta logs under a new name. Returns its path. ``before``: the path of a
    damaged list that it continues."""
    path = delta_list_path(collection_id, vchannel, name)
    if before:
        data = encode_document("continued_delta_logs", _ContinuedList(before, logs))
    else:
        data = encode_document("delta_logs", logs)
    store.put(path, data)
    return path


def read_delta_list(store: ObjectStore, path: str) -> tuple[DeltaLog, ...]:
    """Read a list of delta logs. Raises `ObjectMissing`, and `CorruptObject` if it is damaged."""
    return find_delta_list(store, path).content


def find_delta_list(store: ObjectStore, path: str) -> Found[tuple[DeltaLog, ...]]:
    """As `read_delta_list`, with the lists that it continues."""
    data = store.get(path)
    if bytes(memoryview(data)[:1]) == b"[":  # the first format: the list alone
        try:
            return Found(_delta_lists.decode(data))
        except ValueError as error:
            raise CorruptObject(f"{path} is not a list of delta logs: {error}") from error
    if not is_document("continued_delta_logs", data):
        return Found(decode_document(path, "delta_logs", data, _delta_lists))
    own = decode_document(path, "continued_delta_logs", data, _continued_lists)
    first = find_delta_list(store, own.before)
    return Found((*first.content, *own.delta_logs), (*first.befores, own.before))
