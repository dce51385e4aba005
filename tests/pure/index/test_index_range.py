"""Range search: the reference's bounds, in every kind of index, with and without a mask."""

from __future__ import annotations

import numpy as np
import pytest
from index_data import CASES, ROWS, built, scores, vectors_for

from elanus.core.metrics import Metric
from elanus.index import RowMask, SearchParams, Window

EXACT = [case for case in CASES if case[0] != "IVF_SQ8"]


def bounds(all_scores: np.ndarray, metric: str, inner: int, outer: int) -> tuple[float, float]:
    """A range_filter and a radius that leave the ranks [inner, outer) of query 0 inside."""
    ranked = np.sort(all_scores[0]) if not Metric(metric).bigger_is_better else -np.sort(-all_scores[0])
    between = (ranked[1:] + ranked[:-1]) / 2
    return float(between[inner - 1]) if inner else float(ranked[0]), float(between[outer - 1])


def expected_rows(all_scores: np.ndarray, window: Window, visible: np.ndarray, k: int) -> list[list[int]]:
    rows = []
    for row in all_scores.astype(np.float32):
        inside = np.flatnonzero(window.holds(row) & visible)
        keys = -row[inside] if window.bigger_is_better else row[inside]
        rows.append(list(inside[np.argsort(keys, kind="stable")][:k]))
    return rows


@pytest.mark.parametrize(("kind", "metric"), EXACT)
@pytest.mark.parametrize("inner", [0, 30])
@pytest.mark.parametrize("masked", [False, True])
def test_the_best_rows_between_range_filter_and_radius(
    kind: str, metric: str, inner: int, masked: bool
) -> None:
    rows, queries = vectors_for(metric)
    all_scores = scores(queries, rows, metric)
    range_filter, radius = bounds(all_scores, metric, inner, 60)
    window = Window(radius, range_filter if inner else None, Metric(metric).bigger_is_better)
    visible = np.random.default_rng(4).random(ROWS) < (0.5 if masked else 2)
    hits = built(kind, metric).search(
        queries,
        20,
        SearchParams(ef=2500, nprobe=16, search_list=2500, refine_k=10, window=window),
        RowMask.from_bool(visible),
    )
    for got, scored, wanted in zip(
        hits.rows, hits.distances, expected_rows(all_scores, window, visible, 20), strict=True
    ):
        found = got[got >= 0]
        assert len(found) == len(wanted)
        assert window.holds(scored[: len(found)]).all()
        if not Metric(metric).is_binary:  # bits tie
            assert list(found) == wanted


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_a_window_that_holds_nothing_gives_padding(kind: str, metric: str) -> None:
    nothing = Window(1e9 if Metric(metric).bigger_is_better else -1.0, None, Metric(metric).bigger_is_better)
    hits = built(kind, metric).search(vectors_for(metric)[1], 5, SearchParams(window=nothing))
    assert (hits.rows == -1).all()


def test_the_bounds_themselves() -> None:
    scores_at = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    assert list(Window(3.0, 1.0, bigger_is_better=False).holds(scores_at)) == [True, True, False]
    assert list(Window(1.0, 3.0, bigger_is_better=True).holds(scores_at)) == [False, True, True]


def test_deeper_than_k_without_a_mask() -> None:
    """range_filter hides more rows than k: the answer is beyond what a plain search returns."""
    rows, queries = vectors_for("L2")
    all_scores = scores(queries[:1], rows, "L2")
    inner, outer = bounds(all_scores, "L2", 1500, 1510)
    window = Window(outer, inner, bigger_is_better=False)
    hits = built("HNSW", "L2").search(queries[:1], 5, SearchParams(ef=16, window=window))
    assert list(hits.rows[0]) == list(np.argsort(all_scores[0])[1500:1505])
