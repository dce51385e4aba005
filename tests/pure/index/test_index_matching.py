"""SUBSTRUCTURE and SUPERSTRUCTURE: a row matches a query, with distance 0, or it is no hit."""

from __future__ import annotations

import numpy as np
import pytest

from elanus.core.metrics import Metric
from elanus.core.types import DataType
from elanus.index import RawVectors, RowMask, SearchParams, brute_force, build, resolve_index

ROWS, BYTES = 600, 3
RNG = np.random.default_rng(5)
CODES = RNG.integers(0, 256, (ROWS, BYTES), dtype=np.uint8) & RNG.integers(
    0, 256, (ROWS, BYTES), dtype=np.uint8
)


def matching(query: np.ndarray, metric: str) -> np.ndarray:
    """Whether each row matches, by definition."""
    both = CODES & query
    wanted = query[None] if metric == "SUBSTRUCTURE" else CODES
    return np.asarray((both == wanted).all(axis=1))


def queries_for(metric: str, count: int) -> np.ndarray:
    """Few bits are in many rows; many bits hold many rows."""
    few = np.zeros((count, BYTES), np.uint8)
    few[np.arange(count), np.arange(count) % BYTES] = 1 << (np.arange(count) % 8)
    return few if metric == "SUBSTRUCTURE" else few ^ 0xFF


@pytest.mark.parametrize("metric", ["SUBSTRUCTURE", "SUPERSTRUCTURE"])
@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.parametrize("k", [5, ROWS])
@pytest.mark.parametrize("share", [2.0, 0.5])
def test_only_rows_that_match_are_hits(metric: str, count: int, k: int, share: float) -> None:
    queries = queries_for(metric, count)
    visible = RNG.random(ROWS) < share
    built = build(
        resolve_index({"index_type": "BIN_FLAT", "metric_type": metric}, DataType.BINARY_VECTOR, 24), CODES, 1
    )
    growing = RawVectors(brute_force(DataType.BINARY_VECTOR, 24, Metric(metric)), CODES)
    for index in (built, growing):
        assert isinstance(index, RawVectors)
        hits = index.search(queries, k, SearchParams(), RowMask.from_bool(visible))
        for i, query in enumerate(queries):
            wanted = np.flatnonzero(matching(query, metric) & visible)
            assert 0 < len(wanted) < visible.sum()
            found = hits.rows[i][hits.rows[i] >= 0]
            assert len(found) == min(k, len(wanted))
            assert np.isin(found, wanted).all()
            assert (hits.distances[i][: len(found)] == 0).all()
            assert (hits.rows[i][len(found) :] == -1).all()


@pytest.mark.parametrize("metric", ["SUBSTRUCTURE", "SUPERSTRUCTURE"])
def test_the_empty_vector(metric: str) -> None:
    """It is part of every row; only empty rows are part of it."""
    index = RawVectors(brute_force(DataType.BINARY_VECTOR, 24, Metric(metric)), CODES)
    hits = index.search(np.zeros((1, BYTES), np.uint8), ROWS, SearchParams())
    expected = ROWS if metric == "SUBSTRUCTURE" else int((CODES == 0).all(axis=1).sum())
    assert int((hits.rows >= 0).sum()) == expected
