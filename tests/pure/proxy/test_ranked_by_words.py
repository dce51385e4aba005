"""Full-text search at the proxy: statistics first, then weighted terms, both as of one timestamp."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import DEFAULT, index
from fakes import collection as described
from read_bench import Bench, L, Nodes, Patience, changed
from test_hybrid import Verbs

from elanus.api.querynode import NodeHits, NodeSearch, NodeStatistics
from elanus.core.consistency import ReadConsistency
from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.functions import Function
from elanus.core.highlights import Highlighting
from elanus.core.ids import FieldID
from elanus.core.rankers import Weighted
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.sparse import NO_INDEX, indices_of, values_of
from elanus.core.term_statistics import TermStatistics
from elanus.proxy.api.search import HybridSearch, Search, SearchTemplate
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.text import Highlight, analyzer_from, query_terms, term_ids

WORDS = FieldID(102)
SCHEMA = CollectionSchema(
    "c",
    (
        FieldSchema(FieldID(100), "pk", DataType.INT64, is_primary=True),
        FieldSchema(
            FieldID(101), "text", DataType.VARCHAR, max_length=99, params={"enable_analyzer": "true"}
        ),
        FieldSchema(WORDS, "words", DataType.SPARSE_FLOAT_VECTOR, is_function_output=True),
    ),
    functions=(Function("bm25", "BM25", ("text",), ("words",)),),
)
RARE, COMMON = term_ids(pa.array(["rare", "common"])).tolist()


class TextNodes(Nodes):
    """Nodes with 100 texts of 7 words on average: one has "rare", all have "common"."""

    def statistics(self, request: NodeStatistics, patience: Patience) -> TermStatistics:
        self.asked.append(request)
        having = [{RARE: 1, COMMON: 100}.get(term, 0) for term in request.terms.tolist()]
        return TermStatistics(100, 700, np.array(having))

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        self.asked.append(request)
        return NodeHits("BM25", np.array([0, 2]), np.array([1, 2]), np.array([3.0, 1.0], np.float32), {})


class TextBench(Bench):
    def __init__(self) -> None:
        super().__init__(nodes=TextNodes())
        self.verbs = Verbs(self.verbs._current, None, tuple)  # type: ignore[assignment,arg-type]


def cached() -> CachedCollection:
    params = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25", "bm25_k1": "2", "bm25_b": "0.5"}
    found = replace(index(field_id=WORDS), params=params)
    view = collection_view("default", described(SCHEMA, level=L.BOUNDED))
    return CachedCollection(view, {"_default": DEFAULT}, (found,))


CACHED = cached()


def search(text: str, **changes: Any) -> Search:
    template = SearchTemplate(2, vector_field="words", metric_type="BM25")
    asked = Search(CACHED, template, query_terms(analyzer_from(""), [text]), ReadConsistency())
    return changed(asked, **changes)


def test_terms_get_their_weights_and_the_search_its_averages() -> None:
    bench = TextBench()
    found = bench.verbs.search(search("common rare rare unknown", params={"bm25_avgdl": 1, "radius": 0.5}))
    assert found.scores.tolist() == [3.0, 1.0]
    statistics, ranked = bench.nodes.asked
    assert statistics.field_id == WORDS
    assert statistics.terms.tolist() == sorted(statistics.terms.tolist())
    assert (statistics.read_ts, statistics.expired_until) == (ranked.read_ts, ranked.expired_until)
    assert ranked.read_ts > 0
    assert ranked.params == {"bm25_avgdl": 7.0, "bm25_k1": 2.0, "bm25_b": 0.5, "radius": 0.5}
    (pairs,) = ranked.queries
    weights = dict(zip(indices_of(pairs).tolist(), values_of(pairs).tolist(), strict=True))
    rarity = {1: np.log1p(99.5 / 1.5), 100: np.log1p(0.5 / 100.5), 0: np.log1p(100.5 / 0.5)}
    assert weights[RARE] == pytest.approx(2 * 3 * rarity[1])
    assert weights[COMMON] == pytest.approx(3 * rarity[100])
    assert max(weights.values()) == pytest.approx(2 * 3 * rarity[1])
    assert sorted(weights.values())[1] == pytest.approx(3 * rarity[0])


def test_nodes_know_how_long_the_client_of_one_text_waits() -> None:
    bench = TextBench()
    bench.verbs.search(replace(search("common"), timeout_s=60.0))
    ranked = bench.nodes.asked[-1]
    assert 0 < ranked.timeout_s <= 60


def test_a_text_without_words_finds_nothing_and_is_no_error() -> None:
    bench = TextBench()
    bench.verbs.search(search("!"))
    statistics, ranked = bench.nodes.asked
    assert len(statistics.terms) == 0
    assert indices_of(ranked.queries[0]).tolist() == [NO_INDEX]


def test_the_parts_of_a_hybrid_search_are_weighted_as_of_one_moment() -> None:
    bench = TextBench()
    found = bench.verbs.hybrid_search(  # type: ignore[attr-defined]
        HybridSearch(
            collection=CACHED,
            partitions=(),
            searches=(search("rare"), search("common")),
            ranker=Weighted((1.0, 1.0), normalized=True),
            limit=2,
            offset=0,
            output_fields=(),
            round_decimal=-1,
            consistency=ReadConsistency(),
        )
    )
    assert found.scores.tolist() == pytest.approx([4 * math.atan(s) / math.pi for s in (3.0, 1.0)])
    assert len({asked.read_ts for asked in bench.nodes.asked}) == 1
    assert [type(asked) for asked in bench.nodes.asked] == [NodeStatistics] * 2 + [NodeSearch] * 2


def test_refused_searches() -> None:
    bench = TextBench()
    by_ids = search("", queries=np.empty((0, 0), np.float32), query_ids=pa.array([1]))
    with pytest.raises(NotSupported, match=r"a search by ids on the output of a function \(field words\)"):
        bench.verbs.search(by_ids)
    with pytest.raises(InvalidParameter, match=r"metric type not match: .*expected=BM25"):
        bench.verbs.search(search("rare", metric_type="IP"))
    assert bench.nodes.asked == []


def test_hits_are_highlighted_in_a_column_that_is_not_returned() -> None:
    class Texts(TextNodes):
        def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
            found = super().search(request, patience)
            return replace(found, fields={"text": pa.array(["common words", "rarely common"])})

    bench = TextBench()
    bench.nodes.__class__ = Texts
    asked = Highlight(Highlighting(of_search=True), "text", ("common",))
    found = bench.verbs.search(search("common", highlight=asked))
    assert bench.nodes.asked[-1].output_fields == ("text",)
    assert found.fields == {}
    assert found.highlights == {"text": [["<em>common</em> words"], ["<em>common</em>"]]}
    with pytest.raises(InvalidParameter, match="highlighter is not supported with search iterator"):
        bench.verbs.search(search("common", highlight=asked, consistency=ReadConsistency(pinned=True)))
