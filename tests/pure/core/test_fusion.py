"""Fusion against an oracle: dictionaries and loops, one row at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InvalidParameter
from elanus.core.fusion import Fused, RankedList, fuse
from elanus.core.metrics import Metric
from elanus.core.rankers import Decay, Ranker, Rrf, Weighted, boosted, check_ranker, random_shares

Hits = list[tuple[int, float]]
"""The hits of one query: key and score, best first."""
METRICS = st.sampled_from([Metric.L2, Metric.IP, Metric.COSINE, Metric.HAMMING, Metric.MHJACCARD])
DECAY = Decay("age", "gauss", 10.0, 4.0, 1.0, 0.5)


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[list[Hits]], list[Metric]]:
    """Some searches of the same one to three queries."""
    queries = draw(st.integers(1, 3))
    metrics = draw(st.lists(METRICS, min_size=1, max_size=4))
    found = []
    for metric in metrics:
        of_search = []
        for _ in range(queries):
            scores = draw(st.dictionaries(st.integers(0, 9), st.integers(-8, 8), max_size=8))
            sign = -1 if metric.bigger_is_better else 1
            ranked = sorted(scores.items(), key=lambda hit: (sign * hit[1], hit[0]))
            of_search.append([(key, score / 4) for key, score in ranked])
        found.append(of_search)
    return found, metrics


def listed(of_search: list[Hits], metric: Metric) -> RankedList:
    flat = [hit for hits in of_search for hit in hits]
    return RankedList(
        np.concatenate(([0], np.cumsum([len(hits) for hits in of_search]))).astype(np.int64),
        np.array([key for key, _ in flat], dtype=np.int64),
        np.array([score for _, score in flat], dtype=np.float32),
        metric,
    )


def keys_and_scores(fused: Fused, lists: Sequence[RankedList]) -> list[list[tuple[int, float]]]:
    keys = np.concatenate([found.keys for found in lists])[fused.places].tolist()
    hits = list(zip(keys, fused.scores.tolist(), strict=True))
    return [hits[a:b] for a, b in zip(fused.offsets[:-1].tolist(), fused.offsets[1:].tolist(), strict=True)]


def converted(score: float, metric: Metric, *, normalized: bool) -> float:
    if normalized and metric is Metric.COSINE:
        return (1 + score) / 2
    if metric is Metric.MHJACCARD:
        return score
    if normalized and metric.bigger_is_better:
        return 0.5 + math.atan(score) / math.pi
    return score if metric.bigger_is_better else 1 - 2 * math.atan(score) / math.pi


def oracle(found: list[list[Hits]], metrics: list[Metric], ranker: Ranker) -> list[dict[int, float]]:
    """The score of each row, for each query."""
    answers = []
    for query in range(len(found[0])):
        parts: dict[int, list[float]] = {}
        for number, (of_search, metric) in enumerate(zip(found, metrics, strict=True)):
            for rank, (key, score) in enumerate(of_search[query], start=1):
                part = score
                if isinstance(ranker, Rrf):
                    share = 1 if ranker.weights is None else ranker.weights[number]
                    part = share / (ranker.k + rank)
                elif (
                    ranker.normalized
                    or isinstance(ranker, Decay)
                    or len({m.bigger_is_better for m in metrics}) > 1
                ):
                    part = converted(score, metric, normalized=ranker.normalized)
                if isinstance(ranker, Weighted):
                    part *= ranker.weights[number]
                parts.setdefault(key, []).append(part)
        combine = {"max": max, "sum": sum, "avg": lambda p: sum(p) / len(p)}[
            ranker.score_mode if isinstance(ranker, Decay) else "sum"
        ]
        answers.append({key: combine(values) for key, values in parts.items()})
    return answers


def check(found: list[list[Hits]], metrics: list[Metric], ranker: Ranker) -> None:
    lists = [listed(of_search, metric) for of_search, metric in zip(found, metrics, strict=True)]
    factors = np.ones(sum(len(of.keys) for of in lists), np.float32) if isinstance(ranker, Decay) else None
    fused = fuse(lists, ranker, factors)
    for hits, expected in zip(keys_and_scores(fused, lists), oracle(found, metrics, ranker), strict=True):
        assert dict(hits) == pytest.approx(expected, abs=1e-5)
        sign = -1 if fused.larger_is_better else 1
        assert hits == sorted(hits, key=lambda hit: (sign * hit[1], hit[0]))


@given(drawn=searches(), k=st.integers(1, 100), data=st.data())
def test_rrf_is_what_a_loop_computes(
    drawn: tuple[list[list[Hits]], list[Metric]], k: int, data: st.DataObject
) -> None:
    check(*drawn, Rrf(k))
    check(*drawn, Rrf(k, tuple(data.draw(st.integers(0, 4)) / 4 for _ in drawn[1])))


@given(drawn=searches(), normalized=st.booleans(), data=st.data())
def test_weighted_is_what_a_loop_computes(
    drawn: tuple[list[list[Hits]], list[Metric]], normalized: bool, data: st.DataObject
) -> None:
    weights = tuple(data.draw(st.integers(0, 4)) / 4 for _ in drawn[1])
    check(*drawn, Weighted(weights, normalized))


@given(drawn=searches(), normalized=st.booleans(), mode=st.sampled_from(["max", "sum", "avg"]))
def test_the_scores_of_a_decay_are_combined_as_a_loop_does(
    drawn: tuple[list[list[Hits]], list[Metric]], normalized: bool, mode: str
) -> None:
    check(*drawn, Decay("age", "exp", 0.0, 1.0, score_mode=mode, normalized=normalized))


def test_distances_alone_stay_distances_without_normalization() -> None:
    lists = [listed([[(1, 0.5), (2, 3.0)]], Metric.L2), listed([[(2, 0.25), (1, 4.0)]], Metric.L2)]
    fused = fuse(lists, Weighted((0.5, 1.0)))
    assert not fused.larger_is_better
    assert keys_and_scores(fused, lists) == [[(2, 1.75), (1, 4.25)]]


def test_a_row_that_two_searches_found_is_taken_from_the_first() -> None:
    lists = [listed([[(7, 1.0)]], Metric.IP), listed([[(8, 1.0), (7, 0.5)]], Metric.IP)]
    assert fuse(lists, Rrf()).places.tolist() == [0, 1]


def test_factors_belong_to_the_rows_and_change_the_order() -> None:
    lists = [listed([[(1, 0.9), (2, 0.8)]], Metric.COSINE)]
    fused = fuse(lists, DECAY, np.array([0.5, 1.0], dtype=np.float32))
    assert keys_and_scores(fused, lists) == [[(2, pytest.approx(0.8)), (1, pytest.approx(0.45))]]


@pytest.mark.parametrize(
    ("curve", "at_scale", "far"),
    [("gauss", 0.5, 0.0), ("exp", 0.5, 0.0), ("linear", 0.5, 0.5)],
)
def test_a_decay_is_one_near_the_origin_and_its_value_at_the_scale(
    curve: str, at_scale: float, far: float
) -> None:
    decay = Decay("age", curve, origin=10, scale=4, offset=2, decay=0.5)
    factors = decay.factors(np.array([10.0, 12.0, 8.0, 16.0, 4.0, 1e6, np.nan]))
    assert factors.tolist() == pytest.approx([1, 1, 1, at_scale, at_scale, far, 0])


def test_the_curves_between_origin_and_scale() -> None:
    at = np.array([2.0])
    factors = [Decay("age", curve, 0, 4, decay=0.25).factors(at)[0] for curve in ("gauss", "exp", "linear")]
    assert factors == pytest.approx([0.25 ** ((2 / 4) ** 2), 0.25 ** (2 / 4), 1 - 0.75 * 2 / 4])


@pytest.mark.parametrize(("scale", "far"), [(1e-170, 0.0), (1e155, 1.0)])
def test_scales_whose_squares_are_no_doubles_are_scales(scale: float, far: float) -> None:
    factors = Decay("age", "gauss", 0, scale).factors(np.array([0.0, 5.0]))
    assert factors.tolist() == [1.0, far]


@pytest.mark.parametrize(("curve", "far"), [("gauss", 0.0), ("exp", 0.0), ("linear", 0.5)])
@pytest.mark.parametrize("scale", [5e-324, 1e-310])
def test_a_scale_too_small_to_divide_by_is_a_scale(curve: str, far: float, scale: float) -> None:
    factors = Decay("age", curve, 0, scale).factors(np.array([0.0, 5.0]))
    assert factors.tolist() == [1.0, far]


@pytest.mark.parametrize(
    ("ranker", "text"),
    [
        (Rrf(0), "The rank params k should be in range (0, 16384)"),
        (Rrf(16384), "The rank params k should be in range (0, 16384)"),
        (Rrf(math.nan), "The rank params k should be in range (0, 16384)"),
        (Weighted((0.5, 1.1)), "rank param weight should be in range [0, 1]"),
        (Weighted((-0.1, 1)), "rank param weight should be in range [0, 1]"),
        (Weighted((0.5,)), "the length of weights param mismatch with ann search requests"),
        (Rrf(60, (0.5,)), "the length of weights param mismatch with ann search requests"),
        (Rrf(60, ()), "[expected=2][actual=0]"),
        (Rrf(60, (0.5, 1.1)), "rank param weight should be in range [0, 1]"),
        (Rrf(60, (0.5, math.nan)), "rank param weight should be in range [0, 1]"),
        (Decay("a", "cubic", 0, 1), "Invaild decay function: cubic, only support [gauss,linear,exp]"),
        (Decay("a", "exp", 0, 0), "scale must > 0, but got 0.0"),
        (Decay("a", "exp", 0, 1, -1), "offset must >= 0, but got -1.0"),
        (Decay("a", "exp", 0, 1, decay=1), "decay must 0 < decay < 1, but got 1.0"),
        (Decay("a", "exp", 0, 1, score_mode="min"), "unsupported score_mode: min"),
        (Decay("a", "exp", math.inf, 1), "must be finite"),
    ],
)
def test_an_unusable_ranker_is_refused(ranker: Ranker, text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        check_ranker(ranker, 2)
    assert text in refused.value.message


@pytest.mark.parametrize(
    ("boost_mode", "function_mode", "expected"),
    [
        ("multiply", "multiply", [1, 4, 18, 0.5]),
        ("multiply", "sum", [1, 4, 15, 0.5]),
        ("sum", "multiply", [1, 4, 9, 0.5]),
        ("sum", "sum", [1, 4, 8, 0.5]),
    ],
)
def test_boosts_change_the_rows_that_they_match(
    boost_mode: str, function_mode: str, expected: list[float]
) -> None:
    scores = np.array([1, 2, 3, 0.5], dtype=np.float32)
    matches = [np.array([False, True, True, False]), np.array([False, False, True, False])]
    weights = [np.full(4, 2, np.float32), np.full(4, 3, np.float32)]
    assert boosted(scores, weights, matches, boost_mode, function_mode).tolist() == expected


def test_random_shares_depend_on_value_and_seed_alone() -> None:
    numbers = np.arange(10_000)
    shares = random_shares(numbers, 7)
    assert np.array_equal(shares[::-1], random_shares(numbers[::-1], 7))
    assert not np.array_equal(shares, random_shares(numbers, 8))
    assert shares.min() >= 0
    assert shares.max() < 1
    assert abs(float(shares.mean()) - 0.5) < 0.02
