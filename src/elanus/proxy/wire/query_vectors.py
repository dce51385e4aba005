"""The query vectors of a search: a serialized ``PlaceholderGroup`` to one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.limits import NQ_MAX
from elanus.core.schema import DataType, FieldSchema
from elanus.proxy.wire.columns import check_finite
from elanus.proxy.wire.stubs import common_pb2

Queries = npt.NDArray[np.float32] | npt.NDArray[np.uint8]

_PLACEHOLDER_TYPE = {
    DataType.FLOAT_VECTOR: common_pb2.FloatVector,
    DataType.BINARY_VECTOR: common_pb2.BinaryVector,
}


def decode_queries(placeholder_group: bytes, nq: int, field: FieldSchema) -> Queries:
    """The query vectors: float32 (nq, dim), or uint8 (nq, dim / 8) of a binary field. Read-only.

    ``nq`` 0 means that the client did not count. Raises `InvalidParameter`, `InvalidDimension`.
    """
    values = _placeholder_values(placeholder_group, field)
    count = len(values)
    if not 1 <= count <= NQ_MAX:
        raise InvalidParameter(
            f"nq [{count}] is invalid, nq (number of search vector per search request) should be in range "
            f"[1, {NQ_MAX}], but got {count}"
        )
    if nq not in (0, count):
        raise InvalidParameter(f"nq is {nq}, but the request holds {count} vectors")
    binary = field.data_type is DataType.BINARY_VECTOR
    size_bytes = field.dim // 8 if binary else field.dim * 4
    if any(length != size_bytes for length in set(map(len, values))):
        wrong = next(len(v) for v in values if len(v) != size_bytes)
        raise InvalidDimension(
            f"vector dimension mismatch, expected vector size(byte) {size_bytes}, actual {wrong}."
        )
    content = values[0] if count == 1 else b"".join(values)
    if binary:
        return np.frombuffer(content, np.uint8).reshape(count, -1)
    queries = np.frombuffer(content, "<f4")
    check_finite(queries, field.name, field.dim)
    return queries.reshape(count, -1)


def _placeholder_values(placeholder_group: bytes, field: FieldSchema) -> Any:
    try:
        placeholders = common_pb2.PlaceholderGroup.FromString(placeholder_group).placeholders
    except DecodeError as error:
        raise InvalidParameter(f"placeholder_group is not a valid message: {error}") from error
    if len(placeholders) != 1:
        raise InvalidParameter(f"a search needs one placeholder with its vectors, got {len(placeholders)}")
    placeholder = placeholders[0]
    if placeholder.type != _PLACEHOLDER_TYPE[field.data_type]:
        known = common_pb2.PlaceholderType.values()
        sent = common_pb2.PlaceholderType.Name(placeholder.type) if placeholder.type in known else "unknown"
        raise InvalidParameter(
            f"vector type must be the same, field {field.name} - type {field.data_type.name}, "
            f"search info type {sent}"
        )
    return placeholder.values
