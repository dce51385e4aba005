"""Dynamic keys that are also names of fields.

A field that is added to a collection may have the name of a key that earlier rows have. Both are kept: a
filter means the field by the name, and the key by ``$meta["name"]``. An answer has one value of a name, the
field's.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.schema import CollectionSchema


def unshadowed(columns: Mapping[str, pa.Array], schema: CollectionSchema) -> Mapping[str, pa.Array]:
    """Return the columns of an answer, the dynamic rows without the keys that name others of the columns."""
    dynamic = schema.dynamic_field
    if dynamic is None or dynamic.name not in columns:
        return columns
    added = {f.name for f in schema.fields if f.is_added and f.name in columns} - {dynamic.name}
    return {**columns, dynamic.name: _without(columns[dynamic.name], added)} if added else columns


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
    try:
        members = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):  # NaN, or nested too deeply: shown as it is
        return document
    return msgspec.json.encode({k: v for k, v in members.items() if k not in keys}).decode()
