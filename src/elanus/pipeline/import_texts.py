"""JSON values as columns: a column's values are joined into one JSON list, which a C loop decodes.

The columns are such as a Parquet file may have for the field; `elanus.pipeline.import_columns` checks what
they hold. Here only the JSON type is checked: numbers for number fields, strings for strings.

Accepted: vectors as lists of numbers (binary ones as lists of bytes); sparse vectors as ``{"7": 0.5}`` or
``{"indices": [7], "values": [0.5]}``; JSON fields as any JSON, or as a string that contains it; geometries
and moments as strings.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

import msgspec
import pyarrow as pa

from elanus.core.given_types import INDICES, VALUES
from elanus.core.schema import DataType, FieldSchema
from elanus.core.types import Family

JSON_NULL = b"null"
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoders about a text: the last two for one that is not UTF-8 or nested too deeply."""
Text = bytes | msgspec.Raw
Refuse = Callable[[str, int, str], NoReturn]
"""Raises the error about a field, a row and what is wrong with it."""
_SURROGATE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escapes of JSON that hold half of a character: its group is one without the other half."""
_OUT_OF_RANGE = (pa.ArrowInvalid, OverflowError)
_SHOWN_CHARS = 60
_WHOLE = {
    DataType.BINARY_VECTOR: (list[int], pa.list_(pa.uint8())),
    DataType.INT8_VECTOR: (list[int], pa.list_(pa.int64())),
}
_VECTOR_LISTS: dict[DataType, tuple[Any, pa.DataType]] = {
    DataType.BINARY_VECTOR: (list[list[int]], pa.list_(pa.list_(pa.uint8()))),
    DataType.INT8_VECTOR: (list[list[int]], pa.list_(pa.list_(pa.int64()))),
}
_SPARSE = pa.struct([(INDICES, pa.list_(pa.int64())), (VALUES, pa.list_(pa.float64()))])


_LISTS: dict[Any, Any] = {bool: list[bool], int: list[int], float: list[float], str: list[str]}


class _Pairs(msgspec.Struct):
    indices: list[int]
    values: list[float]


_SCALARS: dict[Family, tuple[Any, pa.DataType]] = {
    Family.BOOL: (bool, pa.bool_()),
    Family.INTEGER: (int, pa.int64()),
    Family.FLOATING: (float, pa.float64()),
    Family.TEXT: (str, pa.string()),
    Family.GEOMETRY: (str, pa.string()),
    Family.TIME: (str, pa.string()),
}


def column_of(field: FieldSchema, texts: Sequence[Text], refuse: Refuse) -> pa.Array:
    """Return the values of a field, one JSON text a row, as a column; a JSON null is a null."""
    if field.kind.family is Family.JSON:
        return documents(texts)
    if field.data_type is DataType.SPARSE_FLOAT_VECTOR:
        return pairs_of(texts, lambda row, why: refuse(field.name, row, why))
    kind, arrow_type = _types(field)
    try:
        values = _decoder(kind).decode(b"[" + b",".join(texts) + b"]")
    except MALFORMED:
        _refuse_first(field, texts, _decoder(kind), refuse)
    if len(values) != len(texts):  # a text is empty, or holds several values: "1,2"
        _refuse_first(field, texts, _decoder(kind), refuse)
    try:
        return pa.array(values, arrow_type)
    except _OUT_OF_RANGE:
        row = _first_beyond(values, arrow_type)
        refuse(field.name, row, f"cannot hold {_shown(values[row])}")


def fault_of(text: bytes, error: Exception) -> str:
    """Return what is wrong with a text that a decoder refuses. Decoders say little of half characters."""
    for escape in _SURROGATE.finditer(text):
        if escape[1]:
            return (
                f"it holds {escape[1].decode()}, which is half of a character: write it with its other half, "
                "or \\ufffd in its place"
            )
    return str(error)


def _first_beyond(values: Sequence[Any], arrow_type: pa.DataType) -> int:
    """Return the first value that Arrow refuses; there is one."""
    for row, value in enumerate(values):
        try:
            pa.array([value], arrow_type)
        except _OUT_OF_RANGE:
            return row
    raise AssertionError("each value fits by itself, but not together")


def documents(texts: Sequence[Text]) -> pa.Array:
    """Return JSON documents as ``binary``: strings are taken for the document that they contain.

    A malformed string stays as it is: the check of the documents refuses it by its row.
    """
    return pa.array(list(map(_document, texts)), pa.binary())


def _document(text: Text) -> bytes | None:
    content = bytes(text)
    if content[:1] == b'"':
        with contextlib.suppress(*MALFORMED):
            content = msgspec.json.decode(content, type=str).encode()
    return None if content == JSON_NULL else content


def pairs_of(texts: Sequence[Text], refuse: Callable[[int, str], NoReturn]) -> pa.Array:
    """Return sparse vectors in JSON as ``struct<indices, values>``; a JSON null is a null."""
    pairs = [_pairs(text, row, refuse) for row, text in enumerate(texts)]
    try:
        return pa.array(pairs, _SPARSE)
    except _OUT_OF_RANGE:
        row = _first_beyond(pairs, _SPARSE)
        refuse(row, f"holds an index of more than 64 bits: {_shown(pairs[row])}")


def _pairs(text: Text, row: int, refuse: Callable[[int, str], NoReturn]) -> dict[str, list[Any]] | None:
    content = bytes(text)
    if content == JSON_NULL:
        return None
    try:
        if b'"indices"' in content:
            pairs = msgspec.json.decode(content, type=_Pairs)
            return {INDICES: pairs.indices, VALUES: pairs.values}
        by_index = msgspec.json.decode(content, type=dict[int, float])
    except MALFORMED as error:
        refuse(row, f"holds no sparse vector: {error}")
    return {INDICES: list(by_index), VALUES: list(by_index.values())}


def _types(field: FieldSchema) -> tuple[Any, pa.DataType]:
    """Return the type of the JSON values, and that of the column."""
    if field.has_vector_lists:
        return _VECTOR_LISTS.get(field.element_type, (list[list[float]], pa.list_(pa.list_(pa.float64()))))
    if field.kind.vector is not None:
        return _WHOLE.get(field.data_type, (list[float], pa.list_(pa.float64())))
    if field.kind.family is Family.LIST:
        kind, arrow_type = _SCALARS[field.element.kind.family]
        return _LISTS[kind], pa.list_(arrow_type)
    return _SCALARS[field.kind.family]


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[list[Any]]:
    return msgspec.json.Decoder(list[kind | None])


def _refuse_first(
    field: FieldSchema, texts: Sequence[Text], decoder: msgspec.json.Decoder[list[Any]], refuse: Refuse
) -> NoReturn:
    for row, text in enumerate(texts):
        try:
            values = decoder.decode(b"[" + bytes(text) + b"]")
            reason = "" if len(values) == 1 else f"{len(values)} values where one is expected"
        except MALFORMED as error:
            reason = fault_of(bytes(text), error).split(" - at ")[0]
        if reason:
            shown = _shown(bytes(text).decode(errors="replace")) or "empty"
            refuse(field.name, row, f"of type {field.data_type.name} is {shown}: {reason}")
    raise AssertionError("the values decode one by one, but not together")


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
