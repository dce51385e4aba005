"""Rows that the codes of an index do not distinguish, and rows too few to train codes well: none is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from index_data import DIM, FLOAT_INDEXES, spec_for

from elanus.index import RowMask, SearchParams, VectorIndex, build, resolve_search

METRICS = ("L2", "IP", "COSINE")
ROWS = 400
REQUIRED = {"IVF_PQ": {"m": 4}, "HNSW_PQ": {"m": 4}, "HNSW_PRQ": {"m": 2}}


def index_of(kind: str, metric: str, vectors: np.ndarray, **params: object) -> VectorIndex:
    made = build(spec_for(kind, metric, **{**REQUIRED.get(kind, {}), **params}), vectors, threads=1)
    assert isinstance(made, VectorIndex)
    return made


def found(index: VectorIndex, query: np.ndarray, k: int, mask: RowMask | None = None) -> np.ndarray:
    """The rows of one query's hits, ascending."""
    rows = index.search(query[None], k, resolve_search(index.spec, {}, k), mask).rows[0]
    return np.sort(rows[rows >= 0])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", FLOAT_INDEXES)
def test_equal_vectors_are_all_found(kind: str, metric: str) -> None:
    vector = np.random.default_rng(1).normal(size=DIM).astype(np.float32)
    index = index_of(kind, metric, np.tile(vector, (ROWS, 1)))
    for query in (vector, -vector):
        assert len(found(index, query, 10)) == 10
        few = np.arange(ROWS) % 130 == 7
        np.testing.assert_array_equal(found(index, query, 10, RowMask.from_bool(few)), np.flatnonzero(few))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", FLOAT_INDEXES)
def test_a_query_of_zeros_has_as_many_hits_as_there_are_rows(kind: str, metric: str) -> None:
    vectors = np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)
    index = index_of(kind, metric, vectors)
    assert len(found(index, np.zeros(DIM, np.float32), 10)) == 10


@pytest.mark.parametrize("metric", ["IP", "COSINE"])
def test_the_worst_row_of_all_is_found_if_a_filter_leaves_it_alone(metric: str) -> None:
    base = np.random.default_rng(3).normal(size=DIM).astype(np.float32)
    vectors = np.tile(base, (ROWS, 1))
    vectors[::2] *= -1
    index = index_of("SCANN", metric, vectors)
    last = np.arange(ROWS) == 1
    np.testing.assert_array_equal(found(index, -base, 3, RowMask.from_bool(last)), [1])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", FLOAT_INDEXES)
def test_fewer_rows_than_dimensions_can_be_indexed(kind: str, rows: int) -> None:
    vectors = np.random.default_rng(4).normal(size=(rows, DIM)).astype(np.float32)
    index = index_of(kind, "L2", vectors)
    assert found(index, vectors[0], 5).tolist() == list(range(rows))


def test_residual_codes_of_many_dimensions_need_no_more_training_rows_than_their_codewords() -> None:
    vectors = np.random.default_rng(5).normal(size=(520, DIM)).astype(np.float32)
    wide = np.tile(vectors, (1, 40))  # 640 dimensions, and two codewords are trained with 512 rows
    spec = replace(spec_for("HNSW_PRQ", "L2", m=1, nbits=1), dim=wide.shape[1])
    index = build(spec, wide, threads=1)
    assert isinstance(index, VectorIndex)
    assert len(index.search(wide[:1], 5, SearchParams()).rows[0]) == 5


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("refine_type", ["FP16", "BF16"])
@pytest.mark.parametrize("kind", ["IVF_SQ8", "HNSW_SQ"])
def test_rows_of_any_length_are_refined_under_cosine(kind: str, refine_type: str, size: float) -> None:
    vectors = (np.random.default_rng(6).normal(size=(ROWS, DIM)) * size).astype(np.float32)
    index = index_of(kind, "COSINE", vectors, refine=True, refine_type=refine_type)
    hits = index.search(vectors[:20], 1, resolve_search(index.spec, {}, 1))
    np.testing.assert_array_equal(hits.rows[:, 0], np.arange(20))
    np.testing.assert_allclose(hits.distances, 1, atol=0.01)
