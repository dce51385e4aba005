"""Recall of the approximate indexes, above all where a filter and the vectors have to do with each other.

The graph is large enough that walking it is cheaper than comparing everything: what is tested is the
walk. Each test says so by asking the plan.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from index_data import best, clustered, recall, scores

from elanus.core.schema import DataType
from elanus.index import RowMask, SearchParams, VectorIndex, build, plan, resolve_index

pytestmark = pytest.mark.slow

ROWS, DIM, CLUSTERS, K = 20_000, 32, 24, 10
LESS_MAX = 0.02
"""So much lower may recall be under a filter than without it, at the same ef."""


@lru_cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rows and the cluster of each, the queries and theirs."""
    rows, labels = clustered(ROWS + 60, DIM, CLUSTERS, seed=11)
    return rows[:ROWS], labels[:ROWS], rows[ROWS:], labels[ROWS:]


@lru_cache
def nearest_first() -> np.ndarray:
    """All rows in the order of their distance from each query."""
    rows, _, queries, _ = data()
    return best(scores(queries, rows, "L2"), ROWS, "L2")


def truth(k: int, visible: np.ndarray) -> np.ndarray:
    """The k nearest of the visible rows, of each query."""
    return np.array([order[visible[order]][:k] for order in nearest_first()])


@lru_cache
def graph() -> VectorIndex:
    sent = {"index_type": "HNSW", "metric_type": "L2", "M": "12", "efConstruction": "40"}
    return build(resolve_index(sent, DataType.FLOAT_VECTOR, DIM), data()[0], threads=1)


def first_walk(visible: int, ef: int) -> plan.Walk | None:
    return plan.walk(
        rows=ROWS, visible=visible, dim=DIM, links=12, k=K, ef=ef, queries=1, share=visible / ROWS
    )


def recall_of(visible: np.ndarray, ef: int) -> float:
    queries, mask = data()[2], RowMask.from_bool(visible)
    found = np.concatenate([graph().search(q[None], K, SearchParams(ef=ef), mask).rows for q in queries])
    return recall(found, truth(K, visible))


@lru_cache
def recall_without(ef: int) -> float:
    return recall_of(np.ones(ROWS, dtype=bool), max(ef, plan.FILTERED_EF_MIN))


def test_without_a_filter() -> None:
    assert first_walk(ROWS, ef=32) == (32, K)
    assert recall_of(np.ones(ROWS, dtype=bool), ef=32) >= 0.95


@pytest.mark.parametrize("ef", [K, 24, 64])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
def test_a_filter_that_knows_nothing_of_the_vectors(share: float, ef: int) -> None:
    visible = np.random.default_rng(int(share * 1000)).random(ROWS) < share
    if ef == K:
        assert (first_walk(int(visible.sum()), ef) is None) == (share < 0.3)
    assert recall_of(visible, ef) >= recall_without(ef) - LESS_MAX


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_ever_more_hits_under_a_filter(share: float) -> None:
    """The fewer rows the walk has beyond the hits that are asked for, the more of them it needs."""
    queries = data()[2]
    visible = np.random.default_rng(5).random(ROWS) < share
    for k in (1, 30, 64):
        found = graph().search(queries, k, SearchParams(ef=64), RowMask.from_bool(visible))
        plain = graph().search(queries, k, SearchParams(ef=64))
        least = recall(plain.rows, truth(k, np.ones(ROWS, dtype=bool))) - LESS_MAX
        assert recall(found.rows, truth(k, visible)) >= least


@pytest.mark.parametrize("clusters", [1, 3, 8, 12, 18, 23])
def test_a_filter_on_whole_clusters(clusters: int) -> None:
    """Most queries lie in clusters that the filter hides: their nearest rows are all invisible."""
    visible = data()[1] < clusters
    if clusters >= 12:
        assert first_walk(int(visible.sum()), ef=16) is not None
    assert recall_of(visible, ef=16) >= recall_without(ef=16)


def test_all_but_the_querys_own_cluster() -> None:
    """A walk that only skips invisible rows returns k hits here, and nearly none of the right ones."""
    _, labels, queries, query_labels = data()
    found, wanted = [], []
    for i in range(len(queries)):
        visible = labels != query_labels[i]
        hits = graph().search(queries[i : i + 1], K, SearchParams(ef=16), RowMask.from_bool(visible))
        found.append(hits.rows[0])
        order = nearest_first()[i]
        wanted.append(order[visible[order]][:K])
    assert recall(np.array(found), np.array(wanted)) >= 0.95


def test_a_batch_of_which_some_queries_need_another_way() -> None:
    _, labels, queries, _ = data()
    visible = labels < CLUSTERS // 2
    hits = graph().search(queries, K, SearchParams(ef=16), RowMask.from_bool(visible))
    assert recall(hits.rows, truth(K, visible)) >= 0.95
    assert visible[hits.rows].all()


@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_SQ8"])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.01])
def test_inverted_lists_scan_further_under_a_filter(index_type: str, share: float) -> None:
    rows, _, queries, _ = data()
    sent = {"index_type": index_type, "metric_type": "L2", "nlist": "48"}
    index = build(resolve_index(sent, DataType.FLOAT_VECTOR, DIM), rows, threads=1)
    visible = np.random.default_rng(3).random(ROWS) < share
    hits = index.search(queries, K, SearchParams(nprobe=6), RowMask.from_bool(visible))
    assert recall(hits.rows, truth(K, visible)) >= (0.95 if index_type == "IVF_FLAT" else 0.85)
