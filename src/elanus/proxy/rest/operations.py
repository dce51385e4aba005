"""The operations on rows: insert, upsert, query, get and the searches, without protobufs for rows.

Each has the permission of the RPC of the same meaning, so a user may do by HTTP what it may do by gRPC. A
request is the body's struct; an answer is what JSON shows, or a `RestError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import structs

from elanus.core.aggregation import field_of_column
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.moments import TimeFormat
from elanus.core.names import check_collection_name, check_partition_name
from elanus.core.partial_update import array_changes
from elanus.core.reduce import primary_keys
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.query import QueryResult
from elanus.proxy.api.search import SearchResult
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.api.writes import Insert, MutationResult, Update
from elanus.proxy.calls import Operation
from elanus.proxy.rest import entity_bodies as bodies
from elanus.proxy.rest.bodies import OfCollection
from elanus.proxy.rest.clones import CLONE, UNDROP, clone_operations
from elanus.proxy.rest.errors import BAD_KEY, BAD_ROWS
from elanus.proxy.rest.jobs import ABORT_IMPORT, COMMIT_IMPORT, import_operations
from elanus.proxy.rest.keys import CREATE_KEY, DROP_KEY, LIST_KEYS, key_operations
from elanus.proxy.rest.rest_operation import RestOperation, database_of
from elanus.proxy.rest.rows import batch_of, keys
from elanus.proxy.rest.searches import (
    decoded_ids,
    get_request,
    hybrid_request,
    query_request,
    search_request,
)
from elanus.proxy.wire.hybrid_request import decode_hybrid_search
from elanus.proxy.wire.query_request import decode_query
from elanus.proxy.wire.reads import Reads
from elanus.proxy.wire.results import in_words
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.writes import Writes

if TYPE_CHECKING:
    from elanus.proxy.role.cache import CachedCollection

INSERT, UPSERT = "Rest.Insert", "Rest.Upsert"
QUERY, GET = "Rest.Query", "Rest.Get"
SEARCH, HYBRID_SEARCH = "Rest.Search", "Rest.HybridSearch"
RPC_OF: Mapping[str, str] = {
    INSERT: "Insert",
    UPSERT: "Upsert",
    QUERY: "Query",
    GET: "Query",
    SEARCH: "Search",
    HYBRID_SEARCH: "HybridSearch",
    CLONE: "ConnectorApi.clone_collection",
    UNDROP: "ConnectorApi.undrop_collection",
    COMMIT_IMPORT: "ConnectorApi.commit_import",
    ABORT_IMPORT: "ConnectorApi.cancel_import",
    CREATE_KEY: "KeysApi.create_key",
    LIST_KEYS: "KeysApi.list_keys",
    DROP_KEY: "KeysApi.drop_key",
}
"""The RPC, or call of Elanus' own clients, that each operation has the meaning and the permission of."""


class BadRows(ElanusError):
    """Rows that do not fit the collection, with the reference's code for them."""

    code = BAD_ROWS


class BadKey(ElanusError):
    """Keys that are none of the collection's type."""

    code = BAD_KEY


def rest_operations(verbs: Verbs) -> Iterator[Operation]:
    """Yield the operations on rows, and those of clones, of the ends of imports, and of API keys."""
    rows = _RowOperations(verbs)
    yield RestOperation(INSERT, Writes.Insert, rows.insert)
    yield RestOperation(UPSERT, Writes.Upsert, rows.upsert)
    yield RestOperation(QUERY, Reads.Query, rows.query)
    yield RestOperation(GET, Reads.Query, rows.get)
    yield RestOperation(SEARCH, Reads.Search, rows.search)
    yield RestOperation(HYBRID_SEARCH, Reads.HybridSearch, rows.hybrid_search)
    yield from clone_operations(verbs)
    yield from import_operations(verbs)
    yield from key_operations(verbs)


class _RowOperations:
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._templates = TemplateCache()

    def _collection(self, body: OfCollection, caller: Caller) -> CachedCollection:
        name = check_collection_name(body.collection_name)
        return self._verbs.collection(database_of(body, caller), name)

    def insert(self, body: bodies.Rows, caller: Caller) -> MutationResult:
        if body.partial_update or body.field_ops:
            raise InvalidParameter(
                "an insert writes whole rows: send partialUpdate and fieldOps to entities/upsert"
            )
        return self._verbs.insert(self._insert(body, caller, replaces=False))

    def upsert(self, body: bodies.Rows, caller: Caller) -> MutationResult:
        changes = array_changes((sent.field_name, sent.op.strip().upper()) for sent in body.field_ops)
        if not (body.partial_update or changes):
            return self._verbs.upsert(self._insert(body, caller, replaces=True))
        insert = self._insert(body, caller, replaces=True, partial=True)
        return self._verbs.update(
            Update(insert.collection, insert.partition, insert.rows, changes, insert.client)
        )

    def _insert(self, body: bodies.Rows, caller: Caller, *, replaces: bool, partial: bool = False) -> Insert:
        collection = self._collection(body, caller)
        sent = body.data if isinstance(body.data, list) else [body.data]
        try:
            key = collection.view.schema.primary_field.name
            with_key = replaces or (collection.keeps_sent_keys and any(key in row for row in sent))
            rows = batch_of(
                collection.view.schema,
                sent,
                with_auto_key=with_key,
                zone=collection.timezone,
                partial=partial,
            )
        except InvalidParameter as error:
            raise BadRows(f"fail to deal the insert data, error: {error.message}") from error
        partition = body.partition_name and check_partition_name(body.partition_name)
        return Insert(collection, partition, rows, caller.client)

    def query(self, body: bodies.Query, caller: Caller) -> QueryResult:
        collection = self._collection(body, caller)
        query = decode_query(query_request(body), collection, caller.time_left_s, caller.client)
        found = self._verbs.query(query)
        return replace(found, fields=_shown(found, query.times))

    def get(self, body: bodies.Get, caller: Caller) -> QueryResult:
        collection = self._collection(body, caller)
        query = decode_query(get_request(body), collection, caller.time_left_s, caller.client)
        try:
            ids = keys(collection.view.schema, decoded_ids(body.id)).to_pylist()
        except InvalidParameter as error:
            raise BadKey(
                "please check the primary key and its' type can only in [int, string], "
                f"error: {error.message}"
            ) from error
        found = self._verbs.query(replace(query, ids=ids))
        return replace(found, fields=_shown(found, query.times))

    def search(self, body: bodies.Search, caller: Caller) -> SearchResult:
        collection = self._collection(body, caller)
        request = search_request(body, collection.view.schema)
        search = decode_search(request, collection, self._templates, caller.time_left_s, caller.client)
        found = self._verbs.search(search)
        return structs.replace(found, fields=_shown(found, search.template.times))

    def hybrid_search(self, body: bodies.HybridSearch, caller: Caller) -> SearchResult:
        collection = self._collection(body, caller)
        request = hybrid_request(body, collection.view.schema)
        search = decode_hybrid_search(request, collection, self._templates, caller.time_left_s, caller.client)
        found = self._verbs.hybrid_search(search)
        return structs.replace(found, fields=_shown(found, search.searches[0].template.times))


def _shown(result: QueryResult | SearchResult, times: TimeFormat) -> dict[str, pa.Array]:
    """Return the columns of an answer with moments and geometries in words."""
    fields = {name: field_of_column(name, result.schema) for name in result.fields}
    return {
        name: column if (field := fields[name]) is None else in_words(field, column, times)
        for name, column in result.fields.items()
    }


def hits_per_query(result: SearchResult) -> list[int]:
    """The number of hits of each query."""
    counts: list[int] = np.diff(result.offsets).tolist()
    return counts


def keys_written(result: MutationResult) -> list[Any]:
    """The keys of the rows of a write."""
    keys_of_rows: list[Any] = primary_keys(result.primary_keys).tolist()
    return keys_of_rows
