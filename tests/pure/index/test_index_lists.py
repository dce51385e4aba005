"""Indexes of lists of vectors, compared with numpy: of rows under a metric of lists, else of elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.metrics import Metric
from elanus.core.schema import DataType, FieldSchema
from elanus.core.vector_lists import VectorLists, packed, unpacked, vectors_in
from elanus.index import (
    ElementIndex,
    MaxSimIndex,
    RowMask,
    SearchParams,
    Window,
    build,
    load,
    over_rows,
    resolve_field_index,
)
from elanus.index import lists as lists_module

DIM = 8
ROWS = 400


def field(element: DataType = DataType.FLOAT_VECTOR, dim: int = DIM) -> FieldSchema:
    return FieldSchema(
        FieldID(101), "clips[v]", DataType.ARRAY_OF_VECTOR, element_type=element, dim=dim, max_capacity=9
    )


def lists(element: DataType = DataType.FLOAT_VECTOR, dim: int = DIM, rows: int = ROWS) -> VectorLists:
    """Up to five vectors a row, in one row of six none."""
    rng = np.random.default_rng(5)
    offsets = np.concatenate(([0], np.cumsum(rng.integers(0, 6, rows)))).astype(np.int64)
    form = field(element, dim).vector
    if form.dtype == np.uint8:
        return VectorLists(rng.integers(0, 256, (int(offsets[-1]), dim // 8), np.uint8), offsets)
    values = rng.normal(size=(int(offsets[-1]), dim)) * (20 if form.dtype == np.int8 else 1)
    return VectorLists(values.astype(form.dtype), offsets)


def similarities(metric: Metric, ones: Any, others: Any) -> Any:
    """Of each vector with each. (n, width), (m, width) → (n, m)"""
    if metric.is_binary:
        bits, more = np.unpackbits(ones, axis=1)[:, None], np.unpackbits(others, axis=1)[None]
        if metric is Metric.HAMMING:
            return np.count_nonzero(bits != more, axis=2)
        either = np.count_nonzero(bits | more, axis=2)
        return 1 - np.count_nonzero(bits & more, axis=2) / np.maximum(1, either)
    ones, others = ones.astype(np.float64), others.astype(np.float64)
    if metric is Metric.L2:
        return ((ones[:, None] - others[None]) ** 2).sum(axis=2)
    if metric is Metric.COSINE:
        ones, others = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (ones, others))
    return ones @ others.T


def ranked(metric: Metric, query: Any, found: VectorLists, rows: Any) -> list[tuple[int, float]]:
    """The definition: a row's score is the sum, over the query's vectors, of that of its best element."""
    all_scores = similarities(metric.of_vectors, query, found.vectors)
    best = np.max if metric.bigger_is_better else np.min
    scored = [
        (int(row), float(best(all_scores[:, found.offsets[row] : found.offsets[row + 1]], axis=1).sum()))
        for row in rows
        if found.offsets[row] < found.offsets[row + 1]
    ]
    return sorted(scored, key=lambda one: -one[1] if metric.bigger_is_better else one[1])


CASES = [
    (DataType.FLOAT_VECTOR, metric, kind)
    for metric in ("MAX_SIM", "MAX_SIM_COSINE", "MAX_SIM_IP", "MAX_SIM_L2")
    for kind in ("FLAT", "HNSW", "IVF_FLAT", "AUTOINDEX")
] + [
    (DataType.FLOAT16_VECTOR, "MAX_SIM_IP", "HNSW"),
    (DataType.BFLOAT16_VECTOR, "MAX_SIM_L2", "FLAT"),
    (DataType.INT8_VECTOR, "MAX_SIM_COSINE", "HNSW"),
    (DataType.FLOAT_VECTOR, "MAX_SIM_COSINE", "DISKANN"),
    (DataType.BINARY_VECTOR, "MAX_SIM_HAMMING", "BIN_FLAT"),
    (DataType.BINARY_VECTOR, "MAX_SIM_JACCARD", "BIN_IVF_FLAT"),
]


@pytest.mark.parametrize(("element", "name", "kind"), CASES)
def test_rows_are_scored_by_their_best_elements(
    element: DataType, name: str, kind: str, tmp_path: Path
) -> None:
    dim = 32 if element is DataType.BINARY_VECTOR else DIM
    found, metric = lists(element, dim), Metric(name)
    spec = resolve_field_index({"index_type": kind, "metric_type": name}, field(element, dim))
    built = build(spec, found, 1)
    assert isinstance(built, MaxSimIndex)
    built.save(tmp_path / "index")
    loaded = load(tmp_path / "index", spec)
    growing = over_rows(spec.data_type, dim, spec.metric_type, found, spec.params)
    queries = [found.vectors[:3], found.vectors[10:11], found.vectors[20:27]]
    asked = packed(spec.form, queries)
    odd = RowMask.from_bool(np.arange(ROWS) % 2 == 1)
    for mask, rows in ((None, range(ROWS)), (odd, range(1, ROWS, 2))):
        wanted = [ranked(metric, query, found, rows) for query in queries]
        for index in (built, loaded, growing):
            assert isinstance(index, MaxSimIndex)
            hits = index.search(asked, 10, SearchParams(), mask)
            for number, best in enumerate(wanted):
                exact = dict(best)
                given = [exact[row] for row in hits.rows[number].tolist()]
                np.testing.assert_allclose(hits.distances[number], given, rtol=2e-2, atol=2e-2)
                np.testing.assert_allclose(given, [s for _, s in best[:10]], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["MAX_SIM_L2", "L2"])
@pytest.mark.parametrize("kind", ["FLAT", "HNSW"])
def test_a_search_takes_as_long_as_that_of_the_vectors_in_its_lists(name: str, kind: str) -> None:
    """Otherwise searches of many lists would neither be cut in slices nor use several cores."""
    found = lists()
    spec = resolve_field_index({"index_type": kind, "metric_type": name}, field())
    index = build(spec, found, 1)
    assert isinstance(index, MaxSimIndex | ElementIndex)
    assert index._elements is not None
    queries = packed(spec.form, [found.vectors[:3], found.vectors[10:11]])
    vectors = vectors_in(queries)
    assert (vectors, vectors_in(found.vectors[:3])) == (4, 3)
    rows = RowMask.from_bool(np.arange(ROWS) % 2 == 1)
    elements = index.element_mask(rows, None)
    params = SearchParams()
    assert index.work_ns(vectors, params, None) == index._elements.work_ns(vectors, params, None) > 0
    mask = rows if isinstance(index, MaxSimIndex) else elements
    assert index.work_ns(vectors, params, mask) == index._elements.work_ns(vectors, params, elements) > 0


def test_a_large_index_finds_candidates_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recall of the two steps on random vectors, where every element is about as far as any other."""
    monkeypatch.setattr(lists_module, "EXACT_ELEMENTS_MAX", 0)
    found = lists(rows=3000)
    spec = resolve_field_index({"index_type": "HNSW", "metric_type": "MAX_SIM_COSINE"}, field())
    index = build(spec, found, 1)
    assert isinstance(index, MaxSimIndex)
    scored: list[int] = []
    elements = index._elements
    assert elements is not None
    scores_of = elements.scores_of
    monkeypatch.setattr(elements, "scores_of", lambda q, rows: scored.append(len(rows)) or scores_of(q, rows))
    rng = np.random.default_rng(2)
    queries = [rng.normal(size=(4, DIM)).astype(np.float32) for _ in range(20)]
    hits = index.search(packed(spec.form, queries), 10, SearchParams())
    assert max(scored) < len(found.vectors) / 4, "only the rows of candidates are scored"
    same = 0
    for number, query in enumerate(queries):
        best = ranked(Metric.MAX_SIM_COSINE, query, found, range(3000))
        exact = dict(best)
        for row, distance in zip(hits.rows[number].tolist(), hits.distances[number].tolist(), strict=True):
            assert distance == pytest.approx(exact[row], abs=1e-4), "scores of candidates are exact"
        same += len({row for row, _ in best[:10]} & set(hits.rows[number].tolist()))
    assert same / 200 > 0.8


def test_more_rows_than_candidates_are_found() -> None:
    found = lists(rows=60)
    spec = resolve_field_index({"index_type": "HNSW", "metric_type": "MAX_SIM_IP"}, field())
    index = build(spec, found, 1)
    assert isinstance(index, MaxSimIndex)
    (rows,) = index.search(packed(spec.form, [found.vectors[:2]]), 100, SearchParams()).rows
    filled = np.flatnonzero(np.diff(found.offsets))
    assert sorted(rows[rows >= 0].tolist()) == filled.tolist(), "every row with elements, once"


@pytest.mark.parametrize("kind", ["FLAT", "HNSW", "IVF_SQ8"])
def test_elements_are_candidates_of_their_own(kind: str, tmp_path: Path) -> None:
    found = lists()
    spec = resolve_field_index({"index_type": kind, "metric_type": "L2"}, field())
    build(spec, found, 1).save(tmp_path / "index")
    index = load(tmp_path / "index", spec)
    assert isinstance(index, ElementIndex)
    odd = RowMask.from_bool(np.arange(ROWS) % 2 == 1)
    third = np.arange(len(found.vectors)) % 3 == 0
    for mask, chosen in ((None, None), (odd, None), (None, third), (odd, third)):
        elements = index.element_mask(mask, chosen)
        assert index.element_mask(mask, chosen) is elements, "kept for the next search"
        hits = index.search(found.vectors[:4], 8, SearchParams(), elements)
        rows, places = index.places(hits.rows)
        visible = [
            n
            for n in range(len(found.vectors))
            if (mask is None or found.row_of(n) % 2) and (chosen is None or chosen[n])
        ]
        all_distances = similarities(Metric.L2, found.vectors[:4], found.vectors)
        for number in range(4):
            distances = {n: float(all_distances[number, n]) for n in visible}
            best = sorted(distances.values())[:8]
            np.testing.assert_allclose(hits.distances[number], best, rtol=0.1, atol=0.1)
            for row, place, element in zip(rows[number], places[number], hits.rows[number], strict=True):
                assert found.offsets[row] + place == element
                assert element in distances


def test_lists_without_any_vector(tmp_path: Path) -> None:
    empty = VectorLists(np.empty((0, DIM), np.float32), np.zeros(4, np.int64))
    for metric, queries in (
        ("MAX_SIM_L2", packed(field().vector, [np.ones((1, DIM), np.float32)])),
        ("L2", np.ones((1, DIM), np.float32)),
    ):
        spec = resolve_field_index({"index_type": "HNSW", "metric_type": metric}, field())
        build(spec, empty, 1).save(tmp_path / metric)
        index = load(tmp_path / metric, spec)
        assert index.rows == 3
        assert isinstance(index, MaxSimIndex | ElementIndex)
        assert index.search(queries, 2, SearchParams()).rows.tolist() == [[-1, -1]]


def test_the_other_kind_of_query_is_refused() -> None:
    found = lists()
    single = np.ones((1, DIM), np.float32)
    by_rows = over_rows(DataType.FLOAT_VECTOR, DIM, Metric.MAX_SIM_L2, found)
    with pytest.raises(InvalidParameter, match="MAX_SIM_L2 compares lists of vectors"):
        by_rows.search(single, 1, SearchParams())
    with pytest.raises(InvalidParameter, match="range search is not supported with metric MAX_SIM_L2"):
        by_rows.search(packed(field().vector, [single]), 1, SearchParams(Window(1.0, None, False)))
    by_elements = over_rows(DataType.FLOAT_VECTOR, DIM, Metric.L2, found)
    with pytest.raises(InvalidParameter, match="a list of vectors needs an index with metric MAX_SIM_L2"):
        by_elements.search(packed(field().vector, [single]), 1, SearchParams())


def test_queries_of_different_lengths_travel_together() -> None:
    form = field().vector
    asked = [np.full((n, DIM), n, np.float32) for n in (2, 1, 3)]
    sent = packed(form, asked)
    received = np.frombuffer(sent.tobytes(), sent.dtype.str).reshape(3, -1)
    for one, other in zip(asked, unpacked(form, DIM, received), strict=True):
        np.testing.assert_array_equal(one, other)


def test_parameters_of_an_index_of_lists() -> None:
    spec = resolve_field_index({}, field())
    assert (spec.metric, spec.declared_type) == (Metric.MAX_SIM_COSINE, "AUTOINDEX")
    assert resolve_field_index(spec.flattened(), field()).metric is Metric.MAX_SIM_COSINE
    assert resolve_field_index({}, field(DataType.BINARY_VECTOR)).metric is Metric.MAX_SIM_HAMMING
    for params, why in (
        ({"metric_type": "MAX_SIM_HAMMING"}, "does not support metric type: MAX_SIM_HAMMING"),
        ({"metric_type": "BM25"}, "does not support metric type: BM25"),
        ({"index_type": "INVERTED"}, "data type ArrayOfVector can't build with this index INVERTED"),
        ({"index_type": "HNSW", "M": "1"}, "M"),
    ):
        with pytest.raises(InvalidParameter, match=why):
            resolve_field_index(params, field())
    plain = FieldSchema(FieldID(1), "v", DataType.FLOAT_VECTOR, dim=DIM)
    with pytest.raises(InvalidParameter, match="does not support metric type: MAX_SIM_COSINE"):
        resolve_field_index({"metric_type": "MAX_SIM_COSINE"}, plain)
