"""The plan of a search job: a snapshot with its indexes, checked parameters, and sets of segments."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from elanus.api.connector import CollectionSnapshot
from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.segments import SegmentManifest
from elanus.core.vectors import Space
from elanus.expr import compile_filter
from elanus.index import resolve_search
from elanus.spark.asking import ask
from elanus.spark.changes import let_go_on_error
from elanus.spark.hits import as_batch, reduced
from elanus.spark.options import parse_options
from elanus.spark.query_vectors import VECTOR, check_k, query_matrix
from elanus.spark.segment import may_match
from elanus.spark.segment_search import SearchPlan, SegmentSet
from elanus.spark.snapshot import shown_at, snapshot_of, store_url
from elanus.storage.objects import open_store

SET_MB = 1024
"""The memory of the segments that a task opens at once: about so many megabytes, unless one takes more."""


@dataclass(frozen=True, slots=True)
class SearchJob:
    """``sets``: the segments of the snapshot, each in one of them."""

    plan: SearchPlan
    sets: tuple[tuple[SegmentManifest, ...], ...]

    @property
    def segments(self) -> list[SegmentManifest]:
        """All segments, set by set."""
        return [manifest for one in self.sets for manifest in one]

    @property
    def bigger_is_better(self) -> bool:
        return self.plan.spec.metric_type.bigger_is_better


def pinned_job(
    target: str,
    *,
    field: str,
    k: int,
    filter: str,  # noqa: A002 - what clients call it
    params: Mapping[str, Any],
    as_of: int | datetime | None,
    exact: bool,
    parallelism: int,
    options: Mapping[str, str],
) -> SearchJob:
    """Take a snapshot of the collection with its index files, and plan searches of it.

    ``options``: of the connector (`elanus.spark.options`). Raises the server's errors, and what
    `search_plan` and `shown_at` raise.
    """
    parsed = parse_options({**options, "collection": target, "filter": filter})
    if parsed.columns:
        raise InvalidParameter("columns does not apply to searches: their columns are fixed")
    lease = ask(
        parsed,
        lambda server: server.snapshot(
            parsed.database, parsed.collection, parsed.partitions, parsed.lease_ms, with_indexes=True
        ),
    )
    with let_go_on_error(parsed, lease):
        snapshot = shown_at(snapshot_of(parsed, lease), as_of)
        plan = search_plan(
            snapshot, store_url(parsed, lease), field=field, k=k, filter=filter, params=params, exact=exact
        )
        return SearchJob(plan, segment_sets(snapshot, plan, parallelism))


def search_plan(
    snapshot: CollectionSnapshot,
    url: str,
    *,
    field: str,
    k: int,
    filter: str = "",  # noqa: A002
    params: Mapping[str, Any] | None = None,
    exact: bool = False,
) -> SearchPlan:
    """Plan searches of one field. Errors in the request are raised here, not in a task.

    Raises `FieldNotFound`, `InvalidParameter`, `InvalidTopK`, and `NotSupported` for a field of sparse
    vectors, of texts or of lists of vectors.
    """
    check_k(k)
    if not isinstance(params or {}, Mapping):
        raise InvalidParameter(f"params is {params!r}: give a dict, such as {{'ef': 64}}")
    if not isinstance(exact, bool):
        raise InvalidParameter(f"exact is {exact!r}: give True or False")
    searched = snapshot.schema.field(field)
    form = searched.kind.vector
    if form is None or form.space is Space.SPARSE or searched.has_vector_lists:
        raise NotSupported(
            f"field {field} has no dense vectors: only float, half-precision, int8 and binary vectors can be "
            "joined"
        )
    declared = [index for index in snapshot.indexes if index.field_id == searched.field_id]
    plan = SearchPlan(
        store_url=url,
        schema=snapshot.schema,
        field=field,
        index_params=declared[0].params if declared else {},
        indexes={f.segment_id: f for f in snapshot.index_files if f.field_id == searched.field_id},
        delta_logs=snapshot.delta_logs,
        read_ts=snapshot.read_ts,
        k=k,
        params=dict(params or {}),
        filter=filter,
        expired_until=snapshot.expired_until,
        exact=exact,
    )
    compile_filter(filter, snapshot.schema)
    resolve_search(plan.spec, plan.params, k)
    return plan


def segment_sets(
    snapshot: CollectionSnapshot, plan: SearchPlan, parallelism: int, set_mb: int = SET_MB
) -> tuple[tuple[SegmentManifest, ...], ...]:
    """Share the segments out to sets of about equal memory: one a slot, and none far above ``set_mb``.

    Clusters whose range of the clustering key the filter rules out are in none.
    """
    chosen = compile_filter(plan.filter, plan.schema)
    sizes = {
        m.segment_id: opened_bytes(plan, m)
        for m in snapshot.segments
        if m.rows and may_match(m, chosen, plan.schema)
    }
    if not sizes:
        return ()
    wanted = max(parallelism, -(-sum(sizes.values()) // (set_mb << 20)))
    sets: list[list[SegmentManifest]] = [[] for _ in range(min(wanted, len(sizes)))]
    lightest = [(0, number) for number in range(len(sets))]
    held = [m for m in snapshot.segments if m.segment_id in sizes]
    for manifest in sorted(held, key=lambda m: (-sizes[m.segment_id], m.segment_id)):
        size, number = heapq.heappop(lightest)
        sets[number].append(manifest)
        heapq.heappush(lightest, (size + sizes[manifest.segment_id], number))
    return tuple(tuple(some) for some in sets)


def opened_bytes(plan: SearchPlan, manifest: SegmentManifest) -> int:
    """Return the memory that a task needs for a segment: keys, and the mapped index, or else all vectors.

    Vectors count as they are in memory: their files may be much smaller.
    """
    field, key = plan.schema.field(plan.field), plan.schema.primary_field
    index = None if plan.exact else plan.indexes.get(manifest.segment_id)
    searched = manifest.rows * field.kind.row_bytes(field) if index is None else index.size_bytes
    return manifest.rows * key.kind.row_bytes(key) + searched


def search_set(
    plan: SearchPlan,
    manifests: tuple[SegmentManifest, ...],
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    threads: int,
    column: str = VECTOR,
) -> Iterator[pa.RecordBatch]:
    """Search a set for batches of two columns, the queries' ids and vectors: what a task does.

    ``column``: what the user calls that of the vectors. Yields hits in the ``schema`` of
    `elanus.spark.hits.hits_schema`. The segments are opened with the first batch and kept: any number of
    queries may follow. Raises what `elanus.spark.query_vectors.query_matrix` does.
    """
    segments: SegmentSet | None = None
    field = plan.schema.field(plan.field)
    params = resolve_search(plan.spec, plan.params, plan.k)
    for batch in batches:
        if not batch.num_rows:
            continue
        if segments is None:
            segments = SegmentSet(plan, manifests, open_store(plan.store_url))
        queries = query_matrix(batch.column(1), field, column, batch.column(0))
        found = segments.nearest(queries, plan.k, params, threads)
        yield as_batch(batch.column(0), found, schema)


def best_hits(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, k: int, *, bigger: bool
) -> Iterator[pa.RecordBatch]:
    """Reduce the hits of several sets: what a task of the second stage does."""
    yield reduced(batches, schema, k, bigger=bigger)
