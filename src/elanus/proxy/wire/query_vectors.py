"""The query vectors of a search: a serialized ``PlaceholderGroup`` to one array, or the keys of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.requests import check_query_count
from elanus.core.rows import check_queries
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.sparse import padded
from elanus.core.types import DataType, Matrix, engine_type_name
from elanus.core.vector_lists import Queries, packed
from elanus.proxy.wire.codecs import VECTOR_CODECS
from elanus.proxy.wire.stubs import common_pb2, schema_pb2
from elanus.text import QueryTexts

_TYPES = frozenset(DataType)
_IDS_SHOWN_MAX = 10
_HALVES = (DataType.FLOAT16_VECTOR, DataType.BFLOAT16_VECTOR)


def decode_queries(
    placeholder_group: bytes, nq: int, field: FieldSchema, texts: QueryTexts | None = None
) -> Queries:
    """Return the query vectors: float32 (nq, dim), uint8 (nq, dim / 8) for a binary field, or uint64
    (nq, pairs) for a sparse one (`elanus.core.sparse.padded`); or nq lists of vectors
    (`elanus.core.vector_lists.packed`). Float32 vectors are rounded to the precision of a field of halves.

    ``nq`` 0 means that the client did not count them. ``texts``: makes vectors of the texts to search with,
    if the field is the output of a function. Raises `InvalidParameter`, `InvalidDimension`.
    """
    values, are_lists, dtype = _placeholder_values(placeholder_group, field, texts)
    count = len(values)
    check_query_count(count)
    if nq not in (0, count):
        raise InvalidParameter(f"nq is {nq}, but the request holds {count} vectors")
    form = field.vector
    if texts is not None:
        return texts.vectors_of(_texts(values))
    if not form.has_dim:
        return padded(values)
    if are_lists:
        return packed(form, [_vectors_of_list(value, field) for value in values])
    size_bytes = form.width(field.dim) * dtype.itemsize
    if any(length != size_bytes for length in set(map(len, values))):
        wrong = next(len(v) for v in values if len(v) != size_bytes)
        raise InvalidDimension(
            f"vector dimension mismatch, expected vector size(byte) {size_bytes}, actual {wrong}."
        )
    content = values[0] if count == 1 else b"".join(values)
    queries = np.frombuffer(content, dtype)
    if dtype != form.dtype:
        with np.errstate(over="ignore"):  # a number beyond the half's range becomes infinite, and is refused
            queries = queries.astype(form.dtype)
    check_queries(field, queries)
    return form.compared(queries.reshape(count, -1))


def decode_texts(placeholder_group: bytes, nq: int) -> tuple[str, ...]:
    """Return the texts that a search has in place of vectors; none if it has vectors.

    Raises `InvalidParameter`.
    """
    placeholder = _placeholder(placeholder_group)
    if placeholder.type != common_pb2.VarChar:
        return ()
    count = len(placeholder.values)
    check_query_count(count)
    if nq not in (0, count):
        raise InvalidParameter(f"nq is {nq}, but the request holds {count} texts")
    return tuple(_texts(placeholder.values))


def _vectors_of_list(value: bytes, field: FieldSchema) -> Matrix:
    """Return the vectors that one query has, which follow each other: (vectors, width)."""
    form = field.vector
    vector_bytes = form.row_bytes(field.dim)
    if not value or len(value) % vector_bytes:
        raise InvalidDimension(
            f"vector dimension mismatch, expected vector size(byte) {vector_bytes} or a multiple of it, "
            f"actual {len(value)}: field {field.name}"
        )
    vectors = np.frombuffer(value, form.dtype)
    check_queries(field, vectors)
    return vectors.reshape(-1, form.width(field.dim))


def key_array(ids: schema_pb2.IDs) -> pa.Array:
    """Return the primary keys whose rows have the query vectors, int64 or string."""
    if ids.HasField("str_id"):
        return pa.array(ids.str_id.data, pa.string())
    return pa.array(ids.int_id.data, pa.int64())


def check_keys(ids: pa.Array, nq: int, schema: CollectionSchema) -> None:
    """Raises `InvalidParameter` for keys of another type than the primary key's, for repeated ones, as the
    reference, and for a wrong ``nq``."""
    check_query_count(len(ids))
    if nq not in (0, len(ids)):
        raise InvalidParameter(f"nq is {nq}, but the request holds {len(ids)} ids")
    primary = schema.primary_field
    if len(ids.unique()) < len(ids):
        twice = pc.value_counts(ids)
        repeated = twice.field("values").filter(pc.greater(twice.field("counts"), 1))
        raise InvalidParameter(
            f"duplicate IDs found in search request: {repeated.slice(0, _IDS_SHOWN_MAX).to_pylist()}: send "
            "each id once"
        )
    if ids.type != primary.arrow_type:
        raise InvalidParameter(
            f"primary key is {primary.data_type.name.lower()}, but IDs type mismatch: ids of type {ids.type} "
            f"do not fit the primary key {primary.name} of type {primary.data_type.name}"
        )


def _texts(values: Sequence[bytes]) -> list[str]:
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"a text to search with is not valid UTF-8: {error}") from None


def _placeholder_values(
    placeholder_group: bytes, field: FieldSchema, texts: QueryTexts | None
) -> tuple[Sequence[bytes], bool, np.dtype[Any]]:
    """Return the values, whether each is a list of vectors, and the dtype of their numbers."""
    placeholder = _placeholder(placeholder_group)
    form = field.vector
    if texts is not None:
        if placeholder.type != common_pb2.VarChar:
            raise InvalidParameter(
                f"please provide varchar/text for {texts.function.kind} Function based search: "
                f"field {field.name} is the output of a function"
            )
        return placeholder.values, False, form.dtype
    codec = VECTOR_CODECS[field.searched_type]
    are_lists = field.has_vector_lists and placeholder.type == codec.list_placeholder_type
    if are_lists or placeholder.type == codec.placeholder_type:
        return placeholder.values, are_lists, form.dtype
    if placeholder.type == common_pb2.FloatVector and field.searched_type in _HALVES:
        return placeholder.values, False, np.dtype(np.float32)
    raise InvalidParameter(
        f"vector type must be the same, field {field.name} - type {engine_type_name(field.data_type)}, "
        f"search info type {_sent_type(placeholder.type)}"
    )


def _sent_type(number: int) -> str:
    """The name of a placeholder's type in the reference's words: most have the number of a field's type."""
    if number in _TYPES:
        return engine_type_name(DataType(number))
    names = {int(known): name for name, known in common_pb2.PlaceholderType.items()}
    return names.get(number, "unknown")


def _placeholder(placeholder_group: bytes) -> common_pb2.PlaceholderValue:
    try:
        placeholders = common_pb2.PlaceholderGroup.FromString(placeholder_group).placeholders
    except DecodeError as error:
        raise InvalidParameter(f"placeholder_group is not a valid message: {error}") from error
    if len(placeholders) != 1:
        raise InvalidParameter(f"a search needs one placeholder with its vectors, got {len(placeholders)}")
    return placeholders[0]
