"""The parameters of one search, checked against the index they are for.

``ef`` (HNSW, AUTOINDEX)
    How many nearest rows the walk keeps, at least k, up to 2147483647; by default 64, or twice k.
``level`` (AUTOINDEX)
    1–5 (1): accuracy instead of ``ef``; the default ef times the level.
``nprobe`` (IVF types)
    How many lists are scanned, 1–65536 (8); more than there are means all.
``radius``, ``range_filter`` (all)
    A range search: for L2, HAMMING and JACCARD ``range_filter ≤ score < radius``, for IP and COSINE
    ``radius < score ≤ range_filter``.
``page_retain_order`` (all)
    Accepted: pages of a range search always keep their order here.
``metric_type`` (all)
    May be repeated, and must be the index's.

Parameters of *other* index types of the reference (``nprobe`` sent to an HNSW index, ``search_list``) are
accepted and have no effect. The reference does so, for a reason that holds here too: a collection's
segments are served by different kinds of index at the same time (growing and small ones by brute force),
so a parameter concerns those that know it. Any other name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter, InvalidTopK
from elanus.core.metrics import Metric
from elanus.index.spec import METRIC_TYPE_KEY, IndexSpec, IndexType
from elanus.index.values import INT32_MAX, boolean, integer, number

EF_DEFAULT = 64
EF_DEFAULT_PER_K = 2
NPROBE_DEFAULT = 8
NPROBE_MAX = 65_536
LEVEL_MAX = 5
FLOAT32_MAX = float(np.finfo(np.float32).max)

_FOREIGN = frozenset(
    {
        "ef",
        "level",
        "nprobe",
        "reorder_k",
        "search_list",
        "search_k",
        "beam_width_ratio",
        "drop_ratio_search",
        "dim_max_score_ratio",
        "max_empty_result_buckets",
        "refine_k",
        "rbq_query_bits",
        "itopk_size",
        "search_width",
        "min_iterations",
        "max_iterations",
        "team_size",
        "overview_levels",
    }
)
"""Search parameters of the reference's index types: no effect where the index does not know them."""


@dataclass(frozen=True, slots=True)
class Window:
    """The scores a range search asks for. ``range_filter`` None: no inner bound."""

    radius: float
    range_filter: float | None
    bigger_is_better: bool

    def holds(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Whether each score lies inside. Any shape → the same."""
        inside = scores > self.radius if self.bigger_is_better else scores < self.radius
        if self.range_filter is None:
            return inside
        bounded = scores <= self.range_filter if self.bigger_is_better else scores >= self.range_filter
        return inside & bounded

    def beyond(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Whether each score lies outside the radius, so that no worse one can be inside."""
        return scores <= self.radius if self.bigger_is_better else scores >= self.radius


@dataclass(frozen=True, slots=True)
class SearchParams:
    """Resolved: an index reads what concerns it. ``window`` None: a plain top-k search."""

    ef: int = EF_DEFAULT
    nprobe: int = NPROBE_DEFAULT
    window: Window | None = None


def resolve_search(spec: IndexSpec, params: Mapping[str, object], k: int) -> SearchParams:
    """Check the parameters of a search for ``k`` hits on an index of this spec, and fill in defaults.

    Raises `InvalidParameter` naming the parameter, its value and its domain.
    """
    if k < 1:
        raise InvalidTopK(f"topk [{k}] is invalid, it should be at least 1")
    own = _own_names(spec)
    unknown = [name for name in params if name not in own and name not in _FOREIGN]
    if unknown:
        raise InvalidParameter(
            f"unknown search parameter '{unknown[0]}' ({params[unknown[0]]}): {spec.declared_type} takes "
            f"{', '.join(sorted(own))}"
        )
    _check_shared(spec, params)
    return SearchParams(
        ef=_ef(params, k) if "ef" in own else EF_DEFAULT,
        nprobe=integer("nprobe", params["nprobe"], 1, NPROBE_MAX)
        if "nprobe" in own and "nprobe" in params
        else NPROBE_DEFAULT,
        window=_window(spec.metric_type, params),
    )


_SHARED = frozenset({"radius", "range_filter", "page_retain_order", METRIC_TYPE_KEY})
_OWN: dict[IndexType, frozenset[str]] = {
    IndexType.HNSW: _SHARED | {"ef"},
    IndexType.IVF_FLAT: _SHARED | {"nprobe"},
    IndexType.IVF_SQ8: _SHARED | {"nprobe"},
    IndexType.BIN_IVF_FLAT: _SHARED | {"nprobe"},
}


def _own_names(spec: IndexSpec) -> frozenset[str]:
    own = _OWN.get(spec.index_type, _SHARED)
    return own | {"level"} if spec.declared_type is IndexType.AUTOINDEX else own


def _check_shared(spec: IndexSpec, params: Mapping[str, object]) -> None:
    sent = params.get(METRIC_TYPE_KEY)
    if sent and sent != spec.metric_type:
        raise InvalidParameter(
            f"metric type not match: invalid parameter[expected={spec.metric_type}][actual={sent}]"
        )
    if "page_retain_order" in params:
        boolean("page_retain_order", params["page_retain_order"])


def _ef(params: Mapping[str, object], k: int) -> int:
    if "ef" in params:
        ef = integer("ef", params["ef"], 1, INT32_MAX)
        if ef < k:
            raise InvalidParameter(f"ef({ef}) should be larger than k({k})")
        return ef
    level = integer("level", params["level"], 1, LEVEL_MAX) if "level" in params else 1
    return max(EF_DEFAULT, EF_DEFAULT_PER_K * k) * level


def _window(metric: Metric, params: Mapping[str, object]) -> Window | None:
    if "radius" not in params:
        if "range_filter" in params:
            raise InvalidParameter(
                f"range_filter ({params['range_filter']}) needs a radius: send both, or neither"
            )
        return None
    radius = _bound("radius", params["radius"])
    bigger = metric.bigger_is_better
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
    """A number a score can be compared with: scores are float32, so nothing lies beyond its range."""
    return min(max(number(name, value), -FLOAT32_MAX), FLOAT32_MAX)
