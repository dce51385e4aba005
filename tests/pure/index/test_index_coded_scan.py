"""Scans of codes: the answers of an exact scan, for a fraction of its work, or the exact scan itself."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from index_data import clustered, recall

from elanus.core.types import DataType
from elanus.index import IndexSpec, RowMask, SearchParams, build, coded_scan, load, plan, resolve_index
from elanus.index.coded_scan import (
    CodedRanking,
    CodedScan,
    RowCodes,
    candidates_of,
    serves_filters,
    serves_sparse_filters,
)
from elanus.index.float_rows import FloatRows
from elanus.index.hits import Hits
from elanus.index.sizes import index_size
from elanus.index.unit import unit

DIM, ROWS, QUERIES, K = 256, 9000, 40, 10


@lru_cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Rows of 40 clusters, each of few dimensions, and queries of the same kind."""
    random = np.random.default_rng(5)
    far, _ = clustered(ROWS + QUERIES, DIM, 40, seed=3)
    few = random.normal(size=(ROWS + QUERIES, 12)) @ random.normal(size=(12, DIM))
    made = (far * 0.2 + few).astype(np.float32)
    return made[:ROWS], made[ROWS:]


def spec_of(metric: str = "L2", data_type: DataType = DataType.FLOAT_VECTOR) -> IndexSpec:
    sent = {"index_type": "HNSW", "metric_type": metric, "M": "4", "efConstruction": "4"}
    return resolve_index(sent, data_type, DIM)


class Counted(FloatRows):
    """Rows that know how many of them were compared."""

    compared_rows = 0

    def scores(self, query: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        self.compared_rows += self.count if rows is None else len(rows)
        return super().scores(query, rows)

    def nearest(self, queries: np.ndarray, k: int, mask: RowMask | None, threads: int) -> Hits:
        self.compared_rows += len(queries) * (self.count if mask is None else mask.count)
        return super().nearest(queries, k, mask, threads)


KINDS = pytest.mark.parametrize("kind", [CodedScan, RowCodes])


def scan_of(
    metric: str = "L2", kind: type[CodedScan] | type[RowCodes] = CodedScan
) -> tuple[CodedRanking, Counted, np.ndarray]:
    """The scan, its rows with nothing counted yet, and queries."""
    coded, exact = _scan(metric, kind)
    exact.compared_rows = 0
    queries = data()[1]
    return coded, exact, unit(queries) if metric == "COSINE" else queries


@lru_cache
def _scan(metric: str, kind: type[CodedScan] | type[RowCodes]) -> tuple[CodedRanking, Counted]:
    """Made once: the codes take a second or more, and a search leaves them as they are."""
    rows = data()[0]
    spec = spec_of(metric)
    exact = Counted(unit(rows) if metric == "COSINE" else rows, spec.metric_type)
    coded = kind.of(spec, rows, exact)
    assert coded is not None
    return coded, exact


@KINDS
@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_it_finds_what_the_exact_scan_finds(
    metric: str, share: float, kind: type[CodedScan] | type[RowCodes]
) -> None:
    coded, exact, queries = scan_of(metric, kind)
    mask = RowMask.from_bool(np.random.default_rng(1).random(ROWS) < share)
    found = coded.nearest(queries, K, mask, 1)
    compared = exact.compared_rows
    truth = exact.nearest(queries, K, mask, 1)
    assert recall(found.rows, truth.rows) >= 0.98
    assert mask.contains(found.rows).all()
    for i in range(QUERIES):  # the same row has the same score, bit for bit
        same = found.rows[i] == truth.rows[i]
        assert (found.distances[i][same] == exact.scores(queries[i], truth.rows[i])[same]).all()
    if share == 1.0:
        assert compared < ROWS * QUERIES / 10


@KINDS
def test_a_filter_that_leaves_few_rows_is_an_exact_scan(kind: type[CodedScan] | type[RowCodes]) -> None:
    coded, exact, queries = scan_of(kind=kind)
    few = np.zeros(ROWS, dtype=bool)
    few[: 2 * candidates_of(K) - 1] = True
    mask = RowMask.from_bool(few)
    assert coded.cost_ns(K, mask.count) == float("inf")
    found = coded.nearest(queries, K, mask, 1)
    assert (found.rows == exact.nearest(queries, K, mask, 1).rows).all()


def test_codes_that_place_hits_late_give_way_to_the_exact_scan() -> None:
    rows, _ = data()
    spec = spec_of()
    coded, _, queries = scan_of()
    assert isinstance(coded, CodedScan)
    mirrored = Counted(np.ascontiguousarray(rows[::-1]), spec.metric_type)  # the codes are of other rows
    wrong = CodedScan.over(coded._codes, mirrored)
    found = wrong.nearest(queries, K, None, 1)
    assert recall(found.rows, mirrored.nearest(queries, K, None, 1).rows) >= 0.98
    assert mirrored.compared_rows > ROWS * QUERIES / 2


@KINDS
def test_noise_gets_no_codes(kind: type[CodedScan] | type[RowCodes]) -> None:
    noise = np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)
    spec = spec_of()
    assert kind.of(spec, noise, FloatRows(noise, spec.metric_type)) is None


@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.FLOAT16_VECTOR])
def test_a_graph_scans_its_codes_under_a_filter(data_type: DataType, tmp_path: Path) -> None:
    rows, queries = data()
    spec = spec_of("COSINE", data_type)
    stored = rows.astype(spec.form.dtype)
    build(spec, stored, threads=1).save(tmp_path / "index")
    index = load(tmp_path / "index", spec)
    said = index_size(spec, ROWS)
    assert said.memory_bytes == pytest.approx(index.memory_bytes, rel=0.1)
    coded, asked = index._coded, []
    assert coded is not None
    nearest = coded.nearest
    coded.nearest = lambda *args: asked.append(1) or nearest(*args)
    mask = RowMask.from_bool(np.random.default_rng(1).random(ROWS) < 0.5)
    assert coded.cost_ns(K, mask.count) < plan.exact_cost_ns(mask.count, DIM, 1, ROWS)
    asking = queries.astype(spec.form.dtype)
    found = [index._scan(index._checked(query[None]), K, mask, 1).rows[0] for query in asking]
    visible = np.flatnonzero(mask.to_bool())
    flat = resolve_index({"index_type": "FLAT", "metric_type": "COSINE"}, data_type, DIM)
    truth = build(flat, stored[visible], threads=1).search(asking, K, SearchParams()).rows
    assert len(asked) == len(queries)
    assert recall(np.array(found), visible[truth]) >= 0.98


@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.INT8_VECTOR])
@pytest.mark.parametrize("metric", ["L2", "COSINE"])
def test_a_graph_over_many_rows_compares_the_codes_of_those_that_a_filter_leaves(
    data_type: DataType, metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coded_scan, "ROW_CODES_ROWS_MIN", ROWS)
    monkeypatch.setattr(coded_scan, "FILTERED_DIM_MIN", DIM + 1)
    rows, queries = data()
    scaled = rows * (100 / np.abs(rows).max())
    spec = spec_of(metric, data_type)
    stored = scaled.astype(spec.form.dtype)
    build(spec, stored, threads=1).save(tmp_path / "index")
    index = load(tmp_path / "index", spec)
    assert index_size(spec, ROWS).memory_bytes == pytest.approx(index.memory_bytes, rel=0.1)
    coded = index._coded
    assert isinstance(coded, RowCodes)
    mask = RowMask.from_bool(np.random.default_rng(1).random(ROWS) < 0.1)
    visible = np.flatnonzero(mask.to_bool())
    asking = (queries * (100 / np.abs(rows).max())).astype(spec.form.dtype)
    flat = resolve_index({"index_type": "FLAT", "metric_type": metric}, data_type, DIM)
    truth = build(flat, stored[visible], threads=1).search(asking, K, SearchParams()).rows
    found = coded.nearest(index._checked(asking), K, mask, 1)
    assert recall(found.rows, visible[truth]) >= 0.98


def test_codes_by_row_are_for_large_segments_of_short_vectors() -> None:
    assert serves_sparse_filters(128, 1_000_000)
    assert not serves_sparse_filters(128, 100_000)
    assert not serves_sparse_filters(256, 1_000_000)
    assert not serves_sparse_filters(100, 1_000_000)
    assert not serves_sparse_filters(32, 1_000_000)


def test_a_filter_of_a_percent_of_a_large_segment_is_answered_by_codes_by_row() -> None:
    rows, dim = 1_000_000, 128

    def codes_win(share: float) -> bool:
        visible = round(share * rows)
        coded_ns = plan.row_codes_cost_ns(rows, visible, dim, candidates_of(K))
        way = plan.walk(
            rows=rows,
            visible=visible,
            dim=dim,
            links=16,
            k=K,
            ef=64,
            queries=1,
            share=share,
            coded_ns=coded_ns,
        )
        return way is None and coded_ns < plan.exact_cost_ns(visible, dim, 1, rows)

    assert [codes_win(share) for share in (0.001, 0.01, 0.03, 0.1)] == [False, True, True, False]


def test_small_segments_and_short_vectors_get_no_codes() -> None:
    assert serves_filters(256, 8192)
    assert not serves_filters(256, 8191)
    assert not serves_filters(252, 8192)
    assert not serves_filters(258, 8192)


def test_a_middling_filter_is_answered_by_codes() -> None:
    rows, dim = 60_000, 784
    coded_ns = plan.coded_cost_ns(rows, dim, candidates_of(K))
    assert plan.exact_cost_ns(rows // 100, dim, 1, rows) < coded_ns
    assert coded_ns < plan.exact_cost_ns(rows // 10, dim, 1, rows)
    chosen = plan.walk(
        rows=rows, visible=rows // 10, dim=dim, links=16, k=K, ef=64, queries=1, share=0.1, coded_ns=coded_ns
    )
    assert chosen is None


def test_codes_stay_in_a_file_that_is_kept_until_a_filter_needs_them(tmp_path: Path) -> None:
    rows, queries = data()
    spec, path = spec_of(), tmp_path / "index"
    build(spec, rows, threads=1).save(path)
    whole, kept = load(path, spec), load(path, spec, stays=True)
    path.unlink()  # as a compaction does: what is mapped outlives the name
    kept.search(queries, K, SearchParams(), None, 1)
    assert "_codes" not in vars(kept._coded)
    mask = RowMask.from_bool(np.random.default_rng(1).random(ROWS) < 0.5)
    found = [index._scan(index._checked(queries[:1]), K, mask, 1) for index in (whole, kept)]
    assert "_codes" in vars(kept._coded)
    assert (found[0].rows == found[1].rows).all()
    assert (found[0].distances == found[1].distances).all()
