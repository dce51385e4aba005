"""A ``QueryRequest`` to `elanus.proxy.api.query.Query`.

A client's query iterator is a series of queries by ranges of the primary key. The server's part is small:
rows in key order, and all pages as of the first page's timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from elanus.core.errors import InvalidParameter
from elanus.core.moments import TIME_FIELDS, TIMEZONE, time_format, with_offsets
from elanus.core.ordering import parse_order
from elanus.core.requests import check_query_window
from elanus.proxy.api.query import ElementCursor, Query
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
from elanus.proxy.wire.search_parameters import ORDER
from elanus.proxy.wire.stubs import milvus_pb2

if TYPE_CHECKING:
    from elanus.proxy.role.cache import CachedCollection

GROUP_BY = "group_by_fields"
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
        "not_return_all_meta",  # requests less than this server sends anyway
    }
)
_LAST_KEY, _LAST_ELEMENT = "query_iter_last_pk", "query_iter_last_element_offset"
_UNDERSTOOD_PARAMS = frozenset(
    {
        _LAST_KEY,
        _LAST_ELEMENT,
        "limit",
        "offset",
        IGNORE_GROWING,
        ITERATOR,
        COLLECTION_ID,
        ORDER,
        GROUP_BY,
        TIMEZONE,
        TIME_FIELDS,
        "reduce_stop_for_best",  # requests primary key order, which is always used here
        "cluster_id",  # of a client's session with one of several clusters: here is one
    }
)


def decode_query(
    request: milvus_pb2.QueryRequest,
    collection: CachedCollection,
    timeout_s: float | None = None,
    client: str = "",
) -> Query:
    """Return the requested query of the collection that the request's name resolved to.

    Raises `InvalidParameter` or `NotSupported`.
    """
    refuse_unknown_fields(request, _UNDERSTOOD_FIELDS, "a query")
    params = to_dict(request.query_params)
    refuse_unknown(params, _UNDERSTOOD_PARAMS, {})
    limit, offset = _window(params, collection.window_rows_max)
    order = parse_order(params.get(ORDER, ""), collection.view.schema)
    if order and limit is None:
        raise InvalidParameter("ORDER BY requires explicit limit: send one, at most 16384")
    group_by = tuple(name.strip() for name in params.get(GROUP_BY, "").split(",") if name.strip())
    if iterates(params) and (order or group_by):
        # the next page begins behind the last row's key: with another order, rows would be left out
        refused = "order_by" if order else "group by"
        raise InvalidParameter(
            f"{refused} is not supported when using query iterator: rows come in the order of their keys; "
            "leave it out, or send one query with a limit"
        )
    times = time_format(params.get(TIMEZONE) or collection.timezone, params.get(TIME_FIELDS, ""))
    return Query(
        collection=collection,
        partitions=tuple(request.partition_names),
        filter=with_offsets(request.expr, times.zone),
        output_fields=tuple(request.output_fields),
        limit=limit,
        offset=offset,
        consistency=read_consistency(
            request.use_default_consistency,
            request.consistency_level,
            request.guarantee_timestamp,
            pinned=iterates(params),
            travel_ts=request.travel_timestamp,
            client=client,
        ),
        filter_values=filter_values(request.expr_template_values),
        ignore_growing=ignore_growing(params),
        collection_id=expected_collection(params),
        timeout_s=timeout_s,
        order=order,
        group_by=group_by,
        times=times,
        after=_cursor(params),
    )


def _cursor(params: Mapping[str, str]) -> ElementCursor | None:
    """Return where the page of elements before this one ended; None: it is the first page, or one of rows."""
    element = integer(params, _LAST_ELEMENT)
    if (element is None) != (_LAST_KEY not in params) or (element is not None and element < 0):
        raise InvalidParameter(f"{_LAST_KEY} and {_LAST_ELEMENT} are sent together, and count from 0")
    return None if element is None else ElementCursor(params[_LAST_KEY], element)


def _window(params: Mapping[str, str], rows_max: int) -> tuple[int | None, int]:
    """Return limit (``None``: all rows) and offset, which has no effect without a limit."""
    limit = integer(params, "limit")
    offset = 0 if limit is None else integer(params, "offset") or 0
    check_query_window(limit, offset, rows_max)
    return limit, offset
