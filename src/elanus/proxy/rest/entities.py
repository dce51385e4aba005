"""The endpoints of rows: insert, upsert, delete, get, query and the searches."""

from __future__ import annotations

import msgspec

from elanus.core.errors import ElanusError
from elanus.core.explanation import text_of
from elanus.index import note_ignored
from elanus.proxy.api.query import QueryResult
from elanus.proxy.api.search import SearchResult
from elanus.proxy.api.writes import MutationResult
from elanus.proxy.rest import entity_bodies as bodies
from elanus.proxy.rest import operations
from elanus.proxy.rest.aggregations import bucket_rows
from elanus.proxy.rest.endpoint import Answer, Endpoint, Session, endpoint
from elanus.proxy.rest.errors import reported
from elanus.proxy.rest.searches import level_named
from elanus.proxy.rest.values import Row, rows_of
from elanus.proxy.wire.filter_values import template_values
from elanus.proxy.wire.unsupported import refuse_key

_NOT_READ = ("filter", "limit")
_NO_COST = {"cost": 0}
"""The managed service counts a cost; programs read the member."""


def insert(session: Session, body: bodies.Rows) -> Answer:
    """Insert rows; answers with their keys"""
    refuse_key(session.caller)
    result: MutationResult = session.operation(operations.INSERT, body)
    return Answer({"insertCount": result.insert_count, "insertIds": _keys(session, result)}, _NO_COST)


def upsert(session: Session, body: bodies.Rows) -> Answer:
    """Insert rows, replacing those with the same keys; `partialUpdate` keeps fields that are not sent"""
    result: MutationResult = session.operation(operations.UPSERT, body)
    return Answer({"upsertCount": result.upsert_count, "upsertIds": _keys(session, result)}, _NO_COST)


def _keys(session: Session, result: MutationResult) -> list[object]:
    keys = operations.keys_written(result)
    return session.integers.listed(keys) if keys and isinstance(keys[0], int) else keys


def delete(session: Session, body: bodies.Delete) -> Answer:
    """Delete the rows that a filter matches"""
    fields: dict[str, object] = {}
    try:
        if body.consistency_level:
            fields["consistency_level"] = int(level_named(body.consistency_level))
        values = template_values(body.expr_params)
    except ElanusError as error:
        raise reported(error) from None
    found = session.rpc("Delete", body, expr=body.filter, expr_template_values=values, **fields)
    return Answer({"deleteCount": found.delete_cnt}, _NO_COST)


def query(session: Session, body: bodies.Query) -> Answer:
    """Rows that a filter matches"""
    return _rows(session, session.operation(operations.QUERY, body))


def get(session: Session, body: bodies.Get) -> Answer:
    """Rows by their primary keys"""
    note_ignored("entities/get", [name for name in _NOT_READ if getattr(body, name)])
    return _rows(session, session.operation(operations.GET, body))


def _rows(session: Session, result: QueryResult) -> Answer:
    count = len(next(iter(result.fields.values()))) if result.fields else 0
    rows = rows_of(result.fields, result.schema, count, result.dynamic_fields, session.integers)
    return Answer(rows, {**_NO_COST, **_explained(session)})


def search(session: Session, body: bodies.Search) -> Answer:
    """The rows with the nearest vectors"""
    return _hits(session, session.operation(operations.SEARCH, body))


def hybrid_search(session: Session, body: bodies.HybridSearch) -> Answer:
    """The hits of several searches, ranked together"""
    return _hits(session, session.operation(operations.HYBRID_SEARCH, body))


def _hits(session: Session, result: SearchResult) -> Answer:
    """All hits in one list, as in the reference; ``topks``: how many of them each query has.

    For an aggregation, the buckets of each query; ``aggTopks``: how many of them each query has.
    """
    recalls = {"recalls": list(result.recalls)} if result.recalls else {}
    if result.buckets is not None:
        counts = {"aggTopks": [len(buckets) for buckets in result.buckets], **recalls, **_explained(session)}
        return Answer(bucket_rows(result, session.integers), {**_NO_COST, **counts})
    ids = result.ids.tolist()
    rows: list[Row] = rows_of(result.fields, result.schema, len(ids), result.dynamic_fields, session.integers)
    keys = session.integers.listed(ids) if ids and isinstance(ids[0], int) else ids
    for row, key, score in zip(rows, keys, result.scores, strict=True):
        row["id"] = key
        row["distance"] = score
    if result.elements is not None:
        for row, element in zip(rows, result.elements.tolist(), strict=True):
            row["offset"] = element
    extra = {"topks": operations.hits_per_query(result), **recalls, **_explained(session)}
    return Answer(rows, {**_NO_COST, **extra})


def _explained(session: Session) -> dict[str, object]:
    """The member ``explain``, if the body asks for it."""
    if not session.explanations:
        return {}
    (explanation,) = session.explanations
    return {"explain": {"text": text_of(explanation), **msgspec.to_builtins(explanation)}}


ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint("entities/insert", bodies.Rows, insert, operations.INSERT),
    endpoint("entities/upsert", bodies.Rows, upsert, operations.UPSERT),
    endpoint("entities/delete", bodies.Delete, delete, "Delete"),
    endpoint("entities/get", bodies.Get, get, operations.GET),
    endpoint("entities/query", bodies.Query, query, operations.QUERY),
    endpoint("entities/search", bodies.Search, search, operations.SEARCH),
    endpoint("entities/hybrid_search", bodies.HybridSearch, hybrid_search, operations.HYBRID_SEARCH),
    endpoint("entities/advanced_search", bodies.HybridSearch, hybrid_search, operations.HYBRID_SEARCH),
)
