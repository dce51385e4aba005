"""The query vectors of a search: a serialized ``PlaceholderGroup`` to one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.requests import check_query_count
from elanus.core.rows import check_queries
from elanus.core.schema import FieldSchema
from elanus.core.sparse import padded
from elanus.proxy.wire.codecs import VECTOR_CODECS
from elanus.proxy.wire.stubs import common_pb2

Queries = npt.NDArray[np.float32] | npt.NDArray[np.uint8] | npt.NDArray[np.uint64]


def decode_queries(placeholder_group: bytes, nq: int, field: FieldSchema) -> Queries:
    """Return the query vectors: float32 (nq, dim), uint8 (nq, dim / 8) for a binary field, or uint64
    (nq, pairs) for a sparse one (`elanus.core.sparse.padded`).

    ``nq`` 0 means that the client did not count them. Raises `InvalidParameter`, `InvalidDimension`.
    """
    values = _placeholder_values(placeholder_group, field)
    count = len(values)
    check_query_count(count)
    if nq not in (0, count):
        raise InvalidParameter(f"nq is {nq}, but the request holds {count} vectors")
    form = field.vector
    if not form.has_dim:
        return padded(values)
    size_bytes = form.row_bytes(field.dim)
    if any(length != size_bytes for length in set(map(len, values))):
        wrong = next(len(v) for v in values if len(v) != size_bytes)
        raise InvalidDimension(
            f"vector dimension mismatch, expected vector size(byte) {size_bytes}, actual {wrong}."
        )
    content = values[0] if count == 1 else b"".join(values)
    queries = np.frombuffer(content, form.dtype)
    check_queries(field, queries)
    return form.compared(queries.reshape(count, -1))


def _placeholder_values(placeholder_group: bytes, field: FieldSchema) -> Sequence[bytes]:
    try:
        placeholders = common_pb2.PlaceholderGroup.FromString(placeholder_group).placeholders
    except DecodeError as error:
        raise InvalidParameter(f"placeholder_group is not a valid message: {error}") from error
    if len(placeholders) != 1:
        raise InvalidParameter(f"a search needs one placeholder with its vectors, got {len(placeholders)}")
    placeholder = placeholders[0]
    if placeholder.type != VECTOR_CODECS[field.data_type].placeholder_type:
        known = common_pb2.PlaceholderType.values()
        sent = common_pb2.PlaceholderType.Name(placeholder.type) if placeholder.type in known else "unknown"
        raise InvalidParameter(
            f"vector type must be the same, field {field.name} - type {field.data_type.name}, "
            f"search info type {sent}"
        )
    return placeholder.values
