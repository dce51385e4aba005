"""The RPCs that read: search and query."""

from __future__ import annotations

from elanus.proxy.api import Front
from elanus.proxy.wire.names import check_collection_name
from elanus.proxy.wire.query_request import decode_query
from elanus.proxy.wire.requests import Context, database_of, rpc
from elanus.proxy.wire.results import encode_query, encode_search
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import Message


class Reads:
    """The decoders check the request's fields themselves: a search's are checked once a template."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._templates = TemplateCache()

    @rpc(checks_itself=True)
    def Search(self, request: Message, context: Context) -> Message:
        database = database_of(request, context)
        name = check_collection_name(request.collection_name)
        schema = self._front.describe_collection(database, name).schema
        search = decode_search(request, database, schema, self._templates, context.time_remaining())
        return encode_search(self._front.search(search), name)

    @rpc(checks_itself=True)
    def Query(self, request: Message, context: Context) -> Message:
        name = check_collection_name(request.collection_name)
        query = decode_query(request, database_of(request, context), context.time_remaining())
        return encode_query(self._front.query(query), name)
