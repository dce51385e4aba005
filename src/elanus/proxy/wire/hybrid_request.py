"""A ``HybridSearchRequest`` to `elanus.proxy.api.search.HybridSearch`.

Each search in it is an ordinary ``SearchRequest``, and is decoded as one. Clients repeat the parameters of
the whole request in every search (offset, grouping); the reference reads them from ``rank_params`` only, and
so does this module. But some send a grouping by several fields only in the searches: that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping
from elanus.core.requests import check_query_window, check_round_decimal
from elanus.core.schema import CollectionSchema
from elanus.index import note_ignored
from elanus.proxy.api.search import HybridSearch, Search
from elanus.proxy.wire.grouping import GROUPING_FIELD, GROUPING_FIELDS, GROUPING_PARAMS, grouping
from elanus.proxy.wire.parameters import IGNORE_GROWING, ignore_growing, integer, is_integer
from elanus.proxy.wire.rankers import FunctionScore, function_score, legacy_ranker
from elanus.proxy.wire.read_consistency import read_consistency
from elanus.proxy.wire.requests import refuse_unknown_fields, to_dict
from elanus.proxy.wire.search_parameters import ORDER
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2
from elanus.proxy.wire.unsupported import unsupported

if TYPE_CHECKING:
    from elanus.proxy.role.cache import CachedCollection

_UNDERSTOOD_FIELDS = frozenset(
    {
        "base",
        "db_name",
        "collection_name",
        "partition_names",
        "requests",
        "rank_params",
        "travel_timestamp",
        "guarantee_timestamp",
        "not_return_all_meta",  # requests less than this server sends anyway
        "output_fields",
        "consistency_level",
        "use_default_consistency",
        "function_score",
    }
)
NO_AGGREGATION = "search_aggregation is not supported in hybrid_search: send a search of its own"
_SCORER = "rank_group_scorer"
_UNDERSTOOD_PARAMS = frozenset(
    {
        "limit",
        "offset",
        "round_decimal",
        "strategy",
        "params",
        _SCORER,
        ORDER,
        IGNORE_GROWING,
        *GROUPING_PARAMS,
    }
)
_OF_THE_WHOLE = frozenset({"offset", "round_decimal", *GROUPING_PARAMS})
"""Parameters that only count for the whole request."""


def decode_hybrid_search(
    request: milvus_pb2.HybridSearchRequest,
    collection: CachedCollection,
    cache: TemplateCache,
    timeout_s: float | None = None,
    client: str = "",
) -> HybridSearch:
    """Return the requested search of the collection its name resolved to. Consumes the request message.

    Raises `InvalidParameter`, `FieldNotFound`, `NotSupported`, and what `decode_search` raises.
    """
    refuse_unknown_fields(request, _UNDERSTOOD_FIELDS, "a hybrid search")
    params = to_dict(request.rank_params)
    note_ignored("search", [name for name in params if name not in _UNDERSTOOD_PARAMS])
    if params.get(ORDER):
        raise InvalidParameter("order_by is not supported for hybrid search")
    limit, offset = _window(params, collection.window_rows_max)
    groups = _grouping(request, params, collection.view.schema)
    scoring = _scoring(request, params)
    assert scoring.ranker is not None
    return HybridSearch(
        collection=collection,
        partitions=tuple(request.partition_names),
        searches=tuple(_search(sub, collection, cache, limit + offset) for sub in request.requests),
        ranker=scoring.ranker,
        limit=limit,
        offset=offset,
        output_fields=tuple(request.output_fields),
        round_decimal=check_round_decimal(params.get("round_decimal", "-1")),
        consistency=read_consistency(
            request.use_default_consistency,
            request.consistency_level,
            request.guarantee_timestamp,
            travel_ts=request.travel_timestamp,
            client=client,
        ),
        ignore_growing=ignore_growing(params),
        timeout_s=timeout_s,
        grouping=groups,
        group_scorer=params.get(_SCORER, "max"),
    )


def _grouping(
    request: milvus_pb2.HybridSearchRequest, params: Mapping[str, str], schema: CollectionSchema
) -> Grouping | None:
    """Return the grouping of ``rank_params``; that of all searches, if there is none.

    Raises as `grouping` does, and `InvalidParameter` for searches of which each is grouped in its own way.
    """
    if params.get(GROUPING_FIELD, "").strip() or params.get(GROUPING_FIELDS, "").strip(" ,"):
        return grouping(params, schema)
    whole = {name: params[name] for name in GROUPING_PARAMS if params.get(name)}
    found = [grouping({**to_dict(search.search_params), **whole}, schema) for search in request.requests]
    if any(groups != found[0] for groups in found):
        raise InvalidParameter(
            "the searches of a hybrid search have different groupings: "
            + ", ".join("none" if groups is None else "+".join(groups.fields) for groups in found)
            + "; give all of them the same, or send the grouping with the hybrid search (rank_params)"
        )
    return found[0] if found else None


def _window(params: Mapping[str, str], rows_max: int) -> tuple[int, int]:
    limit = integer(params, "limit")
    if limit is None:
        raise InvalidParameter("limit not found in rank_params")
    offset = integer(params, "offset") or 0
    check_query_window(limit, offset, rows_max)
    return limit, offset


def _scoring(request: milvus_pb2.HybridSearchRequest, params: Mapping[str, str]) -> FunctionScore:
    if not request.HasField("function_score"):
        return FunctionScore(legacy_ranker(params))
    scoring = function_score(request.function_score)
    if scoring.boosts is not None:
        raise unsupported("the reranker boost of a hybrid search", "boost ordinary searches")
    return scoring


def _search(
    request: milvus_pb2.SearchRequest, collection: CachedCollection, cache: TemplateCache, hits: int
) -> Search:
    """Return one of the searches. ``hits``: how many it finds if it does not say it, or says no number."""
    own = [pair for pair in request.search_params if pair.key not in _OF_THE_WHOLE]
    sent = [pair for pair in own if pair.key == "topk"]
    if not sent:
        own.append(common_pb2.KeyValuePair(key="topk", value=str(hits)))
    for pair in sent:
        if not is_integer(pair.value):  # a client whose user gave no limit sends the text None
            pair.value = str(hits)
    del request.search_params[:]
    request.search_params.extend(own)
    search = decode_search(request, collection, cache)
    if search.template.order:
        raise InvalidParameter("order_by is not supported for hybrid search")
    if search.template.levels:
        raise InvalidParameter(NO_AGGREGATION)
    if search.highlight is not None:
        raise InvalidParameter("not support hybrid search with highlight now: send a search of its own")
    return search
