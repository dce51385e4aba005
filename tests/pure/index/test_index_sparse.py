"""Sparse vectors: every answer against plain dictionaries, over rows, built indexes and loaded files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sparse_data import Vector, packed, product, rows_of, vectors

from elanus.core.errors import Internal, InvalidDimension, InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.nullable import NullableVectors
from elanus.core.schema import DataType
from elanus.core.sparse import padded
from elanus.index import (
    DamagedIndexFile,
    Hits,
    IndexSpec,
    RowMask,
    VectorIndex,
    build,
    load,
    over_rows,
    postings,
    resolve_index,
    resolve_search,
)

SPARSE = DataType.SPARSE_FLOAT_VECTOR
ROWS = vectors(800, 300, seed=1)
QUERIES = vectors(40, 300, seed=2)
MATRIX = padded([packed(query) for query in QUERIES])


def spec_of(kind: str = "SPARSE_INVERTED_INDEX", **params: str) -> IndexSpec:
    return resolve_index({"index_type": kind, "metric_type": "IP"} | params, SPARSE, 0)


def raw(rows: list[Vector]) -> VectorIndex:
    return over_rows(SPARSE, 0, Metric.IP, rows_of(rows))


def built(spec: IndexSpec, rows: list[Vector], path: Path) -> VectorIndex:
    build(spec, rows_of(rows), threads=1).save(path)
    index = load(path, spec)
    assert isinstance(index, VectorIndex)
    return index


def expected(query: Vector, k: int, visible: np.ndarray | None = None) -> list[float]:
    """The scores of the best rows that share a term with the query."""
    shown = [row for n, row in enumerate(ROWS) if visible is None or visible[n]]
    return sorted((s for row in shown if (s := product(query, row))), reverse=True)[:k]


def check(hits: Hits, k: int, visible: np.ndarray | None = None) -> None:
    assert hits.rows.shape == hits.distances.shape == (len(QUERIES), k)
    for query, rows, scores in zip(QUERIES, hits.rows.tolist(), hits.distances.tolist(), strict=True):
        found = [row for row in rows if row >= 0]
        assert rows == found + [-1] * (k - len(found))
        assert len(set(found)) == len(found)
        assert [product(query, ROWS[row]) for row in found] == scores[: len(found)]
        assert scores[: len(found)] == expected(query, k, visible)
        assert set(scores[len(found) :]) <= {-np.inf}
        assert visible is None or all(visible[found])


@pytest.mark.parametrize("share", [None, 0.0, 0.02, 0.5])
@pytest.mark.parametrize("k", [1, 10, 1000])
@pytest.mark.parametrize(("threads", "few_postings"), [(1, 8), (2, 0), (1, 10**9)])
def test_rows_and_built_indexes_find_the_best_rows(
    share: float | None,
    k: int,
    threads: int,
    few_postings: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``few_postings`` 0: rows are always found among postings; large: always among all scores."""
    monkeypatch.setattr(postings, "FEW_POSTINGS", few_postings)
    visible = None if share is None else np.random.default_rng(5).random(len(ROWS)) < share
    mask = None if visible is None else RowMask.from_bool(visible)
    mapped = spec_of("SPARSE_WAND", **{"mmap.enabled": "true"})
    for index in (raw(ROWS), built(spec_of(), ROWS, tmp_path / "a"), built(mapped, ROWS, tmp_path / "b")):
        check(index.search(MATRIX, k, resolve_search(spec_of(), {}, k), mask, threads), k, visible)


def test_scores_of_any_floats_are_bit_equal_before_and_after_the_build(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [{t: float(rng.random()) for t in row} for row in ROWS]
    queries = padded([packed({t: float(rng.random()) for t in query}) for query in QUERIES])
    params = resolve_search(spec_of(), {}, 50)
    before = raw(rows).search(queries, 50, params)
    after = built(spec_of(), rows, tmp_path / "index").search(queries, 50, params)
    assert np.array_equal(before.distances, after.distances)
    assert np.array_equal(before.rows, after.rows)
    alone = raw(rows[:3]).search(queries, 3, params)  # a block of three rows only
    found = {(q, r): d for q in range(40) for r, d in zip(after.rows[q], after.distances[q], strict=True)}
    for q in range(40):
        for row, score in zip(alone.rows[q], alone.distances[q], strict=True):
            assert row < 0 or found.get((q, row), score) == score


@pytest.mark.parametrize("kind", ["SPARSE_INVERTED_INDEX", "SPARSE_WAND", "AUTOINDEX"])
def test_a_range_search_finds_the_rows_of_the_range(kind: str, tmp_path: Path) -> None:
    spec = spec_of(kind)
    index = built(spec, ROWS, tmp_path / "index")
    for sent in ({"radius": 5}, {"radius": 5, "range_filter": 20}, {"radius": -1, "iterator_page": True}):
        params = resolve_search(spec, sent, 400)
        hits = index.search(MATRIX, 400, params)
        high = sent.get("range_filter", np.inf)
        for query, scores in zip(QUERIES, hits.distances, strict=True):
            inside = [s for s in expected(query, 800) if sent["radius"] < s <= high]
            assert scores[np.isfinite(scores)].tolist() == inside[:400]


def test_dropped_query_values_change_the_choice_but_no_score(tmp_path: Path) -> None:
    index = built(spec_of(), ROWS, tmp_path / "index")
    exact = index.search(MATRIX, 10, resolve_search(spec_of(), {}, 10))
    best = exact.distances[exact.rows >= 0].sum()
    for ratio, share_min in ((0.2, 0.99), (0.6, 0.9)):
        hits = index.search(MATRIX, 10, resolve_search(spec_of(), {"drop_ratio_search": ratio}, 10))
        total = hits.distances[hits.rows >= 0].sum()
        assert share_min * best < total <= best
        for query, rows, scores in zip(QUERIES, hits.rows, hits.distances, strict=True):
            kept = rows >= 0
            assert [product(query, ROWS[row]) for row in rows[kept]] == scores[kept].tolist()
            assert kept.sum() == len(expected(query, 10)), "as many hits as there are"
    assert total < best


def test_dropped_values_are_not_in_the_index(tmp_path: Path) -> None:
    whole = built(spec_of(), ROWS, tmp_path / "a")
    half = built(spec_of(drop_ratio_build="0.5"), ROWS, tmp_path / "b")
    assert whole.memory_bytes * 0.4 < half.memory_bytes < whole.memory_bytes * 0.7
    values = np.sort(rows_of(ROWS).values)
    threshold = values[len(values) // 2]
    left = [{t: v for t, v in row.items() if v >= threshold} for row in ROWS]
    hits = half.search(MATRIX, 10, resolve_search(spec_of(), {}, 10))
    for query, rows, scores in zip(QUERIES, hits.rows, hits.distances, strict=True):
        assert [product(query, left[row]) for row in rows[rows >= 0]] == scores[rows >= 0].tolist()


def test_vectors_come_from_the_rows_and_not_from_an_index(tmp_path: Path) -> None:
    index = raw(ROWS)
    assert index.has_raw_vectors
    wanted = np.array([7, 9, 799, 7])
    again = index.reconstruct(wanted).to_column()  # type: ignore[attr-defined]
    assert again.to_pylist() == [packed(ROWS[n]) for n in wanted]
    stored = built(spec_of(), ROWS, tmp_path / "index")
    assert not stored.has_raw_vectors
    with pytest.raises(Internal, match="does not hold its vectors"):
        stored.reconstruct(wanted)
    with pytest.raises(InvalidDimension, match="query vectors of type float32"):
        stored.search(np.zeros((1, 4), np.float32), 1, resolve_search(spec_of(), {}, 1))


def test_a_value_takes_eight_bytes(tmp_path: Path) -> None:
    rows = vectors(3000, 50, seed=8, pairs_max=30)
    count = sum(map(len, rows))
    index = built(spec_of(), rows, tmp_path / "index")
    assert index.memory_bytes < 8.2 * count
    assert (tmp_path / "index").stat().st_size < 8.2 * count + 2000


def test_rows_and_terms_at_the_edges(tmp_path: Path) -> None:
    last = 2**32 - 2
    rows: list[Vector] = [{}, {last: 1.0}, {0: 2.0, last: 0.5}, {0: 0.0}]
    queries = padded([packed({last: 2.0}), packed({}), packed({0: 1.0}), packed({5: 1.0})])
    for index in (raw(rows), built(spec_of(), rows, tmp_path / "index")):
        hits = index.search(queries, 4, resolve_search(spec_of(), {}, 4))
        assert hits.rows.tolist() == [[1, 2, -1, -1], [-1] * 4, [2, -1, -1, -1], [-1] * 4]
        assert hits.distances[0, :2].tolist() == [2.0, 1.0]
    for empty in ([{}, {}], [{3: 0.0}]):
        hits = built(spec_of(), empty, tmp_path / "empty").search(
            queries, 2, resolve_search(spec_of(), {}, 2)
        )
        assert (hits.rows == -1).all()


def test_rows_that_all_lack_a_vector_are_no_hits(tmp_path: Path) -> None:
    none = NullableVectors(rows_of([]), np.zeros(3, dtype=np.bool_))
    spec = spec_of()
    build(spec, none, threads=1).save(tmp_path / "index")
    loaded = load(tmp_path / "index", spec)
    assert isinstance(loaded, VectorIndex)
    params = resolve_search(spec, {}, 2)
    for index in (over_rows(SPARSE, 0, Metric.IP, none), loaded):
        assert index.search(MATRIX[:2], 2, params).rows.tolist() == [[-1, -1], [-1, -1]]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    build(spec_of(), rows_of(ROWS), threads=1).save(path)
    content = bytearray(path.read_bytes())
    content[500] ^= 4
    path.write_bytes(content)
    with pytest.raises(DamagedIndexFile):
        load(path, spec_of())


def test_parameters() -> None:
    assert resolve_index({}, SPARSE, 0).index_type == "SPARSE_INVERTED_INDEX"
    assert resolve_index({}, SPARSE, 0).metric is Metric.IP
    spec = spec_of(inverted_index_algo="DAAT_WAND", drop_ratio_build="0.25")
    assert {"drop_ratio_build": 0.25, "inverted_index_algo": "DAAT_WAND"}.items() <= spec.params.items()
    assert resolve_index(spec.flattened(), SPARSE, 0).params == spec.params
    for ratio in ("-0.1", "1", "1.3"):
        with pytest.raises(InvalidParameter, match=r"Out of range in json: param 'drop_ratio_build'"):
            spec_of(drop_ratio_build=ratio)
        with pytest.raises(InvalidParameter, match=r"Out of range in json: param 'drop_ratio_search'"):
            resolve_search(spec, {"drop_ratio_search": ratio}, 1)
    with pytest.raises(InvalidParameter, match="param 'drop_ratio_build' \\(\"a\"\\) should be a number"):
        spec_of(drop_ratio_build="a")
    with pytest.raises(InvalidParameter, match="sparse inverted index algo X not found or not supported"):
        spec_of(inverted_index_algo="X")
    for metric in ("L2", "COSINE", "HAMMING"):
        with pytest.raises(InvalidParameter, match="only IP&BM25 is the supported metric type for sparse"):
            spec_of(metric_type=metric)
    with pytest.raises(InvalidParameter, match="SparseFloatVector can't build with this index HNSW"):
        spec_of("HNSW")
    with pytest.raises(InvalidParameter, match="FloatVector can't build with this index SPARSE_WAND"):
        resolve_index({"index_type": "SPARSE_WAND"}, DataType.FLOAT_VECTOR, 4)
