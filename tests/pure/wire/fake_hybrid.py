"""Hybrid searches of the fake verbs: their own searches, fused as the proxy fuses them."""

from __future__ import annotations

from dataclasses import replace

from elanus.api.querynode import NodeHits
from elanus.proxy.api.search import HybridSearch, Search, SearchResult
from elanus.proxy.verbs.hits import fused, window
from elanus.proxy.verbs.hybrid import check_hybrid


class FakeHybrid:
    """A part of `fake_verbs.FakeVerbs`."""

    def search(self, request: Search) -> SearchResult:
        raise NotImplementedError

    def hybrid_search(self, request: HybridSearch) -> SearchResult:
        check_hybrid(request)
        own = {"partitions": request.partitions, "output_fields": request.output_fields}
        templates = [replace(search.template, **own) for search in request.searches]  # type: ignore[arg-type]
        parts = zip(request.searches, templates, strict=True)
        results = [self.search(replace(search, template=template)) for search, template in parts]
        hits, _ = fused(
            [NodeHits("L2", r.offsets, r.ids, r.scores, r.fields) for r in results], request.ranker
        )
        hits = window(hits, request.limit, request.offset)
        return replace(results[0], offsets=hits.offsets, ids=hits.ids, scores=hits.scores, fields=hits.fields)
