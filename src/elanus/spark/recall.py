"""Recall and its price: what searches find under different parameters, and how long they take.

One job. Each task opens a set of segments twice, with indexes and with the plain vectors, and searches both
for a sample of queries. The driver merges the hits of all sets and compares: only queries and hits pass
through it, whatever the size of the collection.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from elanus.core.errors import InvalidParameter
from elanus.core.limits import TOP_K_MAX
from elanus.core.recall import recall_of, wilson
from elanus.core.segments import SegmentManifest
from elanus.core.types import Matrix
from elanus.index import resolve_search
from elanus.spark.hits import QUERY, as_batch, hits_schema, reduced
from elanus.spark.plain_errors import plain_errors
from elanus.spark.query_vectors import check_k, query_matrix
from elanus.spark.searches import SearchJob, pinned_job
from elanus.spark.segment import read_segment
from elanus.spark.segment_search import SegmentSet, vectors_of
from elanus.spark.slots import slots, threads
from elanus.storage.objects import open_store

QUERIES = 200
_SEED = 7
Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecallPoint:
    """One setting. ``recall``: the mean share of the true hits that were found, ``low`` and ``high``: bounds
    of the true mean. ``query_us``: processor time of one query over all segments, in microseconds.
    ``on_frontier``: no other setting finds as much in less time."""

    params: Params
    recall: float
    low: float
    high: float
    query_us: float
    on_frontier: bool = False


@dataclass(frozen=True, slots=True)
class RecallReport:
    """``points``: in the order of their time. ``queries``: how many were asked; ``exact_us``: the processor
    time of an exact search."""

    collection: str
    field: str
    k: int
    queries: int
    exact_us: float
    points: tuple[RecallPoint, ...]

    @property
    def frontier(self) -> tuple[RecallPoint, ...]:
        return tuple(point for point in self.points if point.on_frontier)

    def cheapest(self, recall: float) -> RecallPoint | None:
        """Return the quickest setting with at least this recall; None if none has it."""
        return next((point for point in self.points if point.recall >= recall), None)

    def plot(self, path: str | Path) -> None:
        """Draw recall against time into a file. Needs matplotlib (``pip install elanus[bench]``)."""
        from matplotlib.figure import Figure  # an optional dependency

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for point in self.points:
            color = "tab:blue" if point.on_frontier else "tab:gray"
            bounds = [[point.recall - point.low], [point.high - point.recall]]
            axes.errorbar(point.query_us, point.recall, yerr=np.maximum(bounds, 0), fmt="o", color=color)
            axes.annotate(
                _text(point.params),
                (point.query_us, point.recall),
                xytext=(4, -11),
                textcoords="offset points",
                fontsize=8,
            )
        axes.plot([p.query_us for p in self.frontier], [p.recall for p in self.frontier], color="tab:blue")
        axes.axvline(self.exact_us, color="tab:gray", linestyle=":", label="exact search")
        axes.set(xscale="log", xlabel="processor time of a query, µs", ylabel=f"recall@{self.k}")
        axes.set_title(f"{self.collection}.{self.field}: {self.queries} queries")
        axes.margins(x=0.15)
        axes.legend(loc="lower right")
        figure.savefig(path)

    def __str__(self) -> str:
        lines = [f"{self.collection}.{self.field}, recall@{self.k} of {self.queries} queries"]
        lines += [
            f"{'*' if p.on_frontier else ' '} {p.recall:.4f} [{p.low:.4f}, {p.high:.4f}] "
            f"{p.query_us:10.1f} µs  {_text(p.params)}"
            for p in self.points
        ]
        return "\n".join([*lines, f"  exact {' ' * 23} {self.exact_us:10.1f} µs"])


def recall_report(
    spark: SparkSession,
    target: str,
    *,
    field: str,
    settings: Sequence[Params],
    k: int = 10,
    queries: int | Matrix = QUERIES,
    filter: str = "",  # noqa: A002 - what clients call it
    as_of: int | datetime | None = None,
    **options: str,
) -> RecallReport:
    """Measure searches of collection ``target`` under each of ``settings`` against exact ones.

    ``settings``: search parameters, ``[{"ef": 32}, {"ef": 64}]`` for example. ``queries``: vectors (n, dim)
    as the field's searches take them, or how many rows of the collection to draw; a drawn row is not a hit of
    its own, so it is searched for ``k + 1`` hits. ``filter``, ``as_of``, ``options``, and what is raised: as
    for `elanus.spark.knn.knn_join`. All searches read one version.
    """
    if not settings:
        raise InvalidParameter("settings is empty: give the search parameters to compare")
    itself = 1 if isinstance(queries, int) else 0  # a drawn row finds itself
    check_k(k, TOP_K_MAX - itself)
    if isinstance(queries, int) and queries < 1:
        raise InvalidParameter(f"queries is {queries}: give vectors, or how many rows to draw, at least 1")
    depth = k + itself
    job = pinned_job(
        target,
        field=field,
        k=depth,
        filter=filter,
        params={},
        as_of=as_of,
        exact=False,
        parallelism=slots(spark),
        options=options,
    )
    for params in settings:
        resolve_search(job.plan.spec, params, depth)
    own: list[Any] | None = None
    if isinstance(queries, int):
        own, asked = _drawn_queries(spark, job, queries)
    else:
        given = pa.array(np.asarray(queries).tolist())
        asked = query_matrix(given, job.plan.schema.field(field), "queries")
    if not len(asked):
        raise InvalidParameter(f"collection {target} has no rows to draw queries from: give queries")
    answers = _collected(spark, len(job.sets), partial(_measured, job, tuple(settings), asked))
    return RecallReport(target, field, k, len(asked), *compared(job, settings, k, own, len(asked), answers))


def _drawn_queries(spark: SparkSession, job: SearchJob, count: int) -> tuple[list[Any], Matrix]:
    """Draw rows of the collection: return their keys, and their vectors. (≤ count, dim)"""
    rows = sum(manifest.rows for manifest in job.segments)
    share = min(1.0, 1.5 * count / max(1, rows))
    sample = _collected(spark, len(job.segments), partial(drawn, job, share))
    order = np.random.default_rng(_SEED).permutation(len(sample))[:count]
    vectors = [sample[n][1] for n in order]
    matrix: Matrix = np.stack(vectors) if vectors else np.empty((0, 0), np.float32)
    return [sample[n][0] for n in order], matrix


def _collected(spark: SparkSession, tasks: int, work: Any) -> list[Any]:
    """Run ``work`` for each number below ``tasks``, and return all results: few, and small."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with plain_errors():
                    results = [pickle.dumps(result) for result in work(number)]
                yield pa.RecordBatch.from_arrays([pa.array(results, pa.binary())], names=["result"])

    if not tasks:
        return []
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(run, "result binary").collect()
    return [pickle.loads(bytes(row.result)) for row in rows]


def drawn(job: SearchJob, share: float, number: int) -> Iterator[tuple[Any, Matrix]]:
    """A task: draw about this share of the visible rows of a segment, as keys and vectors."""
    manifest = job.segments[number]
    read = job.plan.read(manifest, (job.plan.schema.primary_field.name, job.plan.field))
    random = np.random.default_rng([_SEED, manifest.segment_id])
    for keys, vectors in vectors_of(read, read_segment(read, open_store(job.plan.store_url))):
        for at in np.flatnonzero(random.random(len(keys)) < share):
            yield keys[int(at)].as_py(), vectors[at].copy()


@dataclass(frozen=True, slots=True)
class Measured:
    """The hits of a sample in one set. ``setting`` -1: the exact ones. ``cpu_s``: of the whole sample."""

    setting: int
    hits: pa.RecordBatch
    cpu_s: float


def _measured(job: SearchJob, settings: tuple[Params, ...], asked: Matrix, number: int) -> list[Measured]:
    return measured(job, settings, asked, job.sets[number], threads())


def measured(
    job: SearchJob,
    settings: Sequence[Params],
    asked: Matrix,
    manifests: tuple[SegmentManifest, ...],
    threads: int,
) -> list[Measured]:
    """Search one set for the sample: exactly, and with each setting: the work of a task."""
    plan = job.plan
    schema = hits_schema(pa.int64(), plan.schema.primary_field.arrow_type)
    store, numbers = open_store(plan.store_url), pa.array(range(len(asked)), pa.int64())
    indexed = SegmentSet(plan, manifests, store)
    plain = SegmentSet(replace(plan, exact=True), manifests, store)
    searches: list[tuple[int, SegmentSet, Params]] = [(-1, plain, {})]
    searches += [(n, indexed, params) for n, params in enumerate(settings)]
    found = []
    for setting, segments, params in searches:
        resolved = resolve_search(plan.spec, params, plan.k)
        began_s = time.process_time()
        hits = segments.nearest(asked, plan.k, resolved, threads)
        found.append(Measured(setting, as_batch(numbers, hits, schema), time.process_time() - began_s))
    return found


def compared(
    job: SearchJob,
    settings: Sequence[Params],
    k: int,
    own: list[Any] | None,
    queries: int,
    answers: Sequence[Measured],
) -> tuple[float, tuple[RecallPoint, ...]]:
    """Return the time of an exact search, and the points: the hits of all sets, merged and compared."""
    truth, exact_us = _merged(job, -1, k, own, queries, answers)
    points = []
    for setting, params in enumerate(settings):
        hits, query_us = _merged(job, setting, k, own, queries, answers)
        shares = [
            recall_of(found_keys, found_scores, true_keys, true_scores)
            for (found_keys, found_scores), (true_keys, true_scores) in zip(hits, truth, strict=True)
        ]
        recall = float(np.mean(shares))
        points.append(RecallPoint(dict(params), recall, *wilson(recall, queries), query_us))
    return exact_us, with_frontier(points)


def _merged(
    job: SearchJob, setting: int, k: int, own: list[Any] | None, queries: int, answers: Sequence[Measured]
) -> tuple[list[tuple[list[Any], Any]], float]:
    """Return the keys and scores of each query's best hits but itself, and the time of a query."""
    parts = [answer for answer in answers if answer.setting == setting]
    schema = hits_schema(pa.int64(), job.plan.schema.primary_field.arrow_type)
    best = reduced((p.hits for p in parts), schema, job.plan.k, bigger=job.bigger_is_better)
    starts = np.searchsorted(best.column(QUERY).to_numpy(), np.arange(queries + 1))
    keys, scores = best.column("key").to_pylist(), best.column("score").to_numpy()
    lists = []
    for query in range(queries):
        places = [
            at for at in range(starts[query], starts[query + 1]) if own is None or keys[at] != own[query]
        ][:k]
        lists.append(([keys[at] for at in places], scores[places]))
    return lists, sum(p.cpu_s for p in parts) * 1e6 / queries


def with_frontier(points: Sequence[RecallPoint]) -> tuple[RecallPoint, ...]:
    """Return the points in the order of their time, with those marked that nothing quicker equals."""
    ordered, best = [], -1.0
    for point in sorted(points, key=lambda p: (p.query_us, -p.recall)):
        ordered.append(replace(point, on_frontier=point.recall > best))
        best = max(best, point.recall)
    return tuple(ordered)


def _text(params: Params) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items()) or "defaults"
