"""Target recall: the curve that is measured at build time, what it says, and the searches that follow it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InvalidParameter
from elanus.core.nullable import NullableVectors
from elanus.core.target_recall import EFFORTS, property_target, target_of, with_default_target
from elanus.core.trail import Trail, following
from elanus.core.types import DataType
from elanus.index import (
    NullableIndex,
    RowMask,
    SearchParams,
    VectorIndex,
    build,
    load,
    measure,
    measuring,
    over_rows,
    plan,
    resolve_index,
    resolve_search,
    save,
)
from elanus.index.curve import RecallCurve
from elanus.index.hits import without
from elanus.index.hnsw import HnswIndex
from elanus.index.measured_lists import ListMeasuring
from elanus.index.measured_walks import BATCH_QUERIES, DEEP_QUERIES, SHALLOW, WalkMeasuring
from elanus.index.measuring import BATCHES_MIN, BUDGET_SHARE, ROWS_MIN
from elanus.index.withheld import late_rows, withheld

ROWS, DIM, K = 4000, 16, 10
CURVE = RecallCurve(
    np.array([10, 100]), np.array([1, 4, 16, 64]), np.array([[0.2, 0.6, 0.9, 0.99], [0.1, 0.4, 0.8, 0.96]])
)


def clock() -> Callable[[], float]:
    """By which each look takes a second, so that many batches fit into a share of a thousand."""
    seconds = count()
    return lambda: float(next(seconds))


def spec_of(**params: str):  # type: ignore[no-untyped-def]
    return resolve_index({"metric_type": "L2", **params}, DataType.FLOAT_VECTOR, DIM)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((ROWS, DIM), dtype=np.float32)


@pytest.fixture(scope="module")
def lists(rows: np.ndarray) -> VectorIndex:
    index = build(spec_of(index_type="IVF_FLAT", nlist="64"), rows, 1)
    measure(index, rows, 1000.0, 1, now_s=clock())
    assert isinstance(index, VectorIndex)
    return index


def test_between_measured_efforts_misses_fall_with_the_effort() -> None:
    assert CURVE.effort(0.9, 10, 1.0) == 16
    between = CURVE.effort(0.97, 10, 1.0)
    assert between is not None
    assert 16 < between < 64


def test_more_hits_need_more_effort_than_the_same_target_with_fewer() -> None:
    efforts = [CURVE.effort(0.9, k, 1.0) for k in (1, 10, 30, 100, 200)]
    assert efforts == sorted(efforts)  # type: ignore[type-var]
    assert efforts[0] == efforts[1] == 16, "below the least measured depth nothing is guessed"
    assert efforts[4] == pytest.approx(2 * efforts[3], abs=1)  # type: ignore[operator]


@given(st.floats(0.05, 0.95), st.integers(1, 100), st.floats(0.02, 1.0))
def test_a_filter_needs_the_effort_of_as_many_hits_as_lie_before_its_last(
    target: float, k: int, share: float
) -> None:
    """A filtered search spends the effort of depth k / share."""
    spent, whole = CURVE.effort(target, k, share), CURVE.effort(target, round(k / share), 1.0)
    assert spent is not None
    assert whole is not None
    assert spent == pytest.approx(whole, rel=0.05, abs=1 / share + 1)


@given(st.floats(0.05, 0.95), st.integers(1, 100), st.floats(0.02, 1.0))
def test_a_filtered_search_of_lists_takes_as_many_as_the_curve_says_and_no_more(
    target: float, k: int, share: float
) -> None:
    asked, whole = CURVE.lists(target, k, share), CURVE._at(target, k, share, 1.0)
    assert asked is not None
    assert whole is not None
    assert plan.probes(asked, 10_000, share) == max(1, math.ceil(whole))


def test_a_target_that_was_never_reached_has_no_effort() -> None:
    assert CURVE.effort(0.995, 10, 1.0) is None
    assert CURVE.best(10, 1.0) == 0.99
    assert CURVE.effort(0.98, 10, 1.0) is not None
    assert CURVE.effort(0.98, 10, 1.0, miss_factor=4.0) is None


def test_searches_that_miss_more_than_expected_get_more_effort() -> None:
    efforts = [CURVE.effort(0.8, 10, 1.0, miss_factor=factor) for factor in (0.5, 1.0, 2.0, 4.0)]
    assert None not in efforts
    assert efforts == sorted(set(efforts))  # type: ignore[type-var]


def test_a_curve_survives_the_file(lists: VectorIndex, tmp_path: Path) -> None:
    save(lists, tmp_path / "index")
    loaded = load(tmp_path / "index", lists.spec)
    assert isinstance(loaded, VectorIndex)
    assert lists.curve is not None
    assert loaded.curve is not None
    for name, array in lists.curve.arrays().items():
        np.testing.assert_array_equal(loaded.curve.arrays()[name], array)


def test_a_file_without_a_curve_is_loaded_as_before(rows: np.ndarray, tmp_path: Path) -> None:
    index = build(spec_of(index_type="IVF_FLAT", nlist="64"), rows, 1)
    save(index, tmp_path / "index")
    loaded = load(tmp_path / "index", index.spec)
    assert isinstance(loaded, VectorIndex)
    assert loaded.curve is None


def test_the_rows_that_have_a_vector_are_measured(rows: np.ndarray, tmp_path: Path) -> None:
    valid = np.ones(ROWS + 100, dtype=np.bool_)
    valid[:100] = False
    values = NullableVectors(rows, valid)
    index = build(spec_of(index_type="IVF_FLAT", nlist="64"), values, 1)
    measure(index, values, 1.0, 1, now_s=clock())
    save(index, tmp_path / "index")
    loaded = load(tmp_path / "index", index.spec)
    assert isinstance(loaded, NullableIndex)
    assert loaded.inner is not None
    assert loaded.inner.curve is not None


@pytest.mark.parametrize("params", [{"index_type": "FLAT"}, {"index_type": "IVF_FLAT", "nlist": "8"}])
def test_where_effort_means_nothing_nothing_is_measured(params: dict[str, str], rows: np.ndarray) -> None:
    few = rows if params["index_type"] == "FLAT" else rows[: ROWS_MIN - 1]
    index = build(spec_of(**params), few, 1)
    measure(index, few, 1.0, 1)
    assert isinstance(index, VectorIndex)
    assert index.curve is None


def test_the_measuring_ends_when_its_time_is_up(rows: np.ndarray) -> None:
    """A clock by which each look takes a second: two batches are measured, and no third one."""
    seconds = iter(range(1000))
    index = build(spec_of(index_type="IVF_FLAT", nlist="64"), rows, 1)
    measure(index, rows, 10.0, 1, now_s=lambda: float(next(seconds)))
    assert next(seconds) == 5


@pytest.mark.parametrize("share", [1.0, 0.2])
@pytest.mark.parametrize("target", [0.7, 0.9, 0.97])
def test_a_search_reaches_its_target_without_scanning_all(
    share: float, target: float, lists: VectorIndex, rows: np.ndarray
) -> None:
    random = np.random.default_rng(9)
    queries = random.standard_normal((200, DIM), dtype=np.float32)
    mask = None if share == 1 else RowMask.from_bool(random.random(ROWS) < share)
    truth = over_rows(DataType.FLOAT_VECTOR, DIM, lists.spec.metric_type, rows)
    best = truth.search(queries, K, SearchParams(), mask).rows
    trail = Trail(lambda: 0.0, None)
    with following(trail):
        trail.visit(lists)
        found = lists.search(queries, K, SearchParams(target=target), mask).rows
    recall = np.mean([len(np.intersect1d(one, other)) / K for one, other in zip(found, best, strict=True)])
    assert recall >= target - 0.03
    (method,) = trail.visits[0].methods
    assert method.params["aimed"] == 1.0
    assert "best" not in method.params
    assert method.params["nprobe"] < 64


def test_a_graph_is_measured_as_it_will_be_searched(rows: np.ndarray) -> None:
    """Rows are queries whose own links are hidden: with them, they would find their neighbors too easily."""
    index = build(spec_of(index_type="HNSW", M="8", efConstruction="40"), rows, 1)
    measure(index, rows, 1000.0, 1, now_s=clock())
    assert isinstance(index, HnswIndex)
    assert index.curve is not None
    queries = np.random.default_rng(9).standard_normal((200, DIM), dtype=np.float32)
    truth = over_rows(DataType.FLOAT_VECTOR, DIM, index.spec.metric_type, rows)
    best = truth.search(queries, K, SearchParams()).rows
    ef = index.curve.effort(0.9, K, 1.0)
    assert ef is not None
    found = index.met(queries, K, ef, 1)
    recall = np.mean([len(np.intersect1d(one, other)) / K for one, other in zip(found, best, strict=True)])
    assert 0.86 <= recall < 0.97


def test_hidden_links_come_back(rows: np.ndarray) -> None:
    index = build(spec_of(index_type="HNSW", M="8", efConstruction="40"), rows, 1)
    assert isinstance(index, HnswIndex)
    before = faiss.vector_to_array(index.graph.hnsw.neighbors)
    chosen = late_rows(index.graph)[:5]
    with withheld(index.graph, chosen):
        assert (faiss.vector_to_array(index.graph.hnsw.neighbors) != before).any()
    np.testing.assert_array_equal(faiss.vector_to_array(index.graph.hnsw.neighbors), before)


def test_without_a_curve_and_for_unreachable_targets_the_effort_is_the_largest(rows: np.ndarray) -> None:
    index = build(spec_of(index_type="IVF_FLAT", nlist="64"), rows, 1)
    assert isinstance(index, VectorIndex)
    for curve, best, asked in ((None, -1.0, EFFORTS["nprobe"]), (CURVE, 0.99, 64)):
        index.curve = curve
        trail = Trail(lambda: 0.0, None)
        with following(trail):
            trail.visit(index)
            index.search(rows[:1], K, SearchParams(target=0.999))
        (method,) = trail.visits[0].methods
        assert method.params["nprobe"] == 64
        assert method.params["asked_nprobe"] == asked
        assert method.params["best"] == best


@pytest.mark.parametrize("value", [0, 1, -0.5, 1.5, "much", True, "nan"])
def test_a_target_is_a_share(value: object) -> None:
    with pytest.raises(InvalidParameter, match=r"target_recall .* is invalid: give a number above 0"):
        resolve_search(spec_of(index_type="HNSW"), {"target_recall": value}, K)


@pytest.mark.parametrize("name", ["ef", "nprobe", "search_list", "level", "drop_ratio_search"])
def test_a_target_and_an_effort_exclude_each_other(name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"target_recall .* and {name} .* both set the effort"):
        target_of({"target_recall": 0.9, name: 2})


def test_a_kind_whose_effort_is_built_in_takes_no_target() -> None:
    spec = resolve_index(
        {"index_type": "MINHASH_LSH", "metric_type": "MHJACCARD"}, DataType.BINARY_VECTOR, 512
    )
    with pytest.raises(InvalidParameter, match="not supported by an index of type MINHASH_LSH"):
        resolve_search(spec, {"target_recall": 0.9}, K)


def test_the_property_is_for_searches_that_choose_nothing() -> None:
    properties = {"target_recall": "0.95"}
    assert property_target(properties) == 0.95
    assert with_default_target({}, properties) == {"target_recall": 0.95}
    assert with_default_target({"ef": 64}, properties) == {"ef": 64}
    assert with_default_target({"target_recall": 0.5}, properties) == {"target_recall": 0.5}
    assert with_default_target({"radius": 1}, {}) == {"radius": 1}
    assert property_target({}) is None
    with pytest.raises(InvalidParameter, match="target_recall"):
        property_target({"target_recall": "high"})


def test_codes_that_lose_hits_are_not_searched_further_than_they_find_any(rows: np.ndarray) -> None:
    """Short codes reach no high target: more lists than the last that helped would cost and find nothing."""
    index = build(spec_of(index_type="IVF_PQ", nlist="64", m="4", nbits="4"), rows, 1)
    measure(index, rows, 1000.0, 1, now_s=clock())
    assert isinstance(index, VectorIndex)
    assert index.curve is not None
    assert index.curve.best(K, 1.0) < 0.9
    trail = Trail(lambda: 0.0, None)
    with following(trail):
        trail.visit(index)
        index.search(rows[:1], K, SearchParams(target=0.99))
    (method,) = trail.visits[0].methods
    assert method.params["nprobe"] == index.curve.enough(K, 1.0) < 64


def test_the_curve_of_lists_is_what_searches_of_so_many_lists_find(
    lists: VectorIndex, rows: np.ndarray
) -> None:
    """The places of the true hits' lists say the same as searches with every effort."""
    assert lists.curve is not None
    queries = np.random.default_rng(12).standard_normal((300, DIM), dtype=np.float32)
    truth = over_rows(DataType.FLOAT_VECTOR, DIM, lists.spec.metric_type, rows)
    best = truth.search(queries, K, SearchParams()).rows
    for effort, measured in zip(lists.curve.efforts.tolist(), lists.curve.recalls[0], strict=True):
        found = lists.search(queries, K, SearchParams().with_effort("nprobe", effort)).rows
        recall = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(found, best, strict=True)])
        assert measured == pytest.approx(recall, abs=0.06)


@pytest.mark.parametrize(
    ("params", "data_type"),
    [
        ({"index_type": "IVF_FLAT", "metric_type": "COSINE"}, DataType.FLOAT_VECTOR),
        ({"index_type": "SCANN"}, DataType.FLOAT_VECTOR),
        ({"index_type": "IVF_RABITQ", "refine": "true"}, DataType.FLOAT_VECTOR),
        ({"index_type": "BIN_IVF_FLAT", "metric_type": "HAMMING"}, DataType.BINARY_VECTOR),
    ],
)
def test_lists_of_every_kind_have_a_curve(params: dict[str, str], data_type: DataType) -> None:
    random = np.random.default_rng(3)
    vectors = random.standard_normal((2500, 16), dtype=np.float32)
    if data_type is DataType.BINARY_VECTOR:
        vectors = random.integers(0, 256, (2500, 2), dtype=np.uint8)
    index = build(resolve_index({"metric_type": "L2", "nlist": "32", **params}, data_type, 16), vectors, 1)
    measure(index, vectors, 0.0, 1)
    assert isinstance(index, VectorIndex)
    assert index.curve is not None
    assert index.curve.recalls.shape == (len(index.curve.depths), len(index.curve.efforts))
    assert index.curve.best(K, 1.0) > 0.9 or data_type is DataType.BINARY_VECTOR, "ties are hits of either"


@pytest.mark.parametrize(
    ("build_s", "batches"),
    [(0.001, 8), (1.0, 8), (100.0, 100.0 * BUDGET_SHARE / 0.05)],
    ids=["a build of a moment", "a build of a second", "a long build"],
)
def test_short_builds_have_time_for_more_than_the_fewest_queries(
    rows: np.ndarray, monkeypatch: pytest.MonkeyPatch, build_s: float, batches: float
) -> None:
    """A batch takes 0.05 s here."""
    now_s, measured = 0.0, 0

    class Batches:
        free_s, caution = ListMeasuring.free_s, ListMeasuring.caution
        depths, efforts = np.array([10]), np.array([1, 2])

        def batches(self) -> int:
            return 1000

        def measure(self, batch: int) -> np.ndarray:
            nonlocal now_s, measured
            now_s, measured = now_s + 0.05, measured + 1
            return np.full((1, 1, 2), [0.5, 1.0])

    monkeypatch.setattr(measuring, "_measuring", lambda *_: Batches())
    measure(build(spec_of(index_type="IVF_FLAT", nlist="64"), rows, 1), rows, build_s, 1, now_s=lambda: now_s)
    assert abs(measured - batches) <= 1


@pytest.mark.parametrize(
    ("build_s", "batch_s", "took_s"),
    [
        (10.0, 0.1, 10.0 * BUDGET_SHARE),
        (0.1, 0.01, WalkMeasuring.free_s),
        (1.0, 1000.0, 1000.0 * BATCHES_MIN),
    ],
    ids=["a share of the build", "a moment after a short build", "the fewest batches in any case"],
)
def test_measuring_a_graph_is_bounded(
    rows: np.ndarray, monkeypatch: pytest.MonkeyPatch, build_s: float, batch_s: float, took_s: float
) -> None:
    now_s, measured = 0.0, WalkMeasuring.measure

    def slow(self: WalkMeasuring, batch: int) -> np.ndarray:
        nonlocal now_s
        now_s += batch_s
        return measured(self, batch)

    monkeypatch.setattr(WalkMeasuring, "measure", slow)
    index = build(spec_of(index_type="HNSW", M="8", efConstruction="40"), rows, 1)
    measure(index, rows, build_s, 1, now_s=lambda: now_s)
    assert took_s - batch_s <= now_s + 1e-9 <= took_s + 2e-9


def test_a_query_that_has_found_everything_is_walked_no_further() -> None:
    """Walks of more effort are for the others; the recalls are those that walks of all queries would give."""
    vectors = np.random.default_rng(6).standard_normal((20_000, 8), dtype=np.float32)
    spec = resolve_index(
        {"metric_type": "L2", "index_type": "HNSW", "M": "8", "efConstruction": "40"},
        DataType.FLOAT_VECTOR,
        8,
    )
    index = build(spec, vectors, 2)
    assert isinstance(index, HnswIndex)
    walks = WalkMeasuring(index, vectors, 64, 1)
    assert walks.depths.tolist() == [10, 100, 1000]
    first, second = walks.measure(0), walks.measure(1)
    assert first.shape == (DEEP_QUERIES, 3, len(walks.efforts))
    assert second.shape == (BATCH_QUERIES, 3, len(walks.efforts))
    assert not np.isnan(first).any()
    is_deep = walks.depths > SHALLOW
    assert np.isnan(second[:, is_deep]).all()
    assert not np.isnan(second[:, ~is_deep]).any()

    rows = walks._rows[DEEP_QUERIES:][:BATCH_QUERIES]
    exact = over_rows(DataType.FLOAT_VECTOR, 8, spec.metric_type, vectors)
    truth = without(exact.search(vectors[rows], 101, SearchParams()).rows, rows)
    with withheld(index.graph, rows):
        for number, effort in enumerate(walks.efforts.tolist()):
            if effort < 100:
                continue
            met = without(index.met(vectors[rows], 101, effort + 1, 1), rows)
            found = [len(np.intersect1d(a[:100], b[:100])) / 100 for a, b in zip(met, truth, strict=True)]
            assert second[:, 1, number] == pytest.approx(found, abs=0.011)
