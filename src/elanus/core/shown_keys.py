"""Which dynamic keys an answer shows: those that were named, or all, and none that is a field's name.

A field that is added to a collection may have the name of a key that earlier rows have. Both are kept: a
filter means the field by the name, and the key by ``$meta["name"]``. An answer has one value of a name, the
field's.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.schema import CollectionSchema


def with_shown_keys(
    columns: Mapping[str, pa.Array], schema: CollectionSchema, keys: tuple[str, ...] | None
) -> Mapping[str, pa.Array]:
    """Return the columns of an answer, the dynamic rows with the keys that it shows.

    ``keys``: those that the request named, none of them an output field's name; ``None``: whole rows.
    """
    dynamic = schema.dynamic_field
    if keys is None or dynamic is None or dynamic.name not in columns:
        return unshadowed(columns, schema)
    return {**columns, dynamic.name: _picked(columns[dynamic.name], keys)}


def unshadowed(columns: Mapping[str, pa.Array], schema: CollectionSchema) -> Mapping[str, pa.Array]:
    """Return the columns of an answer, the dynamic rows without the keys that name others of the columns."""
    dynamic = schema.dynamic_field
    if dynamic is None or dynamic.name not in columns:
        return columns
    added = {f.name for f in schema.fields if f.is_added and f.name in columns} - {dynamic.name}
    return {**columns, dynamic.name: _without(columns[dynamic.name], added)} if added else columns


def _picked(documents: pa.Array, keys: tuple[str, ...]) -> pa.Array:
    """Return JSON objects with some of their members, whose texts stay as they are. shape (n,)"""
    given = documents.fill_null("{}").to_pylist()
    try:
        read, write = _reader(keys).decode, msgspec.json.Encoder().encode
        texts = [written.decode() for written in map(write, map(read, given))]
    except (ValueError, RecursionError):  # a document or a key that the reader does not know
        texts = [_having(document, keys) for document in given]
    return pa.array(texts, documents.type, mask=documents.is_null().to_numpy(zero_copy_only=False))


@functools.lru_cache(maxsize=64)
def _reader(keys: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Return what reads these members of an object. Raises `ValueError` for a key with a quotation mark."""
    members = [
        (f"member_{n}", msgspec.Raw | msgspec.UnsetType, msgspec.field(default=msgspec.UNSET, name=key))
        for n, key in enumerate(dict.fromkeys(keys))
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Members", members))


def _having(document: str, keys: tuple[str, ...]) -> str:
    members = _members(document)
    if members is None:
        return document
    return msgspec.json.encode({key: members[key] for key in keys if key in members}).decode()


def _without(documents: pa.Array, keys: Collection[str]) -> pa.Array:
    """Return JSON objects without some members; the texts of the others stay as they are. shape (n,)"""
    mentioned = functools.reduce(
        pc.or_kleene, (pc.match_substring(documents, pattern=f'"{key}"') for key in keys)
    )
    rows = np.flatnonzero(mentioned.fill_null(False).to_numpy(zero_copy_only=False))
    if not len(rows):
        return documents
    texts = documents.to_pylist()
    for row in rows.tolist():
        texts[row] = _lacking(texts[row], keys)
    return pa.array(texts, documents.type)


def _lacking(document: str, keys: Collection[str]) -> str:
    members = _members(document)
    if members is None:
        return document
    return msgspec.json.encode({k: v for k, v in members.items() if k not in keys}).decode()


def _members(document: str) -> dict[str, msgspec.Raw] | None:
    """Return the members' texts; ``None`` where they have NaN or nest too deeply: it is shown as it is."""
    try:
        return msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return None
