"""BM25 against the formula, over rows, built indexes and loaded files; statistics add up over any parts."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.schema import DataType
from elanus.core.sparse import SparseRows
from elanus.core.term_statistics import TermStatistics
from elanus.index import (
    IndexSpec,
    RowMask,
    TermIndex,
    build,
    check_metric,
    load,
    over_rows,
    query_of,
    resolve_index,
    resolve_search,
    weighted,
    with_metric,
)
from elanus.text import analyzer_from, query_terms, term_rows

ANALYZER = analyzer_from("")
WORDS = [f"w{n}" for n in range(60)]
_random = np.random.default_rng(7)
TEXTS = [" ".join(_random.choice(WORDS, size=_random.integers(0, 30))) for _ in range(400)]
QUERY = "w1 w2 w2 w59 unknown"


def spec_of(**params: str) -> IndexSpec:
    return resolve_index({"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25", **params}, SPARSE, 0)


SPARSE = DataType.SPARSE_FLOAT_VECTOR


def rows_of(texts: list[str]) -> SparseRows:
    return term_rows(ANALYZER.tokens_of(texts), len(texts))


def index_of(texts: list[str], how: str, path: Path) -> TermIndex:
    if how == "rows":
        index = over_rows(SPARSE, 0, spec_of().metric_type, rows_of(texts))
    else:
        index = build(spec_of(drop_ratio_build="0.5"), rows_of(texts), threads=1)
        if how == "file":
            index.save(path)
            index = load(path, spec_of())
    assert isinstance(index, TermIndex)
    return index


def expected(texts: list[str], visible: list[int], k1: float, b: float) -> dict[int, float]:
    """The scores by row, in plain Python; only of the rows that have a term of the query."""
    words = {row: texts[row].split() for row in visible}
    average = sum(map(len, words.values())) / len(words)
    scores: dict[int, float] = {}
    for term, times in Counter(QUERY.split()).items():
        having = sum(term in of_row for of_row in words.values())
        rarity = math.log1p((len(words) - having + 0.5) / (having + 0.5))
        for row, of_row in words.items():
            tf = of_row.count(term)
            if tf:
                norm = tf + k1 * (1 - b + b * len(of_row) / average)
                scores[row] = scores.get(row, 0.0) + times * rarity * tf * (k1 + 1) / norm
    return scores


@pytest.mark.parametrize("how", ["rows", "built", "file"])
@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 0.0), (3.0, 1.0)])
def test_scores_are_those_of_the_formula(how: str, k1: float, b: float, tmp_path: Path) -> None:
    index = index_of(TEXTS, how, tmp_path / "index")
    visible = [row for row in range(len(TEXTS)) if row % 3]
    mask = RowMask.from_bool(np.isin(np.arange(len(TEXTS)), visible))
    queries = query_terms(ANALYZER, [QUERY])
    terms = query_of(queries)
    statistics = index.statistics(terms, mask)
    params = {"bm25_k1": k1, "bm25_b": b, "bm25_avgdl": statistics.average}
    weights = weighted(queries, terms, statistics, k1)
    hits = index.search(weights, 400, resolve_search(index.spec, params, 400), mask)
    wanted = expected(TEXTS, visible, k1, b)
    found = {int(r): float(s) for r, s in zip(hits.rows[0], hits.distances[0], strict=True) if r >= 0}
    assert found.keys() == wanted.keys()
    assert np.allclose([found[row] for row in wanted], list(wanted.values()), rtol=1e-5)
    assert sorted(found.values(), reverse=True) == list(found.values())
    best = sorted(found.values())
    window = {**params, "radius": best[5], "range_filter": best[-5]}
    inside = index.search(weights, 400, resolve_search(index.spec, window, 400), mask)
    assert [s for s in inside.distances[0] if s > 0] == [s for s in found.values() if best[5] < s <= best[-5]]


def test_statistics_and_scores_do_not_depend_on_how_rows_are_parted(tmp_path: Path) -> None:
    queries = query_terms(ANALYZER, [QUERY])
    terms = query_of(queries)
    whole = index_of(TEXTS, "file", tmp_path / "whole")
    parts = [
        index_of(TEXTS[a:b], how, tmp_path / how)
        for a, b, how in ((0, 1, "rows"), (1, 150, "built"), (150, 400, "file"))
    ]
    total = sum((part.statistics(terms, None) for part in parts), TermStatistics.none(len(terms)))
    alone = whole.statistics(terms, None)
    assert (total.rows, total.length, total.having.tolist()) == (
        alone.rows,
        alone.length,
        alone.having.tolist(),
    )
    params = resolve_search(whole.spec, {"bm25_avgdl": total.average}, 400)
    weights = weighted(queries, terms, total, 1.2)
    scores = {}
    for first, part in zip((0, 1, 150), parts, strict=True):
        hits = part.search(weights, part.rows, params)
        scores |= {
            r + first: s for r, s in zip(hits.rows[0].tolist(), hits.distances[0], strict=True) if r >= 0
        }
    hits = whole.search(weights, 400, params)
    assert scores == {r: s for r, s in zip(hits.rows[0].tolist(), hits.distances[0], strict=True) if r >= 0}


def test_the_metric_is_for_outputs_of_functions_alone() -> None:
    params = {"index_type": "SPARSE_INVERTED_INDEX"}
    assert resolve_index(with_metric(params, "BM25"), SPARSE, 0).metric_type == "BM25"
    check_metric(spec_of(), "BM25")
    wrong = resolve_index({**params, "metric_type": "IP"}, SPARSE, 0)
    with pytest.raises(InvalidParameter, match="of BM25 function output field must be BM25, got IP"):
        check_metric(wrong, "BM25")
    with pytest.raises(InvalidParameter, match="only BM25 Function output field support BM25"):
        check_metric(spec_of(), "")
    with pytest.raises(InvalidParameter, match=r"'bm25_b' \(2.0\) should be in range"):
        spec_of(bm25_b="2")
