"""Search iterators of the second generation: every row once, in order, however many have one score."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elanus.api.querynode import NodeHits
from elanus.core.errors import InvalidParameter
from elanus.core.metrics import ITERATOR_PAGE, Metric
from elanus.core.schema import DataType
from elanus.index import IndexSpec, resolve_index, resolve_search
from elanus.proxy.api.search import IteratorPage
from elanus.proxy.role.iterator_pages import Pages

Params = Mapping[str, float | int | str | bool]


def _type_of(metric: Metric) -> DataType:
    return DataType.BINARY_VECTOR if metric.is_binary else DataType.FLOAT_VECTOR


class Rows:
    """Rows with these scores and the keys 0, 1, …, searched by range as an index does it."""

    def __init__(self, scores: list[float], metric: Metric) -> None:
        self.scores = np.array(scores, dtype=np.float32)
        self.metric = metric
        kind = {"metric_type": str(metric), "index_type": "BIN_FLAT" if metric.is_binary else "FLAT"}
        self.spec: IndexSpec = resolve_index(kind, _type_of(metric), 8)
        self.asked: list[int] = []

    def search(self, k: int, params: Params) -> NodeHits:
        """The cut of equal scores at ``k`` is arbitrary, as it is in an index; the order is not."""
        self.asked.append(k)
        resolved = resolve_search(self.spec, params, k)
        inside = np.arange(len(self.scores))
        if resolved.window is not None:
            assert resolved.exact
            inside = np.flatnonzero(resolved.window.holds(self.scores))
        towards = -self.scores if self.metric.bigger_is_better else self.scores
        chosen = inside[np.lexsort((-inside, towards[inside]))][:k]
        order = chosen[np.lexsort((chosen, towards[chosen]))]
        scores = self.scores[order]
        return NodeHits(str(self.metric), np.array([0, len(order)]), order, scores, {"x": pa.array(order)})

    def in_order(self) -> list[int]:
        towards = -self.scores if self.metric.bigger_is_better else self.scores
        return [int(row) for row in np.lexsort((np.arange(len(towards)), towards))]


def all_pages(
    rows: Rows, size: int, params: Params | None = None, pages: Pages | None = None
) -> list[list[int]]:
    """The rows that a client gets when it goes on until a page is empty."""
    maker, wanted, found = pages or Pages(), IteratorPage(size), []
    while True:
        hits, end = maker.page(wanted, rows.metric, params or {}, rows.search)
        assert hits.ids.tolist() == hits.fields["x"].to_pylist()
        assert hits.offsets.tolist() == [0, len(hits.scores)]
        if not len(hits.scores):
            return found
        found.append([int(key) for key in hits.ids.tolist()])
        sent = float(np.float32(end.bound))  # what goes over the wire and back
        wanted = IteratorPage(size, end.token, sent)


@settings(max_examples=300, deadline=None)
@given(
    scores=st.lists(st.sampled_from([0.0, 0.25, 1.0, 1.0000001, 7.5, 100.0]), max_size=60),
    size=st.integers(1, 20),
    metric=st.sampled_from([Metric.L2, Metric.IP, Metric.HAMMING]),
)
def test_every_row_comes_once_and_in_order(scores: list[float], size: int, metric: Metric) -> None:
    rows = Rows(scores, metric)
    found = all_pages(rows, size)
    assert [key for page in found for key in page] == rows.in_order()
    assert all(1 <= len(page) <= size for page in found)


@pytest.mark.parametrize("metric", [Metric.L2, Metric.IP])
def test_scores_of_their_own_take_one_search_a_page(metric: Metric) -> None:
    rows = Rows([float(n) for n in range(10)], metric)
    assert [len(page) for page in all_pages(rows, 4)] == [4, 4, 2]
    assert rows.asked == [5, 5, 5, 5]


def test_a_page_ends_before_a_score_that_does_not_fit() -> None:
    assert all_pages(Rows([1, 2, 2, 2, 3], Metric.L2), 3) == [[0], [1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("metric", "params", "expected"),
    [
        (Metric.L2, {"radius": 4.0}, [0, 1, 2, 3]),
        (Metric.L2, {"radius": 8.0, "range_filter": 3.0}, [3, 4, 5, 6, 7]),
        (Metric.IP, {"radius": 4.0, "range_filter": 7.0}, [7, 6, 5]),
        (Metric.IP, {"radius": 8.5}, [9]),
    ],
)
def test_all_pages_keep_to_the_range_that_was_asked_for(
    metric: Metric, params: Params, expected: list[int]
) -> None:
    rows = Rows([float(n) for n in range(10)], metric)
    assert [key for page in all_pages(rows, 2, params) for key in page] == expected


def test_a_page_that_is_asked_for_again_is_the_same() -> None:
    rows, pages = Rows([5.0] * 10 + [6.0], Metric.L2), Pages()
    hits, end = pages.page(IteratorPage(4), rows.metric, {}, rows.search)
    second = IteratorPage(4, end.token, end.bound)
    answers = [pages.page(second, rows.metric, {}, rows.search)[0].ids.tolist() for _ in range(3)]
    assert hits.ids.tolist() == [0, 1, 2, 3]
    assert answers == [[4, 5, 6, 7]] * 3


def test_a_place_that_is_not_known_is_an_error() -> None:
    rows, pages = Rows([5.0] * 10, Metric.L2), Pages(places_max=2)
    _, end = pages.page(IteratorPage(4), rows.metric, {}, rows.search)
    for token, maker in ((end.token, Pages()), ("another", pages)):
        with pytest.raises(InvalidParameter, match="begin a new iterator"):
            maker.page(IteratorPage(4, token, end.bound), rows.metric, {}, rows.search)
    for _ in range(2):
        pages.page(IteratorPage(4), rows.metric, {}, rows.search)
    with pytest.raises(InvalidParameter, match="begin a new iterator"):
        pages.page(IteratorPage(4, end.token, end.bound), rows.metric, {}, rows.search)


def test_more_rows_of_one_score_than_can_be_ordered_are_an_error() -> None:
    assert sum(map(len, all_pages(Rows([3.0] * 16_384, Metric.HAMMING), 6000))) == 16_384
    with pytest.raises(InvalidParameter, match="more than 16384 rows have the same distance 3 "):
        all_pages(Rows([3.0] * 16_385, Metric.HAMMING), 6000)


def test_the_largest_page_there_is() -> None:
    assert [len(page) for page in all_pages(Rows([3.0] * 16_384 + [4.0], Metric.L2), 16_384)] == [16_384, 1]


def test_a_page_is_compared_exactly() -> None:
    kind = {"metric_type": "L2", "index_type": "HNSW", "M": "8", "efConstruction": "50"}
    spec = resolve_index(kind, DataType.FLOAT_VECTOR, 8)
    assert resolve_search(spec, {"radius": 1.0, ITERATOR_PAGE: True}, 3).exact
    assert not resolve_search(spec, {"radius": 1.0}, 3).exact
