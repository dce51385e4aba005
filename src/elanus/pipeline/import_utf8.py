"""Texts of Parquet files that are not UTF-8: Arrow reads them as they are, and so would a collection.

Any byte string may stand where a file promises text, a cast of Spark from binary for example. Once it is in a
segment no query node can load that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from elanus.core.given_types import is_extended, is_text
from elanus.pipeline.import_place import Place


def check_texts(rows: pa.RecordBatch, place: Place) -> None:
    """Raise `InvalidParameter` about the first text that is not UTF-8, within lists, structs and maps too."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if _is_utf8(column):
            continue
        row = next(n for n in range(len(column)) if not _is_utf8(column.take(pa.array([n]))))
        place.refuse(name, row, "holds a text that is not UTF-8")


def _is_utf8(column: pa.Array) -> bool:
    try:
        for texts in _texts(column):
            texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _texts(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of texts within a column."""
    found = column.type
    if pa.types.is_dictionary(found):
        yield from _texts(column.dictionary_decode())
    elif is_extended(found):
        yield from _texts(column.storage)
    elif is_text(found):
        yield column
    elif pa.types.is_map(found):
        yield from _texts(column.cast(pa.list_(pa.struct([found.key_field, found.item_field]))))
    elif pa.types.is_struct(found):
        for member in column.flatten():
            yield from _texts(member)
    elif pa.types.is_nested(found):
        yield from _texts(column.flatten())
