"""Checks of `client_program`: searches that fuse, group, rank and order hits; queries that aggregate."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymilvus
from client_base import DIM, FLAT, L2, VECTORS, VERSION, check, collection, program
from client_checks_schema import refused
from pymilvus import Collection, DataType, FieldSchema, MilvusClient

ROWS = 300
OTHERS = VECTORS[::-1].copy()
"""The vectors of the second field."""
HYBRID = hasattr(pymilvus, "AnnSearchRequest")
FUNCTIONS = hasattr(pymilvus, "FunctionType") and hasattr(pymilvus.FunctionType, "RERANK")
BY_KEYS = "ids" in inspect.signature(MilvusClient.search).parameters
NEWEST = VERSION >= (3, 0)


@contextmanager
def two_vectors() -> Iterator[Collection]:
    """Rows 0, 1, 2 and so on, with two vectors each, a number and a tag."""
    fields = [
        FieldSchema("n", DataType.INT64),
        FieldSchema("tag", DataType.VARCHAR, max_length=9),
        FieldSchema("w", DataType.FLOAT_VECTOR, dim=DIM),
    ]
    with collection(*fields) as made:
        numbers = list(range(ROWS))
        made.insert([numbers, numbers, ["abc"[n % 3] for n in numbers], OTHERS, VECTORS])
        for name in ("v", "w"):
            made.create_index(name, FLAT, sync=False)
        made.load()
        yield made


def ranked(field: str, query: int, limit: int) -> dict[int, float]:
    """The keys and distances of the rows nearest to a row's first vector, nearest first."""
    vectors = {"v": VECTORS, "w": OTHERS}[field]
    distances = ((vectors - VECTORS[query]) ** 2).sum(axis=1)
    return {int(key): float(distances[key]) for key in np.argsort(distances, kind="stable")[:limit]}


def requests(*limits: int) -> list[object]:
    return [
        pymilvus.AnnSearchRequest(VECTORS[7:8].tolist(), field, L2, limit)
        for field, limit in zip(("v", "w"), limits, strict=True)
    ]


def fused(part: Callable[[int, int, float], float]) -> dict[int, float]:
    """The scores of a hybrid search; ``part``: of the number of a search, a rank and a distance."""
    scores: dict[int, float] = {}
    for number, field in enumerate(("v", "w")):
        for rank, (key, distance) in enumerate(ranked(field, 7, 20).items(), start=1):
            scores[key] = scores.get(key, 0) + part(number, rank, distance)
    return dict(sorted(scores.items(), key=lambda hit: (-hit[1], hit[0])))


def agree(hits: object, expected: dict[int, float]) -> None:
    assert list(hits.ids) == list(expected)  # type: ignore[attr-defined]
    assert np.allclose(hits.distances, list(expected.values()), atol=1e-5)  # type: ignore[attr-defined]


def first(scores: dict[int, float], start: int, stop: int) -> dict[int, float]:
    return dict(list(scores.items())[start:stop])


@check("Reads", "hybrid search over several vector fields: RRF, weighted, offset, filters", needs=HYBRID)
def _() -> None:
    with two_vectors() as made:
        expected = fused(lambda _, rank, __: 1 / (60 + rank))
        (hits,) = made.hybrid_search(requests(20, 20), pymilvus.RRFRanker(), 5, output_fields=["n"])
        agree(hits, first(expected, 0, 5))
        assert [hit.entity.get("n") for hit in hits] == list(hits.ids)
        (hits,) = made.hybrid_search(requests(20, 20), pymilvus.RRFRanker(), 5, offset=3)
        agree(hits, first(expected, 3, 8))
        weights = (0.25, 1.0)
        (hits,) = made.hybrid_search(requests(20, 20), pymilvus.WeightedRanker(*weights), 5)
        expected = fused(lambda number, _, d: weights[number] * (1 - 2 * math.atan(d) / math.pi))
        agree(hits, first(expected, 0, 5))
        filtered = [pymilvus.AnnSearchRequest(VECTORS[7:8].tolist(), "v", L2, 9, expr="n % 2 == 0")]
        (hits,) = made.hybrid_search(filtered, pymilvus.RRFRanker(), 5)
        assert len(hits) == 5
        assert all(key % 2 == 0 for key in hits.ids)


@check("Reads", "decay ranker of a search and of a hybrid search", needs=FUNCTIONS)
def _() -> None:
    with two_vectors() as made:
        client = MilvusClient(uri=program.uri)
        params = {"reranker": "decay", "function": "exp", "origin": 100, "scale": 50}
        decay = pymilvus.Function(
            name="near", function_type=pymilvus.FunctionType.RERANK, input_field_names=["n"], params=params
        )

        def expected(scores: dict[int, float]) -> list[int]:
            worth = {
                key: (1 - 2 * math.atan(distance) / math.pi) * 0.5 ** (abs(key - 100) / 50)
                for key, distance in scores.items()
            }
            return sorted(worth, key=lambda key: (-worth[key], key))

        (hits,) = client.search(
            made.name, VECTORS[7:8].tolist(), limit=10, anns_field="v", ranker=decay, search_params=L2
        )
        assert [hit["key"] for hit in hits] == expected(ranked("v", 7, 10))
        asked = requests(10, 10)[:1]
        (hits,) = client.hybrid_search(made.name, asked, decay, limit=4)
        assert [hit["key"] for hit in hits] == expected(ranked("v", 7, 10))[:4]


@check("Reads", "boost ranker of a search", needs=FUNCTIONS)
def _() -> None:
    with two_vectors() as made:
        client = MilvusClient(uri=program.uri)
        params = {"reranker": "boost", "filter": "n >= 100", "weight": 0.01}
        boost = pymilvus.Function(
            name="late", function_type=pymilvus.FunctionType.RERANK, input_field_names=[], params=params
        )
        (hits,) = client.search(
            made.name, VECTORS[7:8].tolist(), limit=50, anns_field="v", ranker=boost, search_params=L2
        )
        worth = {k: d * (0.01 if k >= 100 else 1) for k, d in ranked("v", 7, 50).items()}
        assert [hit["key"] for hit in hits] == sorted(worth, key=lambda key: (worth[key], key))


@check(
    "Reads", "grouping search: `group_by_field`, `group_size`, `strict_group_size`", needs=VERSION >= (2, 5)
)
def _() -> None:
    with two_vectors() as made:
        groups: dict[str, list[int]] = {}
        for key in ranked("v", 7, ROWS):
            groups.setdefault("abc"[key % 3], []).append(key)
        expected = [key for group in list(groups.values())[:2] for key in group[:4]]
        more = {"group_by_field": "tag", "group_size": 4, "strict_group_size": True, "output_fields": ["tag"]}
        (hits,) = made.search(VECTORS[7:8].tolist(), "v", L2, 2, **more)
        assert list(hits.ids) == expected
        (hits,) = made.search(VECTORS[7:8].tolist(), "v", L2, 3, group_by_field="tag", output_fields=["tag"])
        assert list(hits.ids) == [group[0] for group in groups.values()]


@check("Reads", "grouping search by values inside JSON and by dynamic keys", needs=VERSION >= (2, 6))
def _() -> None:
    with collection(FieldSchema("doc", DataType.JSON), enable_dynamic_field=True) as made:
        rows = [
            {"key": key, "doc": {"a": [key % 3]}, "v": VECTORS[key], "tag": "abc"[key % 3]}
            for key in range(90)
        ]
        made.insert(rows)
        made.create_index("v", FLAT, sync=False)
        made.load()
        nearest = [key for key in ranked("v", 7, ROWS) if key < 90]
        expected = [next(key for key in nearest if key % 3 == third) for third in range(3)]
        for name in ("doc['a'][0]", "tag"):
            (hits,) = made.search(VECTORS[7:8].tolist(), "v", L2, 5, group_by_field=name)
            assert sorted(hits.ids) == sorted(expected), name


@check("Reads", "function chains of a search: L0, L1 and L2 rerank", needs=VERSION >= (3, 0))
def _() -> None:
    from pymilvus.function_chain import FunctionChain, FunctionChainStage, col, fn

    client = MilvusClient(program.uri)
    with two_vectors() as made:

        def search(*chains: object, **more: Any) -> list[Any]:
            (hits,) = client.search(
                made.name,
                VECTORS[7:8].tolist(),
                anns_field="v",
                limit=20,
                function_chains=list(chains),
                **more,
            )
            return list(hits)

        near = ranked("v", 7, 20)
        fresh = fn.decay(col("n"), function="linear", origin=0, scale=300)
        total = fn.num_combine(col("$score"), col("fresh"), mode="weighted", weights=[0.1, 1.0])
        by_age = FunctionChain(FunctionChainStage.L2_RERANK).map("fresh", fresh).map("$score", total)
        hits = search(by_age.sort(col("$score"), desc=True, tie_break_col="$id").limit(5, offset=1))
        scores = {key: 0.1 * distance + 1 - key / 600 for key, distance in near.items()}
        best = sorted(scores, key=lambda key: (-scores[key], key))[1:6]
        assert [hit["key"] for hit in hits] == best
        assert np.allclose([hit["distance"] for hit in hits], [scores[key] for key in best], atol=1e-5)
        # on the hits of segments and nodes a distance is negative: larger scores are better
        added = fn.num_combine(col("$score"), col("n"))
        for stage in (FunctionChainStage.L0_RERANK, FunctionChainStage.L1_RERANK):
            hits = search(FunctionChain(stage).map("$score", added))
            assert [hit["key"] for hit in hits] == sorted(near, key=lambda key: near[key] - key)
        before = FunctionChain(FunctionChainStage.PRE_PROCESS).sort("$id")
        refused("is not supported in search request", lambda: search(before))


@check("Reads", "search by primary key", needs=BY_KEYS)
def _() -> None:
    with two_vectors() as made:
        client = MilvusClient(uri=program.uri)
        found = client.search(made.name, ids=[7, 3], limit=5, anns_field="v", search_params=L2)
        assert [[hit["key"] for hit in hits] for hits in found] == [
            list(ranked("v", key, 5)) for key in (7, 3)
        ]
    with collection(vector=FieldSchema("v", DataType.SPARSE_FLOAT_VECTOR, nullable=True)) as made:
        made.insert([{"key": n, "v": {n: 1.0} if n else None} for n in range(3)])
        made.create_index("v", {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"}, sync=False)
        made.load()
        found = client.search(made.name, ids=[2, 0, 1], limit=5, anns_field="v")
        assert [[hit["key"] for hit in hits] for hits in found] == [[2], [], [1]]


@check("Reads", "order by fields: searches and queries", needs=NEWEST)
def _() -> None:
    with two_vectors() as made:
        client = MilvusClient(uri=program.uri)
        order = [{"field": "tag", "order": "desc"}, {"field": "n", "order": "asc"}]
        (hits,) = client.search(
            made.name,
            VECTORS[7:8].tolist(),
            limit=9,
            anns_field="v",
            search_params=L2,
            order_by_fields=order,
        )
        assert [hit["key"] for hit in hits] == sorted(ranked("v", 7, 9), key=lambda k: (-(k % 3), k))
        (hits,) = client.search(
            made.name,
            VECTORS[7:8].tolist(),
            limit=3,
            anns_field="v",
            search_params=L2,
            output_fields=["tag"],
            group_by_field="tag",
            group_size=2,
            strict_group_size=True,
            order_by_fields=[{"field": "tag", "order": "desc"}],
        )
        near = ranked("v", 7, ROWS)
        assert [hit["key"] for hit in hits] == [
            k for tag in (2, 1, 0) for k in [key for key in near if key % 3 == tag][:2]
        ]
        rows = client.query(made.name, "n < 7", output_fields=["tag"], limit=3, order_by_fields=order)
        assert [row["key"] for row in rows] == [2, 5, 1]
        session = client.session("here")  # of one cluster of several, where there are several
        assert (
            session.query(made.name, "n < 7", output_fields=["tag"], limit=3, order_by_fields=order) == rows
        )


@check("Reads", "order by dynamic keys and paths inside them: searches", needs=NEWEST)
def _() -> None:
    with collection(enable_dynamic_field=True) as made:
        made.insert(
            [{"key": n, "v": VECTORS[n], "age": n % 3, "user": {"n": [n / 2]}} for n in range(9)]
            + [{"key": 9, "v": VECTORS[9]}]
        )
        made.create_index("v", FLAT, sync=False)
        made.load()
        client = MilvusClient(uri=program.uri)

        def found(*order: tuple[str, str]) -> list[int]:
            by = [{"field": field, "order": direction} for field, direction in order]
            (hits,) = client.search(
                made.name, VECTORS[:1].tolist(), limit=10, search_params=L2, order_by_fields=by
            )
            return [hit["key"] for hit in hits]

        expected = sorted(range(9), key=lambda n: (-(n % 3), n))
        assert found(("age", "desc"), ('user["n"][0]', "asc")) == [9, *expected]
        assert found(("age", "asc"), ("key", "asc"))[-1] == 9  # without an age: last, unless asked for first
        assert found(("age", "asc:nulls_first"), ("key", "asc"))[0] == 9
        by_age = [{"field": "age", "order": "asc"}]
        refused(
            "order_by field 'age' does not exist in collection schema",
            lambda: client.query(made.name, "key >= 0", limit=3, order_by_fields=by_age),
        )


@check("Reads", "aggregates and `group_by_fields` in queries", needs=NEWEST)
def _() -> None:
    with two_vectors() as made:
        client = MilvusClient(uri=program.uri)
        outputs = ["tag", "count(*)", "sum(n)", "min(n)", "max(n)", "avg(n)"]
        rows = client.query(made.name, "n < 10", output_fields=outputs, group_by_fields=["tag"])
        expected = {tag: [n for n in range(10) if "abc"[n % 3] == tag] for tag in "abc"}
        assert {row["tag"]: [row[name] for name in outputs[1:]] for row in rows} == {
            tag: [len(ns), sum(ns), min(ns), max(ns), sum(ns) / len(ns)] for tag, ns in expected.items()
        }
        assert client.query(made.name, "", output_fields=["max(n)"]) == [{"max(n)": ROWS - 1}]
    moments = FieldSchema("at", DataType.TIMESTAMPTZ)
    with collection(moments) as made:
        days = [f"2025-01-0{n % 3 + 1}T00:00:00Z" for n in range(9)]
        made.insert([{"key": n, "v": VECTORS[n], "at": day} for n, day in enumerate(days)])
        made.create_index("v", FLAT, sync=False)
        made.load()
        rows = client.query(made.name, "", output_fields=["at", "count(*)"], group_by_fields=["at"])
        assert [(row["at"], row["count(*)"]) for row in rows] == [(day, 3) for day in days[:3]]
        assert client.query(made.name, "", output_fields=["max(at)"]) == [{"max(at)": days[2]}]


@check("Reads", "search aggregation: nested buckets, metrics, orders, hits", needs=NEWEST)
def _() -> None:
    with two_vectors() as made:
        client = MilvusClient(uri=program.uri)
        size = 4
        aggregation = pymilvus.SearchAggregation(
            ["tag"],
            2,
            metrics={"mean": {"avg": "n"}, "worst": {"max": "_score"}},
            order=[{"mean": "desc"}],
            top_hits=pymilvus.TopHits(size, sort=[{"n": "desc"}]),
            sub_aggregation=pymilvus.SearchAggregation(["n"], size, metrics={"count": {"count": "*"}}),
        )
        asked: Any = {"anns_field": "v", "search_params": L2, "output_fields": ["n", "tag"]}
        found = client.search(
            made.name, VECTORS[7:9].tolist(), search_aggregation=aggregation, filter="n < 40", **asked
        )
        assert [len(hits) for hits in found] == [0, 0]
        for query, buckets in zip((7, 8), found.agg_buckets, strict=True):
            scores = {key: score for key, score in ranked("v", query, ROWS).items() if key < 40}
            # every value of n is a group of its own; the best eight groups are kept
            kept = list(scores)[: 2 * size]
            tags: dict[str, list[int]] = {}
            for key in kept:
                tags.setdefault("abc"[key % 3], []).append(key)
            means = {tag: sum(own) / len(own) for tag, own in tags.items()}
            wanted = sorted(means, key=lambda tag: -means[tag])[:2]
            assert [[part["value"] for part in bucket.key] for bucket in buckets] == [[t] for t in wanted]
            for tag, bucket in zip(wanted, buckets, strict=True):
                assert (bucket.count, bucket.metrics["mean"]) == (len(tags[tag]), means[tag])
                assert np.isclose(bucket.metrics["worst"], max(scores[key] for key in tags[tag]))
                best = sorted(tags[tag], reverse=True)[:size]
                assert [hit.pk for hit in bucket.hits] == best
                assert [hit.fields for hit in bucket.hits] == [{"n": key, "tag": tag} for key in best]
                assert [child.key[0]["value"] for child in bucket.sub_groups] == tags[tag][:size]
