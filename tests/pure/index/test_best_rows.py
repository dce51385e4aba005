"""The search for the best rows finds what walking all postings finds, bit for bit, and reads fewer."""

from __future__ import annotations

import numpy as np
import pytest

from elanus.core.sparse import SparseRows, paired, starts_of
from elanus.index import RowMask, best_rows
from elanus.index.best_rows import Searched, lower_bound, ranks
from elanus.index.bm25 import Bm25
from elanus.index.hits import RowIds, Scores
from elanus.index.postings import Lists, Postings, Query
from elanus.index.scratch import Scratch
from elanus.index.term_bounds import TermBounds

ROWS, TERMS = 3000, 40


def drawn(seed: int, rows: int = ROWS) -> SparseRows:
    """Rows with whole numbers as values, so that many scores are equal; the first terms are in most rows."""
    random = np.random.default_rng(seed)
    held = random.random((rows, TERMS)) < 0.9 / np.arange(1, TERMS + 1) ** 0.9
    row, term = held.nonzero()
    values = random.integers(1, 4, len(row)).astype(np.float32)
    return SparseRows(starts_of(np.bincount(row, minlength=rows)), paired(term, values))


def searched(rows: SparseRows, mask: RowMask | None = None, bm25: Bm25 | None = None) -> Searched:
    postings = Postings.of(rows)
    bounds = TermBounds(len(postings.terms), postings.weights)
    return Searched(postings, bounds, mask, bm25, np.zeros(len(rows), dtype=np.float32))


def over_texts(rows: SparseRows, k1: float = 1.2, b: float = 0.75) -> Bm25:
    lengths = Postings.of(rows).lengths(len(rows))
    return Bm25(lengths, k1, b, float(lengths.mean()))


def expected(what: Searched, query: Query, k: int) -> tuple[RowIds, Scores]:
    rows, scores = what.all(query)
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


@pytest.fixture(autouse=True, params=[(0, 1, 3, 1), (0, 200, 2, 10), (2000, 200, 2, 1), (10**9, 1, 3, 1)])
def costs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows here are few, so the constants that choose the way are scaled down. The last: never pruned."""
    names = ("WALKED_ALL_MAX", "SAVING_MIN", "CHECK_GROWTH", "LOOKUP_COST")
    for name, value in zip(names, request.param, strict=True):
        monkeypatch.setattr(best_rows, name, value)


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("share", [None, 0.5, 0.003])
def test_it_finds_the_rows_of_the_whole_walk(is_text: bool, share: float | None) -> None:
    random = np.random.default_rng(1)
    for seed in range(4):
        rows = drawn(seed)
        mask = None if share is None else RowMask.from_bool(random.random(ROWS) < share)
        what = searched(
            rows, mask, over_texts(rows, *((1.2, 0.75), (0.0, 0.0))[seed % 2]) if is_text else None
        )
        for _ in range(12):
            terms = np.sort(random.choice(TERMS + 2, size=random.integers(1, 9), replace=False))
            query = Query(terms.astype(np.uint32), random.gamma(1, 1, len(terms)).astype(np.float32))
            for k in (1, 10, 100, ROWS):
                found, scores = what.best(query, k)
                assert not what.scores.any(), "left as zeros for the next search"
                wanted_rows, wanted = expected(what, query, k)
                assert found.tolist() == wanted_rows.tolist()
                assert np.array_equal(scores, wanted)


def test_weights_that_take_away_and_weights_that_vanish_are_not_pruned() -> None:
    rows = drawn(3)
    what = searched(rows)
    terms = np.arange(5, dtype=np.uint32)
    for weights in ([1, -2, 1, 3, -0.5], [1e-45, 1e-44, 1, 2, 3], [3e38, 3e38, 1, 1, 1], [-1] * 5):
        query = Query(terms, np.array(weights, dtype=np.float32))
        with np.errstate(over="ignore"):
            found, scores = what.best(query, 10)
            wanted_rows, wanted = expected(what, query, 10)
        assert found.tolist() == wanted_rows.tolist()
        assert np.array_equal(scores, wanted)


def test_a_frequent_term_is_not_walked_next_to_rare_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rare term decides; of the frequent one's 3,000 postings only a few are looked up."""
    monkeypatch.setattr(best_rows, "WALKED_ALL_MAX", 0)
    monkeypatch.setattr(best_rows, "SAVING_MIN", 200)
    monkeypatch.setattr(best_rows, "LOOKUP_COST", 10)
    held = np.zeros((ROWS, 2), dtype=np.bool_)
    held[:, 0], held[::30, 1] = True, True
    row, term = held.nonzero()
    rows = SparseRows(starts_of(held.sum(axis=1)), paired(term, np.ones(len(row), np.float32)))
    what = searched(rows)
    walked: list[int] = []
    walk = Postings.walk

    def counted(self: Postings, lists: Lists, *others: object) -> RowIds:
        walked.append(lists.postings)
        return walk(self, lists, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Postings, "walk", counted)
    found, scores = what.best(Query(np.array([0, 1], np.uint32), np.array([1, 5], np.float32)), 3)
    assert (found.tolist(), scores.tolist()) == ([0, 30, 60], [6.0] * 3)
    assert walked == [100]


def test_a_lower_bound_is_below_the_kth_and_not_far() -> None:
    random = np.random.default_rng(6)
    for count, k in ((5, 3), (40, 40), (39, 40), (1000, 10), (100_000, 40)):
        scores = random.gamma(1, 1, count).astype(np.float32)
        kth = np.sort(scores)[-k] if k <= count else -np.inf
        low = lower_bound(scores, k)
        assert low <= kth
        assert np.count_nonzero(scores >= low) <= max(2 * k, count if count < 32 * k else 0)


def test_bounds_are_never_below_a_score() -> None:
    rows = drawn(5)
    for k1, b, factor in ((1.2, 0.75, 1.0), (3.0, 1.0, 0.1), (0.0, 0.0, 1.0), (2.0, 0.3, 40.0)):
        text = over_texts(rows, k1, b)
        bm25 = Bm25(text.lengths, k1, b, text.average * factor)
        what = searched(rows, None, bm25)
        postings = what.postings
        for term, (begin, end) in enumerate(zip(postings.starts[:-1], postings.starts[1:], strict=True)):
            own = postings.rows[begin:end].astype(np.int64)
            scores = bm25.scores(own, postings.weights[begin:end], np.float32(1))
            bound = what.bounds.bm25(term, int(begin), int(end), postings.rows, bm25)
            assert scores.max() <= bound * (1 + 1e-6)


def test_ranks_put_the_first_of_equals_first() -> None:
    scores = np.array([2, 5, 2, 5, 1, 2], dtype=np.float32)
    assert [ranks(scores, k).tolist() for k in (1, 2, 4, 6, 9)] == [
        [1],
        [1, 3],
        [1, 3, 0, 2],
        [1, 3, 0, 2, 5, 4],
        [1, 3, 0, 2, 5, 4],
    ]


def test_the_zeros_of_a_failed_search_are_not_used_again() -> None:
    scratch = Scratch()
    with scratch.zeros(10) as first:
        pass
    with scratch.zeros(5) as second:
        assert np.shares_memory(first, second)
    with pytest.raises(IndexError), scratch.zeros(10) as failed:
        failed[[3, 11]] = 1
    with scratch.zeros(10) as fresh, scratch.zeros(10) as inner:
        assert not fresh.any()
        assert not np.shares_memory(fresh, inner), "a search inside another has its own"
