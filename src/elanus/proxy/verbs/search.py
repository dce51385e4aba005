"""The search verb: the nearest rows of each query vector."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.buckets import bucket_columns, buckets_of
from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.rankers import check_ranker
from elanus.core.rate_limits import Rate
from elanus.core.requests import check_columns_size, check_round_decimal
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.core.trail import step
from elanus.proxy.api.search import PageEnd, Search, SearchResult, SearchTemplate
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.role.outputs import Outputs
from elanus.proxy.role.plans import SearchPlan
from elanus.proxy.role.read_path import check_same_collection
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.hits import (
    chained,
    check_decay_field,
    found_elements,
    fused,
    groups_window,
    ordered,
    rounded,
    silenced,
    window,
)
from elanus.proxy.verbs.node_searches import AsOf, Planned, as_of, check_size, planned
from elanus.proxy.verbs.noting import note_answer, note_read
from elanus.proxy.verbs.recall import check_field_measurable, check_measurable, recalls_of
from elanus.text import highlights

_NO_QUERIES = np.empty((0, 0), dtype=np.float32)
_ASKED = "{} vectors, the best {} rows of each"


class Searching(VerbFamily):
    def search(self, request: Search) -> SearchResult:
        proxy, cached = self._proxy, request.collection
        reads = proxy.reads
        count = request.query_count
        proxy.admission.read(cached, Rate.SEARCH, count)
        step("plan")
        with reads.begin(request.timeout_s) as patience:
            plan, outputs = self._planned(request)
            step("fix the timestamp")
            read_ts = reads.read_timestamp(cached, request.consistency, patience)
            bound = plan.draft.filter
            note_read(cached, request.consistency, read_ts, bound, _ASKED, count, plan.draft.k)
            step("prepare the vectors")
            wanted = as_of(proxy, cached, plan, read_ts, patience)
            step("search on query nodes")
            found = self._found(request, wanted, outputs, patience)
        step("rank and cut")
        hits = found.hits
        note_answer("{} hits", len(hits.scores))
        check_columns_size(len(hits.scores), hits.fields.values(), proxy.limits.answer_bytes_max)
        proxy.measures.searched(count)
        return _result(request, found, outputs.found_in(hits.fields), read_ts)

    def _planned(self, request: Search) -> tuple[Planned, Outputs]:
        """Check and plan a search. Searches of one template share what does not depend on their vectors."""
        plans, template = request.collection.plans.searches, request.template
        known = plans.get(template) if template.may_repeat else None
        if known is not None:
            check_size(self._proxy, request, known.draft.k, known.draft.grouping)
            draft = structs.replace(known.draft, queries=request.queries)
            return Planned(request, known.field, draft), known.outputs
        plan, outputs = self._newly_planned(request)
        if template.may_repeat and plan.is_repeatable:
            draft = structs.replace(plan.draft, queries=_NO_QUERIES)
            plans.put(template, SearchPlan(plan.field, draft, outputs))
        return plan, outputs

    def _newly_planned(self, request: Search) -> tuple[Planned, Outputs]:
        proxy, cached = self._proxy, request.collection
        schema, asked = cached.view.schema, request.template
        check_same_collection(cached, asked.collection_id)
        check_round_decimal(asked.round_decimal)
        check_measurable(request)
        outputs = cached.plans.outputs(asked.output_fields, with_key=False)
        extra = _extra_columns(schema, request)
        columns = tuple(dict.fromkeys((*outputs.columns, *extra)))
        spared = outputs.spared_unless(extra)
        plan = planned(proxy, cached, request, asked.partitions, columns, asked.grouping, spared)
        check_field_measurable(request, schema.by_id[plan.draft.field_id])
        return plan, outputs

    def _found(self, request: Search, plan: AsOf, outputs: Outputs, patience: Patience) -> _Found:
        """Ask the query nodes, for one page of an iterator or for all hits."""
        reads, page, wanted = self._proxy.reads, request.template.page, plan.search

        def hits_of(search: NodeSearch) -> NodeHits:
            return silenced(reads.nodes.search(search, patience), plan.silent)

        if page is not None:
            hits, page_end = reads.pages.page(
                page,
                Metric(wanted.metric_type),
                wanted.params,
                lambda k, params: hits_of(replace(wanted, k=k, params=params)),
            )
            return _Found(hits, page_end)
        with outputs.naming_keys():
            hits = hits_of(wanted)
        if not request.template.measures_recall:
            return _Found(hits)
        recalls = recalls_of(hits, wanted, hits_of)
        return _Found(hits, recalls=recalls)


@dataclass(frozen=True, slots=True)
class _Found:
    """The nodes' hits; where the page of an iterator ended; the recall of each query, if it was asked for."""

    hits: NodeHits
    page_end: PageEnd | None = None
    recalls: tuple[float, ...] = ()


def _result(request: Search, found: _Found, outputs: Outputs, read_ts: Timestamp) -> SearchResult:
    """Return the hits of the window in their order, with what was asked for next to them."""
    schema, asked, highlight = request.collection.view.schema, request.template, request.highlight
    hits, descending = _ranked(found.hits, asked)
    if asked.order:
        hits = ordered(hits, asked.order, asked.grouping)
    hits = rounded(hits, asked.round_decimal)
    buckets = None
    if asked.levels:
        buckets = buckets_of(
            asked.levels, hits.offsets, hits.scores, hits.fields, larger_is_better=descending
        )
    fragments = {} if highlight is None else highlights(schema, highlight, hits.offsets, hits.fields)
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
        page_end=found.page_end,
        groups={} if asked.grouping is None else asked.grouping.keys(hits.fields.__getitem__),
        highlights=fragments,
        elements=found_elements(hits),
        recalls=found.recalls,
        levels=asked.levels,
        buckets=buckets,
    )


def _ranked(hits: NodeHits, asked: SearchTemplate) -> tuple[NodeHits, bool]:
    """Return the hits of the window, by ranker, chain and groups, and whether larger scores are better."""
    descending = Metric(hits.metric_type).bigger_is_better
    chain = None if asked.chains is None else asked.chains.proxy
    if asked.ranker is not None:
        hits, descending = fused([hits], asked.ranker)
    if asked.grouping is not None:
        hits = groups_window(hits, asked.grouping, asked.limit, asked.offset, larger_is_better=descending)
        return hits if chain is None else chained(hits, chain), descending
    if chain is not None:
        hits = chained(hits, chain)
    if chain is None or not chain.paginates:
        limit = asked.limit if asked.page is None else len(hits.scores)
        hits = window(hits, limit, asked.offset)
    return hits, descending


def _extra_columns(schema: CollectionSchema, request: Search) -> tuple[str, ...]:
    """Return the columns that groups, buckets, the ranker, the order and highlights read.

    Raises `InvalidParameter` for a combination that makes no sense.
    """
    asked, iterates = request.template, request.iterates
    if asked.levels and iterates:
        raise InvalidParameter("search iterator is not supported with search_aggregation")
    if asked.levels and asked.order:
        raise InvalidParameter("order_by_fields is not supported with search_aggregation")
    if asked.order and asked.grouping is not None and len(asked.grouping.fields) > 1:
        raise InvalidParameter("order_by_fields is not supported with multi-field group_by_fields")
    if asked.order and iterates:
        raise InvalidParameter("order_by is not supported when using search iterator")
    ranked = asked.ranker is not None or asked.boosts is not None
    if asked.order and ranked:
        raise InvalidParameter(
            "order_by and function_score cannot be used together: they specify conflicting sort criteria"
        )
    if asked.chains is not None:
        _check_chains(request)
    if ranked and iterates:
        raise InvalidParameter("function_score is not supported when using search iterator")
    if asked.ranker is not None:
        check_ranker(asked.ranker, 1)
    if request.highlight is not None and iterates:
        raise InvalidParameter("highlighter is not supported with search iterator")
    highlighted = () if request.highlight is None else request.highlight.columns(schema)
    return (
        *(() if asked.grouping is None else asked.grouping.fields),
        *bucket_columns(asked.levels),
        *check_decay_field(schema, asked.ranker),
        *(by.field for by in asked.order),
        *(asked.chains.proxy.fields if asked.chains and asked.chains.proxy else ()),
        *highlighted,
    )


def _check_chains(request: Search) -> None:
    """Raises `InvalidParameter` for what function chains cannot be combined with."""
    asked = request.template
    if request.iterates:
        raise InvalidParameter("function_chains is not supported when using search iterator")
    if asked.order:
        raise InvalidParameter(
            "order_by and function_chains cannot be used together: they specify conflicting sort criteria"
        )
    if asked.levels and asked.chains is not None and asked.chains.node is not None:
        raise InvalidParameter("L1 function chain is not supported with search_aggregation")
