"""Fusion: one ranked list out of the hits that several searches have for the same queries.

The hits of all searches are concatenated. A row that several searches found is one hit with one score. All
work is sorting and segment-wise sums in numpy; the caller gets places in the concatenation, and fetches
nothing twice. The order is total: better score first, then the smaller primary key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.rankers import Decay, Ranker, Rrf, Scores, Weighted, larger_is_better, normalized
from elanus.core.reduce import Keys

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankedList:
    """One search's hits. Those of query i: ``offsets[i]:offsets[i + 1]``, best first, keys unique per query.

    ``keys`` are comparable between the lists that are fused. shapes (nq + 1,), (n,), (n,).
    """

    offsets: Places
    keys: Keys
    scores: Scores
    metric: Metric


@dataclass(frozen=True, slots=True)
class Fused:
    """The fused hits of query i are at ``offsets[i]:offsets[i + 1]``, best first.

    ``places``: each hit's first place in the concatenated lists.
    """

    offsets: Places
    places: Places
    scores: Scores
    larger_is_better: bool


def fuse(lists: Sequence[RankedList], ranker: Ranker, factors: Scores | None = None) -> Fused:
    """Rank the hits of at least one list; the lists have the same queries.

    ``factors``: a `Decay`'s factor of each hit of the concatenated lists.
    """
    queries = np.concatenate([_query_of(found) for found in lists])
    keys = np.concatenate([found.keys for found in lists])
    scores, descending = _contributions(lists, ranker)
    by_row = np.lexsort((np.arange(len(keys)), keys, queries))
    first = np.ones(len(keys), dtype=np.bool_)
    ordered_keys, ordered_queries = keys[by_row], queries[by_row]
    first[1:] = (ordered_keys[1:] != ordered_keys[:-1]) | (ordered_queries[1:] != ordered_queries[:-1])
    starts = np.flatnonzero(first)
    places = by_row[starts]
    combined = _combined(scores[by_row], starts, ranker)
    if factors is not None:
        combined = combined * factors[places]
    order = np.lexsort((keys[places], -combined if descending else combined, queries[places]))
    offsets = np.zeros(len(lists[0].offsets), dtype=np.int64)
    np.cumsum(np.bincount(queries[places], minlength=len(offsets) - 1), out=offsets[1:])
    return Fused(offsets, places[order], combined[order], descending)


def _query_of(found: RankedList) -> Places:
    return np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets))


def _contributions(lists: Sequence[RankedList], ranker: Ranker) -> tuple[Scores, bool]:
    """Return what each hit adds to its row's score, and whether larger scores are better."""
    if isinstance(ranker, Rrf):
        shares = ranker.weights or (1.0,) * len(lists)
        added = [share / (ranker.k + _ranks(found)) for share, found in zip(shares, lists, strict=True)]
        return np.concatenate(added).astype(np.float32), True
    converted, descending = _in_one_direction(lists, ranker)
    if isinstance(ranker, Weighted):
        weights = np.asarray(ranker.weights, dtype=np.float32)
        converted = [weight * scores for weight, scores in zip(weights, converted, strict=True)]
    return np.concatenate(converted), descending


def _ranks(found: RankedList) -> Places:
    """Return each hit's rank within its query, from 1."""
    counts = np.diff(found.offsets)
    return np.arange(1, len(found.scores) + 1) - np.repeat(found.offsets[:-1], counts)


def _in_one_direction(lists: Sequence[RankedList], ranker: Weighted | Decay) -> tuple[list[Scores], bool]:
    """Return the scores of each list, and whether larger ones are better.

    Without normalization they stay as they are if all metrics have one direction. A decay multiplies
    similarities only, so that it converts distances in any case.
    """
    if ranker.normalized:
        return [normalized(found.scores, found.metric) for found in lists], True
    directions = {found.metric.bigger_is_better for found in lists}
    if len(directions) > 1 or isinstance(ranker, Decay):
        return [larger_is_better(found.scores, found.metric) for found in lists], True
    return [found.scores for found in lists], directions.pop()


def _combined(scores: Scores, starts: Places, ranker: Ranker) -> Scores:
    """Return one score for each row, whose contributions begin at ``starts``."""
    if not len(starts):
        return scores
    mode = ranker.score_mode if isinstance(ranker, Decay) else "sum"
    if mode == "max":
        return np.maximum.reduceat(scores, starts)
    sums = np.add.reduceat(scores, starts)
    if mode == "sum":
        return sums
    counts = np.diff(np.append(starts, len(scores)))
    return (sums / counts.astype(np.float32)).astype(np.float32)
