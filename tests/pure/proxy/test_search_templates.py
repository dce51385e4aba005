"""Searches of one template share a plan: what does not depend on their vectors is checked once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes import schema
from read_bench import NOW, Bench, L, cached, search

from elanus.core.consistency import ReadConsistency
from elanus.core.errors import IndexNotFound, InvalidParameter
from elanus.core.requests import RequestLimits
from elanus.proxy.api.search import SearchTemplate

REPEATED = SearchTemplate(10, params={"ef": 50}, output_fields=("price",), may_repeat=True)


def test_searches_of_one_template_share_a_plan_and_have_vectors_of_their_own() -> None:
    bench, of, template = Bench(), cached(), replace(REPEATED, filter="price > 1")
    first = search(collection=of, template=template)
    bench.verbs.search(first)
    ones = np.ones((2, 2), np.float32)
    strong = ReadConsistency(L.STRONG)
    bench.verbs.search(replace(first, queries=ones, consistency=strong))
    bench.verbs.search(replace(first, template=replace(template)))
    one, other, apart = bench.nodes.asked
    assert other.params is one.params
    assert other.queries is ones
    assert (other.filter, other.output_fields, other.k) == (one.filter, one.output_fields, one.k)
    assert other.read_ts == NOW
    assert len(one.queries) == 1
    assert (apart.k, apart.output_fields) == (one.k, one.output_fields)
    kept = of.plans.searches.get(template)
    assert kept is not None
    assert kept.draft.queries.nbytes == 0, "the plan does not keep the first search's vectors"


def test_a_template_is_planned_again_for_a_changed_collection() -> None:
    bench, template = Bench(), REPEATED
    bench.verbs.search(search(template=template))
    with pytest.raises(InvalidParameter):
        bench.verbs.search(search(collection=cached(schema(vectors=2)), template=template))
    other = replace(template, vector_field="v0", metric_type="L2")
    bench.verbs.search(search(template=other))
    with pytest.raises(IndexNotFound):
        bench.verbs.search(search(collection=cached(indexed=False), template=template))


def test_a_template_does_not_spare_the_check_of_the_number_of_queries() -> None:
    bench, of, template = Bench(limits=RequestLimits(search_hits_max=60)), cached(), REPEATED
    for queries, fits in ((1, True), (6, True), (7, False)):
        asked = search(collection=of, template=template, queries=np.zeros((queries, 2), np.float32))
        if fits:
            bench.verbs.search(asked)
            continue
        with pytest.raises(InvalidParameter, match=r"at most 60 hits"):
            bench.verbs.search(asked)


@pytest.mark.parametrize(
    "changes",
    [
        {"filter": "random_sample(0.5)"},
        {"filter": "price in {prices}", "filter_values": {"prices": [1.0, 2.0]}},
        {"filter": f"price in [{', '.join(map(str, range(30_000)))}]"},
    ],
)
def test_filters_that_take_a_sample_or_are_large_are_not_kept(changes: dict[str, Any]) -> None:
    bench, of, template = Bench(), cached(), replace(REPEATED, **changes)
    for _ in range(2):
        bench.verbs.search(search(collection=of, template=template))
    one, other = bench.nodes.asked
    assert one.filter is not other.filter
