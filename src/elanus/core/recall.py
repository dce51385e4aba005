"""How good searches are: measured recall, with its uncertainty, and why it is low.

The recall of a search is the share of the true best rows among its hits. It is measured by samples, and each
sample is one query. The interval is Wilson's, with a sample as one trial: hits of one query are not
independent of each other, so this is rather too wide than too narrow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from elanus.core.ids import CollectionID

BANDS = ((1.0, "all rows"), (0.1, "10 % or more"), (0.01, "1 % to 10 %"), (0.0, "less than 1 %"))
"""The least share of rows that a search may choose from, and how the band is called."""
WINDOW_SAMPLES = 2000
"""Recall is that of the last so many samples, and of up to as many before them."""
Z = 1.96
"""The interval holds the true recall 95 times in 100."""
TIE = 1e-5
"""Scores that differ by this share are equal: kernels round differently."""

Scores = npt.NDArray[np.float32]


def band_of(matching: int, rows: int) -> str:
    """Return the band of a search that chooses from ``matching`` of so many rows."""
    share = matching / rows if rows else 1.0
    return next(name for least, name in BANDS if share >= least)


def recall_of(hits: Iterable[object], scores: Scores, truth: Iterable[object], true_scores: Scores) -> float:
    """Return the share of the true best rows among the hits of one query.

    A hit whose score is that of the last true one counts, whichever of the equal rows it is. 1 if there is
    nothing to find.
    """
    wanted = Counter(truth)
    if not wanted:
        return 1.0
    last = float(true_scores[-1])
    tolerance = TIE * max(abs(last), 1e-30)
    found = sum(
        hit in wanted or abs(float(score) - last) <= tolerance
        for hit, score in zip(hits, scores, strict=True)
    )
    return min(1.0, found / wanted.total())


def wilson(recall: float, samples: int) -> tuple[float, float]:
    """Return the bounds of the true recall, after a mean of ``recall`` over so many samples."""
    if not samples:
        return 0.0, 1.0
    spread = Z * Z / samples
    middle = (recall + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(recall * (1 - recall) / samples + spread / (4 * samples))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured query. ``more_effort``: the recall of the same query with several times the effort, None
    if it was not tried. ``effort``: the parameter that sets it and its value, "" if there is none. ``codes``:
    the index compares codes of the vectors."""

    recall: float
    more_effort: float | None = None
    effort: str = ""
    codes: bool = False


@dataclass(slots=True)
class _Sums:
    samples: int = 0
    recall: float = 0.0
    tried: int = 0
    tried_recall: float = 0.0
    more_recall: float = 0.0

    def add(self, sample: Sample) -> None:
        self.samples += 1
        self.recall += sample.recall
        if sample.more_effort is not None:
            self.tried += 1
            self.tried_recall += sample.recall
            self.more_recall += sample.more_effort


@dataclass(slots=True)
class Tally:
    """The samples of one kind of search: two windows, of which the older is discarded when the newer is
    full."""

    now: _Sums = field(default_factory=_Sums)
    before: _Sums = field(default_factory=_Sums)
    effort: str = ""
    codes: bool = False

    def add(self, sample: Sample) -> None:
        if self.now.samples >= WINDOW_SAMPLES:
            self.before, self.now = self.now, _Sums()
        self.now.add(sample)
        self.codes = sample.codes
        self.effort = sample.effort or self.effort

    @property
    def samples(self) -> int:
        return self.now.samples + self.before.samples

    @property
    def recall(self) -> float:
        """The mean over all samples that are kept; 1 without any."""
        return (self.now.recall + self.before.recall) / self.samples if self.samples else 1.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.recall, self.samples)

    def misses(self, target: float) -> bool:
        """Whether the true recall is below the target, as far as the samples show."""
        return self.interval[1] < target

    def cause(self, target: float) -> str:
        """Say why recall is below the target; "" if it is not."""
        if not self.misses(target):
            return ""
        tried = self.now.tried + self.before.tried
        if tried and self.effort:
            lost = tried - self.now.tried_recall - self.before.tried_recall
            regained = lost - (tried - self.now.more_recall - self.before.more_recall)
            if lost > 0 and regained / lost >= REGAINED_MIN:
                return (
                    f"{self.effort} is too small: a search with {EFFORT_FACTOR} times as much finds "
                    f"{regained / lost:.0%} of the hits that were missed"
                )
        if self.codes:
            return "the index compares codes of the vectors: build it with refine, or with longer codes"
        return (
            "more effort of the search does not help: the index was built with too little "
            "(M, efConstruction, nlist)"
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """The recall of a kind of search. ``index``: the type; ``band``: of the share of rows that the filter
    leaves. ``low`` and ``high``: the interval. ``cause``: why the target is missed, "" if it is not."""

    collection_id: CollectionID
    field: str
    index: str
    band: str
    samples: int
    recall: float
    low: float
    high: float
    cause: str

    @property
    def key(self) -> tuple[CollectionID, str, str, str]:
        return self.collection_id, self.field, self.index, self.band


def merged(of_processes: Iterable[Iterable[Measured]], target: float) -> list[Measured]:
    """Return what several processes have measured as if one had, ordered by `Measured.key`.

    A cause is that of the process with the most samples that has found one.
    """
    alike: dict[tuple[CollectionID, str, str, str], list[Measured]] = {}
    for one in (one for process in of_processes for one in process):
        alike.setdefault(one.key, []).append(one)
    return [_joined(alike[key], target) for key in sorted(alike)]


def _joined(found: list[Measured], target: float) -> Measured:
    if len(found) == 1:
        return found[0]
    samples = sum(one.samples for one in found)
    recall = sum(one.recall * one.samples for one in found) / samples if samples else 1.0
    low, high = wilson(recall, samples)
    known = max((one for one in found if one.cause), key=lambda one: one.samples, default=None)
    cause = "each process has too few samples to say why" if known is None else known.cause
    if high >= target:
        cause = ""
    return replace(found[0], samples=samples, recall=recall, low=low, high=high, cause=cause)


@dataclass(slots=True)
class Misses:
    """How many more hits live searches miss than the measurement of their indexes led to expect.

    Sums over searches with a target recall: of what was missed, and of what should have been. Old samples
    count less and less.
    """

    missed: float = 0.0
    expected: float = 0.0
    samples: float = 0.0

    def add(self, recall: float, target: float, factor: float) -> None:
        """``factor``: the one by which the search was made, so its index was asked for fewer misses."""
        for name, value in (("missed", 1 - recall), ("expected", (1 - target) / factor), ("samples", 1.0)):
            setattr(self, name, getattr(self, name) * MISSES_KEPT + value)

    @property
    def factor(self) -> float:
        """How many times as many hits are missed; 1 without samples, and close to it with few."""
        if not self.samples:
            return 1.0
        known = MISSES_PRIOR_SAMPLES * self.expected / self.samples
        factor = (self.missed + known) / (self.expected + known)
        return min(max(factor, 1 / MISS_FACTOR_MAX), MISS_FACTOR_MAX)


MISSES_KEPT = 0.995
"""Each sample counts so much less when the next one comes."""
MISSES_PRIOR_SAMPLES = 20
"""So many samples are assumed to have met the expectation."""
MISS_FACTOR_MAX = 8.0
REGAINED_MIN = 1 / 4
"""From this share of the missed hits on, what more effort finds is the cause."""
EFFORT_FACTOR = 8
"""How many times the effort is tried on a sample that missed hits."""
