"""Target recall against the best fixed parameter: is the target reached, and at which cost?

    .venv/bin/python -m benchmarks.target_recall [SEEDS]

Bands are made of data, index, number of hits, share of rows that a filter leaves, and target. In each,
queries that are not in the data are searched with ``target_recall`` and with many fixed efforts. The best
fixed effort is the least that reaches the target for exactly these queries: nobody can know it beforehand.
A target that no fixed effort reaches is reached if the recall is that of the best of them.
The cost of a search is the number of rows that it compares, as explanations say it; no search is timed.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.target_recall import EFFORTS
from elanus.core.trail import Trail, following
from elanus.core.types import DataType
from elanus.index import RowMask, SearchParams, VectorIndex, build, measure, over_rows, resolve_index
from elanus.index.curve import effort_name
from elanus.index.parallel import openmp_threads

ROWS, LIST_ROWS, QUERIES = 20_000, 40_000, 500
"""Graphs over fewer rows than lists, because they take longer to build."""
KS = (10, 50)
SHARES = (1.0, 0.1)
TARGETS = (0.8, 0.9, 0.95, 0.99)
KINDS: tuple[dict[str, str], ...] = (
    {"index_type": "HNSW", "params": '{"M": 16, "efConstruction": 100}'},
    {"index_type": "IVF_FLAT", "params": '{"nlist": 768}'},
    {"index_type": "IVF_SQ8", "params": '{"nlist": 768}'},
    {"index_type": "HNSW_SQ", "params": '{"M": 16, "efConstruction": 100, "sq_type": "SQ8"}'},
)
STEP = 1.15
TOLERANCE = 0.01
"""A recall is reached if what is measured is at most so much below it: 500 queries show no more."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Band:
    """``best``: the highest recall of a fixed effort. ``ratio``: of the costs; None if no fixed effort
    reaches the target."""

    data: str
    index: str
    k: int
    share: float
    target: float
    recall: float
    best: float
    ratio: float | None

    @property
    def is_reached(self) -> bool:
        return self.recall >= min(self.target, self.best) - TOLERANCE


def data_sets(seed: int) -> Iterator[tuple[str, Floats]]:
    """Yield names and vectors, queries last."""
    random, count = np.random.default_rng(seed), LIST_ROWS + QUERIES
    yield "no structure, 16 dimensions", random.standard_normal((count, 16), dtype=np.float32)
    hidden = random.standard_normal((count, 12)) @ random.standard_normal((12, 64))
    yield "12 of 64 dimensions", (hidden + 0.05 * random.standard_normal((count, 64))).astype(np.float32)
    centers = random.standard_normal((100, 32))
    clustered = centers[random.integers(0, 100, count)] + 0.5 * random.standard_normal((count, 32))
    yield "clusters, 32 dimensions", clustered.astype(np.float32)


def searched(
    index: VectorIndex,
    queries: Floats,
    k: int,
    params: SearchParams,
    mask: RowMask | None,
    truth: npt.NDArray[np.int64],
) -> tuple[float, float]:
    """Return the recall and the number of compared rows."""
    trail = Trail(time.perf_counter, None)
    found = []
    with following(trail):
        for query, best in zip(queries, truth, strict=True):  # a batch may be compared with all rows
            trail.visit(index)
            hits = index.search(query[None], k, params, mask)
            found.append(len(np.intersect1d(hits.rows[0], best)) / k)
        trail.leave()
    compared = sum(method.compared for visit in trail.visits for method in visit.methods)
    return float(np.mean(found)), compared


def bands(name: str, vectors: Floats, declared: dict[str, str]) -> Iterator[Band]:
    rows = vectors[: LIST_ROWS if declared["index_type"].startswith("IVF") else ROWS]
    queries = vectors[LIST_ROWS:]
    spec = resolve_index({**declared, "metric_type": "L2"}, DataType.FLOAT_VECTOR, rows.shape[1])
    with openmp_threads(1):
        began_s = time.thread_time()
        index = build(spec, rows, 1)
        built_s = time.thread_time() - began_s
        measure(index, rows, built_s, 1, now_s=time.thread_time)
        share_of_build = (time.thread_time() - began_s - built_s) / built_s
    print(f"{name}, {spec.index_type}: measuring took {share_of_build:.1%} of the build")
    assert isinstance(index, VectorIndex)
    exact = over_rows(spec.data_type, spec.dim, spec.metric_type, rows)
    effort = effort_name(spec.kind)
    random = np.random.default_rng(3)
    for k, share in itertools.product(KS, SHARES):
        mask = None if share == 1 else RowMask.from_bool(random.random(len(rows)) < share)
        truth = exact.search(queries, k, SearchParams(), mask).rows
        fixed = []
        value = 1.0 if effort == "nprobe" else float(k)
        while value <= min(len(rows), EFFORTS[effort]):
            params = SearchParams().with_effort(effort, int(np.ceil(value)))
            fixed.append(searched(index, queries, k, params, mask, truth))
            if fixed[-1][0] >= max(TARGETS):
                break
            value = max(value * STEP, value + 1)
        for target in TARGETS:
            recall, cost = searched(index, queries, k, SearchParams(target=target), mask, truth)
            best = min((compared for reached, compared in fixed if reached >= target), default=None)
            ratio = None if best is None else cost / best
            highest = max(reached for reached, _ in fixed)
            yield Band(name, spec.index_type, k, share, target, recall, highest, ratio)


def main(seeds: int = 1) -> None:
    """Print the bands that miss their target or cost more than 1.25 times the best, and the shares."""
    found = [
        band
        for seed in range(20, 20 + seeds)
        for (name, vectors), kind in itertools.product(data_sets(seed), KINDS)
        for band in bands(name, vectors, kind)
    ]
    reached = [band for band in found if band.is_reached]
    compared = sorted(band.ratio for band in found if band.ratio is not None)
    for band in found:
        if not band.is_reached or (band.ratio is not None and band.ratio > 1.25):
            print(band)
    good = [band for band in reached if band.ratio is None or band.ratio <= 1.25]
    for kind in dict.fromkeys(band.index for band in found):
        those = [band for band in found if band.index == kind]
        print(f"{kind}: {sum(band.is_reached for band in those)} of {len(those)} reached")
    print(f"bands: {len(found)}, target reached: {len(reached) / len(found):.1%}")
    print(f"target reached at 1.25 times the best cost at most: {len(good) / len(found):.1%}")
    print(f"cost / best cost: median {np.median(compared):.2f}, 95 %: {np.quantile(compared, 0.95):.2f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
