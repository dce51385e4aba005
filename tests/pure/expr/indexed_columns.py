"""Indexes over the columns of the filter tests, of chosen kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from filter_schemas import DYNAMIC

from elanus.core.schema import CollectionSchema
from elanus.expr import Indexes, typed_column
from elanus.index import ScalarIndex, build, check_field, json_path_of, load, resolve_index
from elanus.index.base import SegmentIndex

KINDS: dict[str, tuple[str, ...]] = {
    "id": ("STL_SORT", "INVERTED", "AUTOINDEX"),
    "tiny": ("BITMAP", "STL_SORT", "INVERTED", "AUTOINDEX"),
    "price": ("STL_SORT", "INVERTED", "AUTOINDEX"),
    "score": ("STL_SORT", "INVERTED", "AUTOINDEX"),
    "color": ("BITMAP", "INVERTED", "Trie", "NGRAM", "STL_SORT", "AUTOINDEX"),
    "name": ("Trie", "NGRAM", "INVERTED", "BITMAP"),
    "flag": ("BITMAP", "INVERTED", "AUTOINDEX"),
    **dict.fromkeys(("bytes", "longs", "labels", "flags"), ("INVERTED", "BITMAP", "AUTOINDEX")),
    **dict.fromkeys(("floats", "doubles"), ("INVERTED", "AUTOINDEX")),
}
"""The kinds to choose from, by field."""

JSON_PATHS = {
    'meta["a"]': "meta",
    "meta['b'][\"c\"]": "meta",
    'meta["l"][0]': "meta",
    "meta": "meta",
    "a": "$meta",
    '$meta["b"]': "$meta",
    "l": "$meta",
}
CASTS = ("DOUBLE", "VARCHAR", "BOOL", "ARRAY_DOUBLE", "ARRAY_VARCHAR", "ARRAY_BOOL", "JSON")


def params_of(kind: str) -> dict[str, str]:
    grams = {"min_gram": "1", "max_gram": "2"} if kind == "NGRAM" else {}
    return {"index_type": kind, **grams}


def built(
    name: str,
    column: pa.Array,
    params: Mapping[str, str],
    directory: Path | None = None,
    schema: CollectionSchema = DYNAMIC,
) -> tuple[tuple[str, tuple[str | int, ...]], ScalarIndex]:
    """An index over a column, by its key; through a file if there is a directory for it."""
    field = schema.field(name)
    spec = resolve_index(params, field.data_type, 0)
    check_field(spec, field)
    path = json_path_of(spec, field)
    values = column if path is None else typed_column(column, path, spec.params["json_cast_type"])
    index: SegmentIndex = build(spec, values, 1)
    if directory is not None:
        file = directory / uuid4().hex  # a mapped file is never overwritten
        index.save(file)
        index = load(file, resolve_index(spec.flattened(), field.data_type, 0))
    assert isinstance(index, ScalarIndex)
    assert index.rows == len(column)
    return (name, path or ()), index


def indexes_of(
    columns: Mapping[str, pa.Array],
    kinds: Mapping[str, str],
    casts: Mapping[str, str],
    directory: Path | None = None,
) -> Indexes:
    """``kinds``: by field; ``casts``: by JSON path. Only the fields among the columns are indexed."""
    found: dict[Any, ScalarIndex] = {}
    for name, kind in kinds.items():
        if name not in columns:
            continue
        key, index = built(name, columns[name], params_of(kind), directory)
        found[key] = index
    for path, cast in casts.items():
        if JSON_PATHS[path] not in columns:
            continue
        kind = "NGRAM" if cast == "VARCHAR" and len(path) % 2 else "INVERTED"
        params = {**params_of(kind), "json_path": path, "json_cast_type": cast}
        key, index = built(JSON_PATHS[path], columns[JSON_PATHS[path]], params, directory)
        found[key] = index
    return found
