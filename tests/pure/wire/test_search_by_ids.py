"""A search by the ids of rows, in place of vectors."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message
from wire_messages import field, pairs, resolved, schema

from elanus.core.errors import InvalidParameter
from elanus.core.schema import DataType
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import milvus_pb2, schema_pb2

BOOKS = resolved(schema(field("vector", DataType.FLOAT_VECTOR, dim=4)))


def by_ids(*ids: int) -> Message:
    named = schema_pb2.IDs(int_id=schema_pb2.LongArray(data=ids))
    return milvus_pb2.SearchRequest(
        collection_name="books", ids=named, search_params=pairs({"topk": 3, "anns_field": "vector"})
    )


def test_a_row_to_search_with_is_named_once() -> None:
    assert decode_search(by_ids(1, 2), BOOKS, TemplateCache()).query_count == 2
    with pytest.raises(InvalidParameter) as refused:
        decode_search(by_ids(2, 1, 2), BOOKS, TemplateCache())
    assert refused.value.message == "duplicate IDs found in search request: [2]: send each id once"
