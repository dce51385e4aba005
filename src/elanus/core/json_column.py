"""JSON columns: checked and compacted by a C loop, never row by row in Python.

A document is stored as compact UTF-8 text. `msgspec` checks it and removes white space; Arrow checks the
encoding. The offending row is searched for only after a check has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.limits import JSON_LENGTH_MAX_BYTES
from elanus.core.pieces import array_of
from elanus.core.schema import DYNAMIC_FIELD

_check = msgspec.json.Decoder().decode
_compact = partial(msgspec.json.format, indent=-1)
_keys_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def json_column(
    field: str,
    documents: Iterable[bytes],
    *,
    objects_only: bool,
    first_row: int = 0,
    rows: Sequence[int] | None = None,
) -> pa.Array:
    """Return the documents as compact texts, a ``string`` array.

    ``objects_only``: each must be an object, as dynamic rows are. ``first_row``: the number of the first
    document in error messages; ``rows``: the numbers of all of them, where they do not follow each other.
    Raises `InvalidParameter` for a document that is not JSON, not UTF-8, too deep, too long or no object.
    """
    texts = list(documents)
    numbers = rows or range(first_row, first_row + len(texts))
    check_lengths(field, texts, numbers)
    try:
        column = array_of(texts, _checked)
    except _MALFORMED as error:
        raise _malformed(field, texts, numbers) from error
    if objects_only:
        _check_objects(field, column, first_row)
    return column


def _checked(texts: list[bytes]) -> pa.Array:
    deque(map(_check, texts), maxlen=0)  # runs the checks in C and keeps nothing
    return pa.array(list(map(_compact, texts)), pa.binary()).cast(pa.string())


def check_dynamic_keys(column: pa.Array, first_row: int = 0) -> None:
    """Raises `InvalidParameter` when a dynamic row has a key named like the dynamic field itself."""
    suspects = np.flatnonzero(pc.match_substring(column, f'"{DYNAMIC_FIELD}"').to_numpy(zero_copy_only=False))
    for row in suspects.tolist():  # a value may look the same; only these few rows are parsed
        if DYNAMIC_FIELD in _keys_of(column[row].as_py()):
            raise InvalidParameter(f"cannot set json key to: {DYNAMIC_FIELD} (row {first_row + row})")


def check_lengths(field: str, texts: Sequence[bytes], rows: Sequence[int] | None = None) -> None:
    """Raises `InvalidParameter` for a document that is too long. ``rows``: the numbers of all of them."""
    lengths = list(map(len, texts))
    longest = max(lengths, default=0)
    if longest > JSON_LENGTH_MAX_BYTES:
        at = lengths.index(longest)
        raise InvalidParameter(
            f"the length ({longest}) of json field ({field}) exceeds max length ({JSON_LENGTH_MAX_BYTES}), "
            f"in row {at if rows is None else rows[at]}"
        )


def _check_objects(field: str, column: pa.Array, first_row: int) -> None:
    objects = pc.starts_with(column, "{").to_numpy(zero_copy_only=False)
    if not objects.all():
        row = int(np.argmin(objects))
        raise InvalidParameter(
            f"row {first_row + row} of field {field} must be a JSON object, got {column[row].as_py()[:40]}"
        )


def _malformed(field: str, texts: list[bytes], rows: Sequence[int]) -> InvalidParameter:
    for row, text in zip(rows, texts, strict=True):
        try:
            _check(text)
        except RecursionError:
            return InvalidParameter(f"json field '{field}' is illegal in row {row}: it is nested too deeply")
        except _MALFORMED as error:
            return InvalidParameter(f"json field '{field}' is illegal in row {row}: {error}")
    return InvalidParameter(f"json field '{field}' is illegal: it is not UTF-8 text")
