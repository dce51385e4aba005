"""Hybrid searches, rankers, groups and keys through the proxy, over nodes that compare every row."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from fakes import DEFAULT, index, schema
from fakes import collection as described
from read_bench import NOW, Bench, L, Nodes, Patience, changed

from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch
from elanus.core.consistency import ReadConsistency
from elanus.core.errors import ElanusError, InvalidFilter, InvalidParameter
from elanus.core.function_chains import Call, Chain, Chains, Limit, Map, Operation, Sort
from elanus.core.grouping import Grouping, choose_groups, group_codes
from elanus.core.ids import FieldID
from elanus.core.ordering import OrderBy
from elanus.core.rankers import Decay, Ranker, Rrf, Weighted
from elanus.core.requests import RequestLimits
from elanus.proxy.api.query import Query
from elanus.proxy.api.search import (
    BoostRequest,
    BoostRequests,
    HybridSearch,
    Search,
    SearchResult,
    SearchTemplate,
)
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.proxy.verbs.hits import fused, groups_window
from elanus.proxy.verbs.hybrid import HybridSearching
from elanus.proxy.verbs.query import Querying
from elanus.proxy.verbs.search import Searching

SCHEMA = schema(vectors=2)
ROWS = 12
FIRST = np.array([[n, 0] for n in range(ROWS)], dtype=np.float32)
SECOND = np.array([[0, (5 * n) % ROWS] for n in range(ROWS)], dtype=np.float32)
PRICES = [float(n // 3) for n in range(ROWS)]


class TableNodes(Nodes):
    """Query nodes that hold a table of rows with the keys 0, 1, 2 …, two vectors each, compared by L2."""

    columns: ClassVar[dict[str, pa.Array]] = {
        "pk": pa.array(range(ROWS), pa.int64()),
        "price": pa.array(PRICES, pa.float64()),
        "v0": pa.FixedSizeListArray.from_arrays(
            pa.array(FIRST.reshape(-1)), type=SCHEMA.field("v0").arrow_type
        ),
        "v1": pa.FixedSizeListArray.from_arrays(
            pa.array(SECOND.reshape(-1)), type=SCHEMA.field("v1").arrow_type
        ),
    }

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        self.asked.append(request)
        vectors = FIRST if request.field_id == SCHEMA.field("v0").field_id else SECOND
        rows, scores = [], []
        offsets = [0]
        for query in request.queries:
            distances = ((vectors - query) ** 2).sum(axis=1)
            best = np.lexsort((np.arange(ROWS), distances))
            if request.grouping is not None:
                codes = group_codes(
                    [self.columns[name].take(pa.array(best)) for name in request.grouping.fields]
                )
                chosen = choose_groups(np.array([0, ROWS]), codes, request.grouping, request.k)
                best = best[chosen.places]
            else:
                best = best[: request.k]
            rows += best.tolist()
            scores += distances[best].tolist()
            offsets.append(len(rows))
        taken = pa.array(rows, pa.int64())
        fields = {name: self.columns[name].take(taken) for name in request.output_fields}
        return NodeHits(
            "L2",
            np.array(offsets),
            np.array(rows, dtype=np.int64),
            np.array(scores, dtype=np.float32),
            fields,
        )

    def query(self, request: NodeQuery, patience: Patience) -> dict[str, pa.Array]:
        self.asked.append(request)
        keys = [key for key in range(ROWS) if key in (request.primary_keys or pa.array([])).to_pylist()]
        return {name: self.columns[name].take(pa.array(keys)) for name in ("pk", *request.output_fields)}


class Verbs(HybridSearching, Searching, Querying):
    """The verbs that read."""


class HybridBench(Bench):
    def __init__(self, limits: RequestLimits | None = None) -> None:
        super().__init__(nodes=TableNodes(), limits=limits)
        self.verbs = Verbs(self.verbs._current, None, tuple)  # type: ignore[assignment,arg-type]

    def hybrid(self, **changes: Any) -> SearchResult:
        return self.verbs.hybrid_search(hybrid(**changes))  # type: ignore[attr-defined,no-any-return]

    def search(self, **changes: Any) -> SearchResult:
        return self.verbs.search(changed(search("v0", [3, 0], 4), **{"output_fields": ("price",), **changes}))


def cached() -> CachedCollection:
    found = described(SCHEMA, level=L.BOUNDED)
    indexes = tuple(replace(index(), field_id=SCHEMA.field(name).field_id) for name in ("v0", "v1"))
    return CachedCollection(collection_view("default", found), {"_default": DEFAULT}, indexes)


CACHED = cached()


def search(field: str, query: list[float], limit: int, **changes: Any) -> Search:
    template = SearchTemplate(limit, vector_field=field, metric_type="L2")
    asked = Search(CACHED, template, np.array([query], dtype=np.float32), ReadConsistency())
    return changed(asked, **changes)


def hybrid(ranker: Ranker = Rrf(), **changes: Any) -> HybridSearch:  # noqa: B008 - immutable
    asked = HybridSearch(
        collection=CACHED,
        partitions=(),
        searches=(search("v0", [3, 0], 6), search("v1", [0, 4], 5)),
        ranker=ranker,
        limit=4,
        offset=0,
        output_fields=("price",),
        round_decimal=-1,
        consistency=ReadConsistency(),
    )
    return replace(asked, **changes)


def ranked(field: str, query: list[float], limit: int) -> list[tuple[int, float]]:
    """The keys and distances of the nearest rows."""
    vectors = FIRST if field == "v0" else SECOND
    distances = {key: float(((vectors[key] - query) ** 2).sum()) for key in range(ROWS)}
    return sorted(distances.items(), key=lambda hit: (hit[1], hit[0]))[:limit]


def expected_rrf() -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    for found in (ranked("v0", [3, 0], 6), ranked("v1", [0, 4], 5)):
        for rank, (key, _) in enumerate(found, start=1):
            scores[key] = scores.get(key, 0) + 1 / (60 + rank)
    return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))


def hits(result: SearchResult) -> list[tuple[int, float]]:
    return list(zip(result.ids.tolist(), result.scores.tolist(), strict=True))


def test_the_hits_of_all_searches_are_fused() -> None:
    bench = HybridBench()
    result = bench.hybrid()
    expected = expected_rrf()
    assert [key for key, _ in hits(result)] == [key for key, _ in expected[:4]]
    assert result.scores.tolist() == pytest.approx([score for _, score in expected[:4]])
    assert result.fields["price"].to_pylist() == [PRICES[key] for key in result.ids.tolist()]
    assert list(result.fields) == ["price"]
    window = bench.hybrid(offset=2, limit=3)
    assert [key for key, _ in hits(window)] == [key for key, _ in expected[2:5]]


def test_all_searches_are_as_of_one_timestamp_and_take_one_place_in_the_queue() -> None:
    bench = HybridBench()
    bench.hybrid(consistency=ReadConsistency(L.STRONG))
    first, second = bench.nodes.asked
    assert first.read_ts == second.read_ts == NOW
    assert (first.field_id, second.field_id) == (FieldID(102), FieldID(103))
    assert (first.k, second.k) == (6, 5)
    assert len(bench.nodes.waited) <= 1


def test_weights_and_rounding() -> None:
    result = HybridBench().hybrid(ranker=Weighted((0.25, 0.75), normalized=True), round_decimal=3, limit=11)
    scores: dict[int, float] = {}
    for weight, found in ((0.25, ranked("v0", [3, 0], 6)), (0.75, ranked("v1", [0, 4], 5))):
        for key, distance in found:
            scores[key] = scores.get(key, 0) + weight * (1 - 2 * math.atan(distance) / math.pi)
    assert dict(hits(result)) == pytest.approx({k: round(s, 3) for k, s in scores.items()}, abs=1e-6)


def test_a_decay_reads_its_field_and_does_not_return_it() -> None:
    decay = Decay("price", "linear", origin=0, scale=2)
    result = HybridBench().hybrid(ranker=decay, output_fields=(), limit=11)
    best: dict[int, float] = {}
    for found in (ranked("v0", [3, 0], 6), ranked("v1", [0, 4], 5)):
        for key, distance in found:
            best[key] = max(best.get(key, -1), 1 - 2 * math.atan(distance) / math.pi)
    expected = {key: score * max(0.5, 1 - 0.25 * PRICES[key]) for key, score in best.items()}
    assert dict(hits(result)) == pytest.approx(expected, abs=1e-6)
    assert result.fields == {}


def test_groups_of_a_hybrid_search() -> None:
    grouping = Grouping(("pk",), 1)
    result = HybridBench().hybrid(grouping=grouping, limit=3, offset=1)
    assert [key for key, _ in hits(result)] == [key for key, _ in expected_rrf()[1:4]]
    assert result.groups["pk"].to_pylist() == result.ids.tolist()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"searches": ()}, "minimum of ann search requests is 1"),
        ({"searches": (search("v0", [0, 0], 1),) * 1025}, "maximum of ann search requests is 1024"),
        ({"ranker": Weighted((1.0,))}, "the length of weights param mismatch with ann search requests"),
        ({"ranker": Rrf(0)}, "The rank params k should be in range (0, 16384)"),
        ({"ranker": Decay("v0", "exp", 0, 1)}, "Decay rerank: unsupported input field type:FloatVector"),
        ({"ranker": Decay("nowhere", "exp", 0, 1)}, "input field nowhere of the decay ranker not found"),
        ({"limit": 0}, "limit [0] is invalid, should be greater than 0"),
        ({"round_decimal": 9}, "round_decimal [9] is invalid"),
        ({"group_scorer": "min"}, "input group scorer type: min is not supported!"),
        ({"grouping": Grouping(("price",))}, "unsupported data type DOUBLE for group by operator"),
        ({"grouping": Grouping(("pk",), 11)}, "exceeds configured max group size:10"),
        (
            {
                "searches": (
                    search("v0", [0, 0], 1),
                    search("v0", [0, 0], 1, queries=np.zeros((2, 2), np.float32)),
                )
            },
            "sub search request nq should be the same: invalid parameter[expected=1][actual=2]",
        ),
        ({"searches": (search("v0", [0, 0], 1, metric_type="IP"),)}, "metric type not match"),
        ({"searches": (search("v0", [0, 0], 1, order=(OrderBy("pk"),)),)}, "belong to the hybrid search"),
        (
            {"searches": (search("v0", [0, 0], 1, chains=Chains(proxy=Chain((), ()))),)},
            "L2 function chain is not supported in a search of a hybrid search",
        ),
        (
            {"searches": (search("v0", [0, 0], 1, consistency=ReadConsistency(pinned=True)),)},
            "cannot be a page of an iterator",
        ),
        (
            {"searches": (search("v0", [0, 0], 1, params={"radius": 1}),), "grouping": Grouping(("pk",))},
            "Not allowed to do range-search when doing search-group-by",
        ),
    ],
)
def test_an_unusable_hybrid_search_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ElanusError) as refused:
        HybridBench().hybrid(**changes)
    assert text in refused.value.message


def test_the_searches_together_have_a_limit_of_hits() -> None:
    HybridBench(RequestLimits(search_hits_max=11)).hybrid()
    with pytest.raises(InvalidParameter, match=r"proxy\.search_hits_max"):
        HybridBench(RequestLimits(search_hits_max=10)).hybrid()
    with pytest.raises(InvalidParameter, match=r"proxy\.answer_max_mb"):
        HybridBench(RequestLimits(answer_bytes_max=80)).hybrid()


def test_a_search_by_keys_takes_their_vectors_as_of_its_own_moment() -> None:
    bench = HybridBench()
    ids = pa.array([7, 2, 7], pa.int64())
    result = bench.search(query_ids=ids, queries=np.empty((0, 0), np.float32))
    asked, searched = bench.nodes.asked
    assert (asked.read_ts, asked.output_fields) == (searched.read_ts, ("v0",))
    assert searched.queries.tolist() == [[7, 0], [2, 0], [7, 0]]
    assert result.ids.tolist()[::4] == [7, 2, 7]
    with pytest.raises(InvalidParameter, match=r"no rows with the primary keys \[99\] to search with"):
        bench.search(query_ids=pa.array([1, 99], pa.int64()), queries=np.empty((0, 0), np.float32))


def test_a_ranker_changes_the_scores_of_an_ordinary_search() -> None:
    result = HybridBench().search(ranker=Decay("price", "linear", origin=9, scale=9))
    scores = {
        key: (1 - 2 * math.atan(distance) / math.pi) * (1 - abs(PRICES[key] - 9) / 18)
        for key, distance in ranked("v0", [3, 0], 4)
    }
    assert hits(result) == [
        (key, pytest.approx(scores[key], abs=1e-6)) for key in sorted(scores, key=lambda k: -scores[k])
    ]


def test_groups_of_an_ordinary_search() -> None:
    bench = HybridBench()
    result = bench.search(grouping=Grouping(("pk",), 2), limit=2, offset=1)
    assert result.ids.tolist() == [key for key, _ in ranked("v0", [3, 0], 4)][1:3]
    assert result.groups["pk"].to_pylist() == result.ids.tolist()
    (asked,) = bench.nodes.asked
    assert (asked.k, asked.grouping, asked.output_fields) == (3, Grouping(("pk",), 2), ("price", "pk"))
    assert asked.candidates_max == RequestLimits().search_hits_max
    with pytest.raises(InvalidParameter, match="one search may have at most 5 hits"):
        HybridBench(RequestLimits(search_hits_max=5)).search(grouping=Grouping(("pk",), 2))


def test_hits_are_returned_in_the_order_of_a_field() -> None:
    order = (OrderBy("price", descending=True), OrderBy("pk"))
    result = HybridBench().search(order=order)
    found = [key for key, _ in ranked("v0", [3, 0], 4)]
    assert result.ids.tolist() == sorted(found, key=lambda key: (-PRICES[key], key))
    nearest = dict(ranked("v0", [3, 0], 4))
    assert dict(hits(result)) == nearest


def chain(*operations: Operation) -> Chain:
    return Chain(operations, ("price",))


def test_a_chain_of_the_proxy_scores_orders_and_cuts_hits() -> None:
    decay = {"function": "linear", "origin": 0.0, "scale": 9.0, "offset": 0.0, "decay": 0.5}
    scored = Map("$score", Call("decay", ("price",), dict(decay)))
    by_score = Sort("$score", descending=True, tie_break="$id")
    near = [key for key, _ in ranked("v0", [3, 0], 5)]
    bench = HybridBench()
    result = bench.search(chains=Chains(proxy=chain(scored, by_score)), limit=3, offset=2)
    assert result.ids.tolist() == sorted(near, key=lambda key: (PRICES[key], key))[2:]
    assert result.scores.tolist() == [pytest.approx(1 - PRICES[key] / 18) for key in result.ids.tolist()]
    (asked,) = bench.nodes.asked
    assert (asked.output_fields, asked.chains) == (("price",), None)
    # a chain that has a limit says itself which hits are returned
    paged = Chains(node=chain(scored), proxy=chain(Sort("$id"), Limit(2, 1)))
    bench = HybridBench()
    assert bench.search(chains=paged, limit=3, offset=2).ids.tolist() == sorted(near)[1:3]
    assert bench.nodes.asked[0].chains == Chains(node=chain(scored))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"order": (OrderBy("pk"),)}, "order_by and function_chains cannot be used together"),
        ({"consistency": ReadConsistency(pinned=True)}, "function_chains is not supported .* iterator"),
    ],
)
def test_a_chain_that_is_combined_wrongly_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidParameter, match=expected):
        HybridBench().search(chains=Chains(proxy=chain(Sort("$id"))), **changes)


def test_boosts_are_compiled_and_sent_to_the_nodes() -> None:
    bench = HybridBench()
    bench.search(boosts=BoostRequests((BoostRequest("price > 1", 0.5, is_random=True, random_field="pk"),)))
    (asked,) = bench.nodes.asked
    (boost,) = asked.boosts.functions
    assert (boost.filter.text, boost.weight, boost.random_field) == ("price > 1", 0.5, "pk")


def test_boosts_have_the_placeholders_of_their_search() -> None:
    bench = HybridBench()
    boosts = BoostRequests((BoostRequest("price > {low}", 2.0), BoostRequest("", 3.0)))
    bench.search(boosts=boosts, filter="price < {high}", filter_values={"low": 1, "high": 9})
    (asked,) = bench.nodes.asked
    assert asked.boosts.functions[0].filter.values["low"] == 1
    with pytest.raises(InvalidFilter, match="low"):
        HybridBench().search(boosts=boosts, filter="price < {high}", filter_values={"high": 9})


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"boosts": BoostRequests((BoostRequest("price >", 1),))},
            InvalidFilter,
            "failed to create query plan",
        ),
        (
            {"boosts": BoostRequests((BoostRequest("", 1, is_random=True, random_field="price"),))},
            InvalidParameter,
            "only support int64 field as random seed, but got DOUBLE",
        ),
        (
            {"ranker": Rrf(), "order": (OrderBy("pk"),)},
            InvalidParameter,
            "order_by and function_score cannot be used together",
        ),
        (
            {"order": (OrderBy("pk"),), "consistency": ReadConsistency(pinned=True)},
            InvalidParameter,
            "order_by is not supported when using search iterator",
        ),
        (
            {"ranker": Rrf(), "consistency": ReadConsistency(pinned=True)},
            InvalidParameter,
            "function_score is not supported when using search iterator",
        ),
        (
            {"grouping": Grouping(("pk",)), "consistency": ReadConsistency(pinned=True)},
            InvalidParameter,
            "Not allowed to do groupBy when doing iteration",
        ),
        ({"ranker": Weighted((1, 1))}, InvalidParameter, "the length of weights param mismatch"),
    ],
)
def test_combinations_without_a_meaning_are_refused(
    changes: dict[str, Any], kind: type[ElanusError], text: str
) -> None:
    with pytest.raises(kind) as refused:
        HybridBench().search(**changes)
    assert text in refused.value.message


class Answering(Nodes):
    """Nodes that answer every query with partial results of their own."""

    def query(self, request: NodeQuery, patience: Patience) -> dict[str, pa.Array]:
        self.asked.append(request)
        if request.aggregation is None:
            return {"pk": pa.array([2, 1, 3]), "price": pa.array([9.0, 8.0, 7.0])}
        return {
            "pk": pa.array([2, 1, 1]),
            "count(*)": pa.array([1, 2, 3], pa.int64()),
            "total(price)": pa.array([4.0, 5.0, 6.0]),
            "count(price)": pa.array([1, 1, 2], pa.int64()),
        }


def asked_query(**changes: Any) -> Query:
    return replace(Query(CACHED, (), "", (), None, 0, ReadConsistency()), **changes)


def test_aggregates_of_all_nodes_are_combined_and_finished() -> None:
    bench = Bench(nodes=Answering())
    names = ("count(*)", "pk", "avg(price)")
    result = bench.verbs.query(asked_query(output_fields=names, group_by=("pk",)))
    assert {name: column.to_pylist() for name, column in result.fields.items()} == {
        "count(*)": [5, 1],
        "pk": [1, 2],
        "avg(price)": [pytest.approx(11 / 3), 4.0],
    }
    assert (tuple(result.fields), result.output_fields) == (names, names)
    order = (OrderBy("pk", descending=True),)
    last = bench.verbs.query(
        asked_query(output_fields=names, group_by=("pk",), order=order, limit=1, offset=1)
    )
    assert last.fields["pk"].to_pylist() == [1]


def test_an_order_reads_its_fields_and_does_not_return_them() -> None:
    bench = Bench(nodes=Answering())
    order = (OrderBy("price", descending=True),)
    result = bench.verbs.query(asked_query(output_fields=("pk",), limit=2, offset=1, order=order))
    (asked,) = bench.nodes.asked
    assert (asked.output_fields, asked.order, asked.limit) == (("pk", "price"), order, 3)
    assert {name: column.to_pylist() for name, column in result.fields.items()} == {"pk": [1, 3]}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"output_fields": ("price",), "group_by": ("pk",)},
            "output field price is neither in group_by_fields",
        ),
        ({"output_fields": ("sum(price)", "pk")}, "output field pk is neither in group_by_fields"),
        ({"group_by": ("price",)}, "group by field price has unsupported data type Double"),
        (
            {"output_fields": ("count(*)",), "group_by": ("pk",), "order": (OrderBy("price"),)},
            "ORDER BY field 'price' is not valid",
        ),
    ],
)
def test_an_unusable_aggregation_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        Bench(nodes=Answering()).verbs.query(asked_query(**changes))
    assert text in refused.value.message


def test_string_keys_and_searches_without_hits() -> None:
    fields = {"price": pa.array([1.0, 2.0])}
    two = NodeHits("IP", np.array([0, 2]), pa.array(["b", "a"]), np.array([0.5, 0.5], np.float32), fields)
    none = NodeHits(
        "IP",
        np.array([0, 0]),
        pa.array([], pa.string()),
        np.empty(0, np.float32),
        {"price": pa.array([], pa.float64())},
    )
    found, descending = fused([none, two, none], Weighted((1, 1, 1)))
    assert descending
    assert (found.ids.to_pylist(), found.fields["price"].to_pylist()) == (["a", "b"], [2.0, 1.0])
    empty, _ = fused([none, none], Rrf())
    assert (empty.offsets.tolist(), len(empty.ids), len(empty.fields["price"])) == ([0, 0], 0, 0)
    assert groups_window(empty, Grouping(("price",)), 3, 0).offsets.tolist() == [0, 0]
