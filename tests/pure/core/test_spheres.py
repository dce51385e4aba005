"""Spheres bound scores, groups of centroids are even, and pruning by spheres loses no hit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.metrics import Metric
from elanus.core.sphere_pruning import SpherePruning
from elanus.core.spheres import Spheres, grouped, spheres_around

DIM = 6
METRICS = [Metric.L2, Metric.IP, Metric.COSINE]


def scores(queries: np.ndarray, rows: np.ndarray, metric: Metric) -> np.ndarray:
    """As an index computes them: in float32."""
    if metric is Metric.L2:
        return ((queries[:, None] - rows) ** 2).sum(axis=2, dtype=np.float32)
    if metric is Metric.COSINE:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    return queries @ rows.T


def around(rows: np.ndarray, count: int, seed: int) -> Spheres:
    centroids = rows[np.random.default_rng(seed).choice(len(rows), count, replace=False)]
    of = ((rows[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    return spheres_around(centroids, np.array_split(rows, 3), of)


@pytest.mark.parametrize("metric", METRICS)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-3, 1.0, 1e3]), shift=st.sampled_from([0, 50]))
def test_no_row_is_better_than_the_bound(metric: Metric, seed: int, scale: float, shift: float) -> None:
    chance = np.random.default_rng(seed)
    rows = ((chance.normal(size=(60, DIM)) + shift) * scale).astype(np.float32)
    if seed % 3 == 0:
        rows[0] = 0
    queries = np.concatenate((rows[1:4], chance.normal(size=(5, DIM)) * scale)).astype(np.float32)
    spheres = around(rows, 1 + seed % 5, seed)
    found = scores(queries, rows, metric)
    bounds = spheres.best_scores(queries, metric)
    if metric.bigger_is_better:
        assert (found.max(axis=1) <= bounds).all()
    else:
        assert (found.min(axis=1) >= bounds).all()


def test_a_far_sphere_has_a_useful_bound() -> None:
    rows = np.random.default_rng(1).normal(size=(50, DIM)).astype(np.float32) + 100
    spheres = around(rows, 4, 1)
    query = np.zeros((1, DIM), np.float32) - [1.0] + 0.5 * np.eye(1, DIM)
    real = scores(query.astype(np.float32), rows, Metric.L2).min()
    assert 0.8 * real < spheres.best_scores(query.astype(np.float32), Metric.L2)[0] <= real
    assert spheres.best_scores(query.astype(np.float32), Metric.COSINE)[0] < -0.8


@pytest.mark.parametrize("metric", METRICS)
def test_without_spheres_no_row_has_a_vector(metric: Metric) -> None:
    none = spheres_around(np.empty((0, DIM), np.float32), (), np.empty(0, np.int64))
    assert (none.best_scores(np.ones((2, DIM), np.float32), metric) == metric.worst_score).all()


def test_groups_are_even_and_near_centroids_stay_together() -> None:
    places = np.random.default_rng(3).permutation(40)
    centroids = np.stack([places * 10, np.zeros(40)], axis=1).astype(np.float32)
    rows = np.full(40, 100)
    groups = list(grouped(centroids, rows, 5))
    assert sorted(np.concatenate(groups).tolist()) == list(range(40))
    assert [len(group) for group in groups] == [8] * 5
    ranges = sorted((places[group].min(), places[group].max()) for group in groups)
    assert all(low[1] < high[0] for low, high in pairwise(ranges)), "no two overlap"


def test_there_are_no_more_groups_than_centroids() -> None:
    centroids = np.eye(3, dtype=np.float32)
    assert len(list(grouped(centroids, np.array([5, 0, 900]), 10))) == 3
    assert list(grouped(centroids[:0], np.empty(0, np.int64), 10)) == []
    (everything,) = grouped(np.zeros((4, 2), np.float32), np.ones(4, np.int64), 1)
    assert sorted(everything) == [0, 1, 2, 3]


def blobs(chance: np.random.Generator, lists: int) -> list[np.ndarray]:
    centers = chance.normal(size=(lists, DIM)) * 8
    return [(center + chance.normal(size=(30, DIM))).astype(np.float32) for center in centers]


def searched(
    pruning: SpherePruning, lists: list[np.ndarray], queries: np.ndarray, metric: Metric, k: int
) -> tuple[np.ndarray, int]:
    """Return the best scores of each query, and how many comparisons with a list there were."""
    best = np.full((len(queries), k), metric.worst_score, np.float32)
    asked = 0
    for number in pruning.order:
        wanted = pruning.wanted(number)
        at = np.arange(len(queries)) if wanted is None else np.flatnonzero(wanted)
        if not len(at):
            assert pruning.was_searched(number) or pruning.why(number)
            continue
        asked += len(at)
        found = scores(queries[at], lists[number], metric)
        pruning.note(found, wanted)
        both = np.concatenate((best[at], found), axis=1)
        best[at] = (-np.sort(-both) if metric.bigger_is_better else np.sort(both))[:, :k]
    return best, asked


@pytest.mark.parametrize("metric", METRICS)
def test_bounds_leave_lists_out_and_change_no_hit(metric: Metric) -> None:
    chance = np.random.default_rng(9)
    lists = blobs(chance, 12)
    queries = np.stack([rows[0] for rows in lists[:7]]) + chance.normal(size=(7, DIM)).astype(np.float32) / 9
    spheres = [None if n == 3 else around(rows, 3, n) for n, rows in enumerate(lists)]
    pruning = SpherePruning(spheres, [0] * 12, queries, metric, 5)
    assert pruning.order[0] == 3, "what is not known is searched first"
    best, asked = searched(pruning, lists, queries, metric, 5)
    everything = scores(queries, np.concatenate(lists), metric)
    true = (-np.sort(-everything) if metric.bigger_is_better else np.sort(everything))[:, :5]
    assert best == pytest.approx(true, rel=1e-5)
    assert asked < 0.4 * 12 * 7
    worst = best[:, -1].astype(np.float64)
    assert pruning.is_sound(worst)
    assert not pruning.is_sound(np.full(7, np.nan)), "queries with fewer hits would need all lists"


def test_a_radius_leaves_lists_out_before_there_are_hits() -> None:
    lists = blobs(np.random.default_rng(9), 12)
    query = lists[0][:1]
    spheres = [around(rows, 2, n) for n, rows in enumerate(lists)]
    pruning = SpherePruning(spheres, [0] * 12, query, Metric.L2, 10_000, radius=20.0)
    best, asked = searched(pruning, lists, query, Metric.L2, 40)
    inside = np.sort(scores(query, np.concatenate(lists), Metric.L2))[0]
    inside = inside[inside < 20]
    assert best[0, : len(inside)] == pytest.approx(inside, rel=1e-5)
    assert asked < 6
    assert "radius" in pruning.why(pruning.order[-1])


def test_a_ratio_searches_the_nearest_of_each_group() -> None:
    lists = blobs(np.random.default_rng(9), 18)
    spheres = [around(rows, 2, n) for n, rows in enumerate(lists)]
    query = lists[4][:1]

    def seen(k: int, ratio: float) -> set[int]:
        found = SpherePruning(
            spheres,
            [n % 2 for n in range(18)],
            query,
            Metric.L2,
            k,
            ratio=ratio,
            rows=[30] * 18,
            compares=False,
        )
        return {n for n in range(18) if found.wanted(n) is None}

    assert len(seen(5, 1.0)) == 6, "three of the nine of each group"
    assert 4 in seen(5, 0.1)
    assert len(seen(5, 0.1)) == 2, "one of each group, at least"
    assert len(seen(40, 0.1)) == 4, "and as many as have k rows"
    assert len(seen(5, 0.0)) == 18
