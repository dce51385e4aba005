"""JSON columns: checked and made compact by a C loop, never row by row in Python.

A document is stored as compact UTF-8 text. `msgspec` checks it and removes white space; Arrow checks the
encoding. Only when something is wrong is the offending row looked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.limits import JSON_LENGTH_MAX_BYTES
from elanus.core.schema import DYNAMIC_FIELD

_check = msgspec.json.Decoder().decode
_compact = partial(msgspec.json.format, indent=-1)
_keys_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def json_column(
    field: str, documents: Iterable[bytes], *, objects_only: bool, first_row: int = 0
) -> pa.Array:
    """The documents as compact texts, a ``string`` array.

    ``objects_only``: each must be an object, as dynamic rows are. ``first_row``: the number that errors
    call the first document by. Raises `InvalidParameter` for one that
    is no JSON, not UTF-8, too deep, too long, or no object.
    """
    texts = list(documents)
    _check_lengths(field, texts)
    try:
        deque(map(_check, texts), maxlen=0)  # runs the checks in C and keeps nothing
        column = pa.array(list(map(_compact, texts)), pa.binary()).cast(pa.string())
    except _MALFORMED as error:
        raise _malformed(field, texts, first_row) from error
    if objects_only:
        _check_objects(field, column, first_row)
    return column


def check_dynamic_keys(column: pa.Array, first_row: int = 0) -> None:
    """Raises `InvalidParameter` when a dynamic row has a key named like the dynamic field itself."""
    suspects = np.flatnonzero(pc.match_substring(column, f'"{DYNAMIC_FIELD}"').to_numpy(zero_copy_only=False))
    for row in suspects.tolist():  # a value may read so too; only these few rows are opened
        if DYNAMIC_FIELD in _keys_of(column[row].as_py()):
            raise InvalidParameter(f"cannot set json key to: {DYNAMIC_FIELD} (row {first_row + row})")


def _check_lengths(field: str, texts: list[bytes]) -> None:
    longest = max(map(len, texts), default=0)
    if longest > JSON_LENGTH_MAX_BYTES:
        raise InvalidParameter(
            f"the length ({longest}) of json field ({field}) exceeds max length ({JSON_LENGTH_MAX_BYTES})"
        )


def _check_objects(field: str, column: pa.Array, first_row: int) -> None:
    objects = pc.starts_with(column, "{").to_numpy(zero_copy_only=False)
    if not objects.all():
        row = int(np.argmin(objects))
        raise InvalidParameter(
            f"row {first_row + row} of field {field} must be a JSON object, got {column[row].as_py()[:40]}"
        )


def _malformed(field: str, texts: list[bytes], first_row: int) -> InvalidParameter:
    for row, text in enumerate(texts, first_row):
        try:
            _check(text)
        except RecursionError:
            return InvalidParameter(f"json field '{field}' is illegal in row {row}: it is nested too deeply")
        except _MALFORMED as error:
            return InvalidParameter(f"json field '{field}' is illegal in row {row}: {error}")
    return InvalidParameter(f"json field '{field}' is illegal: it is not UTF-8 text")
