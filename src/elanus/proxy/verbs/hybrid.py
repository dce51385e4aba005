"""The verb of hybrid search: several searches of one collection, fused to one ranked list.

All searches are answered as of one timestamp, and so on the same rows. Each is an ordinary search of the
query nodes, with the output columns of its hits: a row that two of them find is fetched twice, which costs
less than another read of the winners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elanus.api.querynode import NodeHits
from elanus.core.errors import InvalidParameter
from elanus.core.limits import HYBRID_SEARCHES_MAX
from elanus.core.rankers import GROUP_SCORERS, check_ranker
from elanus.core.rate_limits import Rate
from elanus.core.requests import check_columns_size, check_hits, check_query_window, check_round_decimal
from elanus.core.timestamps import Timestamp
from elanus.core.trail import step
from elanus.proxy.api.search import HybridSearch, Search, SearchResult
from elanus.proxy.role.outputs import Outputs
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.hits import (
    check_decay_field,
    found_elements,
    fused,
    groups_window,
    of_one_kind,
    rounded,
    silenced,
    window,
)
from elanus.proxy.verbs.node_searches import Planned, as_of, planned
from elanus.proxy.verbs.noting import note_answer, note_read

_ASKED = "{} searches of {} vectors, the best {} rows of each fusion"


class HybridSearching(VerbFamily):
    def hybrid_search(self, request: HybridSearch) -> SearchResult:
        proxy, cached = self._proxy, request.collection
        reads, limits = proxy.reads, proxy.limits
        step("plan")
        with reads.begin(request.timeout_s) as patience:
            queries = check_hybrid(request)
            proxy.admission.read(cached, Rate.SEARCH, queries * len(request.searches))
            outputs = cached.plans.outputs(request.output_fields, with_key=False)
            plans = _planned(proxy, request, outputs)
            check_hits(1, sum(plan.hits_max for plan in plans), limits.search_hits_max)
            step("fix the timestamp")
            read_ts = reads.read_timestamp(cached, request.consistency, patience)
            note_read(cached, request.consistency, read_ts, None, _ASKED, len(plans), queries, request.limit)
            step("prepare the vectors")
            wanted = [as_of(proxy, cached, plan, read_ts, patience) for plan in plans]
            step("search on query nodes")
            with outputs.naming_keys():
                parts = [silenced(reads.nodes.search(p.search, patience), p.silent) for p in wanted]
        step("rank and cut")
        found = sum(len(part.scores) for part in parts)
        note_answer("{} hits before they are fused", found)
        columns = [column for part in parts for column in part.fields.values()]
        check_columns_size(found, columns, limits.answer_bytes_max)
        proxy.measures.searched(queries * len(parts))
        hits = _ranked(request, of_one_kind(parts, [plan.field.name for plan in plans]))
        step("encode the answer")
        return _result(request, hits, outputs.found_in(parts[0].fields), read_ts)


def _planned(proxy: Proxy, request: HybridSearch, outputs: Outputs) -> list[Planned]:
    """Plan the searches, each with the columns that the answer shows and the fusion reads."""
    cached = request.collection
    groups = () if request.grouping is None else request.grouping.fields
    extra = (*groups, *check_decay_field(cached.view.schema, request.ranker))
    columns = tuple(dict.fromkeys((*outputs.columns, *extra)))
    return [
        planned(
            proxy,
            cached,
            _without_offset(search, request),
            request.partitions,
            columns,
            request.grouping,
            outputs.spared_unless(extra),
        )
        for search in request.searches
    ]


def _without_offset(search: Search, request: HybridSearch) -> Search:
    """Return one of the searches as it is sent to query nodes: an offset is that of the fused list."""
    asked = search.template
    ignore_growing = asked.ignore_growing or request.ignore_growing
    return replace(search, template=replace(asked, offset=0, ignore_growing=ignore_growing))


def _ranked(request: HybridSearch, parts: Sequence[NodeHits]) -> NodeHits:
    """Return the hits of the window. ``parts``: those of each search."""
    hits, descending = fused(parts, request.ranker)
    if request.grouping is None:
        hits = window(hits, request.limit, request.offset)
    else:
        hits = groups_window(
            hits,
            request.grouping,
            request.limit,
            request.offset,
            request.group_scorer,
            larger_is_better=descending,
        )
    return rounded(hits, request.round_decimal)


def _result(request: HybridSearch, hits: NodeHits, outputs: Outputs, read_ts: Timestamp) -> SearchResult:
    return SearchResult(
        offsets=hits.offsets,
        ids=hits.ids,
        scores=hits.scores,
        fields={name: hits.fields[name] for name in outputs.columns},
        output_fields=outputs.names,
        dynamic_fields=outputs.dynamic,
        schema=request.collection.view.schema,
        ts=read_ts,
        groups={} if request.grouping is None else request.grouping.keys(hits.fields.__getitem__),
        elements=found_elements(hits),
    )


def check_hybrid(request: HybridSearch) -> int:
    """Return the number of queries. Raises `InvalidParameter`, with the reference's texts."""
    if not request.searches:
        raise InvalidParameter("minimum of ann search requests is 1")
    if len(request.searches) > HYBRID_SEARCHES_MAX:
        raise InvalidParameter(f"maximum of ann search requests is {HYBRID_SEARCHES_MAX}")
    check_query_window(request.limit, request.offset, request.collection.window_rows_max)
    check_round_decimal(request.round_decimal)
    queries = request.searches[0].query_count
    for search in request.searches:
        asked = search.template
        if search.query_count != queries:
            raise InvalidParameter(
                "sub search request nq should be the same: invalid parameter"
                f"[expected={queries}][actual={search.query_count}]"
            )
        if search.iterates:
            raise InvalidParameter("a search of a hybrid search cannot be a page of an iterator")
        if asked.measures_recall:
            raise InvalidParameter("enable_recall_calculation is not supported in hybrid search")
        if asked.grouping is not None or asked.order or asked.ranker is not None or asked.boosts:
            raise InvalidParameter(
                "grouping, order and rankers belong to the hybrid search, not to one of its searches"
            )
        if asked.chains is not None and asked.chains.proxy is not None:
            raise InvalidParameter("L2 function chain is not supported in a search of a hybrid search")
    if request.group_scorer not in GROUP_SCORERS:
        raise InvalidParameter(f"input group scorer type: {request.group_scorer} is not supported!")
    check_ranker(request.ranker, len(request.searches))
    return queries
