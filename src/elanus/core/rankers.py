"""Rankers: how the hits of one or several searches get their final scores, checked as the reference does.

============  ========================================================================================
`Rrf`         the sum of weight / (k + rank) over the searches that found the row; the first rank is 1
`Weighted`    the sum of weight · score; the scores may be normalized to [0, 1] first
`Decay`       the scores, combined over the searches, times a factor that falls with the distance of a
              numeric field from an origin
============  ========================================================================================

A `Boost` works earlier, on the hits of each search: it multiplies the scores of the rows that a filter
matches by a weight, or adds the weight.

The formulas are those of Milvus 2.6 (``internal/util/function/chain``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric

Scores = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

RRF_K_MAX = 16384
RRF_K = 60.0
SCORE_MODES = ("max", "sum", "avg")
GROUP_SCORERS = ("max", "sum", "avg")
BOOST_MODES = ("multiply", "sum")


@dataclass(frozen=True, slots=True)
class Rrf:
    """Reciprocal rank fusion. ``weights``: one for each search, in [0, 1]; None: all are 1."""

    k: float = RRF_K
    weights: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Weighted:
    """``weights``: one for each search, in [0, 1]."""

    weights: tuple[float, ...]
    normalized: bool = False


@dataclass(frozen=True, slots=True)
class Decay:
    """``curve``: a name in `CURVES`. ``score_mode``: how the scores of one row are combined first.

    The factor is 1 up to the distance ``offset`` from ``origin``, and ``decay`` at ``offset + scale``.
    """

    field: str
    curve: str
    origin: float
    scale: float
    offset: float = 0.0
    decay: float = 0.5
    score_mode: str = "max"
    normalized: bool = False

    def factors(self, values: Values) -> Scores:
        """Return the factor of each value. A value that is not a number (null) gets 0. shape (n,) → (n,)."""
        distances = np.maximum(0.0, np.abs(values - self.origin) - self.offset)
        found = CURVES[self.curve](distances, self.scale, self.decay)
        return np.where(np.isnan(values), 0.0, found).astype(np.float32)


Ranker: TypeAlias = Rrf | Weighted | Decay


def _gauss(distances: Values, scale: float, decay: float) -> Values:
    with np.errstate(over="ignore"):  # an infinite distance has the factor 0
        return np.asarray(np.exp((distances / scale) ** 2 * math.log(decay)))


def _exponential(distances: Values, scale: float, decay: float) -> Values:
    with np.errstate(over="ignore"):  # not log(decay) / scale: infinite for the smallest scales
        return np.asarray(np.exp(distances / scale * math.log(decay)))


def _linear(distances: Values, scale: float, decay: float) -> Values:
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(decay, 1.0 - distances / scale * (1.0 - decay)))


CURVES: Mapping[str, Callable[[Values, float, float], Values]] = {
    "gauss": _gauss,
    "linear": _linear,
    "exp": _exponential,
}


def check_ranker(ranker: Ranker, searches: int) -> None:
    """Raises `InvalidParameter`, with the reference's texts, for a ranker that cannot rank these searches."""
    match ranker:
        case Rrf(k, weights):
            if not 0 < k < RRF_K_MAX:
                raise InvalidParameter(f"The rank params k should be in range (0, {RRF_K_MAX})")
            if weights is not None:
                _check_weights(weights, searches)
        case Weighted(weights):
            _check_weights(weights, searches)
        case Decay():
            _check_decay(ranker)


def _check_weights(weights: tuple[float, ...], searches: int) -> None:
    if not all(0 <= weight <= 1 for weight in weights):
        raise InvalidParameter("rank param weight should be in range [0, 1]")
    if len(weights) != searches:
        raise InvalidParameter(
            "the length of weights param mismatch with ann search requests: "
            f"invalid parameter[expected={searches}][actual={len(weights)}]"
        )


def _check_decay(decay: Decay) -> None:
    if decay.curve not in CURVES:
        known = ",".join(CURVES)
        raise InvalidParameter(f"Invaild decay function: {decay.curve}, only support [{known}]")
    if not all(map(math.isfinite, (decay.origin, decay.scale, decay.offset))):
        raise InvalidParameter("Decay function param: origin, scale and offset must be finite numbers")
    if decay.scale <= 0:
        raise InvalidParameter(f"Decay function param: scale must > 0, but got {decay.scale:f}")
    if decay.offset < 0:
        raise InvalidParameter(f"Decay function param: offset must >= 0, but got {decay.offset:f}")
    if not 0 < decay.decay < 1:
        raise InvalidParameter(f"Decay function param: decay must 0 < decay < 1, but got {decay.decay:f}")
    if decay.score_mode not in SCORE_MODES:
        modes = ", ".join(SCORE_MODES)
        raise InvalidParameter(f"unsupported score_mode: {decay.score_mode}, only supports [{modes}]")


def normalized(scores: Scores, metric: Metric) -> Scores:
    """Return the scores mapped to [0, 1], larger is better. shape (n,) → (n,)."""
    if metric is Metric.COSINE:
        return (np.float32(1) + scores) * np.float32(0.5)
    if metric is Metric.BM25:
        return np.asarray(2 * np.arctan(scores.astype(np.float64)) / math.pi, dtype=np.float32)
    if metric is Metric.MHJACCARD:
        return scores  # a share of equal elements
    if metric.bigger_is_better:
        return np.asarray(0.5 + np.arctan(scores.astype(np.float64)) / math.pi, dtype=np.float32)
    return larger_is_better(scores, metric)


def larger_is_better(scores: Scores, metric: Metric) -> Scores:
    """Return distances as 1 - 2 · arctan(d) / π, and similarities as they are. shape (n,) → (n,)."""
    if metric.bigger_is_better:
        return scores
    return np.asarray(1 - 2 * np.arctan(scores.astype(np.float64)) / math.pi, dtype=np.float32)


def boosted(
    scores: Scores,
    weights: Sequence[npt.NDArray[np.float32]],
    matches: Sequence[npt.NDArray[np.bool_]],
    boost_mode: str,
    function_mode: str,
) -> Scores:
    """Return the scores after boosts. All arrays have the shape of ``scores``.

    ``weights``, ``matches``: each boost's weight of each hit, and whether it concerns the hit. The weights
    that concern one hit are multiplied or added; the result is multiplied with the score, or added to it.
    """
    is_sum = function_mode == "sum"
    total = np.full(scores.shape, 0 if is_sum else 1, dtype=np.float32)
    concerned = np.zeros(scores.shape, dtype=np.bool_)
    for weight, match in zip(weights, matches, strict=True):
        concerned |= match
        total = np.where(match, total + weight if is_sum else total * weight, total)
    changed = scores + total if boost_mode == "sum" else scores * total
    return np.where(concerned, changed, scores)


def random_shares(numbers: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float32]:
    """Return a number in [0, 1) for each number, the same for the same seed. shape (n,) → (n,).

    The mixing function is that of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, 2014).
    """
    mixed = numbers.astype(np.uint64) ^ np.uint64(seed % 2**64)
    mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(40)).astype(np.float32)) / np.float32(1 << 24)
