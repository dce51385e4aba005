"""A ``SearchRequest`` to `elanus.proxy.api.search.Search`: the hot path.

Programs repeat one search with new vectors. So a request is split: the parts that change every time (the
vectors, their number, the guarantee timestamp) are removed, and the bytes of the rest are the key of a
*template* that was parsed and checked before. Searches carry the template itself, and the verbs keep their
plan by it. A repeated search costs only the split (2 µs) and `numpy.frombuffer`.

A client's search iterator is a series of searches, all as of the first one's timestamp. Clients up to 2.4
search by ranges of the score. Since 2.5 they send the bound where the previous page ended, and get the page
after it (`elanus.proxy.role.iterator_pages`).

Clients up to 2.2 request a past timestamp with the field ``travel_timestamp``; newer ones cannot set that
field, and send the timestamp among the index's search parameters.

A template is valid as long as the collection's schema is the same object that it was made for: the proxy's
cache replaces that object whenever the collection changes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from elanus.core.buckets import bucket_grouping, check_entries
from elanus.core.errors import InvalidParameter, InvalidTopK
from elanus.core.function_chains import Chains
from elanus.core.moments import TIME_FIELDS, TIMEZONE, time_format, with_offsets
from elanus.core.ordering import parse_order
from elanus.core.requests import check_round_decimal, check_search_window, search_field
from elanus.core.schema import CollectionSchema, FieldSchema, Scalar
from elanus.expr.filter_cache import KEPT_MAX_CHARS
from elanus.proxy.api.search import Search, SearchTemplate
from elanus.proxy.wire.buckets import bucket_levels
from elanus.proxy.wire.function_chains import function_chains
from elanus.proxy.wire.grouping import grouping
from elanus.proxy.wire.highlights import decode_highlighter
from elanus.proxy.wire.iterator_page import check_one_vector, iterator_page, page_timestamp
from elanus.proxy.wire.parameters import (
    boolean,
    expected_collection,
    filter_values,
    ignore_growing,
    integer,
    iterates,
)
from elanus.proxy.wire.query_vectors import check_keys, decode_queries, decode_texts, key_array
from elanus.proxy.wire.rankers import FunctionScore, function_score
from elanus.proxy.wire.read_consistency import read_consistency
from elanus.proxy.wire.requests import refuse_unknown_fields, to_dict
from elanus.proxy.wire.search_parameters import (
    ANALYZER_NAME,
    ORDER,
    RECALL,
    TRAVEL_TIMESTAMP,
    split_search_params,
)
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2
from elanus.proxy.wire.unsupported import unsupported
from elanus.text import Highlight, QueryTexts, query_texts

if TYPE_CHECKING:
    from elanus.proxy.role.cache import CachedCollection

_UNDERSTOOD_FIELDS = frozenset(
    {
        "base",
        "db_name",
        "collection_name",
        "partition_names",
        "dsl",
        "dsl_type",
        "output_fields",
        "search_params",
        "consistency_level",
        "use_default_consistency",
        "expr_template_values",
        "function_score",
        "function_chains",
        "highlighter",
        "search_aggregation",
        "not_return_all_meta",  # requests less than this server sends anyway
    }
)
_NO_QUERIES = np.empty((0, 0), dtype=np.float32)
_NO_SCORING = FunctionScore()
_ChangingField = Literal["placeholder_group", "ids", "nq", "guarantee_timestamp", "travel_timestamp"]
_CHANGING_FIELDS: tuple[_ChangingField, ...] = get_args(_ChangingField)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request without its changing parts. ``search``: the part that all searches made of it carry.

    ``schema``: the one it was checked against. ``texts``: makes vectors of texts, if the field is the output
    of a function; ``is_embedded``: a provider does. ``iterates``: pages of a first-generation iterator.
    ``page_ts``, ``travel_ts``: the timestamps among the parameters, 0 for none.
    """

    search: SearchTemplate
    schema: CollectionSchema
    vector_field: FieldSchema
    texts: QueryTexts | None
    is_embedded: bool
    highlight: Highlight | None
    iterates: bool
    page_ts: int
    travel_ts: int


_TEMPLATES_MAX_BYTES = 16 * 1024 * 1024
"""All requests in a cache together. Their parsed forms take as much again, or a few times that."""
TemplateKey = tuple[str, str, bytes]
"""Database, time zone of the collection, and the bytes of a request without its changing parts."""


class TemplateCache:
    """Parsed requests by their bytes. Used by all gRPC threads; `get` takes no lock.

    Single dict operations are atomic. A full cache is emptied: refilling costs less than keeping an order.
    Large requests, such as those whose filters list many keys, are parsed each time.
    """

    def __init__(self, max_templates: int = 1024) -> None:
        self._max_templates = max_templates
        self._templates: dict[TemplateKey, ParsedRequest] = {}
        self._requests_bytes = 0
        self._adding = threading.Lock()

    def get(self, key: TemplateKey, schema: CollectionSchema) -> ParsedRequest | None:
        """Return what was parsed from these bytes, if it was checked against this same schema object."""
        parsed = self._templates.get(key)
        return parsed if parsed is not None and parsed.schema is schema else None

    def put(self, key: TemplateKey, parsed: ParsedRequest) -> None:
        size_bytes = len(key[-1])
        if size_bytes > KEPT_MAX_CHARS:
            return
        with self._adding:
            is_full = len(self._templates) >= self._max_templates
            if is_full or self._requests_bytes + size_bytes > _TEMPLATES_MAX_BYTES:
                self._templates.clear()
                self._requests_bytes = 0
            self._templates[key] = parsed
            self._requests_bytes += size_bytes


def decode_search(
    request: milvus_pb2.SearchRequest,
    collection: CachedCollection,
    cache: TemplateCache,
    timeout_s: float | None = None,
    client: str = "",
) -> Search:
    """Return the requested search of the collection its name resolved to. Consumes the request message.

    Raises `InvalidParameter` (and `InvalidTopK`, `InvalidDimension`), `FieldNotFound` or `NotSupported`.
    """
    placeholders = request.placeholder_group
    ids = key_array(request.ids) if request.HasField("ids") else None
    nq = request.nq
    guarantee_ts = request.guarantee_timestamp
    travel_ts = request.travel_timestamp
    for changing in _CHANGING_FIELDS:
        request.ClearField(changing)
    schema = collection.view.schema
    key = (collection.view.database, collection.timezone, request.SerializeToString())
    parsed = cache.get(key, schema)
    if parsed is None:
        parsed = parse_request(request, collection)
        if parsed.search.may_repeat:
            cache.put(key, parsed)
    check_one_vector(parsed.search.page, nq)
    if parsed.search.levels:
        check_entries(parsed.search.levels, nq)
    if ids is not None:
        check_keys(ids, nq, schema)
    texts = decode_texts(placeholders, nq) if parsed.is_embedded and ids is None else ()
    return Search(
        collection=collection,
        template=parsed.search,
        queries=_NO_QUERIES
        if ids is not None or texts
        else decode_queries(placeholders, nq, parsed.vector_field, parsed.texts),
        consistency=read_consistency(
            request.use_default_consistency,
            request.consistency_level,
            guarantee_ts or parsed.page_ts,
            pinned=parsed.iterates,
            travel_ts=travel_ts or parsed.travel_ts,
            client=client,
        ),
        query_ids=ids,
        texts=texts,
        highlight=parsed.highlight if ids is not None else _highlight(parsed.highlight, placeholders),
        timeout_s=timeout_s,
    )


def parse_request(request: milvus_pb2.SearchRequest, collection: CachedCollection) -> ParsedRequest:
    """Parse and check everything in a request that does not change from call to call."""
    refuse_unknown_fields(request, _UNDERSTOOD_FIELDS, "a search")
    if request.dsl and request.dsl_type != common_pb2.BoolExprV1:
        raise unsupported("a search in the JSON query language (dsl_type Dsl)", "use a boolean expression")
    schema = collection.view.schema
    params, index_params = split_search_params(to_dict(request.search_params), request.dsl)
    travel_ts = _travel_timestamp(index_params.pop(TRAVEL_TIMESTAMP, 0))
    search = _template(request, collection, params, index_params)
    vector_field = schema.by_name[search.vector_field]
    analyzer = params.get(ANALYZER_NAME, "")
    return ParsedRequest(
        search=search,
        schema=schema,
        vector_field=vector_field,
        texts=query_texts(schema, vector_field, analyzer),
        is_embedded=any(f.output == vector_field.name for f in schema.stored_functions),
        highlight=decode_highlighter(request.highlighter, schema, vector_field, analyzer)
        if request.HasField("highlighter")
        else None,
        iterates=iterates(params),
        page_ts=page_timestamp(params),
        travel_ts=travel_ts,
    )


def _template(
    request: milvus_pb2.SearchRequest,
    collection: CachedCollection,
    params: Mapping[str, str],
    index_params: Mapping[str, Scalar],
) -> SearchTemplate:
    schema = collection.view.schema
    limit, offset = _window(params, collection.window_rows_max)
    vector_field = search_field(schema, params.get("anns_field", ""))
    levels = bucket_levels(request, params, schema, offset)
    if levels:
        groups, limit = bucket_grouping(levels)
    page = iterator_page(params, limit, offset)
    scoring = function_score(request.function_score) if request.HasField("function_score") else _NO_SCORING
    times = time_format(params.get(TIMEZONE) or collection.timezone, params.get(TIME_FIELDS, ""))
    return SearchTemplate(
        limit=limit,
        offset=offset,
        vector_field=vector_field.name,
        partitions=tuple(request.partition_names),
        filter=with_offsets(request.dsl, times.zone),
        filter_values=filter_values(request.expr_template_values),
        metric_type=params.get("metric_type", ""),
        params=index_params,
        output_fields=tuple(request.output_fields),
        round_decimal=check_round_decimal(params.get("round_decimal", "-1")),
        ignore_growing=ignore_growing(params),
        collection_id=expected_collection(params),
        page=page,
        grouping=groups if levels else grouping(params, schema),
        levels=levels,
        ranker=scoring.ranker,
        boosts=None if scoring.boosts is None else scoring.boosts.in_zone(times.zone),
        chains=_chains(request, schema),
        order=parse_order(params.get(ORDER, ""), schema, dynamic=True),
        times=times,
        measures_recall=boolean(params, RECALL),
        may_repeat=page is None or page.bound is None,  # a later page of an iterator is requested only once
    )


def _chains(request: milvus_pb2.SearchRequest, schema: CollectionSchema) -> Chains | None:
    if not request.function_chains:
        return None
    if request.HasField("function_score"):
        raise InvalidParameter("function_score and function_chains cannot be used together")
    return function_chains(request.function_chains, schema)


def _highlight(asked: Highlight | None, placeholders: bytes) -> Highlight | None:
    """Return what to highlight with the texts of the search, which have been decoded: they are valid."""
    if asked is None or not asked.searched:
        return asked
    (placeholder,) = common_pb2.PlaceholderGroup.FromString(placeholders).placeholders
    return replace(asked, texts=tuple(value.decode() for value in placeholder.values))


def _window(params: Mapping[str, str], rows_max: int) -> tuple[int, int]:
    """Return limit and offset."""
    limit = integer(params, "topk")
    if limit is None:
        raise InvalidTopK("topk not found in search_params")
    offset = integer(params, "offset") or 0
    check_search_window(limit, offset, rows_max)
    return limit, offset


def _travel_timestamp(value: Scalar) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidParameter(f"{TRAVEL_TIMESTAMP} [{value}] is invalid, should be a hybrid timestamp")
    return value
