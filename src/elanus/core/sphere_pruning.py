"""Which of several lists of rows a search can leave out, by the spheres around their vectors.

Two rules:

- *Bounds*, exact: once a query has k hits, or has a radius, a list is left out if no row in its spheres can
  be better. The nearest lists are searched first, so that this happens soon; of a batch each query begins
  with its own nearest one.
- *The nearest only*, which loses hits: of each group of lists a query sees the nearest ones alone, as many as
  the square root of their number times a ratio. The reference prunes by this rule.

A search of several queries leaves a list out for some of them. Rows with the same primary key in several
lists are one hit: a search that found such rows may end with worse hits than the bounds were compared with,
and asks `is_sound` at the end.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.spheres import BOUNDED, Floats, Spheres, Vectors

Flags = npt.NDArray[np.bool_]
_HOMES_FROM = 4
"""How many queries a search has that begins with the nearest list of each."""


class SpherePruning:
    """The course of one search of numbered lists; for one thread.

    ``spheres``: those of each list, None for a list without: it is searched first, and always. ``groups``: to
    which group each list belongs, for the second rule. ``queries``: float32 (nq, dim). ``radius``: the worst
    score wanted, None: any. ``compares``: whether hits may be compared with bounds, too.
    """

    def __init__(
        self,
        spheres: Sequence[Spheres | None],
        groups: Sequence[Hashable],
        queries: Vectors,
        metric: Metric,
        k: int,
        *,
        radius: float | None = None,
        ratio: float = 0.0,
        rows: Sequence[int] = (),
        compares: bool = True,
    ) -> None:
        if metric not in BOUNDED:
            raise ValueError(f"spheres do not bound scores of {metric}")
        self._sign = -1.0 if metric.bigger_is_better else 1.0
        self._k = k
        self._compares = compares
        self._best = np.full((len(queries), k), np.inf)
        worst = np.inf if radius is None else self._sign * radius
        self._radius = worst
        known = [number for number, of in enumerate(spheres) if of is not None]
        self._bounds: dict[int, Floats] = {}
        self._near: dict[int, Flags] = {}
        for number in known:
            of = spheres[number]
            assert of is not None
            self._bounds[number] = self._sign * of.best_scores(queries, metric)
        scores: dict[int, Floats] = {}
        if ratio > 0 or len(queries) >= _HOMES_FROM:
            scores = {
                number: self._sign * of.centroid_scores(queries, metric)
                for number, of in enumerate(spheres)
                if of is not None and len(of)
            }
        if ratio > 0:
            self._near = {n: np.zeros(len(queries), dtype=np.bool_) for n in known}
            self._near |= _nearest(groups, scores, rows, k, ratio)
        self._left_out: dict[int, Flags] = {}
        self._searched: dict[int, Flags] = {}
        self._homes = _homes(scores) if len(queries) >= _HOMES_FROM else {}
        unknown = [number for number, of in enumerate(spheres) if of is None]
        by_bound = sorted(known, key=lambda n: (float(self._bounds[n].min(initial=np.inf)), n))
        self.order = [*unknown, *self._homes, *by_bound]
        """The lists in the order in which they are to be searched, some twice, for different queries."""

    def wanted(self, number: int) -> Flags | None:
        """Return for which queries the list has to be searched now, (nq,); None: for all."""
        bounds = self._bounds.get(number)
        if bounds is None:
            return None
        worst = self._best.max(axis=1, initial=-np.inf) if self._compares else np.inf
        out = bounds > np.minimum(worst, self._radius)
        home, searched = self._homes.pop(number, None), self._searched.get(number)
        wanted = ~out
        for only in (home, self._near.get(number), None if searched is None else ~searched):
            if only is not None:
                wanted &= only
        if home is None:
            self._left_out[number] = out if searched is None else out & ~searched
        self._searched[number] = wanted if searched is None else wanted | searched
        return None if wanted.all() else wanted

    def was_searched(self, number: int) -> bool:
        """Whether some query has wanted the list already."""
        return bool(self._searched[number].any())

    def why(self, number: int) -> str:
        """Say why a list that no query wants is left out."""
        near = self._near.get(number)
        if near is not None and not near.any():
            return "segment_filter_ratio: other clusters are nearer to the query"
        if (self._bounds[number] > self._radius).all():
            return "clusters: every row is further from the query than the radius"
        return "clusters: every row is further from the query than the hits found"

    def note(self, scores: npt.NDArray[np.float32], wanted: Flags | None) -> None:
        """Note hits, (queries that wanted the list, k'), padded with the worst score. Scores are exact."""
        at = slice(None) if wanted is None else wanted
        both = np.concatenate((self._best[at], self._sign * scores), axis=1)
        self._best[at] = np.partition(both, self._k - 1, axis=1)[:, : self._k]

    def is_sound(self, worst: Floats) -> bool:
        """Whether nothing that was left out by bounds can be better than a query's last hit.

        ``worst``: its score, (nq,); not a number for a query with fewer than k hits.
        """
        limits = np.minimum(np.where(np.isnan(worst), np.inf, self._sign * worst), self._radius)
        return all(
            not (out & (self._bounds[number] <= limits)).any() for number, out in self._left_out.items()
        )


def _homes(scores: Mapping[int, Floats]) -> dict[int, Flags]:
    """Return the lists that are the nearest of all to some queries, and to which."""
    if not scores:
        return {}
    numbers = list(scores)
    nearest = np.argmin(np.stack([scores[n] for n in numbers]), axis=0)
    return {numbers[place]: nearest == place for place in np.unique(nearest).tolist()}


def _nearest(
    groups: Sequence[Hashable], scores: Mapping[int, Floats], rows: Sequence[int], k: int, ratio: float
) -> dict[int, Flags]:
    """Return which queries see each list: the nearest of its group, at least as many as have ``k`` rows."""
    found: dict[int, Flags] = {}
    members: dict[Hashable, list[int]] = {}
    for number in scores:
        members.setdefault(groups[number], []).append(number)
    for numbers in members.values():
        count = max(1, int(math.sqrt(len(numbers)) * ratio))
        order = np.argsort(np.stack([scores[n] for n in numbers]), axis=0, kind="stable")
        held = np.array([rows[n] for n in numbers])[order]
        before = np.cumsum(held, axis=0) - held
        seen = np.zeros(order.shape, dtype=np.bool_)
        np.put_along_axis(seen, order, (np.arange(len(numbers))[:, None] < count) | (before < k), axis=0)
        found |= dict(zip(numbers, seen, strict=True))
    return found
