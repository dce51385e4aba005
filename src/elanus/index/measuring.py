"""Measures the recall curve of an index that has just been built, on a sample of its own rows.

Its queries must be as hard as those of clients. Rows are: for lists, as long as they do not count as their
own hits (`elanus.index.measured_lists`); for a graph, if their own links are hidden
(`elanus.index.measured_walks`).

The cost is bounded: two small batches of queries are measured in any case, and more of them as long as the
time allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from elanus.core.nullable import NullableVectors
from elanus.core.types import Matrix
from elanus.index.base import SegmentIndex, VectorIndex
from elanus.index.curve import RecallCurve, effort_name
from elanus.index.hnsw import HnswIndex
from elanus.index.ivf import list_count
from elanus.index.measured_lists import Listed, ListMeasuring
from elanus.index.measured_walks import WalkMeasuring
from elanus.index.nullable import NullableIndex
from elanus.index.parallel import openmp_threads

ROWS_MIN = 2_000
"""Indexes of fewer rows have no curve: comparing all of their rows costs little more than walking."""
BUDGET_SHARE = 0.03
"""The measuring may take this share of the time of the build, ..."""
BATCHES_MIN = 2
"""... and so many batches in any case: fewer queries say nothing about small misses."""
QUERIES_MAX = 256
GAIN_MIN = 0.0005
"""A larger share of the hits than this is a gain."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Measuring(Protocol):
    """Queries in batches. ``depths`` (d,): numbers of hits; ``efforts`` (e,): both ascend.

    ``free_s``: measuring may take this time after the shortest build, too. With the few queries of a share of
    that, the effort was a guess. Lists are built quickly, and a batch of theirs takes more of that time.
    ``caution``: so many standard errors are subtracted from what was measured.
    """

    free_s: float
    caution: float
    depths: Ints
    efforts: Ints

    def batches(self) -> int: ...

    def measure(self, batch: int) -> Floats:
        """Return the recall of each query of a batch, (queries, depths, efforts); NaN where not measured.

        The first batch measures everything.
        """


def measure(
    index: SegmentIndex,
    vectors: Any,
    build_s: float,
    threads: int,
    now_s: Callable[[], float] = time.perf_counter,
) -> None:
    """Give an index over these vectors its recall curve, if it is of a kind with efforts and has enough rows.

    ``vectors``: what `elanus.index.build` built it from. ``build_s``: how long the build took. Lists of
    vectors have no curve.
    """
    if isinstance(index, NullableIndex) and isinstance(vectors, NullableVectors):
        index, vectors = index.inner or index, vectors.vectors
    if not isinstance(index, VectorIndex) or not isinstance(vectors, np.ndarray):
        return
    name = effort_name(index.spec.kind)
    if not name or index.rows < ROWS_MIN:
        return
    began_s = now_s()
    with openmp_threads(threads):
        measuring = _measuring(index, vectors, name, threads)
        end_s = began_s + max(BUDGET_SHARE * build_s, measuring.free_s)
        found: list[Floats] = []
        while len(found) < measuring.batches():
            batch_s = now_s()
            found.append(measuring.measure(len(found)))
            ended_s = now_s()
            if len(found) >= BATCHES_MIN and ended_s + (ended_s - batch_s) > end_s:
                break
    if found:
        index.curve = _curve(measuring, np.concatenate(found))


def _measuring(index: VectorIndex, vectors: Matrix, name: str, threads: int) -> Measuring:
    if isinstance(index, HnswIndex):
        return WalkMeasuring(index, vectors, QUERIES_MAX, threads)
    assert name == "nprobe", f"the recall of indexes with {name} is not measured"
    lists = list_count(index.spec.params["nlist"], index.rows)
    return ListMeasuring(cast(Listed, index), vectors, lists, QUERIES_MAX, threads)


def _curve(measuring: Measuring, found: Floats) -> RecallCurve:
    """``found``: (queries, depths, efforts)."""
    count = np.sqrt(np.count_nonzero(~np.isnan(found), axis=0))
    mean, spread = np.nanmean(found, axis=0), np.nanstd(found, axis=0) / count
    is_best = mean >= mean[:, -1:] - GAIN_MIN  # larger efforts find no more, so caution has nothing to choose
    cautious = np.where(is_best, mean, np.clip(mean - measuring.caution * spread, 0, 1))
    recalls = np.maximum.accumulate(cautious, axis=1)
    used = 1 + int(np.argmax(is_best, axis=1).max())
    return RecallCurve(measuring.depths, measuring.efforts[:used], recalls[:, :used])
