"""A ``QueryRequest`` to `elanus.proxy.api.Query`.

A query iterator of the client is a series of queries by ranges of the primary key. The server's part in it
is small: rows in the order of the key, and all pages as of the moment of the first.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.limits import QUERY_WINDOW_MAX_ROWS
from elanus.proxy.api import Query
from elanus.proxy.wire.parameters import (
    COLLECTION_ID,
    IGNORE_GROWING,
    ITERATOR,
    expected_collection,
    filter_values,
    ignore_growing,
    integer,
    iterates,
    refuse_unknown,
)
from elanus.proxy.wire.read_consistency import read_consistency
from elanus.proxy.wire.requests import refuse_unknown_fields, to_dict
from elanus.proxy.wire.stubs import Message

_UNDERSTOOD_FIELDS = frozenset(
    {
        "base",
        "db_name",
        "collection_name",
        "expr",
        "output_fields",
        "partition_names",
        "guarantee_timestamp",
        "travel_timestamp",
        "query_params",
        "consistency_level",
        "use_default_consistency",
        "expr_template_values",
        "not_return_all_meta",  # asks for less than what this server sends anyway
    }
)
_UNDERSTOOD_PARAMS = frozenset(
    {
        "limit",
        "offset",
        IGNORE_GROWING,
        ITERATOR,
        COLLECTION_ID,
        "reduce_stop_for_best",  # asks for rows in the order of the primary key, as they always come here
    }
)
_INSTEAD = {
    "order_by_fields": "order the rows in the client",
    "group_by_fields": "group the rows in the client",
}


def decode_query(request: Message, database: str, timeout_s: float | None = None) -> Query:
    """The query that a request asks for. Raises `InvalidParameter` or `NotSupported`."""
    refuse_unknown_fields(request, _UNDERSTOOD_FIELDS, "a query")
    params = to_dict(request.query_params)
    refuse_unknown(params, _UNDERSTOOD_PARAMS, _INSTEAD)
    limit, offset = _window(params)
    return Query(
        database=database,
        collection=request.collection_name,
        partitions=tuple(request.partition_names),
        filter=request.expr,
        output_fields=tuple(request.output_fields),
        limit=limit,
        offset=offset,
        consistency=read_consistency(
            request.use_default_consistency,
            request.consistency_level,
            request.guarantee_timestamp,
            pinned=iterates(params),
            travel_ts=request.travel_timestamp,
        ),
        filter_values=filter_values(request.expr_template_values),
        ignore_growing=ignore_growing(params),
        collection_id=expected_collection(params),
        timeout_s=timeout_s,
    )


def _window(params: Mapping[str, str]) -> tuple[int | None, int]:
    """Limit (``None``: all rows) and offset."""
    window = "invalid max query result window"
    limit = integer(params, "limit")
    offset = integer(params, "offset") or 0
    if limit is not None and limit <= 0:
        raise InvalidParameter(f"{window}, limit [{limit}] is invalid, should be greater than 0")
    if offset < 0:
        raise InvalidParameter(f"{window}, offset [{offset}] is invalid, should be gte than 0")
    if limit is not None and (end := limit + offset) > QUERY_WINDOW_MAX_ROWS:
        raise InvalidParameter(
            f"{window}, (offset+limit) should be in range [1, {QUERY_WINDOW_MAX_ROWS}], but got {end}"
        )
    return limit, offset
