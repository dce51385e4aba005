"""The verb of hybrid search: several searches of one collection, fused to one ranked list.

All searches are answered as of one timestamp, and so on the same rows. Each is an ordinary search of the
query nodes, with the output columns of its hits: a row that two of them find is fetched twice, which costs
less than another read of the winners.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.core.errors import InvalidParameter
from elanus.core.limits import HYBRID_SEARCHES_MAX
from elanus.core.rankers import GROUP_SCORERS, check_ranker
from elanus.core.rate_limits import Rate
from elanus.core.requests import check_answer_size, check_hits, check_query_window, check_round_decimal
from elanus.core.trail import step
from elanus.proxy.api.search import HybridSearch, SearchResult
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.hits import (
    check_decay_field,
    found_elements,
    fused,
    groups_window,
    of_one_kind,
    rounded,
    window,
)
from elanus.proxy.verbs.node_searches import pinned, planned, query_count
from elanus.proxy.verbs.noting import note_answer, note_read

_ASKED = "{} searches of {} vectors, the best {} rows of each fusion"


class HybridSearching(VerbFamily):
    def hybrid_search(self, request: HybridSearch) -> SearchResult:
        proxy, cached = self._proxy, request.collection
        reads, limits = proxy.reads, proxy.limits
        step("plan")
        with reads.begin(request.timeout_s) as patience:
            schema = cached.view.schema
            queries = check_hybrid(request)
            proxy.admission.read(cached, Rate.SEARCH, queries * len(request.searches))
            outputs = cached.plans.outputs(request.output_fields, with_key=False)
            groups = () if request.grouping is None else request.grouping.fields
            extra = (*groups, *check_decay_field(schema, request.ranker))
            columns = (*outputs.columns, *extra)
            plans = [
                planned(
                    proxy,
                    cached,
                    replace(search, offset=0, ignore_growing=search.ignore_growing or request.ignore_growing),
                    request.partitions,
                    tuple(dict.fromkeys(columns)),
                    request.grouping,
                    outputs.spared_unless(extra),
                )
                for search in request.searches
            ]
            check_hits(1, sum(plan.hits_max for plan in plans), limits.search_hits_max)
            step("fix the timestamp")
            read_ts = reads.read_timestamp(cached, request.consistency, patience)
            note_read(cached, request.consistency, read_ts, None, _ASKED, len(plans), queries, request.limit)
            step("prepare the vectors")
            wanted = [pinned(proxy, cached, plan, read_ts, patience) for plan in plans]
            step("search on query nodes")
            with outputs.naming_keys():
                parts = [reads.nodes.search(search, patience) for search in wanted]
        step("rank and cut")
        outputs = outputs.found_in(parts[0].fields)
        note_answer("{} hits before they are fused", sum(len(part.scores) for part in parts))
        size_bytes = sum(column.nbytes for part in parts for column in part.fields.values())
        check_answer_size(sum(len(part.scores) for part in parts), size_bytes, limits.answer_bytes_max)
        proxy.measures.searched(queries * len(parts))
        hits, descending = fused(of_one_kind(parts, [p.field.name for p in plans]), request.ranker)
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
        hits = rounded(hits, request.round_decimal)
        step("encode the answer")
        return SearchResult(
            offsets=hits.offsets,
            ids=hits.ids,
            scores=hits.scores,
            fields={name: hits.fields[name] for name in outputs.columns},
            output_fields=outputs.names,
            dynamic_fields=outputs.dynamic,
            schema=schema,
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
    queries = query_count(request.searches[0])
    for search in request.searches:
        if query_count(search) != queries:
            raise InvalidParameter(
                "sub search request nq should be the same: invalid parameter"
                f"[expected={queries}][actual={query_count(search)}]"
            )
        if search.page is not None or search.consistency.pinned:
            raise InvalidParameter("a search of a hybrid search cannot be a page of an iterator")
        if search.measures_recall:
            raise InvalidParameter("enable_recall_calculation is not supported in hybrid search")
        if search.grouping is not None or search.order or search.ranker is not None or search.boosts:
            raise InvalidParameter(
                "grouping, order and rankers belong to the hybrid search, not to one of its searches"
            )
        if search.chains is not None and search.chains.proxy is not None:
            raise InvalidParameter("L2 function chain is not supported in a search of a hybrid search")
    if request.group_scorer not in GROUP_SCORERS:
        raise InvalidParameter(f"input group scorer type: {request.group_scorer} is not supported!")
    check_ranker(request.ranker, len(request.searches))
    return queries
