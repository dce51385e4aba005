"""The parameters of one search, checked against the index they are for.

``ef`` (HNSW, AUTOINDEX)
    The number of nearest rows the walk keeps, at least k, up to 2147483647; by default 64, or twice k.
``level`` (AUTOINDEX)
    1–5 (1): accuracy, instead of ``ef``; ef is then its default times the level.
``nprobe`` (IVF types)
    The number of lists to scan, 1–65536 (8); a value above the number of lists means all.
``drop_ratio_search`` (sparse types)
    The share of the query's values that are left out when candidates are chosen, 0–1 (0).
``target_recall`` (all but MINHASH_LSH)
    Above 0 and below 1: each index uses the least effort that reached it when the index was built
    (`elanus.index.curve`), and the most if none did. Instead of the parameters above.
``segment_filter_ratio`` (all)
    0–1000 (0): how many clusters of vectors are searched (`elanus.core.segment_filter`).
``radius``, ``range_filter`` (all)
    A range search: for L2, HAMMING and JACCARD ``range_filter ≤ score < radius``, for IP, COSINE
    and MHJACCARD ``radius < score ≤ range_filter``.
``page_retain_order`` (all)
    Accepted: pages of a range search always keep their order here.
``iterator_page`` (all)
    Set by the proxy for pages of an iterator: every row in the range is compared, whatever the index, so
    that none is missed and two pages are always consistent.
``elanus_truth`` (all)
    Set by Elanus itself when it measures recall: rows are compared by the vectors that clients sent.
``metric_type`` (all)
    May be repeated, and must be the index's.

Parameters of *other* index types of the reference (``nprobe`` sent to an HNSW index, ``search_list``) are
accepted and have no effect. The reference does the same, for a reason that applies here too: a collection's
segments are served by different kinds of index at the same time (growing and small ones by brute force),
so a parameter applies only to the kinds that know it. Any other name has no effect either, as in the
reference, and is logged once (`elanus.index.ignored`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter, InvalidTopK
from elanus.core.metrics import ITERATOR_PAGE, TRUTH, Metric
from elanus.core.schema import Scalar
from elanus.core.segment_filter import SEGMENT_FILTER_RATIO, ratio_of
from elanus.core.target_recall import EFFORTS, MISS_FACTOR, TARGET_RECALL, target_of
from elanus.index.ignored import FOREIGN_SEARCH_PARAMS, note_ignored
from elanus.index.recipes import FAISS
from elanus.index.recipes import search_params as recipe_search_params
from elanus.index.spec import AUTOINDEX, METRIC_TYPE_KEY, IndexSpec
from elanus.index.values import boolean, number

LEVEL_KEY = "level"
LEVEL_MAX = 5
_APPROXIMATE = frozenset(
    {"ef", "level", "nprobe", "search_list", "reorder_k", "refine_k", "drop_ratio_search"}
    | {TARGET_RECALL, MISS_FACTOR, SEGMENT_FILTER_RATIO}
)
"""The parameters of approximate searches alone."""
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Window:
    """The range of scores of a range search. ``range_filter`` None: no inner bound."""

    radius: float
    range_filter: float | None
    bigger_is_better: bool

    def holds(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Whether each score is inside. Any shape → the same."""
        inside = scores > self.radius if self.bigger_is_better else scores < self.radius
        if self.range_filter is None:
            return inside
        bounded = scores <= self.range_filter if self.bigger_is_better else scores >= self.range_filter
        return inside & bounded

    def beyond(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Whether each score is outside the radius, so that no worse one can be inside."""
        return scores <= self.radius if self.bigger_is_better else scores >= self.radius


class SearchParams:
    """Resolved search parameters; an index reads those it knows. ``window`` None: a plain top-k search.

    ``numbers``: the parameters that the kind of the declared index knows, by name. ``exact``: a range search
    compares every row. ``target``: the recall from which each index finds its effort, None if the effort is
    among the numbers. ``miss_factor``: see `elanus.index.curve.RecallCurve.effort`.
    """

    __slots__ = ("_numbers", "exact", "miss_factor", "target", "window")

    def __init__(
        self,
        window: Window | None = None,
        *,
        exact: bool = False,
        target: float | None = None,
        miss_factor: float = 1.0,
        **numbers: float,
    ) -> None:
        self.window = window
        self.exact = exact
        self.target = target
        self.miss_factor = miss_factor
        self._numbers = numbers

    def number(self, name: str, default: int) -> int:
        """Return a parameter, or the default if the kind of the declared index does not know it."""
        return int(self._numbers.get(name, default))

    def ratio(self, name: str, default: float) -> float:
        """As `number`, for a parameter that is a share."""
        return self._numbers.get(name, default)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SearchParams):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        aim = "" if self.target is None else f"target={self.target}, "
        return f"SearchParams(window={self.window}, exact={self.exact}, {aim}{self._numbers})"

    def with_effort(self, name: str, value: float) -> SearchParams:
        """Return the parameters of the same search with this effort."""
        numbers = {**self._numbers, name: value}
        return SearchParams(self.window, exact=self.exact, **numbers)

    def _values(self) -> tuple[object, ...]:
        return (self.window, self.exact, self.target, self.miss_factor, self._numbers)


def resolve_search(spec: IndexSpec, params: Mapping[str, object], k: int) -> SearchParams:
    """Check the parameters of a search for ``k`` hits on an index of this spec, and fill in defaults.

    Raises `InvalidParameter` naming the parameter, its value and its domain.
    """
    if k < 1:
        raise InvalidTopK(f"topk [{k}] is invalid, it should be at least 1")
    if spec.declared_type == FAISS:
        params = recipe_search_params(params, k)
    own = _own_names(spec)
    known = own | FOREIGN_SEARCH_PARAMS
    note_ignored(spec.declared_type, (name for name in params if name not in known))
    _check_shared(spec, params)
    numbers = {name: p.resolve(name, params, k) for name, p in spec.kind.search_params.items()}
    exact = boolean(ITERATOR_PAGE, params.get(ITERATOR_PAGE, False))
    target = target_of(params)
    if target is not None:
        _check_aimable(spec, target)
    return SearchParams(
        _window(spec.metric_type, params),
        exact=exact,
        target=target,
        miss_factor=number(MISS_FACTOR, params.get(MISS_FACTOR, 1.0)),
        **numbers,
    )


def _check_aimable(spec: IndexSpec, target: float) -> None:
    kind = spec.kind
    is_exact = kind.over_rows is not None or "drop_ratio_search" in kind.search_params
    if not is_exact and not any(name in kind.search_params for name in EFFORTS):
        raise InvalidParameter(
            f"{TARGET_RECALL} [{target}] is not supported by an index of type {spec.index_type}: no search "
            "parameter sets its effort, so choose its recall when it is built"
        )


def true_params(metric: Metric, params: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """Return the parameters of a search for the true answer to a search with ``params``.

    A range search keeps its range.
    """
    worst = -FLOAT32_MAX if metric.bigger_is_better else FLOAT32_MAX
    kept = {name: value for name, value in params.items() if name not in _APPROXIMATE}
    return {"radius": worst, **kept, ITERATOR_PAGE: True, TRUTH: True}


RANGE_PARAMS = frozenset({"radius", "range_filter"})
"""A search with a radius is a range search. A range without a range filter is open on that side."""
SHARED_PARAMS = RANGE_PARAMS | {
    "page_retain_order",
    ITERATOR_PAGE,
    TRUTH,
    METRIC_TYPE_KEY,
    TARGET_RECALL,
    MISS_FACTOR,
    SEGMENT_FILTER_RATIO,
}


def _own_names(spec: IndexSpec) -> frozenset[str]:
    own = SHARED_PARAMS | spec.kind.search_params.keys()
    return own | {LEVEL_KEY} if spec.declared_type == AUTOINDEX else own


def _check_shared(spec: IndexSpec, params: Mapping[str, object]) -> None:
    sent = params.get(METRIC_TYPE_KEY)
    if sent and sent != spec.metric_type:
        raise InvalidParameter(
            f"metric type not match: invalid parameter[expected={spec.metric_type}][actual={sent}]"
        )
    ratio_of(params)
    if "page_retain_order" in params:
        boolean("page_retain_order", params["page_retain_order"])


def _window(metric: Metric, params: Mapping[str, object]) -> Window | None:
    if "radius" not in params:
        if "range_filter" in params:
            raise InvalidParameter(
                "range_filter requires radius to be set; range_filter alone is not a valid range search "
                "parameter"
            )
        return None
    bigger = metric.bigger_is_better
    radius = _bound("radius", params["radius"])
    if "range_filter" not in params:
        return Window(radius, None, bigger)
    range_filter = _bound("range_filter", params["range_filter"])
    if (range_filter <= radius) if bigger else (range_filter >= radius):
        raise InvalidParameter(
            f"metric type ({metric}), range_filter({range_filter}) must be "
            f"{'greater' if bigger else 'less'} than radius({radius})"
        )
    return Window(radius, range_filter, bigger)


def _bound(name: str, value: object) -> float:
    """Return the bound clipped to the range of float32, the type of scores."""
    return min(max(number(name, value), -FLOAT32_MAX), FLOAT32_MAX)
