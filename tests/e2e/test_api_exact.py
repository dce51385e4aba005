"""Search answers against numpy, for each index type and metric: growing, sealed with its index, and both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

DIM = 16
ROWS = 600
MORE_ROWS = 100
QUERIES = 10
K = 10
DEADLINE_S = 120.0
CHANCE = np.random.default_rng(5)
FLOATS = CHANCE.normal(size=(ROWS + MORE_ROWS, DIM)).astype(np.float32)
BITS = CHANCE.integers(0, 256, (ROWS + MORE_ROWS, DIM // 8), np.uint8)


@dataclass(frozen=True)
class Case:
    """``recall``: of the exact neighbors, the part that the sealed segment's index must find.

    ``tolerance``: how far its scores may be from the exact ones; scores of growing rows are exact.
    """

    index: str
    metric: str
    build: Mapping[str, Any]
    search: Mapping[str, Any]
    recall: float = 1.0
    tolerance: float = 1e-4

    @property
    def name(self) -> str:
        return f"{self.index}_{self.metric}"

    @property
    def vectors(self) -> Any:
        return BITS if self.index.startswith("BIN") else FLOATS


CASES = [
    *(Case("FLAT", metric, {}, {}) for metric in ("L2", "IP", "COSINE")),
    *(Case("IVF_FLAT", m, {"nlist": 8}, {"nprobe": 8}) for m in ("L2", "IP", "COSINE")),
    *(Case("IVF_SQ8", m, {"nlist": 8}, {"nprobe": 8}, 0.9, 0.2) for m in ("L2", "IP", "COSINE")),
    *(Case("HNSW", m, {"M": 16, "efConstruction": 100}, {"ef": 200}, 0.98) for m in ("L2", "IP", "COSINE")),
    *(Case("AUTOINDEX", m, {}, {}, 0.9) for m in ("L2", "IP", "COSINE")),
    *(Case("BIN_FLAT", metric, {}, {}) for metric in ("HAMMING", "JACCARD")),
    *(Case("BIN_IVF_FLAT", m, {"nlist": 8}, {"nprobe": 8}) for m in ("HAMMING", "JACCARD")),
]


def scores(case: Case, rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The exact score of each query (rows 0, 1, 2, …) with each row."""
    vectors = case.vectors[:rows]
    queries = vectors[:QUERIES]
    if case.metric == "L2":
        return ((queries[:, None, :].astype(float) - vectors[None]) ** 2).sum(axis=2)
    if case.metric in ("IP", "COSINE"):
        q, v = queries.astype(float), vectors.astype(float)
        if case.metric == "COSINE":
            q, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, v))
        return q @ v.T
    q, v = (np.unpackbits(x, axis=1).astype(float) for x in (queries, vectors))
    both = q @ v.T
    if case.metric == "HAMMING":
        return q.sum(1)[:, None] + v.sum(1)[None] - 2 * both
    return 1 - both / (q.sum(1)[:, None] + v.sum(1)[None] - both)


def wire(case: Case, row: int) -> Any:
    vector = case.vectors[row]
    return vector.tobytes() if case.index.startswith("BIN") else vector


def check(client: MilvusClient, case: Case, rows: int, recall: float, tolerance: float) -> None:
    """Compare ids and scores with the exact ones. Equal scores may come in any order."""
    params = {"metric_type": case.metric, "params": dict(case.search)}
    answer = client.search(
        case.name,
        [wire(case, n) for n in range(QUERIES)],
        limit=K,
        search_params=params,
        consistency_level="Strong",
    )
    all_scores = scores(case, rows)
    higher_is_better = case.metric in ("IP", "COSINE")
    found = []
    for hits, exact in zip(answer, all_scores, strict=True):
        best = np.sort(-exact if higher_is_better else exact)[:K]
        given = np.array([hit["distance"] for hit in hits])
        ids = [hit["key"] for hit in hits]
        assert len(set(ids)) == K
        assert np.allclose(given, exact[ids], atol=tolerance, rtol=1e-4), "a score is not that of its row"
        signed = -given if higher_is_better else given
        assert np.all(np.diff(signed) >= -1e-6), "not best first"
        true = -exact[ids] if higher_is_better else exact[ids]
        found.append(np.mean(true <= best[-1] + 1e-4))
    assert np.mean(found) >= recall


@pytest.fixture(scope="module")
def filled(shared: Server) -> Iterator[MilvusClient]:
    """A collection for each case, its rows growing."""
    client = MilvusClient(shared.uri)
    for case in CASES:
        schema = client.create_schema()
        schema.add_field("key", DataType.INT64, is_primary=True)
        kind = DataType.BINARY_VECTOR if case.index.startswith("BIN") else DataType.FLOAT_VECTOR
        schema.add_field("v", kind, dim=DIM)
        params = client.prepare_index_params()
        params.add_index("v", index_type=case.index, metric_type=case.metric, params=dict(case.build))
        client.create_collection(case.name, schema=schema, index_params=params)
        client.insert(case.name, [{"key": n, "v": wire(case, n)} for n in range(ROWS)])
    yield client
    for case in CASES:
        client.drop_collection(case.name)
    client.close()


@pytest.fixture(scope="module")
def sealed(filled: MilvusClient) -> MilvusClient:
    """The same after a flush, served with their indexes."""
    for case in CASES:
        filled.flush(case.name)
    for case in CASES:
        until(lambda name=case.name: _is_indexed(filled, name), DEADLINE_S, f"{case.name} is indexed")
    return filled


def _is_indexed(client: MilvusClient, name: str) -> bool:
    segments = client.list_loaded_segments(name)
    return bool(segments) and all(s.state_name == "Sealed" and s.index_name for s in segments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_growing_rows_are_searched_exactly(case: Case, filled: MilvusClient) -> None:
    check(filled, case, ROWS, recall=1.0, tolerance=1e-4)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_indexed_segment_is_searched(case: Case, sealed: MilvusClient) -> None:
    check(sealed, case, ROWS, case.recall, case.tolerance)
    described = sealed.describe_index(case.name, "v")
    assert (described["index_type"], described["metric_type"]) == (case.index, case.metric)
    assert (described["state"], described["indexed_rows"]) == ("Finished", ROWS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_growing_and_indexed_rows_are_merged(case: Case, sealed: MilvusClient) -> None:
    rows = [{"key": n, "v": wire(case, n)} for n in range(ROWS, ROWS + MORE_ROWS)]
    sealed.insert(case.name, rows)
    check(sealed, case, ROWS + MORE_ROWS, case.recall, case.tolerance)
