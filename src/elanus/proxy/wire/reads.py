"""The RPCs that read: search, hybrid search and query."""

from __future__ import annotations

from elanus.core.names import check_collection_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.hybrid_request import decode_hybrid_search
from elanus.proxy.wire.query_request import decode_query
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.results import encode_query, encode_search
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import milvus_pb2


class Reads:
    """The decoders check the request's fields themselves: a search's are checked once per template."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._templates = TemplateCache()

    @rpc(checks_itself=True, privilege="PrivilegeSearch", on="collection_name")
    def Search(self, request: milvus_pb2.SearchRequest, caller: Caller) -> milvus_pb2.SearchResults:
        database = database_of(request, caller)
        name = check_collection_name(request.collection_name)
        collection = self._verbs.collection(database, name)
        search = decode_search(request, collection, self._templates, caller.time_left_s, caller.client)
        return encode_search(self._verbs.search(search), name, search.template.times)

    @rpc(checks_itself=True, privilege="PrivilegeSearch", on="collection_name")
    def HybridSearch(
        self, request: milvus_pb2.HybridSearchRequest, caller: Caller
    ) -> milvus_pb2.SearchResults:
        name = check_collection_name(request.collection_name)
        collection = self._verbs.collection(database_of(request, caller), name)
        search = decode_hybrid_search(request, collection, self._templates, caller.time_left_s, caller.client)
        return encode_search(self._verbs.hybrid_search(search), name, search.searches[0].template.times)

    @rpc(checks_itself=True, privilege="PrivilegeQuery", on="collection_name")
    def Query(self, request: milvus_pb2.QueryRequest, caller: Caller) -> milvus_pb2.QueryResults:
        name = check_collection_name(request.collection_name)
        collection = self._verbs.collection(database_of(request, caller), name)
        query = decode_query(request, collection, caller.time_left_s, caller.client)
        return encode_query(self._verbs.query(query), name, query.times)
