"""Searching: scores and order by definition, every mask obeyed, nothing missing, batches as singles."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_data import BITS, CASES, CODED, DIM, ROWS, best, built, recall, scores, spec_for, vectors_for

from elanus.core.errors import InvalidDimension
from elanus.core.metrics import Metric
from elanus.core.schema import DataType
from elanus.index import RawVectors, RowMask, SearchParams, brute_force, build

WIDE = SearchParams(ef=400, nprobe=16, search_list=400)
EXACT_KINDS = ("FLAT", "BIN_FLAT")


def raw(metric: str) -> RawVectors:
    binary = Metric(metric).is_binary
    data_type = DataType.BINARY_VECTOR if binary else DataType.FLOAT_VECTOR
    return RawVectors(brute_force(data_type, BITS if binary else DIM, Metric(metric)), vectors_for(metric)[0])


@pytest.mark.parametrize(("kind", "metric"), CASES)
@pytest.mark.parametrize("queries", [1, 3, 12])
def test_scores_are_the_metrics_own_and_stand_in_its_order(kind: str, metric: str, queries: int) -> None:
    rows, all_queries = vectors_for(metric)
    truth = scores(all_queries[:queries], rows, metric)
    hits = built(kind, metric).search(all_queries[:queries], 10, WIDE)
    assert hits.distances.dtype == np.float32
    assert hits.rows.dtype == np.int64
    found = np.take_along_axis(truth, hits.rows, axis=1)
    tolerance = 0.02 if kind == "IVF_SQ8" else 1e-5  # one byte per component
    np.testing.assert_allclose(hits.distances, found, rtol=tolerance, atol=tolerance * np.abs(truth).max())
    steps = np.diff(hits.distances, axis=1)
    assert (steps <= 0).all() if Metric(metric).bigger_is_better else (steps >= 0).all()


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_all_lists_or_a_broad_walk_find_the_true_neighbors(kind: str, metric: str) -> None:
    rows, queries = vectors_for(metric)
    truth = scores(queries, rows, metric)
    hits = built(kind, metric).search(queries, 10, WIDE)
    if Metric(metric).is_binary:  # many rows tie; their scores must agree
        np.testing.assert_allclose(hits.distances, np.sort(truth, axis=1)[:, :10], atol=1e-6)
    else:
        assert recall(hits.rows, best(truth, 10, metric)) >= (0.9 if kind in CODED else 1.0)


@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize("visible_share", [0.02, 0.6])
@pytest.mark.parametrize("queries", [1, 12])
def test_brute_force_over_raw_rows_is_exact_under_a_mask(
    metric: str, visible_share: float, queries: int
) -> None:
    rows, all_queries = vectors_for(metric)
    visible = np.random.default_rng(1).random(ROWS) < visible_share
    hits = raw(metric).search(all_queries[:queries], 7, SearchParams(), RowMask.from_bool(visible))
    truth = best(scores(all_queries[:queries], rows, metric), 7, metric, visible)
    np.testing.assert_array_equal(hits.rows, truth)


MASKS = st.builds(
    lambda seed, share: np.random.default_rng(seed).random(ROWS) < share,
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.0005, 0.002, 0.03, 0.2, 0.5, 0.97, 1.0]),
)


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(CASES), visible=MASKS, k=st.integers(1, 40), queries=st.integers(1, 12))
def test_a_search_returns_visible_rows_only_each_once_and_as_many_as_there_are(
    case: tuple[str, str], visible: np.ndarray, k: int, queries: int
) -> None:
    kind, metric = case
    narrow = SearchParams(ef=k, nprobe=1)
    hits = built(kind, metric).search(vectors_for(metric)[1][:queries], k, narrow, RowMask.from_bool(visible))
    assert hits.rows.shape == hits.distances.shape == (queries, k)
    expected = min(k, int(visible.sum()))
    assert (hits.rows[:, :expected] >= 0).all()
    assert visible[hits.rows[:, :expected]].all()
    assert all(len(np.unique(row)) == expected for row in hits.rows[:, :expected])
    assert (hits.rows[:, expected:] == -1).all()
    assert (hits.distances[:, expected:] == Metric(metric).worst_score).all()
    assert np.isfinite(hits.distances[:, :expected]).all()


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_fewer_visible_rows_than_k_are_padded(kind: str, metric: str) -> None:
    visible = np.zeros(ROWS, dtype=bool)
    visible[[5, 700, 2400]] = True
    hits = built(kind, metric).search(
        vectors_for(metric)[1][:2], 10, SearchParams(), RowMask.from_bool(visible)
    )
    for row in hits.rows:
        assert set(row[:3]) == {5, 700, 2400}
        assert (row[3:] == -1).all()


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_more_than_all_rows_can_be_asked_for(kind: str, metric: str) -> None:
    hits = built(kind, metric).search(vectors_for(metric)[1][:1], ROWS + 5, SearchParams(ef=ROWS + 5))
    assert sorted(hits.rows[0, :ROWS]) == list(range(ROWS))
    assert (hits.rows[0, ROWS:] == -1).all()


@pytest.mark.parametrize(("kind", "metric"), CASES)
@pytest.mark.parametrize("share", [None, 0.5, 0.05])
def test_a_batch_on_two_threads_finds_what_single_queries_find(
    kind: str, metric: str, share: float | None
) -> None:
    index = built(kind, metric)
    rows = vectors_for(metric)[0][:40]
    mask = None if share is None else RowMask.from_bool(np.random.default_rng(5).random(ROWS) < share)
    batch = index.search(rows, 5, WIDE, mask, threads=2)
    singles = [index.search(rows[i : i + 1], 5, WIDE, mask) for i in range(len(rows))]
    np.testing.assert_allclose(
        batch.distances, np.concatenate([s.distances for s in singles]), rtol=1e-5, atol=1e-4
    )


def test_a_graph_in_pieces_still_returns_every_row() -> None:
    """M = 2 leaves rows that no walk reaches."""
    rows = vectors_for("IP")[0][:300]
    index = build(spec_for("HNSW", "IP", M=2, efConstruction=1), rows, threads=1)
    hits = index.search(rows[:3], 250, SearchParams(ef=250))
    assert (hits.rows >= 0).all()


def test_a_zero_vector_has_cosine_zero_with_everything() -> None:
    rows = vectors_for("COSINE")[0][:50].copy()
    rows[7] = 0
    for index in (build(spec_for(k, "COSINE"), rows, threads=1) for k in ("FLAT", "HNSW", "IVF_FLAT")):
        every = index.search(rows[:1], 50, SearchParams(ef=50, nprobe=64))
        assert every.distances[0, list(every.rows[0]).index(7)] == 0
        assert (index.search(np.zeros((1, DIM), np.float32), 5, SearchParams()).distances == 0).all()


def test_two_zero_bit_vectors_have_jaccard_distance_one() -> None:
    rows = np.zeros((3, BITS // 8), np.uint8)
    hits = build(spec_for("BIN_FLAT", "JACCARD"), rows, threads=1).search(rows[:1], 3, SearchParams())
    assert (hits.distances == 1).all()


def test_a_cosine_never_exceeds_one() -> None:
    rows = vectors_for("COSINE")[0]
    for kind in ("FLAT", "HNSW", "IVF_FLAT"):
        own = built(kind, "COSINE").search(rows[:200], 1, WIDE).distances
        assert (own <= 1).all()
        assert (own > 1 - 1e-6).all()


def test_a_query_of_another_dimension_is_refused() -> None:
    with pytest.raises(InvalidDimension, match=r"expected vector size\(byte\) 64, actual 32"):
        built("HNSW", "L2").search(np.zeros((1, 8), np.float32), 1, SearchParams())


def test_a_mask_of_another_segment_is_refused() -> None:
    with pytest.raises(ValueError, match="a mask of 3 rows over an index of 2500"):
        built("HNSW", "L2").search(
            vectors_for("L2")[1], 1, SearchParams(), RowMask.from_bool(np.ones(3, bool))
        )


def test_threads_that_share_an_index_and_a_mask_get_the_same_answers() -> None:
    index = built("HNSW", "L2")
    queries = vectors_for("L2")[1]
    mask = RowMask.from_bool(np.random.default_rng(2).random(ROWS) < 0.5)
    expected = index.search(queries, 10, WIDE, RowMask.from_bool(mask.to_bool())).rows
    answers: list[np.ndarray] = []

    def search() -> None:
        answers.extend(index.search(queries, 10, WIDE, mask).rows for _ in range(20))

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 80
    assert all(np.array_equal(rows, expected) for rows in answers)


@pytest.mark.parametrize("metric", ["HAMMING", "JACCARD", "SUBSTRUCTURE", "L2", "COSINE"])
def test_rows_of_equal_scores_come_in_their_order_so_that_pages_continue_each_other(metric: str) -> None:
    rng = np.random.default_rng(11)
    binary = Metric(metric).is_binary
    if binary:
        rows = rng.integers(0, 256, size=(3000, 2), dtype=np.uint8)
        spec = brute_force(DataType.BINARY_VECTOR, 16, Metric(metric))
    else:
        rows = np.repeat(rng.normal(size=(60, 8)).astype(np.float32), 50, axis=0)
        spec = brute_force(DataType.FLOAT_VECTOR, 8, Metric(metric))
    exact = RawVectors(spec, rows)
    whole = exact.search(rows[:3], 90, WIDE)  # of 100 and more, faiss keeps any of those that tie at the end
    for k in range(10, 90, 10):
        page = exact.search(rows[:3], k, WIDE)
        np.testing.assert_array_equal(page.rows, whole.rows[:, :k])
    shown = RowMask.from_bool(np.arange(3000) % 2 == 0)
    whole = exact.search(rows[:3], 90, WIDE, shown)
    for k in range(10, 90, 10):
        np.testing.assert_array_equal(exact.search(rows[:3], k, WIDE, shown).rows, whole.rows[:, :k])
