"""Second-generation search iterators: each page holds the rows after a bound.

Clients send back two values with each page: a token, which they got with the first page, and the *bound* of
the previous page, a score. All pages are answered as of one timestamp and exactly: no row is missed because a
graph traversal did not visit it. A page holds at most the requested number of rows, and is empty only at the
end.

If a page ended among rows of equal score, rows could be lost or duplicated. So a page ends before a score
whose rows do not all fit, and the next page starts strictly after its bound: the proxy keeps no state. Only
when more rows share a score than fit on a page (bit vectors, copies of one vector) does the page end among
them. Its bound is then not a score but the number of a *place*, above `_PLACES_FROM`, where there are no
scores: for each place the proxy remembers how many of the rows, in the order of their keys, it has returned.
A place that the proxy has forgotten, or that another proxy made, is an error.

Rows with the same primary key count as one within a page, but not across pages.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from elanus.api.querynode import NodeHits
from elanus.core.errors import InvalidParameter
from elanus.core.limits import TOP_K_MAX
from elanus.core.metrics import ITERATOR_PAGE, Metric
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import Scalar
from elanus.proxy.api.search import IteratorPage, PageEnd

Parameters = dict[str, Scalar]
Ask = Callable[[int, Parameters], NodeHits]
"""Searches one query vector for that many hits with these parameters."""

_PLACES_FROM = np.float32(2.0**127)
"""Places are the finite float32 numbers from here on."""
_PLACES = 2**23
_GROUP_ROWS_MAX = TOP_K_MAX
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class _Place:
    """A position among the rows of one score: after the first ``rows`` of them by primary key."""

    token: str
    score: float
    rows: int


class Pages:
    """Makes pages; thread-safe. Remembers at most the latest ``places_max`` places."""

    def __init__(self, places_max: int = 10_000) -> None:
        self._places_max = places_max
        self._places: OrderedDict[float, _Place] = OrderedDict()
        self._numbers = itertools.count(secrets.randbelow(_PLACES))
        self._lock = threading.Lock()

    def page(
        self, wanted: IteratorPage, metric: Metric, params: Mapping[str, Scalar], ask: Ask
    ) -> tuple[NodeHits, PageEnd]:
        """Return the hits of a page. ``params``: the search's parameters; all pages stay within their range.

        Raises `InvalidParameter` for an unknown place, and when more rows share a score than can be ordered.
        """
        token = wanted.token or secrets.token_hex(16)
        bound = wanted.bound
        place = self._place(wanted.token, bound) if bound is not None and bound >= _PLACES_FROM else None
        start = place.score if place else None if bound is None else _next_worse(bound, metric)
        window = _window(metric, params, start)
        if window is None:
            return _cut(ask(1, dict(params)), 0, 0), PageEnd(token, bound or 0.0)
        size = wanted.size
        if place is None:
            hits = ask(size + 1, window)
            rows = _whole_scores(hits, size)
            if rows or not len(hits.scores):
                end = float(hits.scores[rows - 1]) if rows else bound or 0.0
                return _cut(hits, 0, rows), PageEnd(token, end)
            place = _Place(token, float(hits.scores[0]), 0)
            window = _window(metric, params, place.score) or window
        return self._among_equals(place, size, ask(max(_GROUP_ROWS_MAX, size) + 1, window))

    def _among_equals(self, place: _Place, size: int, hits: NodeHits) -> tuple[NodeHits, PageEnd]:
        """Return a page of rows that all have the place's score. ``hits`` begins with all of them, by key."""
        equal = int(np.count_nonzero(hits.scores == np.float32(place.score)))
        if equal > max(_GROUP_ROWS_MAX, size):
            raise InvalidParameter(
                f"more than {_GROUP_ROWS_MAX} rows have the same distance {place.score:g} to the vector, too "
                "many for a search iterator: give a filter that keeps fewer, or use a query iterator"
            )
        stop = min(equal, place.rows + size)
        bound = place.score if stop == equal else self._remember(_Place(place.token, place.score, stop))
        return _cut(hits, min(place.rows, stop), stop), PageEnd(place.token, bound)

    def _remember(self, place: _Place) -> float:
        with self._lock:
            bits = int(_PLACES_FROM.view(np.uint32)) + next(self._numbers) % _PLACES
            bound = float(np.uint32(bits).view(np.float32))
            self._places[bound] = place
            self._places.move_to_end(bound)
            if len(self._places) > self._places_max:
                self._places.popitem(last=False)
            return bound

    def _place(self, token: str, bound: float) -> _Place:
        place = self._places.get(bound)
        if place is None or place.token != token:
            raise InvalidParameter(
                f"search_iter_last_bound [{bound:g}] is not known here: the proxy was started again, or the "
                "iterator is too old; begin a new iterator"
            )
        return place


def _window(metric: Metric, params: Mapping[str, Scalar], start: float | None) -> Parameters | None:
    """Return the parameters with a range that begins at the score ``start``; None: the range is empty.

    Bounds that are not numbers are left for the index to refuse.
    """
    worst = -_FLOAT32_MAX if metric.bigger_is_better else _FLOAT32_MAX
    window: Parameters = {**params, "radius": params.get("radius", worst), ITERATOR_PAGE: True}
    if start is None:
        return window
    sign = -1 if metric.bigger_is_better else 1
    own, radius = params.get("range_filter"), window["radius"]
    if isinstance(own, int | float):
        start = sign * max(sign * start, sign * float(own))
    if isinstance(radius, int | float) and sign * start >= sign * float(radius):
        return None
    return {**window, "range_filter": start}


def _next_worse(score: float, metric: Metric) -> float:
    towards = -np.inf if metric.bigger_is_better else np.inf
    return float(np.nextafter(np.float32(score), np.float32(towards)))


def _whole_scores(hits: NodeHits, size: int) -> int:
    """Return how many of the first ``size`` hits have a score that no later hit has.

    ``hits`` is the result of a search for ``size + 1`` hits.
    """
    scores = hits.scores
    if len(scores) <= size:
        return len(scores)
    return int(np.count_nonzero(scores[:size] != scores[size]))


def _cut(hits: NodeHits, start: int, stop: int) -> NodeHits:
    """Return the hits of one query from ``start`` to ``stop``."""
    kept = np.arange(start, stop)
    ids: PrimaryKeys = hits.ids.take(kept)
    fields = {name: column.take(pa.array(kept)) for name, column in hits.fields.items()}
    return NodeHits(hits.metric_type, np.array([0, stop - start]), ids, hits.scores[start:stop], fields)
