"""A search that asks for its recall is repeated exactly, as of the same timestamp."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from read_bench import Patience, changed
from test_hybrid import HybridBench, TableNodes, hybrid

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping
from elanus.core.metrics import ITERATOR_PAGE, TRUTH
from elanus.proxy.api.search import BoostRequests, IteratorPage


class Forgetful(TableNodes):
    """Approximate searches miss every second row."""

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        if TRUTH in request.params:
            return super().search(request, patience)
        found = super().search(replace(request, k=2 * request.k), patience)
        kept = np.arange(0, len(found.ids), 2)
        fields = {name: column.take(kept) for name, column in found.fields.items()}
        return NodeHits("L2", found.offsets // 2, found.ids[kept], found.scores[kept], fields)


def test_without_the_parameter_there_is_one_search_and_no_recall() -> None:
    made = HybridBench()
    assert made.search().recalls == ()
    assert len(made.nodes.asked) == 1


def test_each_query_has_its_recall() -> None:
    made = HybridBench()
    queries = np.array([[0, 0], [11, 0]], dtype=np.float32)
    assert made.search(measures_recall=True, queries=queries).recalls == (1.0, 1.0)
    first, truth = made.nodes.asked
    assert truth.read_ts == first.read_ts
    assert truth.params[ITERATOR_PAGE] is True
    assert truth.params[TRUTH] is True
    assert truth.output_fields == ()


def test_hits_that_are_missed_lower_it() -> None:
    made = HybridBench()
    made.nodes.__class__ = Forgetful
    (recall,) = made.search(measures_recall=True, queries=np.array([[0, 0]], dtype=np.float32)).recalls
    assert recall == 0.5


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"grouping": Grouping(("price",), 1, False)}, "groups"),
        ({"page": IteratorPage(3)}, "an iterator"),
        ({"boosts": BoostRequests((), "multiply", "multiply")}, "boosts"),
    ],
)
def test_searches_whose_recall_means_nothing_are_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidParameter, match=f"not supported in a search with {what}"):
        HybridBench().search(measures_recall=True, **changes)


def test_a_hybrid_search_has_none() -> None:
    request = hybrid()
    searches = tuple(changed(search, measures_recall=True) for search in request.searches)
    with pytest.raises(InvalidParameter, match="not supported in hybrid search"):
        HybridBench().hybrid(searches=searches)
