"""Small objects as JSON with a checksum: manifests, lists of delta logs, stats logs, snapshots.

::

    {"format_version": 2, "checksum": "<XXH64 of the content's bytes, 16 hex digits>", "<name>": <content>}

Version 1 had no checksum. Such objects remain readable; an object that has one is always checked.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import xxhash

from elanus.storage.port import CorruptObject

DOCUMENT_VERSION = 2
FIRST_VERSION = 1
Data: TypeAlias = "bytes | memoryview | pa.Buffer"
T = TypeVar("T")
_HEAD_BYTES_MAX = 96


def encode_document(name: str, content: object) -> bytes:
    """Return the object's bytes."""
    body = msgspec.json.encode(content)
    head = f'{{"format_version":{DOCUMENT_VERSION},"checksum":"{xxhash.xxh64_hexdigest(body)}","{name}":'
    return head.encode() + body + b"}"


def decode_document(path: str, name: str, data: Data, content: msgspec.json.Decoder[T]) -> T:
    """Return the content of the object at ``path``.

    ``content``: its decoder, created at import: two threads that first decode a dataclass at the same moment
    crash the process, because msgspec publishes its information about the class before it is complete. Raises
    `CorruptObject` for anything that is damaged, or no such object, or of a later format.
    """
    try:
        return content.decode(_checked(path, name, data))
    except (ValueError, KeyError, AttributeError) as error:  # msgspec's errors are ValueErrors too
        raise CorruptObject(f"{path} is damaged, or not a {name}: {error}") from error


def is_document(name: str, data: Data) -> bool:
    """Whether an object is a document of this name, by its head. Its content may be damaged."""
    return f'"{name}":'.encode() in bytes(memoryview(data)[:_HEAD_BYTES_MAX])


def version_of(path: str, data: Data) -> int:
    """Return the format version of an object. Raises `CorruptObject`."""
    try:
        return msgspec.json.decode(_fields(data)["format_version"], type=int)
    except (ValueError, KeyError) as error:
        raise CorruptObject(f"{path} is damaged: {error}") from error


def _checked(path: str, name: str, data: Data) -> msgspec.Raw:
    fields = _fields(data)
    version = msgspec.json.decode(fields["format_version"], type=int)
    if not FIRST_VERSION <= version <= DOCUMENT_VERSION:
        raise CorruptObject(
            f"{path} has format version {version}, this release reads up to {DOCUMENT_VERSION}: "
            "install the release of elanus that wrote it"
        )
    body = fields[name]
    if version > FIRST_VERSION or "checksum" in fields:
        written, found = msgspec.json.decode(fields["checksum"]), xxhash.xxh64_hexdigest(bytes(body))
        if written != found:
            raise CorruptObject(f"{path} is damaged: its checksum is {written}, its content has {found}")
    return body


def _fields(data: Data) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
